/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel called amx, with emulated tiles, which run on every machine. In a
 * program that links this file it replaces the library's kernel.
 */
#include "attention/kernels/amx_state.h"
#include "attention/tiles/emulated_tiles.h"
#define TILE_OPS uli_attn_tile_amx
#include "attention/kernels/tile_body.h"

enum emulated_fault emulated_fault;

const char *
uli_amx_refusal(void)
{
    return NULL;
}
