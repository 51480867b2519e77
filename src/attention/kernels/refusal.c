/* SPDX-License-Identifier: Apache-2.0
 *
 * Which kernels do not take a problem, and why.
 */
#include <stdio.h>
#include "attention/kernels/kernels.h"

const char *
uli_attn_kernel_refusal(const struct uli_attn_kernel *kernel,
    const struct uli_attn_problem *problem, ulyx_attention_pass_t pass)
{
    if (!kernel->usable())
        return kernel->lacks ? kernel->lacks()
               : problem->memory == ULYX_MEMORY_HOST
                   ? "this CPU lacks its instructions"
                   : "no device that runs it";
    if (pass == ULYX_ATTENTION_PASS_BACKWARD && !kernel->backward)
        return "it has no backward";
    return kernel->refuses(problem);
}

void
uli_attn_kernel_passed_over(const struct uli_attn_kernel *kernel,
    const struct uli_attn_problem *problem, ulyx_attention_pass_t pass,
    char *text_p, size_t text_bytes)
{
    const struct uli_attn_kernel *row;
    size_t used = 0;
    if (text_bytes)
        text_p[0] = 0;
    for (int n = 0;; n++) {
        row = problem->memory == ULYX_MEMORY_HOST
                  ? uli_attn_kernel_at(n)
                  : uli_attn_device_kernel_at(n);
        if (!row || row == kernel)
            return;
        const char *why = uli_attn_kernel_refusal(row, problem, pass);
        if (why && used < text_bytes)
            used += (size_t)snprintf(text_p + used, text_bytes - used,
                "; not %s: %s", row->name, why);
    }
}
