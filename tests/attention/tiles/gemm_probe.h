/* SPDX-License-Identifier: Apache-2.0
 *
 * The products of gemm_tiles.h as functions: by emulated tiles and by those of
 * the CPU.
 */
#ifndef TESTS_ATTENTION_TILES_GEMM_PROBE_H
#define TESTS_ATTENTION_TILES_GEMM_PROBE_H

#include <stdint.h>

enum probe_init { PROBE_ZERO, PROBE_ADD, PROBE_SCALE };

/* The arguments of gemm_stripes. */
struct probe {
    enum probe_init init;
    int64_t rows, columns, depth; /* depth in units */
    const float *a;
    int64_t a_row, a_col;
    const float *b;
    int64_t b_panel;
    float *c;
    int64_t c_ld;
    const float *factor;
};

typedef void (*probe_run)(const struct probe *probe);

void probe_emulated(const struct probe *probe);

/* Only to be called where uli_amx_refusal() is NULL. */
void probe_amx(const struct probe *probe);
/* Returns the palette of this thread's tiles; 0 where they are released. */
int probe_palette(void);

#endif
