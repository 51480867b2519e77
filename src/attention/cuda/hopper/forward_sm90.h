/* SPDX-License-Identifier: Apache-2.0
 *
 * Forward attention on Hopper: what the host prepares for the kernels of
 * forward_sm90_*.cu. Plain C and CUDA C++.
 *
 * q, k and v are read by TMA. A tensor is one map where its rows lie evenly
 * (strided, packed, or pieces that continue one another), one map with a piece
 * coordinate where all pieces are alike and evenly spaced, else a map for each
 * piece. Maps always have five dimensions {column, head, row, batch, piece}
 * and a box of 64 columns x the tile's rows, so that the kernels know one form
 * of load. Nothing outside a piece is read: elements of a box beyond the piece
 * become zeros.
 */
#ifndef ULI_ATTENTION_CUDA_HOPPER_FORWARD_SM90_H
#define ULI_ATTENTION_CUDA_HOPPER_FORWARD_SM90_H

#include <cuda.h>
#include "attention/cuda/attention_gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ULI_SM90_MAPS 8 /* of a tensor; kernel parameters stay under 4 KiB */

enum uli_sm90_maps_kind {
    ULI_SM90_ONE,  /* map 0, row coordinate = row (packed: packed row) */
    ULI_SM90_EVEN, /* map 0, piece coordinate = piece, row within it */
    ULI_SM90_EACH, /* map n for piece n, row within it */
};

struct uli_sm90_maps {
    CUtensorMap map[ULI_SM90_MAPS];
};

/* A kernel's only parameter. */
struct uli_sm90_params {
    struct uli_sm90_maps q, k, v;
    struct uli_gpu_attn_args args;
    int32_t q_kind, k_kind, v_kind; /* enum uli_sm90_maps_kind */
    int32_t mapped;                 /* map 0 of each is there */
};

/* A tensor on the host: rows of a batch item, or all packed rows (then heads
 * and batch are 1). piece_at gives piece n of `pieces`; NULL: the tensor is in
 * one piece. */
struct uli_sm90_source {
    const struct uli_gpu_attn_tensor *tensor;
    struct uli_gpu_attn_piece (*piece_at)(const void *pieces, int64_t n);
    const void *pieces;
    int64_t rows, heads, batch, columns;
};

/* One kernel family: for head dimensions of at most dim_qk and dim_v, with
 * tiles of tile_rows queries and tile_keys keys. */
struct uli_sm90_family {
    const char *name;
    int32_t dim_qk, dim_v;
    int32_t tile_rows, tile_keys;
    /* Loads both dtypes' kernels on the current device at the first call, which
     * must be outside of a capture; later calls are cheap. *blocks_per_sm_p:
     * how many blocks a multiprocessor holds. */
    int (*prepare)(int32_t *blocks_per_sm_p);
    /* Enqueues the pass on `blocks` blocks; returns a cudaError_t. */
    int (*launch)(
        const struct uli_sm90_params *params, int blocks, void *stream);
};

extern const struct uli_sm90_family uli_sm90_d64, uli_sm90_d96, uli_sm90_d128,
    uli_sm90_d192, uli_sm90_d256;

/* NULL, or why the kernels cannot take these arguments: not a 16-bit dtype,
 * 2^31 rows, misaligned rows of out, or a tensor that tensor maps cannot
 * describe. The portable kernel takes all of these. */
const char *uli_sm90_refuses(const struct uli_gpu_attn_args *args,
    const struct uli_sm90_source sources[3]);

/* Fills *params from arguments that uli_sm90_refuses lets pass; q's boxes have
 * the family's tile_rows rows, those of k and v tile_keys. Plain host code.
 * returns 0 or a cudaError_t of the encoder. */
int uli_sm90_params_init(const struct uli_gpu_attn_args *args,
    const struct uli_sm90_source sources[3],
    const struct uli_sm90_family *family, struct uli_sm90_params *params_p);

#ifdef __cplusplus
}
#endif
#endif
