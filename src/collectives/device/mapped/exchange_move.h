/* SPDX-License-Identifier: Apache-2.0
 *
 * One tile of a copy or of zeros, by one warp. A tile is a range of an item's
 * bytes in loop order, read as vectors of the widest power of two, 16 bytes
 * at most, that the run, all strides and the distance of source and destination
 * are multiples of. Lanes take neighbouring vectors, across the ends of rows:
 * short rows leave no lane idle. A lane's position is a number of four digits
 * (i, j, k, vector of the run) to which 32 is added with carries: no division
 * but at the start.
 *
 * Where both begin `shift` bytes before a multiple of the vector, vector v of a
 * row is bytes [v * width + shift, ...) of it, and the last one its two edges,
 * the first shift bytes and what is left at the end, which are moved apart.
 */
#ifndef ULI_COLLECTIVES_DEVICE_MAPPED_EXCHANGE_MOVE_H
#define ULI_COLLECTIVES_DEVICE_MAPPED_EXCHANGE_MOVE_H

#include "collectives/device/mapped/exchange_flags.h"

struct digits {
    int64_t i, j, k, v;
};

struct walk {
    struct digits at, step, size; /* size.i is not needed */
};

static __device__ int64_t
divide_rest(int64_t a, int64_t b, int64_t *rest_p)
{
    if (((a | b) >> 32) == 0) {
        uint32_t q = (uint32_t)a / (uint32_t)b;
        *rest_p = (int64_t)((uint32_t)a - q * (uint32_t)b);
        return q;
    }
    *rest_p = a % b;
    return a / b;
}

static __device__ __noinline__ struct digits
digits_of(int64_t number, const struct digits &size)
{
    struct digits d;
    number = divide_rest(number, size.v, &d.v);
    number = divide_rest(number, size.k, &d.k);
    d.i = divide_rest(number, size.j, &d.j);
    return d;
}

/* vectors: of a run. */
PTX_FN struct walk
walk_from(const uli_gpu_item &item, int64_t vectors, int64_t first)
{
    struct walk w;
    w.size.i = 0;
    w.size.j = item.extent[1];
    w.size.k = item.extent[2];
    w.size.v = vectors;
    w.at = digits_of(first, w.size);
    w.step = digits_of(WARP, w.size);
    return w;
}

PTX_FN void
walk_on(struct walk &w)
{
    w.at.v += w.step.v;
    w.at.k += w.step.k;
    w.at.j += w.step.j;
    w.at.i += w.step.i;
    if (w.at.v >= w.size.v) {
        w.at.v -= w.size.v;
        w.at.k++;
    }
    if (w.at.k >= w.size.k) {
        w.at.k -= w.size.k;
        w.at.j++;
    }
    if (w.at.j >= w.size.j) {
        w.at.j -= w.size.j;
        w.at.i++;
    }
}

/* Bytes from the base; bytes: of one vector. */
PTX_FN int64_t
walk_offset(const struct digits &at, const int64_t (&stride)[3], int64_t bytes)
{
    return at.i * stride[0] + at.j * stride[1] + at.k * stride[2] +
           at.v * bytes;
}

/* The edges of the rows whose last vectors are in [first, end), units of U. */
template <typename U>
static __device__ __noinline__ void
move_edges(const uli_gpu_item &item, unsigned char *dst,
    const unsigned char *src, int64_t first, int64_t end, int64_t width,
    int64_t shift)
{
    const int64_t unit = sizeof(U);
    int64_t each = width / unit, lane = threadIdx.x % WARP;
    struct digits size = {0, item.extent[1], item.extent[2], each};
    int64_t vectors = item.run / width, rest;
    end = divide_rest(end, vectors, &rest) * each;
    for (int64_t n = divide_rest(first, vectors, &rest) * each + lane; n < end;
         n += WARP) {
        struct digits at = digits_of(n, size);
        int64_t in_row = at.v * unit;
        in_row += in_row < shift ? 0 : item.run - width;
        at.v = 0;
        U held = 0;
        if (item.kind == ULI_GPU_COPY)
            load_vector(
                held, src + walk_offset(at, item.src_stride, 0) + in_row);
        store_vector(dst + walk_offset(at, item.dst_stride, 0) + in_row, held);
    }
}

/* Bytes [begin, end) of the item, in vectors of type T. */
template <typename T>
static __device__ void
move_vectors(const uli_gpu_item &item, unsigned char *dst,
    const unsigned char *src, int64_t begin, int64_t end)
{
    const int64_t bytes = sizeof(T);
    int64_t lane = threadIdx.x % WARP, count = (end - begin) / bytes;
    int64_t shift = (int64_t)(-(uintptr_t)dst % sizeof(T));
    bool zero = item.kind == ULI_GPU_ZERO;
    struct walk w = walk_from(item, item.run / bytes, begin / bytes + lane);
    if (shift % 2)
        move_edges<uint8_t>(
            item, dst, src, begin / bytes, end / bytes, bytes, shift);
    else if (shift)
        move_edges<uint16_t>(
            item, dst, src, begin / bytes, end / bytes, bytes, shift);
    int64_t edge = shift ? w.size.v - 1 : -1;
    dst += shift;
    src += zero ? 0 : shift;
    for (int64_t n = lane; n < count; n += WARP * IN_FLIGHT) {
        T held[IN_FLIGHT] = {};
        unsigned char *to[IN_FLIGHT];
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; u++) {
            bool here = n + u * WARP < count && w.at.v != edge;
            to[u] = here ? dst + walk_offset(w.at, item.dst_stride, bytes)
                         : nullptr;
            if (!zero && here)
                load_vector(
                    held[u], src + walk_offset(w.at, item.src_stride, bytes));
            walk_on(w);
        }
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; u++)
            if (to[u])
                store_vector(to[u], held[u]);
    }
}

/* dst, src: where the item's first bytes are. */
static __device__ void
move_tile(const uli_gpu_item &item, unsigned char *dst,
    const unsigned char *src, int64_t begin, int64_t end)
{
    uint64_t bits = item.align;
    if (item.kind == ULI_GPU_COPY)
        bits |= (uint64_t)(uintptr_t)dst - (uint64_t)(uintptr_t)src;
    if (bits % 16 == 0)
        move_vectors<uint4>(item, dst, src, begin, end);
    else if (bits % 8 == 0)
        move_vectors<uint64_t>(item, dst, src, begin, end);
    else if (bits % 4 == 0)
        move_vectors<uint32_t>(item, dst, src, begin, end);
    else if (bits % 2 == 0)
        move_vectors<uint16_t>(item, dst, src, begin, end);
    else
        move_vectors<uint8_t>(item, dst, src, begin, end);
}

#endif
