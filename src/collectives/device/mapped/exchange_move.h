/* SPDX-License-Identifier: Apache-2.0
 *
 * Moves one tile of a copy or of zeros, by one warp. A tile is a range of an
 * item's bytes in loop order. The tile is moved in vectors of at most 16 bytes:
 * the largest power of two that divides the run, all strides, and the distance
 * of source and destination. Lanes take neighbouring vectors, across the ends
 * of runs, so short runs leave no lane idle. A lane's position is a number of
 * four digits (i, j, k, vector of the run), to which 32 is added with carries.
 * The lane keeps its two addresses, and each carry adds a constant to them, so
 * strides are read and divisions are made once per tile.
 *
 * Where source and destination both begin `shift` bytes before a multiple of
 * the vector's width, vector v of a run has the bytes from v * width + shift
 * on. The last vector would then reach beyond the run. In its place
 * move_edges() moves the two edges of the run: the first `shift` bytes, and the
 * bytes that are left at the end.
 */
#ifndef ULI_COLLECTIVES_DEVICE_MAPPED_EXCHANGE_MOVE_H
#define ULI_COLLECTIVES_DEVICE_MAPPED_EXCHANGE_MOVE_H

#include "collectives/device/mapped/exchange_flags.h"

struct digits {
    int64_t i, j, k, v;
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

/* Divides the number of a vector into its digits. size.i is not read. */
static __device__ __noinline__ struct digits
digits_of(int64_t number, const struct digits &size)
{
    struct digits d;
    number = divide_rest(number, size.v, &d.v);
    number = divide_rest(number, size.k, &d.k);
    d.i = divide_rest(number, size.j, &d.j);
    return d;
}

/* The offset in bytes. bytes: the size of a vector. */
PTX_FN int64_t
digits_offset(const struct digits &at, const int64_t *stride, int64_t bytes)
{
    return at.i * stride[0] + at.j * stride[1] + at.k * stride[2] +
           at.v * bytes;
}

/* Adds a step with carries; each digit carries once at most. */
PTX_FN void
digits_add(
    struct digits &at, const struct digits &step, const struct digits &size)
{
    at.v += step.v;
    at.k += step.k;
    at.j += step.j;
    at.i += step.i;
    if (at.v >= size.v) {
        at.v -= size.v;
        at.k++;
    }
    if (at.k >= size.k) {
        at.k -= size.k;
        at.j++;
    }
    if (at.j >= size.j) {
        at.j -= size.j;
        at.i++;
    }
}

/* ---- a lane's walk ------------------------------------------------------- */

/* One side of a lane's walk: the address, what WARP vectors add to it, and what
 * a carry out of v, k or j adds. */
struct walk_side {
    unsigned char *at;
    int64_t step, carry[3];
};

/* For v, k and j: `left` until the next carry, the `size` of the digit, and the
 * `step` that an advance by WARP vectors adds. Numbers are cut to WALK_MOST,
 * because a tile ends before a digit with a larger size carries. */
struct walk {
    int32_t left[3], size[3], step[3];
    struct walk_side dst, src;
};

enum { WALK_MOST = INT32_MAX - ULI_GPU_LINE };

PTX_FN int32_t
walk_cut(int64_t number)
{
    return (int32_t)(number < WALK_MOST ? number : (int64_t)WALK_MOST);
}

PTX_FN struct walk_side
walk_side_from(unsigned char *base, const int64_t (&stride)[3],
    const struct digits &at, const struct digits &step,
    const struct digits &size, int64_t bytes)
{
    struct walk_side side;
    side.at = base + digits_offset(at, stride, bytes);
    side.step = digits_offset(step, stride, bytes);
    side.carry[0] = stride[2] - size.v * bytes;
    side.carry[1] = stride[1] - size.k * stride[2];
    side.carry[2] = stride[0] - size.j * stride[1];
    return side;
}

/* first: the lane's first vector in loop order; bytes: the size of a vector. */
PTX_FN struct walk
walk_from(const uli_gpu_item &item, unsigned char *dst,
    const unsigned char *src, int64_t first, int64_t bytes)
{
    struct digits size = {0, item.extent[1], item.extent[2], item.run / bytes};
    struct digits at = digits_of(first, size), step = digits_of(WARP, size);
    struct walk w = {{walk_cut(size.v - at.v), walk_cut(size.k - at.k),
                         walk_cut(size.j - at.j)},
        {walk_cut(size.v), walk_cut(size.k), walk_cut(size.j)},
        {(int32_t)step.v, (int32_t)step.k, (int32_t)step.j},
        walk_side_from(dst, item.dst_stride, at, step, size, bytes),
        walk_side_from(
            (unsigned char *)src, item.src_stride, at, step, size, bytes)};
    return w;
}

/* Advances by WARP vectors. A digit carries once at most. */
PTX_FN void
walk_advance(struct walk &w)
{
    w.dst.at += w.dst.step;
    w.src.at += w.src.step;
#pragma unroll
    for (int d = 0; d < 3; d++) {
        w.left[d] -= w.step[d];
        if (w.left[d] <= 0) {
            w.left[d] += w.size[d];
            if (d < 2)
                w.left[d + 1]--;
            w.dst.at += w.dst.carry[d];
            w.src.at += w.src.carry[d];
        }
    }
}

/* Moves the edges of the runs whose last vectors are in [first, end), in units
 * of U. */
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
                held, src + digits_offset(at, item.src_stride, 0) + in_row);
        store_vector(
            dst + digits_offset(at, item.dst_stride, 0) + in_row, held);
    }
}

/* Moves or zeros bytes [begin, end) of the item, in vectors of type T. */
template <typename T>
static __device__ void
move_vectors(const uli_gpu_item &item, unsigned char *dst,
    const unsigned char *src, int64_t begin, int64_t end)
{
    const int64_t bytes = sizeof(T);
    int32_t lane = (int32_t)(threadIdx.x % WARP);
    int32_t count = (int32_t)((end - begin) / bytes);
    int64_t shift = (int64_t)(-(uintptr_t)dst % sizeof(T));
    bool zero = item.kind == ULI_GPU_ZERO;
    if (shift % 2)
        move_edges<uint8_t>(
            item, dst, src, begin / bytes, end / bytes, bytes, shift);
    else if (shift)
        move_edges<uint16_t>(
            item, dst, src, begin / bytes, end / bytes, bytes, shift);
    struct walk w =
        walk_from(item, dst + shift, src + shift, begin / bytes + lane, bytes);
    int32_t edge = shift ? 1 : 0; /* w.left[0] at the last vector of a run */
    for (int32_t n = lane; n < count; n += WARP * IN_FLIGHT) {
        T held[IN_FLIGHT] = {};
        unsigned char *to[IN_FLIGHT];
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; u++) {
            bool here = n + u * WARP < count && w.left[0] != edge;
            to[u] = here ? w.dst.at : nullptr;
            if (!zero && here)
                load_vector(held[u], w.src.at);
            walk_advance(w);
        }
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; u++)
            if (to[u])
                store_vector(to[u], held[u]);
    }
}

/* dst, src: addresses of the item's first bytes. */
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
