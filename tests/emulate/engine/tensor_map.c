/* SPDX-License-Identifier: Apache-2.0
 *
 * The stand-in encoder of tensor maps. It refuses what the driver refuses, and
 * by name what the emulator does not do: other interleaves and fills, element
 * strides, a swizzle wider than the box.
 */
#include "emulate/engine/engine.h"
#include "emulate/include/cuda.h"
#include "emulate/include/cuda_runtime.h"

static uint32_t
element_bytes(CUtensorMapDataType type)
{
    static const uint8_t bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2};
    return (uint32_t)type < sizeof bytes ? bytes[type] : 0;
}

static const char *
map_refusal(const struct emu_map *m, const cuuint32_t *element_strides)
{
    uint64_t inner = (uint64_t)m->box[0] * m->element_bytes;
    if (m->base % 16)
        return "the address is not a multiple of 16";
    for (uint32_t d = 0; d < m->rank; d++) {
        if (!m->extents[d] || m->extents[d] > 1ull << 32)
            return "an extent is 0 or above 2^32";
        if (!m->box[d] || m->box[d] > 256)
            return "a box extent is 0 or above 256";
        if (element_strides[d] != 1)
            return "an element stride is not 1 (not emulated)";
        if (d + 1 < m->rank &&
            (m->strides[d] % 16 || m->strides[d] >= 1ull << 40))
            return "a stride is not a multiple of 16 or above 2^40";
    }
    if (inner % 16)
        return "the box's rows are not a multiple of 16 bytes";
    if (m->swizzle_bytes && inner > m->swizzle_bytes)
        return "the box's rows are wider than the swizzle";
    if (m->swizzle_bytes && inner < m->swizzle_bytes)
        return "the box's rows are narrower than the swizzle (not emulated)";
    return NULL;
}

CUresult
cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type,
    cuuint32_t rank, void *address, const cuuint64_t *extents,
    const cuuint64_t *strides, const cuuint32_t *box,
    const cuuint32_t *element_strides, CUtensorMapInterleave interleave,
    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
    CUtensorMapFloatOOBfill fill)
{
    static const uint32_t widths[] = {0, 32, 64, 128};
    struct emu_map m = {.magic = EMU_MAP_MAGIC,
        .element_bytes = element_bytes(type),
        .rank = rank,
        .base = (uintptr_t)address};
    (void)promotion;
    if (!map || (uintptr_t)map % 64 || !m.element_bytes || rank < 1 ||
        rank > EMU_MAP_RANK || (uint32_t)swizzle > 3)
        return CUDA_ERROR_INVALID_VALUE;
    if (interleave || fill)
        return CUDA_ERROR_NOT_SUPPORTED;
    m.swizzle_bytes = widths[swizzle];
    for (uint32_t d = 0; d < rank; d++) {
        m.extents[d] = extents[d];
        m.box[d] = box[d];
        if (d + 1 < rank)
            m.strides[d] = strides[d];
    }
    const char *why = map_refusal(&m, element_strides);
    if (why && !emu.config.quiet)
        fprintf(stderr, "emulator: tensor map refused: %s\n", why);
    if (why)
        return CUDA_ERROR_INVALID_VALUE;
    memset(map, 0, sizeof *map);
    memcpy(map, &m, sizeof m);
    return CUDA_SUCCESS;
}

cudaError_t
cudaGetDriverEntryPointByVersion(const char *symbol, void **function,
    unsigned version, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult *result)
{
    (void)version;
    (void)flags;
    bool known = strcmp(symbol, "cuTensorMapEncodeTiled") == 0;
    *function = known ? (void *)cuTensorMapEncodeTiled : NULL;
    if (result)
        *result = known ? cudaDriverEntryPointSuccess
                        : cudaDriverEntryPointSymbolNotFound;
    return known ? cudaSuccess : cudaErrorSymbolNotFound;
}
