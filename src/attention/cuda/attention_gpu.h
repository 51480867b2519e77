/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on device memory: what the host hands to the kernels, the list of
 * tiles that the prepare kernel makes, and the words by which a call ends
 * badly. Plain C and CUDA C++; shared by all GPU kernels of attention.
 *
 * One call is two launches on one stream. Prepare checks the documents, which
 * lie on the device, clears the state and writes the list of tiles, longest
 * first. Without documents and segments no list is needed: then prepare only
 * clears the state, and a block that takes a tile computes the tile's
 * descriptor (uli_gpu_attn_unlisted). The pass takes (tile, head) pairs from a
 * counter in the state until none is left. A refused table leaves a list of no
 * tiles, so that nothing outside the tensors is touched whatever the table
 * holds. Both launches may be captured and replayed: one call differs from the
 * next only by memory on the device.
 *
 * A tile is up to tile_rows adjacent query rows of one document, or of one gap
 * between documents, within one batch item and one segment. Its descriptor has
 * all that a kernel needs, so that no kernel searches tables of documents.
 * Without segments one tile stands for all query heads, and pairs are numbered
 * so that head_group heads go through all tiles before the next heads do: the
 * keys and values of these heads stay in L2 (uli_gpu_attn_pair). With segments
 * a tile names its head. The keys of all batch items and documents may not fit
 * L2. So tiles are ordered by sections of the keys, of section_rows rows each,
 * which do fit; within a section the longest tile comes first.
 */
#ifndef ULI_ATTENTION_CUDA_ATTENTION_GPU_H
#define ULI_ATTENTION_CUDA_ATTENTION_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/mask.h"
#include "ulyx/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tensors ------------------------------------------------------------- */

/* Rows [row_begin, row_begin + rows) of every batch item and head; as
 * ulyx_attention_piece_t with its strides resolved. */
struct uli_gpu_attn_piece {
    int64_t row_begin, rows;
    unsigned char *base;
    int64_t batch_stride, row_stride, head_stride; /* bytes */
    uint64_t *flag;                                /* or NULL */
    uint64_t flag_value;
};

/* Element (batch i, head n, row r, column c) lies at c * size plus
 *   strided: base + i * batch_stride + n * head_stride + r * row_stride
 *   pieces:  the same within the piece that holds r, r counted from its begin
 *   packed:  base + (packed row of r) * row_stride; see the segments
 * base NULL and no pieces: the tensor is not given (lse only). */
struct uli_gpu_attn_tensor {
    unsigned char *base;
    int64_t batch_stride, row_stride, head_stride; /* bytes */
    const struct uli_gpu_attn_piece *pieces;       /* on the device, or NULL */
    int32_t npieces;
    int32_t flags; /* any piece has a flag */
    int32_t align; /* largest power of two, at most 16, that divides all
                    * addresses of rows */
    int32_t pad;
};

/* Adjacent rows of one head and batch item that the call holds. Row r is packed
 * row `row` + r - row_begin. Segments ascend by (head, batch, row_begin). */
struct uli_gpu_attn_segment {
    int64_t head, batch, row_begin, row_end, row;
};

/* One side's documents: begins[n], and lengths[n] or begins[n + 1]. */
struct uli_gpu_attn_docs {
    const void *begins, *lengths; /* on the device; lengths may be NULL */
    int32_t index_bytes;          /* 4 or 8 */
    int32_t pad;
};

/* ---- the list of tiles --------------------------------------------------- */

/* Query rows row .. row + rows - 1 of the batch item, which are rows i .. of
 * their document. Row i + n sees keys around i + n + off of the document,
 * which are keys k_begin + .. of batch item k_batch. A gap, and a document
 * without keys, has k_rows 0: out 0, lse -inf or the sink. */
struct uli_gpu_attn_tile {
    int32_t rows;
    int32_t head; /* -1: all heads */
    int32_t batch, k_batch;
    int64_t row, i, off;
    int64_t k_begin, k_rows;
    int64_t packed; /* packed row of `row`, with segments */
};

/* On the device, one for each call in flight. */
struct uli_gpu_attn_state {
    uint64_t failed; /* cause of this call; cleared by prepare */
    int64_t ntiles;
    uint64_t next;   /* pair to be taken; its own line of memory */
    uint64_t blocks; /* blocks of the pass that have ended */
};

/* Why a call failed: -status | what << 8 | index << 16. Zero is none. */
enum uli_gpu_attn_what {
    ULI_GPU_ATTN_DOCS_Q_ORDER = 1, /* begins before the one before ends, has
                                    * negative rows or ends past the axis */
    ULI_GPU_ATTN_DOCS_K_ORDER,
    ULI_GPU_ATTN_DOCS_Q_CROSSES, /* lies in more than one batch item */
    ULI_GPU_ATTN_DOCS_K_CROSSES,
    /* The flag of piece `index` did not arrive. Tensors are in the order of
     * enum uli_attn_tensor. */
    ULI_GPU_ATTN_FLAG_Q,
    ULI_GPU_ATTN_FLAG_K,
    ULI_GPU_ATTN_FLAG_V,
    ULI_GPU_ATTN_FLAG_OUT,
    ULI_GPU_ATTN_FLAG_LSE,
    ULI_GPU_ATTN_FLAG_DOUT,
    ULI_GPU_ATTN_FLAG_DELTA,
    ULI_GPU_ATTN_FLAG_DLSE,
};
#define ULI_GPU_ATTN_CAUSE(status, what, index)                                \
    ((uint64_t)(status) | (uint64_t)(what) << 8 | (uint64_t)(index) << 16)

/* The error of a cause, with its text; SUCCESS for 0. */
ulyx_status_t uli_gpu_attn_error(uint64_t cause);

/* ---- one call ------------------------------------------------------------ */

/* Passed by value to every kernel. Arrays are on the device. */
struct uli_gpu_attn_args {
    struct uli_gpu_attn_tensor q, k, v, out, lse;
    int32_t dtype; /* ulyx_dtype_t of q, k, v, out: F32, BF16, F16 */
    int32_t param_f64;
    int64_t batch, len_q, len_k;
    int64_t heads_q, heads_kv;
    int32_t dim_qk, dim_v; /* multiples of 8 */

    /* Scores: s = q.k; where transformed: s = cap(scale * s) - slope * dist;
     * p = 2^((s - max) * factor). exact is factor before it was rounded. */
    float scale, factor, cap, cap_inverse; /* cap 0: none */
    double exact;
    int64_t left, right, diagonal; /* ULYX_UNBOUNDED; right 0 = causal */
    int32_t bottom_right;

    int32_t has_docs; /* 0: document n is batch item n on both sides */
    int64_t ndocs;
    struct uli_gpu_attn_docs docs_q, docs_k;

    /* NULL: every head and row. */
    const struct uli_gpu_attn_segment *q_segments, *k_segments;
    int64_t nq_segments, nk_segments;

    const int64_t *kv_map;   /* [heads_q], NULL: n * heads_kv / heads_q */
    const int64_t *head_ids; /* [heads_q], NULL: head_offset + n */
    int64_t head_offset;
    const void *sinks, *slopes; /* [global heads] float or double; or NULL */
    float *max_logit;           /* [heads_q] or NULL; prepare sets -inf */

    /* What prepare writes and the pass reads. */
    struct uli_gpu_attn_state *state;
    struct uli_gpu_attn_tile *tiles;
    int64_t *scratch;             /* of prepare */
    int32_t tile_rows, tile_keys; /* of the pass's kernel; 8 .. 1024 */
    int64_t head_group;           /* 1 .. heads_q; see above */
    int64_t section_rows; /* of keys, of all batch items; 0: one section */
    int32_t unlisted;     /* tiles are computed, not in the list */
    int32_t pad;

    uint64_t *cause;        /* NULL, or a word that keeps the first cause of
                             * all calls until the host clears it (device or
                             * mapped host memory) */
    const uint64_t *poison; /* NULL, or: not 0 there: leave */
    uint64_t timeout_ns;    /* of waits for flags, from the kernel's start */
};

/* Sizes of the workspace's parts for a call: bounds that hold for all contents
 * of the documents. rows: the query rows of all batch items, or with segments
 * (nsegments >= 0) a bound of the rows of all segments; max_docs: 0 without
 * documents. returns false where the sizes do not fit 64 bits. */
struct uli_gpu_attn_sizes {
    int64_t runs, units, tiles, scratch_words;
    int64_t state_at, tiles_at, scratch_at, bytes;
};
bool uli_gpu_attn_sizes(int64_t batch, int64_t rows, int64_t heads,
    int64_t max_docs, int64_t nsegments, int64_t tile_rows,
    struct uli_gpu_attn_sizes *sizes_p);
/* Points the arguments at the parts of a workspace on the device. */
void uli_gpu_attn_place(struct uli_gpu_attn_args *args,
    const struct uli_gpu_attn_sizes *sizes, unsigned char *workspace);

/* Number of (tile, head) pairs of a list of ntiles tiles, and pair n of them.
 * Used by the kernels; here so that host code can be held to it. */
#ifdef __CUDACC__
#define ULI_GPU_BOTH static inline __host__ __device__
#else
#define ULI_GPU_BOTH static inline
#endif

ULI_GPU_BOTH int64_t
uli_gpu_attn_pairs(const struct uli_gpu_attn_args *args, int64_t ntiles)
{
    return args->q_segments ? ntiles : ntiles * args->heads_q;
}

/* The pairs of one group of heads follow each other. Within a group tiles come
 * in their order (longest first), and within a tile the group's heads. */
ULI_GPU_BOTH void
uli_gpu_attn_pair(const struct uli_gpu_attn_args *args, int64_t ntiles,
    int64_t n, int64_t *tile_p, int64_t *head_p)
{
    if (args->q_segments) {
        *tile_p = n;
        *head_p = -1; /* the tile names it */
        return;
    }
    int64_t first = n / (ntiles * args->head_group) * args->head_group;
    int64_t heads = args->heads_q - first;
    heads = heads < args->head_group ? heads : args->head_group;
    int64_t rest = n - first * ntiles;
    *tile_p = rest / heads;
    *head_p = first + rest % heads;
}

/* Tiles of a call without documents and segments. */
ULI_GPU_BOTH int64_t
uli_gpu_attn_unlisted_count(const struct uli_gpu_attn_args *args)
{
    return (args->len_q + args->tile_rows - 1) / args->tile_rows * args->batch;
}

/* Tile n of a call without documents and segments. Batch items come section by
 * section. Within a section the rows that see most keys come first, and for the
 * same rows all batch items of the section follow each other. Later rows see
 * more keys if the mask is bounded to the right, and fewer if it is bounded to
 * the left alone; else the order does not matter. */
ULI_GPU_BOTH struct uli_gpu_attn_tile
uli_gpu_attn_unlisted(const struct uli_gpu_attn_args *args, int64_t n)
{
    int64_t tiles = (args->len_q + args->tile_rows - 1) / args->tile_rows;
    int64_t len_k = args->len_k > 0 ? args->len_k : 1;
    int64_t items = args->section_rows / len_k; /* batch items of a section */
    items = args->section_rows == 0 || items > args->batch ? args->batch
            : items > 0                                    ? items
                                                           : 1;
    int64_t first = n / (items * tiles) * items;
    int64_t rest = n - first * tiles;
    if (items > args->batch - first)
        items = args->batch - first;
    int64_t t = rest / items;
    if (args->right != ULYX_UNBOUNDED)
        t = tiles - 1 - t;
    int32_t item = (int32_t)(first + rest % items);
    int64_t row = t * args->tile_rows, rows = args->len_q - row;
    int64_t off = uli_mask_off(
        args->bottom_right, args->diagonal, args->len_q, args->len_k);
    struct uli_gpu_attn_tile tile = {
        rows < args->tile_rows ? (int32_t)rows : args->tile_rows, -1, item,
        args->len_k ? item : 0, row, row, off, 0, args->len_k, row};
    return tile;
}

/* ---- launches ------------------------------------------------------------ */

/* Enqueue on a stream (a cudaStream_t); each returns a cudaError_t, allocates
 * nothing and may be captured. The pass must follow prepare on the stream. */
int uli_gpu_attn_prepare_launch(
    const struct uli_gpu_attn_args *args, void *stream);

/* Copies bytes of host memory to the device by way of kernel arguments: taken
 * when the call returns, in stream order, without pinned memory. For tables. */
int uli_gpu_attn_put(
    void *device, const void *host, int64_t bytes, void *stream);

#ifdef __cplusplus
}
#endif
#endif
