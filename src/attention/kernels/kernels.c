/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of kernels. Intel's CPUs start one dot product of bf16 pairs every
 * second cycle and two fp32 products per cycle, so pairs reach half the speed
 * of fp32 (measured on Emerald Rapids: 118 and 236 GFLOP/s per core). On AMD's
 * CPUs pairs reach twice the speed of fp32.
 */
#include "attention/kernels/kernels.h"
#include <stdio.h>
#include <string.h>
#include "base/status.h"
#include "base/system/cpu.h"

static const struct uli_attn_kernel *const table[] = {
#if defined(__x86_64__)
    &uli_attn_amx_kernel,
    &uli_attn_avx512_bf16_kernel,
    &uli_attn_avx512_kernel,
    &uli_attn_avx2_kernel,
#endif
    &uli_attn_portable_kernel,
    &uli_attn_reference_kernel,
};

const struct uli_attn_kernel *
uli_attn_kernel_at(int n)
{
    int count = (int)(sizeof(table) / sizeof(table[0]));
    if (n < 0 || n >= count)
        return NULL;
#if defined(__x86_64__)
    bool swap = uli_cpu_is_intel();
    if (swap && table[n] == &uli_attn_avx512_bf16_kernel)
        return &uli_attn_avx512_kernel;
    if (swap && table[n] == &uli_attn_avx512_kernel)
        return &uli_attn_avx512_bf16_kernel;
#endif
    return table[n];
}

static const struct uli_attn_kernel *
row_of(bool device, int n)
{
    return device ? uli_attn_device_kernel_at(n) : uli_attn_kernel_at(n);
}

/* No kernel has this name: the error lists the names. */
static ulyx_status_t
kernel_unknown(const char *name, bool device)
{
    const struct uli_attn_kernel *kernel;
    char known[256] = "";
    size_t length = 0;
    for (int n = 0; (kernel = row_of(device, n)) && length < sizeof(known); n++)
        length += (size_t)snprintf(known + length, sizeof(known) - length,
            "%s%s", n ? ", " : "", kernel->name);
    return uli_error(ULYX_ERR_UNSUPPORTED,
        "no kernel %s for %s memory in this build, which has %s", name,
        device ? "device" : "host", length ? known : "none");
}

ulyx_status_t
uli_attn_kernel_find(const char *name, const struct uli_attn_problem *problem,
    ulyx_attention_pass_t pass, const struct uli_attn_kernel **kernel_p)
{
    const struct uli_attn_kernel *kernel;
    bool device = problem->memory != ULYX_MEMORY_HOST;
    for (int n = 0; (kernel = row_of(device, n)); n++) {
        if (name && strcmp(name, kernel->name) != 0)
            continue;
        const char *refusal = uli_attn_kernel_refusal(kernel, problem, pass);
        if (!refusal) {
            *kernel_p = kernel;
            return ULYX_SUCCESS;
        }
        if (name)
            return uli_error(
                ULYX_ERR_UNSUPPORTED, "kernel %s: %s", name, refusal);
    }
    if (name)
        return kernel_unknown(name, device);
    return uli_error(
        ULYX_ERR_UNSUPPORTED, "no kernel on this machine takes the problem");
}
