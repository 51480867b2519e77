/* SPDX-License-Identifier: Apache-2.0
 *
 * Distributed attention, as DeepSpeed calls it: exchange q, k and v, compute
 * attention, exchange the output back; and the backward pass of this.
 *
 * An object is made once over a communicator and executed any number of times.
 * The object owns its plans; the caller owns all tensors, the workspace and
 * what is saved between forward and backward. All features of attention and
 * exchange can be combined: any split of tokens and heads, GQA with any number
 * of KV heads, more ranks than heads, documents that cross shard borders,
 * replicated keys and values, joint sharded and replicated tokens, sinks and
 * ALiBi by global head.
 *
 * Tensors on the sequence side. Queries lie on axis 0 of the parts. Keys lie on
 * axis 1 if any part names axis 1 (cross attention), else on axis 0 with the
 * queries. q, out and their gradients have one tensor per part of axis 0; k, v
 * and their gradients one per part of the keys' axis. Arrays of pointers are in
 * the order of the parts. With s_p the rows of part p on this rank, the tensors
 * are
 *   q_p [b, s_p, heads, dim_qk]     out_p [b, s_p, heads, dim_v]
 *   k_p [b, s_p, kv_heads, dim_qk]  v_p   [b, s_p, kv_heads, dim_v]
 * They are dense, or have the strides given at creation (a gradient then has
 * the strides of its tensor), or the strides given in a call, where each
 * gradient has strides of its own. Strides of dimensions with at most one entry
 * are ignored.
 *
 * Gradients are exact adjoints with factor one: nothing is averaged. Scale the
 * loss as on one rank: a mean over all tokens divides by their global number.
 * Gradients of replicated tensors are PARTIAL by default: their sum over all
 * ranks is the gradient, as for any replicated parameter.
 *
 * Head groups. The heads may go through exchange and attention in several
 * contiguous groups. max_workspace_bytes sets a ceiling of the workspace, from
 * which the number of groups follows; without a ceiling head_groups sets it.
 * While attention computes one group, the exchange of the next group proceeds.
 * Only a low ceiling splits the query heads of one KV head into pieces: k and v
 * are then exchanged once per piece, and dk and dv are accumulated in fp32
 * (fp64) from piece to piece in the order of heads. The smallest piece is one
 * query head on each rank (HEADS), or one query head balanced among all ranks
 * (BALANCED). A ceiling too low for this is refused, with the bytes needed in
 * the text.
 *
 * Bits: the bits of out, lse and dq do not depend on the number of ranks, the
 * split, the head groups or the save mode. The same holds for dk and dv if all
 * queries of a KV head are on one rank.
 *
 * Threads and order of calls: as for plans. On a communicator of host memory
 * stream is NULL.
 *
 * Device memory. On a communicator of CUDA memory all tensors, workspace,
 * saved, sinks, slopes and d_sink are memory of the rank's device. With more
 * than one rank, tensors, workspace and saved lie in windows, unless the plans
 * go by messages. Plans go by messages if the memory of some pair of ranks
 * cannot be mapped, or if ULYX_ALGO names nccl or staged. Documents and arrays
 * of pointers lie on the host and are read before the call returns.
 *
 * A device call is enqueued on the stream and waits for nothing. After one call
 * of a pass outside of any capture, calls of that pass may be captured into a
 * graph. A captured call keeps its documents and rows. If the layout depends on
 * these (BALANCED, ZIGZAG_DOCS, row_capacity), the captured call is stale after
 * an update and must be captured again. Some errors are found by the device
 * only: a peer that refused or has other documents, a saved of another forward,
 * a stale capture. They are returned by a later call, which is enqueued all the
 * same. A rank that does not make the call fails the communicator, as for
 * plans.
 *
 * With several head groups the exchanges run on a stream of the object, in
 * parallel with the attention of other groups, unless the ceiling leaves
 * workspace for one group only; the call's stream waits for them before the
 * call ends. ERR_UNSUPPORTED: F64, dims that are no multiple of 8, ranks whose
 * memory can neither be mapped nor sent by messages.
 * ulyx_dist_attention_get_times gives the times of enqueueing, with 0 scores.
 */
#ifndef ULYX_DIST_ATTENTION_H
#define ULYX_DIST_ATTENTION_H

#include "ulyx/types.h"
#include "ulyx/attention.h"
#include "ulyx/reshuffle.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ulyx_dist_attention ulyx_dist_attention_t;

/* What forward saves for backward. */
typedef int32_t ulyx_save_mode_t;
enum {
    ULYX_SAVE_DEFAULT = 0, /* HEADS without a ceiling of the workspace, NONE
                            * with a ceiling */
    ULYX_SAVE_HEADS = 1,   /* head-sharded q, k, v and lse: the caller need not
                            * keep the inputs, and backward exchanges less */
    ULYX_SAVE_NONE = 2,    /* lse only: backward needs q, k and v, and exchanges
                            * them again */
};

/* Gradients of replicated tensors are summed over all ranks, and every rank
 * gets the sum. */
#define ULYX_DIST_ATTENTION_FULL UINT64_C(1)
/* dout of replicated queries is equal on all ranks, so each rank takes its
 * heads from its own copy. Without the flag the copies of all ranks are summed,
 * and the sum is rounded once. */
#define ULYX_DIST_ATTENTION_GRAD_EQUAL UINT64_C(2)
/* forward also gives the LSE of the rank's own query rows. */
#define ULYX_DIST_ATTENTION_LSE UINT64_C(4)
/* There will be no backward: nothing is saved, and no plans for backward are
 * made. */
#define ULYX_DIST_ATTENTION_FORWARD_ONLY UINT64_C(8)

typedef struct {
    size_t size;      /* sizeof(ulyx_dist_attention_params_t), by the macro */
    int64_t batch;    /* b >= 0; default 1 */
    int64_t heads;    /* query heads, >= 1 */
    int64_t kv_heads; /* divides heads; 0 = heads */
    int64_t dim_qk, dim_v;    /* 1 to 512; multiples of 8 are faster; dim_v 0 =
                               * dim_qk */
    ulyx_dtype_t dtype;       /* F64, F32, BF16 (default), F16 */
    ulyx_dtype_t param_dtype; /* of sinks, slopes, d_sink: F32 or F64; 0 = F64
                               * if dtype is F64, else F32 */
    const ulyx_part_t *parts; /* 1 to 4 per axis, 1 or 2 axes */
    size_t part_size;         /* sizeof(ulyx_part_t), by the macro */
    int32_t nparts;
    int32_t work_split;         /* ULYX_WORK_HEADS (default) or _BALANCED */
    const int64_t *head_splits; /* [P], for HEADS with one head group; NULL =
                                 * balanced */
    /* One entry per part of the tensor's axis: {batch, row, head} strides in
     * bytes. NULL: dense; dout_strides NULL: as out_strides. */
    const int64_t (*q_strides)[3];
    const int64_t (*k_strides)[3];
    const int64_t (*v_strides)[3];
    const int64_t (*out_strides)[3];
    const int64_t (*dout_strides)[3];
    int32_t mask_kind, mask_align; /* ULYX_MASK_..., ULYX_ALIGN_... */
    int64_t mask_diagonal, mask_left, mask_right;
    double scale;     /* 0 = 1 / sqrt(dim_qk) */
    double softcap;   /* 0 = none */
    int64_t max_docs; /* most documents of any call; 0 = those given here */
    const ulyx_docs_t *docs_q, *docs_k; /* the first document tables; NULL: each
                                         * batch item is one document. docs_k
                                         * NULL: as docs_q */
    int64_t row_cost, row_round;        /* these five as in
                                         * ulyx_plan_params_t, */
    int64_t max_rows, max_kv_rows, max_segments; /* for each head group */
    int64_t max_local_rows;
    ulyx_save_mode_t save;
    int32_t head_groups;         /* at least this many head groups, but never
                                  * more than kv_heads; 0 = 1 */
    int64_t max_workspace_bytes; /* ceiling of the workspace of every rank; the
                                  * smallest value of all ranks is used; 0 = no
                                  * ceiling */
    int32_t threads;     /* threads of this rank's attention; 0 = the usable
                          * cores (affinity, CPU quota) divided among the ranks
                          * that share them, and with a ceiling at most as many
                          * as its workspace allows */
    int32_t seq_memory;  /* ULYX_POINTER_..., for the tensors of calls */
    int32_t head_memory; /* ULYX_POINTER_..., for workspace and saved; in a
                          * window they need one copy less */
    ulyx_memory_kind_t memory; /* for ulyx_dist_attention_measure: where tensors
                                * and workspace lie, HOST (default) or CUDA;
                                * create uses the communicator's kind */
    uint64_t flags;            /* ULYX_DIST_ATTENTION_... */
    const char *kernel;        /* attention kernel; NULL = the fastest */
    double timeout_s; /* for creation and calls; 0 = the communicator's. On
                       * devices the timeout_s of a call is ignored */
} ulyx_dist_attention_params_t;
#define ULYX_DIST_ATTENTION_PARAMS_INIT                                        \
    {                                                                          \
        sizeof(ulyx_dist_attention_params_t), 1, 0, 0, 0, 0, ULYX_DTYPE_BF16,  \
            0, 0, sizeof(ulyx_part_t), 0, ULYX_WORK_HEADS, 0, 0, 0, 0, 0, 0,   \
            ULYX_MASK_NONE, ULYX_ALIGN_BOTTOM_RIGHT, 0, 0, 0, 0, 0, 0, 0, 0,   \
            0, 0, 0, 0, 0, 0, ULYX_SAVE_DEFAULT, 0, 0, 0, ULYX_POINTER_ANY,    \
            ULYX_POINTER_ANY, ULYX_MEMORY_HOST, 0, 0, 0                        \
    }

/* Collective. ownership: params and what it points to are copied; *dist_p
 * is the caller's.
 * returns: as ulyx_plan_create, and ERR_UNSUPPORTED naming a feature or
 * dimension that attention does not have; ERR_INVALID_ARGUMENT if the ceiling
 * is too low for the smallest piece (see above), with the bytes needed. */
ULYX_API ulyx_status_t ulyx_dist_attention_create(ulyx_comm_t *comm,
    const ulyx_dist_attention_params_t *params, ulyx_dist_attention_t **dist_p);

/* Local; NULL is fine. returns: SUCCESS; ERR_BUSY (a call in flight);
 * ERR_INVALID_ARGUMENT (destroyed before). */
ULYX_API ulyx_status_t ulyx_dist_attention_destroy(ulyx_dist_attention_t *dist);

/* Sets the documents from the next call on, at most max_docs. Local, no
 * communication; all ranks must give the same documents, in either form of the
 * table. NULL: each batch item is one document. backward needs the documents of
 * its forward: if calls of several batches interleave, give the documents in
 * each call. stream: as in calls.
 * returns: as ulyx_plan_update; on error the old tables stay. */
ULYX_API ulyx_status_t ulyx_dist_attention_update(ulyx_dist_attention_t *dist,
    const ulyx_docs_t *docs_q, const ulyx_docs_t *docs_k, void *stream);

/* Sets the rows of parts that have a row_capacity, from the next call on, as
 * ulyx_plan_update_rows, so that one object serves all lengths. Dense tensors
 * are dense for the new rows; the workspace has room for the capacity.
 * Documents as for ulyx_dist_attention_update.
 * returns: as ulyx_plan_update_rows. */
ULYX_API ulyx_status_t ulyx_dist_attention_update_rows(
    ulyx_dist_attention_t *dist, const int64_t *rows,
    const int64_t *const *splits, const ulyx_docs_t *docs_q,
    const ulyx_docs_t *docs_k, void *stream);

/* One forward call. Arrays of pointers have one entry per part; the entry of a
 * part without elements on this rank may be NULL. */
typedef struct {
    size_t size;
    const void *const *q, *const *k, *const *v;
    void *const *out;
    /* With ULYX_DIST_ATTENTION_LSE: [b, heads, s_p] of F32 (F64 if dtype is
     * F64). With ULYX_TOKENS_ZIGZAG_DOCS s_p changes; the last dimension is
     * then max_local_rows, which the caller should set, or the part's rows if
     * they are fewer. */
    void *const *lse;
    const void *sinks;        /* [heads] raw logits by global head, or NULL */
    const void *alibi_slopes; /* [heads], or NULL */
    void *workspace;          /* aligned to 64; contents are undefined */
    int64_t
        workspace_bytes; /* at least as ulyx_dist_attention_get_bytes reports */
    void *saved; /* aligned to 64: what backward needs, kept by the caller. All
                  * bytes are written, and equal inputs give equal bytes. NULL
                  * with FORWARD_ONLY */
    int64_t saved_bytes;
    double timeout_s; /* 0 = that of creation */
    /* The documents of this call and the calls after it, as for
     * ulyx_dist_attention_update; NULL: unchanged (so one document per batch
     * item must be given as a table). docs_k NULL with docs_q: as docs_q. The
     * arrays are read when the call runs. */
    const ulyx_docs_t *docs_q, *docs_k;
    /* The rows of this call and the calls after it, as for
     * ulyx_dist_attention_update_rows, with the documents above; NULL:
     * unchanged. */
    const int64_t *rows;
    const int64_t *const *splits;
    /* The strides of this call's tensors on this rank, one entry per part;
     * three zeros: dense for the present rows; NULL: as at creation. They apply
     * to this call alone, need room for its rows only, and may differ between
     * ranks. The arrays are read when the call is made. */
    const int64_t (*q_strides)[3];
    const int64_t (*k_strides)[3];
    const int64_t (*v_strides)[3];
    const int64_t (*out_strides)[3];
} ulyx_dist_attention_forward_t;
#define ULYX_DIST_ATTENTION_FORWARD_INIT                                       \
    {                                                                          \
        sizeof(ulyx_dist_attention_forward_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,   \
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0                                       \
    }

/* One backward call. out, sinks and slopes are those of forward; q, k and v
 * too, but they may be NULL with SAVE_HEADS. */
typedef struct {
    size_t size;
    const void *const *q, *const *k, *const *v;
    const void *const *out, *const *dout;
    void *const *dq, *const *dk, *const *dv;
    const void *sinks, *alibi_slopes;
    void *d_sink; /* NULL, or [heads]: the PARTIAL gradient of sinks on this
                   * rank */
    void *workspace;
    int64_t workspace_bytes;
    const void *saved; /* as forward wrote it; only read */
    int64_t saved_bytes;
    double timeout_s;
    /* NULL, or with ULYX_DIST_ATTENTION_LSE the gradient of forward's lse, with
     * the same type and layout; for replicated queries the copies are summed or
     * equal, as those of dout. */
    const void *const *dlse;
    const ulyx_docs_t *docs_q, *docs_k; /* as in forward: its documents */
    const int64_t *rows;                /* and its rows */
    const int64_t *const *splits;
    /* The strides of this call's tensors, as in forward, but they need not be
     * those of forward. NULL: as at creation; for a gradient, those of its
     * tensor at creation. */
    const int64_t (*q_strides)[3];
    const int64_t (*k_strides)[3];
    const int64_t (*v_strides)[3];
    const int64_t (*out_strides)[3];
    const int64_t (*dout_strides)[3];
    const int64_t (*dq_strides)[3];
    const int64_t (*dk_strides)[3];
    const int64_t (*dv_strides)[3];
} ulyx_dist_attention_backward_t;
#define ULYX_DIST_ATTENTION_BACKWARD_INIT                                      \
    {                                                                          \
        sizeof(ulyx_dist_attention_backward_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  \
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0            \
    }

/* Collective; inside a group the calls are queued, and run on one thread per
 * communicator. Outputs, workspace and saved share no byte with any other
 * memory of the call; tensors may be interleaved by their strides.
 * returns: as ulyx_reshuffle_execute and ulyx_attention_forward; also
 * ERR_INVALID_ARGUMENT if saved was not written by this object with the
 * documents of the call, or if the documents are refused (the old documents
 * then stay); ERR_MISMATCH naming a rank that has other documents. A rank that
 * refuses or fails notifies its peers, which return ERR_PEER_REFUSED naming
 * that rank; outputs are then undefined and the communicator stays usable. */
ULYX_API ulyx_status_t ulyx_dist_attention_forward(ulyx_dist_attention_t *dist,
    const ulyx_dist_attention_forward_t *call, void *stream);
ULYX_API ulyx_status_t ulyx_dist_attention_backward(ulyx_dist_attention_t *dist,
    const ulyx_dist_attention_backward_t *call, void *stream);

/* Takes this rank's place in a call that its peers make and that this rank
 * cannot make, for a reason that the caller has found outside of the library.
 * Without it the peers would wait for this rank until the call's deadline. The
 * call is the next one of this object on all ranks: they get ERR_PEER_REFUSED
 * with the reason, and the communicator and the object stay usable. pass:
 * ULYX_ATTENTION_PASS_FORWARD or _BACKWARD, that of the peers' call. reason: at
 * most 159 bytes arrive. stream: NULL on the host, else the call's stream.
 * returns: never SUCCESS, except when it is queued in a group. In the usual
 * case ERR_INVALID_ARGUMENT with `reason` as its text, once the peers have been
 * notified; other errors as ulyx_dist_attention_forward. */
ULYX_API ulyx_status_t ulyx_dist_attention_refuse(ulyx_dist_attention_t *dist,
    ulyx_attention_pass_t pass, const char *reason, void *stream);

/* ---- queries: local, as those of plans ----------------------------------- */

/* Bytes on this rank: of the workspace, for the pass that needs more; of saved;
 * and of memory that the library itself holds. They depend on shapes and maxima
 * only. Any pointer may be NULL. */
ULYX_API ulyx_status_t ulyx_dist_attention_get_bytes(
    const ulyx_dist_attention_t *dist, int64_t *workspace_p, int64_t *saved_p,
    int64_t *held_p);

/* The bytes of saved with the present rows, which is the least saved_bytes that
 * a call accepts. */
ULYX_API ulyx_status_t ulyx_dist_attention_get_saved_bytes(
    const ulyx_dist_attention_t *dist, int64_t *bytes_p);

/* One saved tensor of a head group, so that a framework can keep or offload
 * each tensor separately. It is head-sharded: [b, rows, heads, dim] or, PACKED,
 * [rows, dim]; lse is [b, heads, rows] or [rows]. */
typedef struct {
    const char *name; /* "q", "k", "v", "lse" */
    int32_t group;
    ulyx_dtype_t dtype;
    int64_t offset, bytes; /* in saved */
} ulyx_saved_tensor_t;
/* tensor_size is sizeof(ulyx_saved_tensor_t); tensors_p has room for `capacity`
 * of these structs. */
ULYX_API ulyx_status_t ulyx_dist_attention_get_saved(
    const ulyx_dist_attention_t *dist, int64_t capacity, size_t tensor_size,
    ulyx_saved_tensor_t *tensors_p, int64_t *count_p);

/* The results of ulyx_dist_attention_get_bytes and _get_saved without a
 * communicator, on `rank` of nranks if every rank creates the object with these
 * parameters. max_workspace_bytes is the smallest value of all ranks, and
 * `memory` the communicator's memory kind. The results depend on params, nranks
 * and rank alone, so where sizes depend on threads and kernel (workspace_p, and
 * any max_workspace_bytes other than 0), params must have a number of threads
 * and the name of a kernel. For CUDA memory threads are not used, and kernel
 * NULL means the kernel for the calling thread's current device. Creation with
 * the same params needs the same bytes. Local, any thread; nothing is kept.
 * returns: SUCCESS; INVALID_ARGUMENT (nranks, rank, a field of params, threads
 * or kernel not given, a ceiling that is too low, capacity as in _get_saved);
 * UNSUPPORTED (as create; a kernel that this CPU, or the calling thread's
 * current device, does not have; CUDA memory in a build without CUDA);
 * OVERFLOW; NO_MEMORY. On an error the outputs are untouched, except *count_p
 * if capacity is too small. */
ULYX_API ulyx_status_t ulyx_dist_attention_measure(
    const ulyx_dist_attention_params_t *params, int32_t nranks, int32_t rank,
    int64_t *workspace_p, int64_t *saved_p);
ULYX_API ulyx_status_t ulyx_dist_attention_measure_saved(
    const ulyx_dist_attention_params_t *params, int32_t nranks, int32_t rank,
    int64_t capacity, size_t tensor_size, ulyx_saved_tensor_t *tensors_p,
    int64_t *count_p);

/* Times of the last call on this rank, in seconds. An exchange counts from its
 * start to its end. exposed_s is the part of exchange_s for which the caller
 * had to wait, so the fraction 1 - exposed_s / exchange_s was hidden behind
 * attention. */
typedef struct {
    size_t size;
    double total_s, attention_s, exchange_s, exposed_s;
    int64_t scores; /* scores computed, including masked scores in tiles */
    int64_t sent_bytes, received_bytes;
} ulyx_dist_attention_times_t;
#define ULYX_DIST_ATTENTION_TIMES_INIT                                         \
    {                                                                          \
        sizeof(ulyx_dist_attention_times_t), 0, 0, 0, 0, 0, 0, 0               \
    }
/* Fills *times_p, whose size the caller has set. Not to be called while a call
 * is running.
 */
ULYX_API ulyx_status_t ulyx_dist_attention_get_times(
    const ulyx_dist_attention_t *dist, ulyx_dist_attention_times_t *times_p);

/* The plan that moves q, k and v of a head group. The queries of reshuffle.h
 * give the rows, heads and positions of its ranks. dist owns the plan.
 * groups_p: NULL, or gets the number of head groups. */
ULYX_API ulyx_status_t ulyx_dist_attention_get_plan(
    const ulyx_dist_attention_t *dist, int32_t group,
    const ulyx_plan_t **plan_p, int32_t *groups_p);

/* Some lines of text: head groups, memory of both save modes; of every rank the
 * rows, the bytes of k and v and with how many ranks it shares KV heads; kernel
 * and plans. Cut to text_bytes, as ulyx_plan_describe. */
ULYX_API ulyx_status_t ulyx_dist_attention_describe(
    const ulyx_dist_attention_t *dist, char *text_p, size_t text_bytes);

#ifdef __cplusplus
}
#endif
#endif
