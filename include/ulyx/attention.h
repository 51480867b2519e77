/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on strided tensors, forward and backward, without a communicator.
 *
 * A call is described by four things: the problem (ulyx_attention_t: sizes,
 * mask, per-head parameters), the tensors of its pass, how to run it
 * (ulyx_attention_exec_t), and a workspace that the caller owns and may reuse
 * for the next call. Nothing is kept between calls and nothing allocated.
 *
 *   score(i,j) = cap(scale * q_i.k_j) - slope * |i + off - j|   for visible j
 *   p = softmax over the visible j and the sink,  out_i = sum_j p_ij v_j
 *   lse_i = ln(sum over visible j and the sink of exp(score)), natural log
 *
 * i and j count rows within a document (without documents: within a batch
 * item); off and the mask are those of ulyx_mask_kind_t. cap(x) is softcap *
 * tanh(x / softcap), or x. A row without visible keys has out 0, zero
 * gradients, and lse -inf, or the sink where there is one. A row outside every
 * document is such a row; it adds nothing to d_sink, and its dout, delta and
 * dlse are not read.
 *
 * Bits: a row of out, lse and dq depends on the row's data, the sizes, the mask
 * and the kernel only; never on batch, heads, threads, strides, pieces,
 * segments or other documents. dk and dv likewise where all queries of the kv
 * head are in the call. Rows outside a row's document and bytes outside the
 * tensors never influence it. On the host every pass is deterministic. A key
 * of the row's document that the mask hides has p = 0, but may be multiplied:
 * NaN or infinity in its v, and backward in its k, may make the row NaN, as
 * 0 * NaN is.
 *
 * Threads: any number of calls may run at once, each with its own workspace.
 *
 * Device memory (exec->memory CUDA): the call is enqueued on the stream and may
 * be captured into a graph; every pass is deterministic. Tensors, workspace,
 * sinks, slopes, max_logit and d_sink are memory of the thread's current
 * device; kv_map, head_ids, segments, pieces and, unless docs_memory is CUDA,
 * documents lie on the host and are read before the call returns. Flags of
 * inputs are words that the device can read, and backward waits for all of
 * them before it begins; outputs have none. No fp64; at most 256 pieces per
 * tensor.
 */
#ifndef ULYX_ATTENTION_H
#define ULYX_ATTENTION_H

#include "ulyx/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of a tensor that lie in a place of their own. Row r of batch item
 * i, head n lies at base + i * batch_stride + (r - row_begin) * row_stride +
 * n * head_stride; three zero strides take the tensor's. */
typedef struct {
    int64_t row_begin;
    int64_t rows;
    void *base;
    int64_t batch_stride, row_stride, head_stride; /* bytes */
    /* NULL, or a counter that only grows. Inputs: the rows are read once
     * *flag >= flag_value (acquire). Outputs: *flag is set to flag_value
     * (release) when the call has written its last byte of them. */
    uint64_t *flag;
    uint64_t flag_value;
} ulyx_attention_piece_t;

/* A tensor: element (batch i, row r, head n, column c) lies at
 * base + i * batch_stride + r * row_stride + n * head_stride + c * size.
 * Columns are dense; every stride and base is a multiple of the element size.
 * Inputs may repeat rows (stride 0), outputs may not overlap anything. */
typedef struct {
    size_t size; /* of this struct */
    void *base;  /* may be NULL where there are pieces or no elements */
    int64_t batch_stride, row_stride, head_stride; /* bytes */
    /* BYTES (0): the problem's dtype; for lse, delta, dlse: F64 where that is
     * F64, else F32. dq, dk, dv may be F32 where the problem is 16-bit. */
    ulyx_dtype_t dtype;
    int32_t reserved; /* 0 */
    /* Ascending, without holes, together all rows; then base is not used.
     * Not together with segments on the same side. */
    const ulyx_attention_piece_t *pieces;
    int64_t piece_count;
    size_t piece_size; /* sizeof(ulyx_attention_piece_t) */
} ulyx_attention_tensor_t;
#define ULYX_ATTENTION_TENSOR_INIT                                             \
    {                                                                          \
        sizeof(ulyx_attention_tensor_t), 0, 0, 0, 0, ULYX_DTYPE_BYTES, 0, 0,   \
            0, sizeof(ulyx_attention_piece_t)                                  \
    }

/* The problem. Zero means the default in every field that names one. */
typedef struct {
    size_t size;
    size_t segment_size;       /* sizeof(ulyx_segment_t) */
    ulyx_dtype_t dtype;        /* of q, k, v, out, dout: F64, F32, BF16, F16 */
    ulyx_mask_kind_t mask;     /* default NONE */
    ulyx_mask_align_t align;   /* default BOTTOM_RIGHT */
    ulyx_dtype_t param_dtype;  /* of sinks, slopes, d_sink: F32 or F64; default
                                * F64 where dtype is, else F32 */
    int64_t batch;             /* >= 0; so are all lengths and heads */
    int64_t len_q, len_k;      /* rows of a batch item */
    int64_t heads_q, heads_kv; /* heads that the tensors hold */
    int64_t dim_qk, dim_v;     /* 1 to 512, on a device multiples of 8;
                                * elsewhere those are the fast ones */
    double scale;   /* of q.k; 0 = 1 / sqrt(dim_qk), never negative */
    double softcap; /* 0 = none, else positive */
    double dropout; /* 0: dropout does not exist */
    /* WINDOW: keys before and after the own one, inclusive; ULYX_UNBOUNDED: no
     * limit on that side. Ignored by other masks. A causal window of n keys is
     * WINDOW (n - 1, 0). */
    int64_t window_left, window_right;
    int64_t diagonal;      /* added to off */
    const int64_t *kv_map; /* [heads_q], NULL: n * heads_kv / heads_q */
    /* Global index of head n: head_ids[n], or head_offset + n where NULL. It
     * selects sinks, slopes and d_sink, which have heads_global entries
     * (0: not used). On the host these arrays lie on the host. */
    const int64_t *head_ids;
    int64_t head_offset;
    int64_t heads_global;
    const void *sinks;        /* [heads_global] raw logits, NULL: none */
    const void *alibi_slopes; /* [heads_global], NULL: none */
    /* Document n of the queries sees only document n of the keys; equal
     * counts. NULL: every batch item is one document. docs_k NULL: docs_q,
     * where len_q = len_k. max_docs bounds the count (0: the count given). */
    const ulyx_docs_t *docs_q, *docs_k;
    int64_t max_docs;
    ulyx_memory_kind_t docs_memory; /* where their arrays lie; default HOST */
    int32_t reserved;               /* 0 */
    /* NULL: every head and row, by the tensors' strides. Else only these query
     * rows, and these key rows, which must hold every key that the queries
     * see: a PACKED plan's lists for q and for k (heads_q, heads_kv are then
     * the plan's totals and head_offset 0), ascending by (head, batch,
     * row_begin) and by offset. Offsets are in bytes by the row stride of q
     * (k); other tensors hold the same rows in the same places by their own
     * row strides, and the list's batch and head take the place of strides. */
    const ulyx_segment_t *q_segments, *k_segments;
    int64_t q_segment_count, k_segment_count;
    int64_t max_rows; /* bound of the rows in q_segments, for a workspace that
                         outlasts them; 0: the rows given */
} ulyx_attention_t;
#define ULYX_ATTENTION_INIT                                                    \
    {                                                                          \
        sizeof(ulyx_attention_t), sizeof(ulyx_segment_t), 0, ULYX_MASK_NONE,   \
            ULYX_ALIGN_BOTTOM_RIGHT, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
            0, 0, 0, 0, 0, 0, 0, 0, 0, ULYX_MEMORY_HOST, 0, 0, 0, 0, 0, 0      \
    }

/* In which order a row's keys are taken. */
typedef int32_t ulyx_key_order_t;
enum {
    ULYX_KEYS_FIXED = 0,   /* keys in the order of their rows: stable bits */
    ULYX_KEYS_ARRIVAL = 1, /* allows the order in which pieces arrive (the
                               host keeps FIXED, which that includes) */
};

/* How to run. NULL in place of this struct means all defaults. */
typedef struct {
    size_t size;
    ulyx_memory_kind_t memory; /* where tensors and workspace lie: HOST */
    ulyx_key_order_t key_order;
    int32_t deterministic; /* backward: not 0 demands it or is refused */
    int32_t max_sms;       /* GPU: at most this many SMs; 0 = all */
    int32_t threads;       /* host: at most this many and 256; 0 = usable
                              cores */
    int32_t reserved;      /* 0 */
    double timeout_s;      /* waits for flags; 0 = 600, at most one day */
    const char *kernel;    /* NULL: the fastest; else a name that
                              ulyx_attention_describe prints */
    int64_t *scores_p;     /* NULL, or: scores computed, masked ones of the
                                 tiles included (written on success; host) */
    /* Device: NULL, or a word that the device reaches, 0 at first: the first
     * cause of all calls that went wrong later, for ulyx_attention_status. */
    uint64_t *cause;
} ulyx_attention_exec_t;
#define ULYX_ATTENTION_EXEC_INIT                                               \
    {                                                                          \
        sizeof(ulyx_attention_exec_t), ULYX_MEMORY_HOST, ULYX_KEYS_FIXED, 0,   \
            0, 0, 0, 0, 0, 0, 0                                                \
    }

/* Tensors of forward: q [b, len_q, heads_q, dim_qk], k, v, out, lse
 * [b, heads_q, len_q] (its row_stride is usually 4). */
typedef struct {
    size_t size;
    const ulyx_attention_tensor_t *q, *k, *v;
    const ulyx_attention_tensor_t *out;
    const ulyx_attention_tensor_t *lse; /* may be NULL */
    /* NULL, or [heads_q] of lse's dtype: the largest visible score of a head,
     * sink apart; -inf where there is none. */
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
    const ulyx_attention_tensor_t *out;   /* may be NULL where delta is given */
    const ulyx_attention_tensor_t *delta; /* input; NULL: from out */
    const ulyx_attention_tensor_t *dlse;  /* input; NULL: zero */
    const ulyx_attention_tensor_t *dq, *dk, *dv;
    /* NULL, or [heads_global]: this call's part of the sinks' gradient, zero
     * for heads that it does not hold. */
    void *d_sink;
    /* ACCUMULATE: dk and dv (F32 or F64) are added to. Calls over a kv head's
     * query heads in ascending order give the bits of one call. */
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

/* Bytes of workspace that a pass of the problem needs. Depends on dtype, sizes,
 * max_docs, segment counts, max_rows and threads; not on documents' contents
 * or tensors.
 * returns: SUCCESS; INVALID_ARGUMENT, UNSUPPORTED, OVERFLOW as for the pass. */
ULYX_API ulyx_status_t ulyx_attention_workspace(const ulyx_attention_t *problem,
    ulyx_attention_pass_t pass, const ulyx_attention_exec_t *exec,
    int64_t *bytes_p);

/* out, lse and max_logit from q, k, v.
 * workspace: at least the bytes of ulyx_attention_workspace, aligned to 64 and
 *   apart from all tensors; contents are undefined before and after.
 * stream: NULL on the host, where the call returns with the work done; a
 *   CUstream (cudaStream_t) of the current device.
 * returns: SUCCESS;
 *   INVALID_ARGUMENT: a size, pointer, alignment, overlap, piece, segment,
 *     document table or workspace is wrong; UNSUPPORTED: the feature or
 *     dimension named in ulyx_last_error(); OVERFLOW: sizes beyond 64 bits. In
 *     these cases nothing has been written.
 *   TIMEOUT: a flag did not come; outputs are then undefined.
 * On a device UNSUPPORTED also names a build, driver or device without kernels,
 * INTERNAL a launch that failed. A late flag, and documents in device memory
 * that are no valid table (outputs are then kept), are reported by
 * exec->cause. */
ULYX_API ulyx_status_t ulyx_attention_forward(const ulyx_attention_t *problem,
    const ulyx_attention_forward_t *tensors, const ulyx_attention_exec_t *exec,
    void *workspace, int64_t workspace_bytes, void *stream);

/* dq, dk, dv and d_sink. Every row of the outputs is written (zero where
 * nothing sees or is seen; with ACCUMULATE such rows of dk and dv are kept).
 * Otherwise as ulyx_attention_forward. */
ULYX_API ulyx_status_t ulyx_attention_backward(const ulyx_attention_t *problem,
    const ulyx_attention_backward_t *tensors, const ulyx_attention_exec_t *exec,
    void *workspace, int64_t workspace_bytes, void *stream);

/* Reads exec->cause: SUCCESS for 0, otherwise the status of the first call that
 * went wrong on the device, with its text in ulyx_last_error(): TIMEOUT (a
 * flag), INVALID_ARGUMENT (documents). The caller copies the word from the
 * device, and may set it to 0 again when no call is in flight. */
ULYX_API ulyx_status_t ulyx_attention_status(uint64_t cause);

/* The names of the kernels that this machine runs for a kind of memory, fastest
 * first; exec->kernel takes such a name. A kernel may still refuse a problem;
 * ulyx_attention_describe gives the one that takes it, and why faster ones do
 * not.
 * names_p: the first names_max of them; NULL with names_max 0 gives only the
 * count. The texts are the library's and stay.
 * *count_p: of all, also where names_max is less; 0 for a device without
 *   driver, or in a build without its kernels.
 *
 * returns: SUCCESS; INVALID_ARGUMENT (memory, names_max, a pointer that is
 * NULL). Any thread; needs no communicator. */
ULYX_API ulyx_status_t ulyx_attention_list_kernels(ulyx_memory_kind_t memory,
    const char **names_p, int32_t names_max, int32_t *count_p);

/* One line on how the pass would run: kernel, its reason, threads, workspace.
 * At most text_bytes with the final 0 are written; what is cut ends in "...
 * (needs N)", N the text_bytes for all of it.
 * returns: as ulyx_attention_workspace. */
ULYX_API ulyx_status_t ulyx_attention_describe(const ulyx_attention_t *problem,
    ulyx_attention_pass_t pass, const ulyx_attention_exec_t *exec, char *text_p,
    size_t text_bytes);

#ifdef __cplusplus
}
#endif
#endif
