/* SPDX-License-Identifier: Apache-2.0
 *
 * Defines PROBE_NAME, after the including file has defined the tiles that it
 * uses.
 */
#include "attention/kernels/gemm.h"
#include "attention/tiles/gemm_probe.h"

void
PROBE_NAME(const struct probe *p)
{
    const float *a = p->a, *b = p->b;
    float *c = p->c;
    gemm_begin();
    if (p->init == PROBE_ZERO)
        gemm_stripes(GEMM_ZERO, p->rows, p->columns, p->depth, a, p->a_row,
            p->a_col, b, p->b_panel, c, p->c_ld, p->factor);
    else if (p->init == PROBE_ADD)
        gemm_stripes(GEMM_ADD, p->rows, p->columns, p->depth, a, p->a_row,
            p->a_col, b, p->b_panel, c, p->c_ld, p->factor);
    else
        gemm_stripes(GEMM_SCALE, p->rows, p->columns, p->depth, a, p->a_row,
            p->a_col, b, p->b_panel, c, p->c_ld, p->factor);
    gemm_end();
}
