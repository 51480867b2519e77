/* SPDX-License-Identifier: Apache-2.0
 *
 * wgmma descriptors (address bits 4-17 at bit 0, leading byte offset at 16,
 * stride byte offset at 32, base offset at 49, swizzle at 62). W = swizzle
 * width in bytes. Address of the 16-byte piece before swizzling:
 *
 *   K-major, W:     start + row/8 * SBO + row%8 * W + k/8 * 16
 *   K-major, none:  start + row/8 * SBO + row%8 * 16 + k/8 * LBO
 *   MN-major, W:    start + row/(W/2) * LBO + k/8 * SBO + k%8 * W
 *                         + row%(W/2)/8 * 16
 *   MN-major, none: start + row/8 * SBO + k/8 * LBO + k%8 * 16
 *
 * The swizzle is by absolute address bits. With a base offset the card takes
 * the pattern's row from the offset in the tile, exclusive-or the base offset:
 * not what data placed by address bits needs, so half the rows are wrong.
 */
#include "emulate/engine/wgmma.h"

struct emu_descriptor
emu_descriptor_decode(uint64_t bits)
{
    static const uint32_t widths[] = {0, 128, 64, 32};
    struct emu_descriptor d = {.start = (uint32_t)(bits & 0x3fff) << 4,
        .leading = (uint32_t)(bits >> 16 & 0x3fff) << 4,
        .stride = (uint32_t)(bits >> 32 & 0x3fff) << 4,
        .base_offset = (uint32_t)(bits >> 49 & 7),
        .swizzle_bytes = widths[bits >> 62]};
    return d;
}

const char *
emu_descriptor_problem(const struct emu_descriptor *d)
{
    uint32_t pattern = 8 * d->swizzle_bytes;
    if (!d->swizzle_bytes)
        return NULL;
    if (d->base_offset)
        return "a base offset, which does not give what address bits did; "
               "keep tiles at multiples of 1024 bytes";
    if (d->start % pattern >= d->swizzle_bytes)
        return "the tile does not start where the swizzle's pattern does";
    return NULL;
}

static uint32_t
descriptor_swizzled(const struct emu_descriptor *d, uint32_t linear)
{
    uint32_t mask = d->swizzle_bytes ? d->swizzle_bytes / 16 - 1 : 0;
    if (!d->base_offset)
        return emu_swizzle(linear, d->swizzle_bytes);
    uint32_t row = ((linear - d->start) >> 7) ^ d->base_offset;
    return linear ^ ((row & mask) << 4);
}

static uint32_t
piece_k_major(const struct emu_descriptor *d, uint32_t row, uint32_t k)
{
    uint32_t w = d->swizzle_bytes;
    uint32_t base = d->start + row / 8 * d->stride;
    return descriptor_swizzled(d, w ? base + row % 8 * w + k / 8 * 16
                                    : base + row % 8 * 16 + k / 8 * d->leading);
}

static uint32_t
piece_mn_major(const struct emu_descriptor *d, uint32_t row, uint32_t k)
{
    uint32_t w = d->swizzle_bytes;
    if (!w)
        return d->start + row / 8 * d->stride + k / 8 * d->leading + k % 8 * 16;
    return descriptor_swizzled(d, d->start + row / (w / 2) * d->leading +
                                      k / 8 * d->stride + k % 8 * w +
                                      row % (w / 2) / 8 * 16);
}

bool
emu_descriptor_load(const struct emu_descriptor *d, int type, bool trans,
    uint32_t count, const struct emu_accessor *who, float (*tile)[EMU_K16])
{
    struct emu_block *block = who->block;
    uint32_t row_step = trans ? 8 : 1, k_step = trans ? 1 : 8;
    for (uint32_t row = 0; row < count; row += row_step)
        for (uint32_t k = 0; k < EMU_K16; k += k_step) {
            uint32_t address =
                trans ? piece_mn_major(d, row, k) : piece_k_major(d, row, k);
            const uint16_t *piece =
                (const uint16_t *)emu_shared_at(block, address & 0x3ffff);
            if (!emu_memory_access(&who[row / 16 % 4], piece, 16, false))
                return false;
            for (uint32_t i = 0; i < 8; i++) {
                float v = type == EMU_BF16 ? emu_bf16_to_float(piece[i])
                                           : emu_f16_to_float(piece[i]);
                tile[trans ? row + i : row][trans ? k : k + i] = v;
            }
        }
    return true;
}
