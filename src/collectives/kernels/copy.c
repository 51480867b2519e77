/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of copy and sum kernels, and the kernel in use: one atomic pointer.
 * Every thread that finds the pointer empty computes the same best kernel, so
 * the race is harmless.
 */
#include "collectives/kernels/copy.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include "collectives/kernels/copy_kernel.h"

/* Best last; a machine that runs one runs all before it. */
static const struct uli_copy_kernel *const kernels[] = {
    &uli_copy_portable,
#ifdef __x86_64__
    &uli_copy_avx2,
    &uli_copy_avx512,
#endif
};
static const char *const names[] = {"portable", "avx2", "avx512"};
enum { NKERNELS = sizeof(kernels) / sizeof(kernels[0]) };

static _Atomic(const struct uli_copy_kernel *) current;

const char *const *
uli_copy_kernel_names(int32_t *count_p)
{
    int32_t count = 1;
    while (count < NKERNELS && kernels[count]->usable())
        count++;
    *count_p = count;
    return names;
}

static const struct uli_copy_kernel *
copy_best_kernel(void)
{
    int32_t count;
    uli_copy_kernel_names(&count);
    return kernels[count - 1];
}

const struct uli_copy_kernel *
uli_copy_kernel(void)
{
    const struct uli_copy_kernel *kernel =
        atomic_load_explicit(&current, memory_order_relaxed);
    if (!kernel) {
        kernel = copy_best_kernel();
        atomic_store_explicit(&current, kernel, memory_order_relaxed);
    }
    return kernel;
}

const char *
uli_copy_kernel_name(void)
{
    const struct uli_copy_kernel *kernel = uli_copy_kernel();
    int32_t i = 0;
    while (kernels[i] != kernel)
        i++;
    return names[i];
}

bool
uli_copy_kernel_select(const char *name)
{
    if (!name) {
        atomic_store_explicit(
            &current, copy_best_kernel(), memory_order_relaxed);
        return true;
    }
    int32_t count;
    uli_copy_kernel_names(&count);
    for (int32_t i = 0; i < count; i++) {
        if (strcmp(names[i], name))
            continue;
        atomic_store_explicit(&current, kernels[i], memory_order_relaxed);
        return true;
    }
    return false;
}
