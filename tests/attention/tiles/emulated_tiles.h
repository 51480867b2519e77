/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles in plain C, by the manual's description of TDPBF16PS, so that every
 * machine can check how operands are laid out. Sums have the instruction's
 * order, and products of bf16 are exact in fp32, so the bits equal the
 * hardware's except for subnormals, which the hardware flushes to zero.
 */
#ifndef TESTS_ATTENTION_TILES_EMULATED_TILES_H
#define TESTS_ATTENTION_TILES_EMULATED_TILES_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "attention/element.h"
#include "attention/tiles/emulated_fault.h"
#include "attention/tiles/emulated_pairs.h"

#define ROWS 32

struct emulated_tile {
    uint32_t units[16][16];
};
static _Thread_local struct emulated_tile emulated[8];

static void
emulated_load(int t, const float *from, int64_t ld)
{
    ld += emulated_fault == FAULT_STRIDE && t > 3;
    for (int n = 0; n < 16; n++)
        memcpy(emulated[t].units[n], from + n * ld, 64);
}

static void
emulated_store(int t, float *to, int64_t ld)
{
    for (int n = 0; n < 16; n++)
        memcpy(to + n * ld, emulated[t].units[n], 64);
}

static void
emulated_dot(int to, int left, int right)
{
    const struct emulated_tile *a = &emulated[left], *b = &emulated[right];
    const bool swap = emulated_fault == FAULT_PAIRS;
    for (int m = 0; m < 16 - (emulated_fault == FAULT_ROWS); m++) {
        float low[16] = {0}, high[16] = {0}, sum[16];
        for (int k = 0; k < 16; k++) {
            uint32_t unit = a->units[m][k];
            float x = uli_float_of_bf16((uint16_t)(swap ? unit >> 16 : unit));
            float y = uli_float_of_bf16((uint16_t)(swap ? unit : unit >> 16));
            for (int n = 0; n < 16; n++) {
                uint32_t pair = b->units[k][n];
                low[n] += x * uli_float_of_bf16((uint16_t)pair);
                high[n] += y * uli_float_of_bf16((uint16_t)(pair >> 16));
            }
        }
        memcpy(sum, emulated[to].units[m], 64);
        for (int n = 0; n < 16; n++)
            sum[n] += low[n] + high[n];
        memcpy(emulated[to].units[m], sum, 64);
    }
}

/* Outside of begin and end a tile holds values of other code, here NaN. */
#define TILE_BEGIN() memset(emulated, 0xff, sizeof(emulated))
#define TILE_END()   memset(emulated, 0xff, sizeof(emulated))
#define TILE_ZERO(t)                                                           \
    memset(&emulated[t], 0, emulated_fault == FAULT_ZERO ? 0 : 1024)
#define TILE_LOAD(t, from, ld) emulated_load(t, from, ld)
#define TILE_STORE(t, to, ld)  emulated_store(t, to, ld)
#define TILE_DOT(c, a, b)      emulated_dot(c, a, b)

#endif
