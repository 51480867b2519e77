/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on strided tensors, forward and backward, without a communicator.
 *
 * A call is described by four things: the problem (ulyx_attention_t: sizes,
 * mask, per-head parameters), the tensors of the pass, how to run it
 * (ulyx_attention_exec_t), and a workspace, which the caller owns and may reuse
 * for the next call. A call allocates nothing, and keeps nothing for later
 * calls.
 *
 *   score(i,j) = cap(scale * q_i.k_j) - slope * |i + off - j|   for visible j
 *   p = softmax over the visible j and the sink,  out_i = sum_j p_ij v_j
 *   lse_i = ln(sum over visible j and the sink of exp(score)), natural log
 *
 * i and j count rows within a document (without documents: within a batch
 * item); off and the mask are those of ulyx_mask_kind_t. cap(x) is softcap *
 * tanh(x / softcap), or x without a softcap. A row without visible keys has out
 * 0 and zero gradients; its lse is the sink, or -inf without sinks. A row
 * outside every document has no visible keys; in addition it adds nothing to
 * d_sink, and its dout, delta and dlse are not read.
 *
 * Which bits depend on what: a row of out, lse and dq depends only on the row's
 * data, the lengths, dim_qk, dim_v, the mask and the kernel; never on batch,
 * heads, threads, strides, pieces, segments or other documents. The same holds
 * for dk and dv if all queries of the kv head are in the call. Rows outside a
 * row's document and bytes outside the tensors never influence the row. Every
 * pass is deterministic. A key of the row's document that the mask hides has
 * p = 0, but a kernel may still multiply by this 0: NaN or infinity in the
 * key's v (in backward also in its k) may make the row NaN.
 *
 * Threads: any number of calls may run at once, each with its own workspace.
 *
 * Device memory (exec->memory CUDA): the call is enqueued on the stream and may
 * be captured into a graph. Tensors, workspace, sinks, slopes, max_logit and
 * d_sink are memory of the thread's current device; kv_map, head_ids, segments,
 * pieces and, unless docs_memory is CUDA, documents lie on the host and are
 * read before the call returns. The flags of input pieces are words that the
 * device can read; backward waits for all of them before it begins. Pieces of
 * outputs have no flags. F64 is not supported, and a tensor has at most 256
 * pieces.
 */
#ifndef ULYX_ATTENTION_H
#define ULYX_ATTENTION_H

#include "ulyx/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Consecutive rows, of all batch items and heads, that have a base of their
 * own. Row r of batch item i, head n lies at base + i * batch_stride + (r -
 * row_begin) * row_stride + n * head_stride. If all three strides are zero, the
 * piece has the strides of its tensor. */
typedef struct {
    int64_t row_begin;
    int64_t rows;
    void *base;
    int64_t batch_stride, row_stride, head_stride; /* bytes */
    /* NULL, or a counter that only grows. Inputs: no row is read before
     * *flag >= flag_value (acquire). Outputs: *flag is set to flag_value
     * (release) after the call's last write to the piece. */
    uint64_t *flag;
    uint64_t flag_value;
} ulyx_attention_piece_t;

/* A tensor: element (batch i, row r, head n, column c) lies at
 * base + i * batch_stride + r * row_stride + n * head_stride + c * size.
 * Columns are dense; every stride and base is a multiple of the element size.
 * Strides are used exactly as given: here a zero stride does not mean "dense",
 * as three zeros do in ulyx_tensor_t, but that the entries along that dimension
 * share their memory. Inputs may have zero strides. Elements of outputs may
 * overlap neither each other nor any other memory of the call. */
typedef struct {
    size_t size; /* of this struct */
    void *base;  /* may be NULL if there are pieces, or no elements */
    int64_t batch_stride, row_stride, head_stride; /* bytes */
    /* 0 (BYTES) = default: the problem's dtype; for lse, delta and dlse F64 if
     * the problem is F64, else F32. dq, dk and dv may be F32 if the problem's
     * dtype has 16 bits. */
    ulyx_dtype_t dtype;
    int32_t reserved; /* 0 */
    /* NULL, or pieces in ascending order that hold all rows without gaps; base
     * is then not used. Not allowed for a problem with segments. */
    const ulyx_attention_piece_t *pieces;
    int64_t piece_count;
    size_t piece_size; /* sizeof(ulyx_attention_piece_t) */
} ulyx_attention_tensor_t;
#define ULYX_ATTENTION_TENSOR_INIT                                             \
    {                                                                          \
        sizeof(ulyx_attention_tensor_t), 0, 0, 0, 0, ULYX_DTYPE_BYTES, 0, 0,   \
            0, sizeof(ulyx_attention_piece_t)                                  \
    }

/* The problem. In every field that has a default, zero selects it. */
typedef struct {
    size_t size;
    size_t segment_size;       /* sizeof(ulyx_segment_t) */
    ulyx_dtype_t dtype;        /* of q, k, v, out, dout: F64, F32, BF16, F16 */
    ulyx_mask_kind_t mask;     /* default NONE */
    ulyx_mask_align_t align;   /* default BOTTOM_RIGHT */
    ulyx_dtype_t param_dtype;  /* of sinks, slopes, d_sink: F32 or F64; default
                                * F64 if dtype is F64, else F32 */
    int64_t batch;             /* >= 0; so are all lengths and heads */
    int64_t len_q, len_k;      /* rows of a batch item */
    int64_t heads_q, heads_kv; /* heads that the tensors hold */
    int64_t dim_qk, dim_v;     /* 1 to 512. On a device only multiples of 8; on
                                * the host these are faster */
    double scale;   /* of q.k; 0 = 1 / sqrt(dim_qk), never negative */
    double softcap; /* 0 = none, else positive */
    double dropout; /* must be 0: there is no dropout */
    /* WINDOW: the numbers of keys that row i sees before and after key i + off,
     * in addition to key i + off itself; ULYX_UNBOUNDED: no limit on that side.
     * Ignored for other masks. A causal window of n keys is WINDOW (n - 1,
     * 0). */
    int64_t window_left, window_right;
    int64_t diagonal;      /* added to off */
    const int64_t *kv_map; /* [heads_q], NULL: n * heads_kv / heads_q */
    /* The global index of query head n is head_ids[n], or head_offset + n if
     * head_ids is NULL. It is the index into sinks, slopes and d_sink, which
     * have heads_global entries (0: there are no such arrays). These three
     * arrays lie in the memory of exec->memory; head_ids lies on the host. */
    const int64_t *head_ids;
    int64_t head_offset;
    int64_t heads_global;
    const void *sinks;        /* [heads_global] raw logits, NULL: none */
    const void *alibi_slopes; /* [heads_global], NULL: none */
    /* Document n of the queries sees only document n of the keys; both tables
     * have the same count. docs_q NULL: every batch item is one document.
     * docs_k NULL: as docs_q, which needs len_q = len_k. max_docs is an upper
     * bound of the count (0: the count given). */
    const ulyx_docs_t *docs_q, *docs_k;
    int64_t max_docs;
    ulyx_memory_kind_t docs_memory; /* where the arrays of docs_q and docs_k
                                     * lie; default HOST */
    int32_t reserved;               /* 0 */
    /* Both NULL: every head and row, at the tensors' strides. Otherwise only
     * the query rows of q_segments are computed, with the key rows of
     * k_segments, which must hold every key that these queries see. A PACKED
     * plan gives such lists for q and for k (ulyx_plan_get_segments); heads_q
     * and heads_kv are then the plan's totals, and head_offset is 0. A list is
     * ascending by (head, batch, row_begin) and by offset. An offset is in
     * bytes, a multiple of the row stride of q (k); offset / row_stride is the
     * index of the segment's first row. The row has the same index in the
     * other tensors: there it lies at that index times their own row stride.
     * Batch and head strides are not used. */
    const ulyx_segment_t *q_segments, *k_segments;
    int64_t q_segment_count, k_segment_count;
    int64_t max_rows; /* upper bound of the rows in q_segments, for a workspace
                       * that serves several lists; 0: the rows given */
} ulyx_attention_t;
#define ULYX_ATTENTION_INIT                                                    \
    {                                                                          \
        sizeof(ulyx_attention_t), sizeof(ulyx_segment_t), 0, ULYX_MASK_NONE,   \
            ULYX_ALIGN_BOTTOM_RIGHT, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
            0, 0, 0, 0, 0, 0, 0, 0, 0, ULYX_MEMORY_HOST, 0, 0, 0, 0, 0, 0      \
    }

/* The order in which a kernel may process the keys of a row. */
typedef int32_t ulyx_key_order_t;
enum {
    ULYX_KEYS_FIXED = 0,   /* in the order of their rows: the same bits every
                            * time */
    ULYX_KEYS_ARRIVAL = 1, /* any order is allowed, such as that in which pieces
                            * arrive; so far every kernel uses FIXED */
};

/* How to run. NULL in place of this struct means all defaults. */
typedef struct {
    size_t size;
    ulyx_memory_kind_t memory; /* where tensors and workspace lie; default
                                * HOST */
    ulyx_key_order_t key_order;
    int32_t deterministic; /* not 0: backward must be deterministic, which every
                            * kernel is */
    int32_t max_sms;       /* GPU: at most this many SMs; 0 = all */
    int32_t threads;       /* host: at most this many, and never more than 256;
                            * 0 = the usable cores */
    int32_t reserved;      /* 0 */
    double timeout_s;      /* limit of the wait for flags; 0 = 600, at most one
                            * day */
    const char *kernel;    /* NULL: the fastest; else a name from
                            * ulyx_attention_list_kernels */
    int64_t *scores_p;     /* NULL, or the number of scores computed, including
                            * masked scores in tiles; host only */
    /* Device: NULL, or a word that the device can write. The caller sets the
     * word to 0 before the first call; the first call that fails on the device
     * stores its cause, which ulyx_attention_status translates. */
    uint64_t *cause;
} ulyx_attention_exec_t;
#define ULYX_ATTENTION_EXEC_INIT                                               \
    {                                                                          \
        sizeof(ulyx_attention_exec_t), ULYX_MEMORY_HOST, ULYX_KEYS_FIXED, 0,   \
            0, 0, 0, 0, 0, 0, 0                                                \
    }

/* Tensors of forward: q [b, len_q, heads_q, dim_qk], k, v, out, lse [b,
 * heads_q, len_q] (the row_stride of lse is usually 4). */
typedef struct {
    size_t size;
    const ulyx_attention_tensor_t *q, *k, *v;
    const ulyx_attention_tensor_t *out;
    const ulyx_attention_tensor_t *lse; /* may be NULL */
    /* NULL, or [heads_q] of lse's dtype: the largest visible score of each
     * head, without the sink; -inf if the head has no visible score. */
    void *max_logit;
} ulyx_attention_forward_t;
#define ULYX_ATTENTION_FORWARD_INIT                                            \
    {                                                                          \
        sizeof(ulyx_attention_forward_t), 0, 0, 0, 0, 0, 0                     \
    }

#define ULYX_ATTENTION_ACCUMULATE UINT64_C(1)

/* Tensors of backward. delta_i = sum_c dout_ic * out_ic; the gradient of the
 * scores is p * (dout.v - (delta - dlse)). */
typedef struct {
    size_t size;
    const ulyx_attention_tensor_t *q, *k, *v, *dout, *lse;
    const ulyx_attention_tensor_t *out;   /* may be NULL if delta is given */
    const ulyx_attention_tensor_t *delta; /* input; NULL: computed from out */
    const ulyx_attention_tensor_t *dlse;  /* input; NULL: zero */
    const ulyx_attention_tensor_t *dq, *dk, *dv;
    /* NULL, or [heads_global]: the gradient of the sinks from this call alone.
     * Every entry is written; it is zero for heads that the call does not
     * hold. */
    void *d_sink;
    /* ACCUMULATE: the call adds to dk and dv, which are F32 or F64. The query
     * heads of a kv head may be spread over several calls: if the calls take
     * them in ascending order, dk and dv have the bits of one call with all. */
    uint64_t flags;
} ulyx_attention_backward_t;
#define ULYX_ATTENTION_BACKWARD_INIT                                           \
    {                                                                          \
        sizeof(ulyx_attention_backward_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
            0                                                                  \
    }

typedef int32_t ulyx_attention_pass_t;
enum {
    ULYX_ATTENTION_PASS_FORWARD = 0,
    ULYX_ATTENTION_PASS_BACKWARD = 1,
};

/* Bytes of workspace that a pass of the problem needs. The size depends on the
 * kernel, dtype, sizes, max_docs, segment counts, max_rows and threads, but not
 * on the contents of documents or on tensors.
 * returns: SUCCESS; INVALID_ARGUMENT, UNSUPPORTED, OVERFLOW as for the pass. */
ULYX_API ulyx_status_t ulyx_attention_workspace(const ulyx_attention_t *problem,
    ulyx_attention_pass_t pass, const ulyx_attention_exec_t *exec,
    int64_t *bytes_p);

/* out, lse and max_logit from q, k, v.
 * workspace: at least the bytes of ulyx_attention_workspace, aligned to 64 and
 *   apart from all tensors; its contents need not be initialised and are
 *   undefined afterwards.
 * stream: NULL on the host, where the call returns when the work is done; on a
 *   device a CUstream (cudaStream_t) of the current device.
 * returns: SUCCESS;
 *   INVALID_ARGUMENT: a size, pointer, alignment, overlap, piece, segment,
 *     document table or workspace is wrong; UNSUPPORTED: the feature or
 *     dimension named in ulyx_last_error(); OVERFLOW: sizes beyond 64 bits. In
 *     these cases nothing has been written.
 *   TIMEOUT: a flag was not set in time; outputs are then undefined.
 * On a device UNSUPPORTED is also returned if the build, driver or device has
 * no kernels, and INTERNAL if a launch failed. Two errors are found only by the
 * device and reported in exec->cause: a flag that is not set in time, and an
 * invalid table of documents in device memory (the outputs are then not
 * written). */
ULYX_API ulyx_status_t ulyx_attention_forward(const ulyx_attention_t *problem,
    const ulyx_attention_forward_t *tensors, const ulyx_attention_exec_t *exec,
    void *workspace, int64_t workspace_bytes, void *stream);

/* dq, dk, dv and d_sink. Every row of the outputs is written: a query row that
 * sees no key, and a key row that no query sees, gets zeros. With ACCUMULATE
 * such rows of dk and dv stay as they are. Otherwise as
 * ulyx_attention_forward. */
ULYX_API ulyx_status_t ulyx_attention_backward(const ulyx_attention_t *problem,
    const ulyx_attention_backward_t *tensors, const ulyx_attention_exec_t *exec,
    void *workspace, int64_t workspace_bytes, void *stream);

/* Reads exec->cause: SUCCESS for 0, otherwise the status of the first call that
 * failed on the device, with its text in ulyx_last_error(): TIMEOUT (a flag),
 * INVALID_ARGUMENT (documents). The caller copies the word from the device, and
 * may set the word to 0 again when no call is in flight. */
ULYX_API ulyx_status_t ulyx_attention_status(uint64_t cause);

/* The names of the kernels that this machine can run for a kind of memory,
 * fastest first; exec->kernel accepts such a name. A kernel may still refuse a
 * problem; ulyx_attention_describe names the kernel that would run, and why
 * faster kernels would not.
 * names_p: the first names_max names; NULL with names_max 0 gives only the
 * count. The texts are static.
 * *count_p: the number of all names, even if names_max is less; 0 for CUDA
 *   without a driver, or in a build without device kernels.
 *
 * returns: SUCCESS; INVALID_ARGUMENT (memory, names_max, a pointer that is
 * NULL). Any thread; needs no communicator. */
ULYX_API ulyx_status_t ulyx_attention_list_kernels(ulyx_memory_kind_t memory,
    const char **names_p, int32_t names_max, int32_t *count_p);

/* One line on how the pass would run: the kernel and the reason of its choice,
 * threads, workspace. At most text_bytes are written, the final 0 included. A
 * text that was cut ends in "... (needs N)", where N is the text_bytes for the
 * whole text.
 * returns: as ulyx_attention_workspace. */
ULYX_API ulyx_status_t ulyx_attention_describe(const ulyx_attention_t *problem,
    ulyx_attention_pass_t pass, const ulyx_attention_exec_t *exec, char *text_p,
    size_t text_bytes);

#ifdef __cplusplus
}
#endif
#endif
