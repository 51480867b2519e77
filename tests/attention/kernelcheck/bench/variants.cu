/* SPDX-License-Identifier: Apache-2.0
 *
 * Hopper kernels for the card's bench, in bf16 alone: each differs from the library's kernel of its
 * head dimension in one choice (sm90_variant) or in its shape. Where three consumers share a tile
 * of 192 rows, the registers that are left for each are fewer than it needs.
 */
#include "attention/cuda/hopper/sm90_kernel.h"

/* The kernel is entered for both dtypes, because the bench has bf16 only. */
#define VARIANT(symbol, text, qk, v, keys, consumers, stages, q_buffers, kind) \
    typedef sm90_family<qk, v, keys, consumers, stages, q_buffers, true, kind> \
        symbol##_shape;                                                        \
    extern "C" const struct uli_sm90_family symbol = {text, qk, v,             \
        symbol##_shape::M, keys, sm90_prepare<symbol##_shape, symbol##_shape>, \
        sm90_launch<symbol##_shape, symbol##_shape>};

VARIANT(kc_waits_first_d64, "sm90 64 waits first", 64, 64, 128, 2, 4, 2,
    SM90_WAITS_FIRST)
VARIANT(kc_waits_first_d128, "sm90 128 waits first", 128, 128, 128, 2, 2, 2,
    SM90_WAITS_FIRST)
VARIANT(kc_no_turns_d64, "sm90 64 no turns", 64, 64, 128, 2, 4, 2,
    SM90_NO_TURNS)
VARIANT(kc_no_turns_d128, "sm90 128 no turns", 128, 128, 128, 2, 2, 2,
    SM90_NO_TURNS)
VARIANT(kc_hints_d128, "sm90 128 hints", 128, 128, 128, 2, 2, 2, SM90_HINTS)
VARIANT(kc_hints_d256, "sm90 256 hints", 256, 256, 80, 2, 2, 1, SM90_HINTS)
VARIANT(kc_three_d64, "sm90 64 three", 64, 64, 128, 3, 4, 2, 0)
