/* SPDX-License-Identifier: Apache-2.0
 *
 * The tile code of AVX-512 with bf16 dot products, in plain C. In a program
 * that links this file it replaces the kernel called amx, which also takes bf16
 * only.
 */
#include "attention/kernels/amx_state.h"
#include "attention/tiles/emulated_pairs.h"
#define ROWS     8
#define TILE_OPS uli_attn_tile_amx
#include "attention/kernels/tile_body.h"

const char *
uli_amx_refusal(void)
{
    return NULL;
}
