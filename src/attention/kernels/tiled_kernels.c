/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiled kernels' rows of the table.
 */
#include "attention/kernels/kernels.h"
#include "attention/kernels/amx_state.h"
#include "attention/kernels/tile.h"
#include "base/system/cpu.h"

static const char *
refuses_f64(const struct uli_attn_problem *problem)
{
    return problem->dtype == ULYX_DTYPE_F64 ? "it does not take fp64" : NULL;
}

static bool
always_applies(void)
{
    return true;
}

#define TILED(id, text, description, usable_when, lacks_what, refuses_what)    \
    static int64_t id##_workspace(const struct uli_attn_problem *problem,      \
        ulyx_attention_pass_t pass, int threads)                               \
    {                                                                          \
        return uli_attn_tiled_workspace(                                       \
            &uli_attn_tile_##id, problem, pass, threads);                      \
    }                                                                          \
    const struct uli_attn_kernel uli_attn_##id##_kernel = {                    \
        .name = text,                                                          \
        .what = description,                                                   \
        .usable = usable_when,                                                 \
        .lacks = lacks_what,                                                   \
        .refuses = refuses_what,                                               \
        .workspace = id##_workspace,                                           \
        .forward = uli_attn_tiled_forward,                                     \
        .backward = uli_attn_tiled_backward,                                   \
        .tile = &uli_attn_tile_##id,                                           \
    }

TILED(portable, "portable", "tiles in portable C, fp32", always_applies, NULL,
    refuses_f64);

#if defined(__x86_64__)
static bool
has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           uli_cpu_has_f16c();
}

static bool
has_avx512(void)
{
    return __builtin_cpu_supports("avx512f");
}

static bool
has_avx512_bf16(void)
{
    return __builtin_cpu_supports("avx512bf16") &&
           __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
}

static bool
has_amx(void)
{
    return !uli_amx_refusal();
}

static const char *
refuses_all_but_bf16(const struct uli_attn_problem *problem)
{
    return problem->dtype == ULYX_DTYPE_BF16 ? NULL : "it takes bf16 only";
}

TILED(avx2, "avx2", "tiles in AVX2 and FMA, fp32", has_avx2, NULL, refuses_f64);
TILED(
    avx512, "avx512", "tiles in AVX-512, fp32", has_avx512, NULL, refuses_f64);
TILED(avx512_bf16, "avx512-bf16", "tiles in AVX-512 bf16 dot products",
    has_avx512_bf16, NULL, refuses_all_but_bf16);
TILED(amx, "amx", "tiles in AMX bf16", has_amx, uli_amx_refusal,
    refuses_all_but_bf16);
#endif
