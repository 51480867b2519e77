/* SPDX-License-Identifier: Apache-2.0
 *
 * Distributed attention, as DeepSpeed calls it: exchange q, k, v; attend;
 * exchange back. And its backward.
 *
 * An object is made once over a communicator and executed any number of times.
 * It owns its plans; the caller owns all tensors, the workspace and what is
 * saved between forward and backward. Everything that the attention and the
 * exchange can do works together: any split of tokens and heads, GQA with any
 * number of KV heads, more ranks than heads, documents whose borders ignore
 * shard borders, replicated keys and values, joint sharded and replicated
 * tokens, sinks and ALiBi by global head.
 *
 * Tensors on the sequence side. The query axis is axis 0 of the parts. Keys
 * lie on axis 1 where any part names it (cross attention), else on axis 0 with
 * the queries. q, out and their gradients have one tensor a part of axis 0; k,
 * v and theirs one a part of the keys' axis; arrays of pointers are in the
 * parts' order. With s_p the part's rows on this rank
 *   q_p [b, s_p, heads, dim_qk]     out_p [b, s_p, heads, dim_v]
 *   k_p [b, s_p, kv_heads, dim_qk]  v_p   [b, s_p, kv_heads, dim_v]
 * dense, or by the strides of creation (gradients then have the strides of
 * their tensor), or by the strides that a call brings, for each tensor its own.
 * Strides of dimensions with at most one entry are ignored.
 *
 * Gradients are exact adjoints with factor one: nothing is averaged. Scale
 * the loss as on one rank: a mean over all tokens divides by their global
 * number. Gradients of replicated tensors are PARTIAL by default (their sum
 * over ranks is the gradient), like those of any replicated parameter.
 *
 * Head groups. The heads may go through exchange and attention in several
 * contiguous groups: with a ceiling of the workspace, as many as it takes;
 * otherwise head_groups. While a group is attended, the exchange of the next
 * group proceeds. The queries of a KV head are cut apart only where a ceiling
 * forces it: k and v then travel once per piece, and dk and dv are carried in
 * fp32 (fp64) from piece to piece in the order of heads. A ceiling below what
 * one query head on each rank (HEADS), or one query head balanced among all
 * ranks (BALANCED), needs is refused with the bytes needed.
 *
 * Bits: out, lse and dq do not depend on the number of ranks, on the split,
 * on head groups or on the save mode; dk and dv likewise where all queries of
 * a KV head are on one rank.
 *
 * Threads and order: as for plans. On a communicator of host memory stream is
 * NULL.
 *
 * Device memory. On a communicator of CUDA memory all tensors, workspace,
 * saved, sinks, slopes and d_sink are memory of the rank's device; with more
 * than one rank tensors, workspace and saved lie in windows, unless the plans
 * go by messages, as they do where memory of some pair of ranks cannot be
 * mapped, and where ULYX_ALGO names nccl or staged. Documents and
 * arrays of pointers stay on the host and are read before the call returns. A
 * call is enqueued on the stream, waits for nothing and may be captured into a
 * graph, each pass after a first call outside of any capture: a capture keeps
 * its documents and rows, so one whose layout follows them (BALANCED,
 * ZIGZAG_DOCS, row_capacity) is stale after an update. What only the device
 * finds (a peer that refused or has other documents, saved of another forward,
 * a stale capture) is the error of a later call, which takes place all the
 * same; a rank that does not come fails the communicator, as for plans. Of
 * several head groups, exchanges go by a stream of the object's own, which the
 * call's stream has joined again when the call ends there; without a ceiling
 * that forces one slot, they run beside the attention of other groups. Refused
 * by name: F64, dims that are no multiple of 8, ranks whose memory neither is
 * mapped nor goes by messages. Times are those of enqueueing; scores is 0.
 */
#ifndef ULYX_DIST_ATTENTION_H
#define ULYX_DIST_ATTENTION_H

#include "ulyx/types.h"
#include "ulyx/reshuffle.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ulyx_dist_attention ulyx_dist_attention_t;

/* What backward takes from forward. */
typedef int32_t ulyx_save_mode_t;
enum {
    ULYX_SAVE_DEFAULT = 0, /* HEADS without a ceiling, NONE with one */
    ULYX_SAVE_HEADS = 1,   /* head-sharded q, k, v and lse: the inputs need not
                            * be kept, backward exchanges less */
    ULYX_SAVE_NONE = 2,    /* lse only: backward takes q, k, v again and
                            * exchanges them again */
};

/* Gradients of replicated tensors summed over all ranks, on every rank. */
#define ULYX_DIST_ATTENTION_FULL UINT64_C(1)
/* dout of replicated queries is equal on all ranks (computed alike): each takes
 * its heads from its own copy. Else the copies are summed, and rounded once. */
#define ULYX_DIST_ATTENTION_GRAD_EQUAL UINT64_C(2)
/* forward also gives the LSE of the rank's own query rows. */
#define ULYX_DIST_ATTENTION_LSE UINT64_C(4)
/* No backward: nothing is saved, no plan made for it. */
#define ULYX_DIST_ATTENTION_FORWARD_ONLY UINT64_C(8)

typedef struct {
    size_t size;      /* sizeof(ulyx_dist_attention_params_t), by the macro */
    int64_t batch;    /* b >= 0; default 1 */
    int64_t heads;    /* query heads, >= 1 */
    int64_t kv_heads; /* divides heads; 0 = heads */
    int64_t dim_qk, dim_v;    /* 1 to 512, fast where multiples of 8; dim_v 0 =
                               * dim_qk */
    ulyx_dtype_t dtype;       /* F64, F32, BF16 (default), F16 */
    ulyx_dtype_t param_dtype; /* of sinks, slopes, d_sink: F32 or F64; 0 = F64
                               * where dtype is, else F32 */
    const ulyx_part_t *parts; /* 1 to 4 an axis, 1 or 2 axes */
    size_t part_size;         /* sizeof(ulyx_part_t), by the macro */
    int32_t nparts;
    int32_t work_split;         /* ULYX_WORK_HEADS (default) or _BALANCED */
    const int64_t *head_splits; /* [P], HEADS with one group; NULL = balanced */
    /* {batch, row, head} strides in bytes of the parts' tensors; NULL: dense.
     * dout's NULL: as out's. */
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
    const ulyx_docs_t *docs_q, *docs_k; /* first tables; NULL: each batch item
                                         * is one document. docs_k NULL: as
                                         * docs_q */
    int64_t row_cost, row_round;        /* these as in ulyx_plan_params_t, */
    int64_t max_rows, max_kv_rows, max_segments; /* each head group's */
    int64_t max_local_rows;
    ulyx_save_mode_t save;
    int32_t head_groups;         /* at least so many head groups (never more
                                  * than kv_heads); 0 = 1 */
    int64_t max_workspace_bytes; /* ceiling of every rank's workspace, the
                                  * smallest of all ranks counts; 0 = none */
    int32_t threads;     /* of this rank's attention; 0 = the usable cores
                          * (affinity, CPU quota) divided among the ranks that
                          * share them, with a ceiling at most as many as fit */
    int32_t seq_memory;  /* ULYX_POINTER_...: of the tensors of the calls */
    int32_t head_memory; /* ULYX_POINTER_...: of workspace and saved; in a
                          * window they move with one copy less */
    ulyx_memory_kind_t memory; /* of measure: where tensors and workspace lie,
                                * HOST (default) or CUDA; create takes the
                                * communicator's */
    uint64_t flags;            /* ULYX_DIST_ATTENTION_... */
    const char *kernel;        /* attention kernel; NULL = the fastest */
    double timeout_s; /* of creation and calls; 0 = the communicator's; on
                       * devices that of a call is not looked at */
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
 * returns: as ulyx_plan_create, and ERR_UNSUPPORTED naming the feature or
 * dimension that the attention does not have; ERR_INVALID_ARGUMENT when the
 * ceiling is too low even for one KV head at a time, with the bytes needed. */
ULYX_API ulyx_status_t ulyx_dist_attention_create(ulyx_comm_t *comm,
    const ulyx_dist_attention_params_t *params, ulyx_dist_attention_t **dist_p);

/* Local; NULL is fine. returns: SUCCESS; ERR_BUSY (a call in flight);
 * ERR_INVALID_ARGUMENT (destroyed before). */
ULYX_API ulyx_status_t ulyx_dist_attention_destroy(ulyx_dist_attention_t *dist);

/* Sets the documents from the next call on, at most max_docs. Local, no
 * communication; all ranks must give the same documents, in any form of the
 * arrays. NULL: each batch item is one document. backward needs the documents
 * of its forward: where calls of several batches interleave, give the documents
 * in each call. stream: as of calls.
 * returns: as ulyx_plan_update; on error the old tables stay. */
ULYX_API ulyx_status_t ulyx_dist_attention_update(ulyx_dist_attention_t *dist,
    const ulyx_docs_t *docs_q, const ulyx_docs_t *docs_k, void *stream);

/* Sets the rows from the next call on, of parts that have a row_capacity, so
 * that one object serves all lengths: as ulyx_plan_update_rows. Dense tensors
 * are dense for the new rows; the workspace has room for the capacity.
 * Documents as for ulyx_dist_attention_update.
 * returns: as ulyx_plan_update_rows. */
ULYX_API ulyx_status_t ulyx_dist_attention_update_rows(
    ulyx_dist_attention_t *dist, const int64_t *rows,
    const int64_t *const *splits, const ulyx_docs_t *docs_q,
    const ulyx_docs_t *docs_k, void *stream);

/* One forward call. Arrays of pointers have an entry a part; a part without
 * elements on this rank may have NULL. */
typedef struct {
    size_t size;
    const void *const *q, *const *k, *const *v;
    void *const *out;
    /* With ULYX_DIST_ATTENTION_LSE: [b, heads, s_p] of F32 (F64 for F64). For
     * ULYX_TOKENS_ZIGZAG_DOCS, whose s_p changes, max_local_rows (give it) or,
     * where that is less, the part's rows take the place of s_p. */
    void *const *lse;
    const void *sinks;        /* [heads] raw logits by global head; NULL */
    const void *alibi_slopes; /* [heads]; NULL */
    void *workspace;          /* aligned to 64; contents are undefined */
    int64_t
        workspace_bytes; /* at least those of ulyx_dist_attention_get_bytes */
    void *saved; /* aligned to 64: what backward will need; the caller keeps
                  * it. All its bytes are written, equal for equal inputs. NULL
                  * with FORWARD_ONLY */
    int64_t saved_bytes;
    double timeout_s; /* 0 = that of creation */
    /* Documents of this call and the calls after it, as by
     * ulyx_dist_attention_update; NULL: unchanged. (One document per batch item
     * must be given as a table.) docs_k NULL with docs_q: as docs_q. The arrays
     * are read when the call runs. */
    const ulyx_docs_t *docs_q, *docs_k;
    /* Rows of this call and the calls after it, as by
     * ulyx_dist_attention_update_rows, with the documents above; NULL:
     * unchanged. */
    const int64_t *rows;
    const int64_t *const *splits;
    /* Strides of this call's tensors on this rank, one entry per part; three
     * zeros: dense for the present rows; NULL: as at creation. They hold for
     * this call alone, need room for its rows only, and may differ between
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

/* One backward call. out is forward's; q, k, v may be NULL with SAVE_HEADS;
 * sinks and slopes are forward's. */
typedef struct {
    size_t size;
    const void *const *q, *const *k, *const *v;
    const void *const *out, *const *dout;
    void *const *dq, *const *dk, *const *dv;
    const void *sinks, *alibi_slopes;
    void *d_sink; /* NULL, or [heads]: this rank's PARTIAL gradient of sinks */
    void *workspace;
    int64_t workspace_bytes;
    const void *saved; /* forward's; unchanged */
    int64_t saved_bytes;
    double timeout_s;
    /* NULL, or with ULYX_DIST_ATTENTION_LSE: the gradient of forward's lse,
     * with its type and layout; for replicated queries summed over ranks or
     * equal, as dout is. */
    const void *const *dlse;
    const ulyx_docs_t *docs_q, *docs_k; /* as forward's, of its documents */
    const int64_t *rows;                /* and rows */
    const int64_t *const *splits;
    /* Strides of this call's tensors, as in forward; they need not be
     * forward's. NULL: as at creation; for a gradient, those of its tensor at
     * creation. */
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

/* Collective; inside a group the calls queue, and run on one thread per
 * communicator. Outputs, workspace and saved share no byte with anything else
 * of the call; tensors may be interleaved by their strides.
 * returns: as ulyx_reshuffle_execute and ulyx_attention_forward; also
 * ERR_INVALID_ARGUMENT when saved was not written by this object with the
 * documents of the call, or when the documents are refused (the old ones then
 * stay); ERR_MISMATCH naming a rank that has other documents. A rank that
 * refuses or fails notifies its peers, which return ERR_PEER_REFUSED naming
 * it; outputs are then undefined and the communicator stays usable. */
ULYX_API ulyx_status_t ulyx_dist_attention_forward(ulyx_dist_attention_t *dist,
    const ulyx_dist_attention_forward_t *call, void *stream);
ULYX_API ulyx_status_t ulyx_dist_attention_backward(ulyx_dist_attention_t *dist,
    const ulyx_dist_attention_backward_t *call, void *stream);

/* ---- queries: local, as those of plans ----------------------------------- */

/* Bytes on this rank: the workspace of the pass that needs more, saved, and
 * what the library itself holds. They depend on shapes and maxima only. Any
 * pointer may be NULL. */
ULYX_API ulyx_status_t ulyx_dist_attention_get_bytes(
    const ulyx_dist_attention_t *dist, int64_t *workspace_p, int64_t *saved_p,
    int64_t *held_p);

/* Bytes of saved with the present rows: the least that a call accepts. */
ULYX_API ulyx_status_t ulyx_dist_attention_get_saved_bytes(
    const ulyx_dist_attention_t *dist, int64_t *bytes_p);

/* One saved tensor of a head group, head-sharded, so that a framework can keep
 * or offload it apart: [b, rows, heads, dim] or, PACKED, [rows, dim]; lse is
 * [b, heads, rows] or [rows]. */
typedef struct {
    const char *name; /* "q", "k", "v", "lse" */
    int32_t group;
    ulyx_dtype_t dtype;
    int64_t offset, bytes; /* in saved */
} ulyx_saved_tensor_t;
/* tensor_size is sizeof(ulyx_saved_tensor_t), of which tensors_p has
 * capacity. */
ULYX_API ulyx_status_t ulyx_dist_attention_get_saved(
    const ulyx_dist_attention_t *dist, int64_t capacity, size_t tensor_size,
    ulyx_saved_tensor_t *tensors_p, int64_t *count_p);

/* Without a communicator: the results of ulyx_dist_attention_get_bytes and
 * _get_saved on `rank` of nranks, where every rank creates with these
 * parameters; max_workspace_bytes is the smallest of all ranks, and memory the
 * communicator's memory kind. A function of params, nranks and rank alone:
 * workspace_p, and a max_workspace_bytes other than 0, need explicit threads
 * and a kernel by name, since the sizes depend on them. Of CUDA memory threads
 * do not count, and a kernel of NULL is the kernel for the calling thread's
 * current device. Creation with the same params needs the same bytes. Local,
 * for any thread; nothing is kept.
 * returns: SUCCESS; INVALID_ARGUMENT (nranks, rank, a field of params, threads
 * or kernel missing, a ceiling too low, capacity as in _get_saved);
 * UNSUPPORTED (as create; a kernel that this CPU or the calling thread's
 * current device lacks; CUDA memory in a build without CUDA); OVERFLOW;
 * NO_MEMORY. On an error the outputs are untouched, but for *count_p where
 * capacity is too small. */
ULYX_API ulyx_status_t ulyx_dist_attention_measure(
    const ulyx_dist_attention_params_t *params, int32_t nranks, int32_t rank,
    int64_t *workspace_p, int64_t *saved_p);
ULYX_API ulyx_status_t ulyx_dist_attention_measure_saved(
    const ulyx_dist_attention_params_t *params, int32_t nranks, int32_t rank,
    int64_t capacity, size_t tensor_size, ulyx_saved_tensor_t *tensors_p,
    int64_t *count_p);

/* Times of the last call on this rank, in seconds. An exchange counts from its
 * start to its end; exposed_s is the part for which the caller had to wait, so
 * the share 1 - exposed_s / exchange_s was hidden behind attention. */
typedef struct {
    size_t size;
    double total_s, attention_s, exchange_s, exposed_s;
    int64_t scores; /* computed, masked ones of the tiles included */
    int64_t sent_bytes, received_bytes;
} ulyx_dist_attention_times_t;
#define ULYX_DIST_ATTENTION_TIMES_INIT                                         \
    {                                                                          \
        sizeof(ulyx_dist_attention_times_t), 0, 0, 0, 0, 0, 0, 0               \
    }
/* Fills *times_p, whose size the caller has set. Not while a call is running.
 */
ULYX_API ulyx_status_t ulyx_dist_attention_get_times(
    const ulyx_dist_attention_t *dist, ulyx_dist_attention_times_t *times_p);

/* Rows, heads, positions of this rank: the plan that moves q, k and v of a
 * head group, for the queries of reshuffle.h. Owned by dist.
 * *groups_p, where not NULL, is the number of head groups. */
ULYX_API ulyx_status_t ulyx_dist_attention_get_plan(
    const ulyx_dist_attention_t *dist, int32_t group,
    const ulyx_plan_t **plan_p, int32_t *groups_p);

/* Some lines: head groups, memory of both save modes, rows, K/V bytes and
 * sharers of every rank, kernel, plans. Cut to text_bytes, as
 * ulyx_plan_describe. */
ULYX_API ulyx_status_t ulyx_dist_attention_describe(
    const ulyx_dist_attention_t *dist, char *text_p, size_t text_bytes);

#ifdef __cplusplus
}
#endif
#endif
