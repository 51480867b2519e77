/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of the peak loop, and the portable loop.
 */
#include "attention/kernelcheck/bench/peak_loops.h"
#include <stddef.h>
#include "attention/kernels/amx_state.h"

#define LOOP_NAME kc_peak_portable
#define LANES     4
#include "attention/kernelcheck/bench/peak_body.h"

kc_peak_loop
kc_peak_loop_of(enum kc_arithmetic kind, double *flops_p)
{
#if defined(__x86_64__)
    *flops_p = KC_TILE_CHAINS * 2.0 * 16 * 16 * 32;
    if (kind == KC_TILES)
        return uli_amx_refusal() ? NULL : kc_peak_amx;
    *flops_p = PEAK_CHAINS * 64;
    if (kind == KC_PAIRS)
        return __builtin_cpu_supports("avx512bf16") ? kc_peak_avx512_bf16
                                                    : NULL;
    *flops_p = PEAK_CHAINS * 32;
    if (__builtin_cpu_supports("avx512f"))
        return kc_peak_avx512;
    *flops_p = PEAK_CHAINS * 16;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return kc_peak_avx2;
#endif
    *flops_p = PEAK_CHAINS * 8;
    return kind == KC_FP32 ? kc_peak_portable : NULL;
}
