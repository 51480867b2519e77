/* SPDX-License-Identifier: Apache-2.0
 *
 * One tile of an ordered sum, by one warp. Each lane loads the shares of its
 * elements in the plan's order, adds them in registers, and stores once. The
 * bits are those of sum.c, because the tree (the shares of a group to a partial
 * sum, the partial sums to the total) and the conversions (sum_convert.h) are
 * the same.
 */
#ifndef ULI_COLLECTIVES_DEVICE_MAPPED_EXCHANGE_SUM_H
#define ULI_COLLECTIVES_DEVICE_MAPPED_EXCHANGE_SUM_H

#include "collectives/device/mapped/exchange_laid.h"
#include "collectives/device/mapped/exchange_move.h"
#include "collectives/kernels/sum_convert.h"
#include "ulyx/types.h"

/* How many vectors of a lane, and shares of each, are loaded before the first
 * share is added. */
enum { SUM_VECTORS = 4, SUM_SHARES = 2 };

/* ---- elements in memory: BYTES of them as words of 32 bits --------------- */

template <int BYTES> struct elements {
    uint32_t word[BYTES < 4 ? 1 : BYTES / 4];
};

PTX_FN void
load_elements(elements<16> &e, const unsigned char *p)
{
    uint4 v = ptx_ld_stream_v4(p);
    e.word[0] = v.x;
    e.word[1] = v.y;
    e.word[2] = v.z;
    e.word[3] = v.w;
}

/* Loads one element of any alignment, or several that are aligned. */
template <int BYTES>
PTX_FN void
load_elements(elements<BYTES> &e, const unsigned char *p)
{
    if ((uintptr_t)p % BYTES == 0) {
        if (BYTES == 8) {
            uint64_t v = *(const uint64_t *)p;
            e.word[0] = (uint32_t)v;
            e.word[BYTES / 8] = (uint32_t)(v >> 32);
        } else if (BYTES == 4) {
            e.word[0] = *(const uint32_t *)p;
        } else {
            e.word[0] = *(const uint16_t *)p;
        }
        return;
    }
#pragma unroll
    for (int w = 0; w < (BYTES < 4 ? 1 : BYTES / 4); w++)
        e.word[w] = 0;
#pragma unroll
    for (int b = 0; b < BYTES; b++)
        e.word[b / 4] |= (uint32_t)p[b] << 8 * (b % 4);
}

PTX_FN void
store_elements(unsigned char *p, const elements<16> &e)
{
    ptx_st_stream_v4(p, make_uint4(e.word[0], e.word[1], e.word[2], e.word[3]));
}

PTX_FN void
store_elements(unsigned char *p, const elements<32> &e)
{
    ptx_st_stream_v4(p, make_uint4(e.word[0], e.word[1], e.word[2], e.word[3]));
    ptx_st_stream_v4(
        p + 16, make_uint4(e.word[4], e.word[5], e.word[6], e.word[7]));
}

template <int BYTES>
PTX_FN void
store_elements(unsigned char *p, const elements<BYTES> &e)
{
    if ((uintptr_t)p % BYTES == 0) {
        if (BYTES == 8)
            *(uint64_t *)p =
                (uint64_t)e.word[BYTES / 8] << 32 | (uint64_t)e.word[0];
        else if (BYTES == 4)
            *(uint32_t *)p = e.word[0];
        else
            *(uint16_t *)p = (uint16_t)e.word[0];
        return;
    }
#pragma unroll
    for (int b = 0; b < BYTES; b++)
        p[b] = (unsigned char)(e.word[b / 4] >> 8 * (b % 4));
}

/* ---- one element --------------------------------------------------------- */

template <int DTYPE> struct element_bytes {
    enum {
        value = DTYPE == ULYX_DTYPE_F64   ? 8
                : DTYPE == ULYX_DTYPE_F32 ? 4
                                          : 2
    };
};

template <int DTYPE, typename ACC, int BYTES>
PTX_FN ACC
element_decode(const elements<BYTES> &e, int i)
{
    if (DTYPE == ULYX_DTYPE_F64) {
        uint64_t bits =
            (uint64_t)e.word[(2 * i + 1) % (BYTES < 4 ? 1 : BYTES / 4)] << 32 |
            e.word[2 * i % (BYTES < 4 ? 1 : BYTES / 4)];
        double value;
        memcpy(&value, &bits, sizeof(value));
        return (ACC)value;
    }
    if (DTYPE == ULYX_DTYPE_F32)
        return (ACC)sum_f32_of_bits(e.word[i % (BYTES < 4 ? 1 : BYTES / 4)]);
    uint16_t stored = (uint16_t)(e.word[i / 2] >> 16 * (i % 2));
    return (ACC)(DTYPE == ULYX_DTYPE_BF16 ? sum_f32_of_bf16(stored)
                                          : sum_f32_of_f16(stored));
}

template <int DTYPE>
PTX_FN uint64_t
element_encode(float value)
{
    return DTYPE == ULYX_DTYPE_BF16  ? sum_bf16_of_f32(value)
           : DTYPE == ULYX_DTYPE_F16 ? sum_f16_of_f32(value)
                                     : sum_canonical_f32(value);
}

template <int DTYPE>
PTX_FN uint64_t
element_encode(double value)
{
    return DTYPE == ULYX_DTYPE_F64   ? sum_canonical_f64(value)
           : DTYPE == ULYX_DTYPE_F32 ? sum_canonical_f32((float)value)
           : DTYPE == ULYX_DTYPE_BF16
               ? sum_bf16_of_f32(sum_f32_odd_of_f64(value))
               : sum_f16_of_f32(sum_f32_odd_of_f64(value));
}

template <int DTYPE, typename ACC, int V>
PTX_FN void
round_elements(
    elements<V * element_bytes<DTYPE>::value> &e, const ACC (&total)[V])
{
    e = {};
#pragma unroll
    for (int i = 0; i < V; i++) {
        uint64_t bits = element_encode<DTYPE>(total[i]);
        int at = i * element_bytes<DTYPE>::value;
        e.word[at / 4] |= (uint32_t)bits << 8 * (at % 4);
        if (DTYPE == ULYX_DTYPE_F64)
            e.word[at / 4 + (DTYPE == ULYX_DTYPE_F64)] = (uint32_t)(bits >> 32);
    }
}

template <int DTYPE, typename ACC, int V>
PTX_FN void
round_and_store(unsigned char *p, const ACC (&total)[V])
{
    elements<V * element_bytes<DTYPE>::value> e;
    round_elements<DTYPE>(e, total);
    store_elements(p, e);
}

template <typename ACC, int V>
PTX_FN void
store_total(int32_t dtype, unsigned char *p, const ACC (&total)[V])
{
    if (dtype == ULYX_DTYPE_BF16)
        round_and_store<ULYX_DTYPE_BF16>(p, total);
    else if (dtype == ULYX_DTYPE_F16)
        round_and_store<ULYX_DTYPE_F16>(p, total);
    else if (sizeof(ACC) == 4 || dtype == ULYX_DTYPE_F32)
        round_and_store<ULYX_DTYPE_F32>(p, total);
    else
        round_and_store<ULYX_DTYPE_F64>(p, total);
}

/* ---- a tile -------------------------------------------------------------- */

/* The address of a share; NULL when its owner's tensor cannot be reached. */
static __device__ const unsigned char *
share_of(const struct call &c, const uli_gpu_item &item, int32_t s)
{
    const uli_gpu_source &source = c.args->sources[item.first_source + s];
    const unsigned char *base =
        source.slot ? c.args->peers[source.rank].slot_in +
                          (int64_t)(c.n & 1) * c.args->slot_bytes
                    : tensor_of(c, source.rank, item.tensor, false);
    int64_t offset = item.laid ? share_offset(c, item, s) : source.offset;
    return base ? base + offset : nullptr;
}

/* A share, as a warp reads it throughout a tile. */
struct share {
    const unsigned char *base;
    int64_t stride[3];
    int32_t group;
};

/* Finds shares [s, s + SUM_SHARES), as many as there are. */
static __device__ void
shares_from(const struct call &c, const uli_gpu_item &item, int32_t s,
    struct share (&shares)[SUM_SHARES])
{
#pragma unroll
    for (int u = 0; u < SUM_SHARES; u++) {
        if (s + u >= item.nsources)
            return;
        const uli_gpu_source &source =
            c.args->sources[item.first_source + s + u];
        shares[u].base = share_of(c, item, s + u);
        const int64_t *stride =
            item.laid ? share_stride(c, item, s + u) : source.stride;
        for (int d = 0; d < 3; d++)
            shares[u].stride[d] = stride[d];
        shares[u].group = source.group;
    }
}

/* For each vector the total, and the partial sum of the current group unless
 * the current group is the first. */
template <typename ACC, int V> struct tree {
    ACC total[SUM_VECTORS][V], part[SUM_VECTORS][V];
    int32_t group;
    bool first_group;
};

template <typename ACC, int V>
PTX_FN void
tree_close_group(struct tree<ACC, V> &t)
{
    if (!t.first_group)
#pragma unroll
        for (int n = 0; n < SUM_VECTORS; n++)
#pragma unroll
            for (int i = 0; i < V; i++)
                t.total[n][i] += t.part[n][i];
}

template <int DTYPE, typename ACC, int V>
PTX_FN void
tree_add(struct tree<ACC, V> &t, int32_t s, int32_t group,
    const elements<V * element_bytes<DTYPE>::value> (&e)[SUM_VECTORS])
{
    bool opens = s > 0 && group != t.group;
    if (opens) {
        tree_close_group(t);
        t.first_group = false;
    }
    t.group = group;
#pragma unroll
    for (int n = 0; n < SUM_VECTORS; n++)
#pragma unroll
        for (int i = 0; i < V; i++) {
            ACC value = element_decode<DTYPE, ACC>(e[n], i);
            if (s == 0)
                t.total[n][i] = value;
            else if (opens)
                t.part[n][i] = value;
            else if (t.first_group)
                t.total[n][i] += value;
            else
                t.part[n][i] += value;
        }
}

/* A lane's position in loop order, WARP vectors, and how many there are. */
struct sum_walk {
    struct digits at, step, size;
};

PTX_FN struct sum_walk
sum_walk_from(const uli_gpu_item &item, int64_t v, int64_t first)
{
    struct sum_walk w;
    w.size = {0, item.extent[1], item.extent[2], item.run / v};
    w.at = digits_of(first, w.size);
    w.step = digits_of(WARP, w.size);
    return w;
}

/* Adds shares [s, s + SUM_SHARES) of the lane's next SUM_VECTORS vectors, which
 * are WARP apart. left: vectors from the first of them to the end of the tile.
 */
template <int DTYPE, typename ACC, int V>
PTX_FN void
tree_add_shares(struct tree<ACC, V> &t, const uli_gpu_item &item,
    const struct share (&shares)[SUM_SHARES], int32_t s,
    const struct sum_walk &w, int64_t left)
{
    constexpr int BYTES = V * element_bytes<DTYPE>::value;
    elements<BYTES> held[SUM_SHARES][SUM_VECTORS] = {};
    struct digits at = w.at;
#pragma unroll
    for (int n = 0; n < SUM_VECTORS; n++) {
#pragma unroll
        for (int u = 0; u < SUM_SHARES; u++)
            if (s + u < item.nsources && left > n * WARP)
                load_elements(
                    held[u][n], shares[u].base +
                                    digits_offset(at, shares[u].stride, BYTES));
        digits_add(at, w.step, w.size);
    }
#pragma unroll
    for (int u = 0; u < SUM_SHARES; u++)
        if (s + u < item.nsources)
            tree_add<DTYPE>(t, s + u, shares[u].group, held[u]);
}

/* Sums elements [begin, end) of the item in loop order, V at a time. */
template <int DTYPE, typename ACC, int V>
static __device__ void
sum_vectors(const struct call &c, const uli_gpu_item &item, unsigned char *dst,
    int64_t dst_bytes, int64_t begin, int64_t end)
{
    int64_t lane = threadIdx.x % WARP;
    struct sum_walk w = sum_walk_from(item, V, begin / V + lane);
    struct share shares[SUM_SHARES] = {};
    bool all = item.nsources <= SUM_SHARES;
    if (all)
        shares_from(c, item, 0, shares);
    for (int64_t left = (end - begin) / V - lane; left > 0;
         left -= SUM_VECTORS * WARP) {
        struct tree<ACC, V> t = {};
        t.first_group = true;
        for (int32_t s = 0; s < item.nsources; s += SUM_SHARES) {
            if (!all)
                shares_from(c, item, s, shares);
            tree_add_shares<DTYPE>(t, item, shares, s, w, left);
        }
        tree_close_group(t);
#pragma unroll
        for (int n = 0; n < SUM_VECTORS; n++) {
            if (left > n * WARP)
                store_total(item.dtype,
                    dst + digits_offset(w.at, item.dst_stride, V * dst_bytes),
                    t.total[n]);
            digits_add(w.at, w.step, w.size);
        }
    }
}

/* Whether V elements at a time can be loaded and stored whole. */
static __device__ bool
sum_is_aligned(const struct call &c, const uli_gpu_item &item,
    const unsigned char *dst, int64_t v)
{
    uint64_t bits = item.align, unit = (uint64_t)(v * dtype_bytes(item.dtype));
    if (bits % (uint64_t)v != 0 || (uintptr_t)dst % unit != 0)
        return false;
    unit = (uint64_t)(v * dtype_bytes(item.partial_dtype));
    for (int32_t s = 0; s < item.nsources; s++)
        if ((uintptr_t)share_of(c, item, s) % unit != 0)
            return false;
    return true;
}

template <int DTYPE, typename ACC, int V>
static __device__ __noinline__ void
sum_as(const struct call &c, const uli_gpu_item &item, unsigned char *dst,
    int64_t begin, int64_t end)
{
    int64_t dst_bytes = dtype_bytes(item.dtype);
    if (sum_is_aligned(c, item, dst, V))
        sum_vectors<DTYPE, ACC, V>(c, item, dst, dst_bytes, begin, end);
    else
        sum_vectors<DTYPE, ACC, 1>(c, item, dst, dst_bytes, begin, end);
}

/* Requires that all shares can be reached. dst: address of the item's first
 * element. */
static __device__ void
sum_tile(const struct call &c, const uli_gpu_item &item, unsigned char *dst,
    int64_t begin, int64_t end)
{
    bool wide = item.dtype == ULYX_DTYPE_F64;
    if (item.partial_dtype == ULYX_DTYPE_F64)
        sum_as<ULYX_DTYPE_F64, double, 2>(c, item, dst, begin, end);
    else if (item.partial_dtype == ULYX_DTYPE_F32 && wide)
        sum_as<ULYX_DTYPE_F32, double, 2>(c, item, dst, begin, end);
    else if (item.partial_dtype == ULYX_DTYPE_F32)
        sum_as<ULYX_DTYPE_F32, float, 4>(c, item, dst, begin, end);
    else if (item.partial_dtype == ULYX_DTYPE_BF16 && wide)
        sum_as<ULYX_DTYPE_BF16, double, 2>(c, item, dst, begin, end);
    else if (item.partial_dtype == ULYX_DTYPE_BF16)
        sum_as<ULYX_DTYPE_BF16, float, 8>(c, item, dst, begin, end);
    else if (wide)
        sum_as<ULYX_DTYPE_F16, double, 2>(c, item, dst, begin, end);
    else
        sum_as<ULYX_DTYPE_F16, float, 8>(c, item, dst, begin, end);
}

#endif
