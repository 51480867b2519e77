/* SPDX-License-Identifier: Apache-2.0
 *
 * The copy kernel that runs everywhere: plain C around memcpy.
 */
#include "collectives/kernels/copy_kernel.h"
#include "collectives/kernels/copy_small.h"

static void
plane_copy(const struct uli_copy_plane *plane, const struct uli_copy_way *way)
{
    (void)way;
    if (!copy_small(plane))
        copy_fixed(plane, (size_t)plane->run_bytes);
}

static bool
portable_usable(void)
{
    return true;
}

const struct uli_copy_kernel uli_copy_portable = {
    .usable = portable_usable,
    .copy = plane_copy,
    .sum_f32 = &uli_sum_portable_f32,
    .sum_f64 = &uli_sum_portable_f64,
};
