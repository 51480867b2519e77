/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain bytes from one place to another, by one warp: in vectors as wide as
 * both places permit once the first bytes have been moved one by one, so that
 * places that are misaligned alike cost a few bytes only.
 */
#ifndef ULI_COLLECTIVES_DEVICE_COLLECTIVE_COLLECTIVE_MOVE_H
#define ULI_COLLECTIVES_DEVICE_COLLECTIVE_COLLECTIVE_MOVE_H

#include "device/cuda/warp.h"

static __device__ __noinline__ void
warp_copies(unsigned char *dst, const unsigned char *src, int64_t bytes)
{
    uint64_t differ = ((uint64_t)(uintptr_t)dst ^ (uint64_t)(uintptr_t)src);
    int64_t width = (int64_t)((differ | 16) & (0 - (differ | 16)));
    int64_t head = (int64_t)(0 - (uint64_t)(uintptr_t)dst) & (width - 1);
    head = head < bytes ? head : bytes;
    int64_t middle = (bytes - head) / width * width;
    int64_t tail = bytes - head - middle;
    if (head)
        warp_copies_as<uint8_t>(dst, src, head);
    dst += head;
    src += head;
    if (width == 16)
        warp_copies_as<uint4>(dst, src, middle / 16);
    else if (width == 8)
        warp_copies_as<uint64_t>(dst, src, middle / 8);
    else if (width == 4)
        warp_copies_as<uint32_t>(dst, src, middle / 4);
    else if (width == 2)
        warp_copies_as<uint16_t>(dst, src, middle / 2);
    else
        warp_copies_as<uint8_t>(dst, src, middle);
    if (tail)
        warp_copies_as<uint8_t>(dst + middle, src + middle, tail);
}

#endif
