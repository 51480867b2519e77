/* SPDX-License-Identifier: Apache-2.0
 *
 * The tile code of AVX-512 in plain C: the same lanes and blocks, in fp32. In a
 * program that links this file it replaces the kernel called portable.
 */
#define LANES    16
#define PAIRED   0
#define ROWS     8
#define VECTORS  2
#define TILE_OPS uli_attn_tile_portable
#include "attention/kernels/tile_body.h"
