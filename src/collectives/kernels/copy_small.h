/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs of a few bytes, shared by the copy kernels: single elements (an LSE
 * whose order changes) and short heads. Sizes known to the compiler become one
 * load and one store each.
 */
#ifndef ULI_COLLECTIVES_KERNELS_COPY_SMALL_H
#define ULI_COLLECTIVES_KERNELS_COPY_SMALL_H

#include <string.h>
#include "collectives/kernels/copy_kernel.h"

/* Copies every run of the plane; run_bytes is a constant where this is
 * inlined. */
static inline __attribute__((always_inline)) void
copy_fixed(const struct uli_copy_plane *plane, size_t run_bytes)
{
    for (int64_t j = 0; j < plane->extent[0]; j++) {
        unsigned char *dst = plane->dst + j * plane->dst_stride[0];
        const unsigned char *src = plane->src + j * plane->src_stride[0];
        for (int64_t k = 0; k < plane->extent[1]; k++) {
            memcpy(dst, src, run_bytes);
            dst += plane->dst_stride[1];
            src += plane->src_stride[1];
        }
    }
}

/* Copies the plane if its run_bytes is one of the sizes below 64 listed
 * here. */
static inline bool
copy_small(const struct uli_copy_plane *plane)
{
    switch (plane->run_bytes) {
    case 1:
        copy_fixed(plane, 1);
        return true;
    case 2:
        copy_fixed(plane, 2);
        return true;
    case 4:
        copy_fixed(plane, 4);
        return true;
    case 8:
        copy_fixed(plane, 8);
        return true;
    case 16:
        copy_fixed(plane, 16);
        return true;
    case 32:
        copy_fixed(plane, 32);
        return true;
    default:
        return false;
    }
}

#endif
