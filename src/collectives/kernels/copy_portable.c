/* SPDX-License-Identifier: Apache-2.0
 *
 * The copy kernel that runs everywhere: plain C around memcpy.
 */
#include <string.h>
#include "collectives/kernels/copy_kernel.h"
#include "collectives/kernels/copy_small.h"

static void
plane_copy(const struct uli_copy_plane *plane, const struct uli_copy_way *way)
{
    (void)way;
    if (!copy_small(plane))
        copy_fixed(plane, (size_t)plane->run_bytes);
}

static void
plane_fan(const struct uli_copy_fan *fan, const struct uli_copy_way *way)
{
    (void)way;
    for (int64_t i = 0; i < fan->rows; i++)
        for (int32_t t = 0; t < fan->ntargets; t++) {
            const struct uli_copy_target *target = &fan->targets[t];
            memcpy(target->dst + i * target->dst_stride,
                fan->src + target->src_offset + i * fan->src_stride,
                (size_t)fan->run_bytes);
        }
}

static bool
portable_usable(void)
{
    return true;
}

const struct uli_copy_kernel uli_copy_portable = {
    .usable = portable_usable,
    .copy = plane_copy,
    .fan = plane_fan,
    .sum_f32 = &uli_sum_portable_f32,
    .sum_f64 = &uli_sum_portable_f64,
};
