/* SPDX-License-Identifier: Apache-2.0
 *
 * wgmma's operands in shared memory: where a descriptor puts the 16-byte
 * pieces of a K-major or MN-major tile.
 */
#ifndef EMULATE_ENGINE_WGMMA_H
#define EMULATE_ENGINE_WGMMA_H

#include "emulate/engine/engine.h"

enum { EMU_K16 = 16 };

struct emu_descriptor {
    uint32_t start, leading, stride, swizzle_bytes, base_offset;
};

struct emu_descriptor emu_descriptor_decode(uint64_t bits);
/* Returns NULL, or the reason why a card would not read the intended bytes. */
const char *emu_descriptor_problem(const struct emu_descriptor *d);
/* Reads the values [row][k] of a tile of `count` rows x 16. The accessor of the
 * bytes of row r is who[r / 16 % 4]. Returns false after a fatal fault. */
bool emu_descriptor_load(const struct emu_descriptor *d, int type, bool trans,
    uint32_t count, const struct emu_accessor *who, float (*tile)[EMU_K16]);

#endif
