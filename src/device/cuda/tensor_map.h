/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor maps for TMA. The encoder is looked up in the driver, so that nothing
 * links to libcuda. Plain C and CUDA C++.
 */
#ifndef DEVICE_CUDA_TENSOR_MAP_H
#define DEVICE_CUDA_TENSOR_MAP_H

#include <stdint.h>
#include <cuda.h>
#include <cuda_runtime.h>

#define ULI_TENSOR_MAP_RANK 5

/* Dimensions innermost first; the innermost one is dense. */
struct uli_tensor_map_spec {
    CUtensorMapDataType type;
    uint32_t rank;                         /* 1 .. 5 */
    void *base;                            /* a multiple of 16 */
    uint64_t extents[ULI_TENSOR_MAP_RANK]; /* none may be 0 */
    /* bytes from one element of dimension d + 1 to the next: multiples of 16 */
    uint64_t strides[ULI_TENSOR_MAP_RANK - 1];
    uint32_t box[ULI_TENSOR_MAP_RANK]; /* 1 .. 256 */
    uint32_t swizzle_bytes; /* 0, 32, 64, 128: the width of the box's rows */
};

/* Writes *map (at a multiple of 64), or returns cudaErrorInvalidValue for a
 * map that the driver refuses, cudaErrorSymbolNotFound without an encoder. */
static inline cudaError_t
uli_tensor_map_encode(CUtensorMap *map, const struct uli_tensor_map_spec *spec)
{
    typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType,
        cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *,
        const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
        CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    const cuuint32_t ones[ULI_TENSOR_MAP_RANK] = {1, 1, 1, 1, 1};
    enum cudaDriverEntryPointQueryResult found;
    void *encode = NULL;
    CUtensorMapSwizzle swizzle =
        spec->swizzle_bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
        : spec->swizzle_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
        : spec->swizzle_bytes == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                                    : CU_TENSOR_MAP_SWIZZLE_NONE;
    cudaError_t error = cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &found);
    if (error != cudaSuccess || !encode)
        return error != cudaSuccess ? error : cudaErrorSymbolNotFound;
    CUresult result = ((encode_fn)encode)(map, spec->type, spec->rank,
        spec->base, (const cuuint64_t *)spec->extents,
        (const cuuint64_t *)spec->strides, spec->box, ones,
        CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

#endif
