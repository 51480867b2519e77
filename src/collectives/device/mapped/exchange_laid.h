/* SPDX-License-Identifier: Apache-2.0
 *
 * Items by the strides of a call. A table is made for the strides of creation;
 * where this rank's call or a peer's record gives others for a tensor, a warp
 * makes the item anew from its rectangle in the layout's coordinates, once per
 * item. Nothing of the protocol changes, and all other items stay as they are.
 *
 * The strides of a peer are used unchecked: the peer has checked that its
 * tensor, with these strides, is inside its window. Device code.
 */
#ifndef ULI_COLLECTIVES_DEVICE_MAPPED_EXCHANGE_LAID_H
#define ULI_COLLECTIVES_DEVICE_MAPPED_EXCHANGE_LAID_H

#include "collectives/device/mapped/exchange_flags.h"

/* ---- strides ------------------------------------------------------------- */

/* Whether the rank's tensor has other strides than at creation. The rank's
 * record has arrived. */
static __device__ bool
tensor_moved(const struct call &c, int32_t rank, int32_t tensor, bool dst)
{
    const uint64_t *record =
        rank == c.args->rank ? c.args->record : record_of(c, rank);
    return !(
        record[ULI_GPU_RECORD_USUAL] >> ULI_GPU_USUAL_BIT(tensor, dst) & 1);
}

/* The strides {batch, row, head} of a rank's tensor in this call, in bytes. */
static __device__ const int64_t *
strides_of(const struct call &c, int32_t rank, int32_t tensor, bool dst)
{
    if (!tensor_moved(c, rank, tensor, dst))
        return c.args->usual[rank].at[dst][tensor];
    return rank == c.args->rank
               ? c.args->strides.at[dst][tensor]
               : c.args->peers[rank].mine->strides[c.n & 1].at[dst][tensor];
}

/* Whether the item has to be made anew: a tensor that it touches has other
 * strides than at creation. Slots keep their strides. */
template <bool SUMS>
static __device__ bool
item_moved(const struct call &c, const uli_gpu_item &item)
{
    if (!item.dst_slot && tensor_moved(c, item.dst_rank, item.tensor, true))
        return true;
    if (item.kind == ULI_GPU_COPY)
        return !item.src_slot &&
               tensor_moved(c, item.src_rank, item.tensor, false);
    for (int32_t s = 0; SUMS && s < item.nsources; s++) {
        const uli_gpu_source &source = c.args->sources[item.first_source + s];
        if (!source.slot && tensor_moved(c, source.rank, item.tensor, false))
            return true;
    }
    return false;
}

/* ---- shares of a sum ----------------------------------------------------- */

/* The begin of a share of an item that is made anew, in its owner's tensor or
 * in the slot. */
static __device__ __noinline__ int64_t
share_offset(const struct call &c, const uli_gpu_item &item, int32_t s)
{
    const uli_gpu_source &source = c.args->sources[item.first_source + s];
    const int64_t *at = c.args->indices[item.first_source + s].at;
    if (source.slot)
        return source.offset;
    const int64_t *stride = strides_of(c, source.rank, item.tensor, false);
    return at[0] * stride[0] + at[1] * stride[1] + at[2] * stride[2];
}

static __device__ const int64_t *
share_stride(const struct call &c, const uli_gpu_item &item, int32_t s)
{
    const uli_gpu_source &source = c.args->sources[item.first_source + s];
    return source.slot ? c.args->indices[item.first_source + s].at
                       : strides_of(c, source.rank, item.tensor, false);
}

/* ---- an item ------------------------------------------------------------- */

/* Computes strides and offset of one side of an item. stride: of the tensor; at
 * is then the first index. stride NULL: the side is a slot; at has its strides,
 * and the offset stays. */
static __device__ void
lay_side(const int64_t *stride, const int64_t (&at)[3], int64_t (&stride_p)[3],
    int64_t &offset_p)
{
    if (stride)
        offset_p = 0;
    for (int d = 0; d < 3; d++) {
        stride_p[d] = stride ? stride[d] : at[d];
        if (stride)
            offset_p += at[d] * stride[d];
    }
}

static __device__ uint64_t
align_of(const int64_t (&extent)[3], const int64_t *stride, int64_t unit)
{
    uint64_t bits = 0;
    for (int d = 0; d < 3; d++)
        if (extent[d] > 1)
            bits |= stride[d] % unit ? 1 : (uint64_t)(stride[d] / unit);
    return bits;
}

/* Exchanges dimensions a and b if the stride of b is larger. */
static __device__ void
order_pair(uli_gpu_item &laid, int a, int b)
{
    int64_t *fields[] = {laid.extent, laid.dst_stride, laid.src_stride};
    const int64_t *key = laid.src_slot ? laid.src_stride : laid.dst_stride;
    if (laid.extent[b] == 1 || (laid.extent[a] > 1 && key[a] >= key[b]))
        return;
    for (int i = 0; i < 3; i++) {
        int64_t held = fields[i][a];
        fields[i][a] = fields[i][b];
        fields[i][b] = held;
    }
}

PTX_FN int64_t
dtype_bytes(int32_t dtype)
{
    return dtype == ULYX_DTYPE_F64 ? 8 : dtype == ULYX_DTYPE_F32 ? 4 : 2;
}

/* The dimensions of a sum stay in the layout's order, like those of its
 * shares. */
static __device__ void
lay_sum(const struct call &c, uli_gpu_item &laid)
{
    laid.align = (uint64_t)laid.run | align_of(laid.extent, laid.dst_stride,
                                          dtype_bytes(laid.dtype));
    for (int32_t s = 0; s < laid.nsources; s++)
        laid.align |= align_of(laid.extent, share_stride(c, laid, s),
            dtype_bytes(laid.partial_dtype));
}

static __device__ void
lay_box(uli_gpu_item &laid)
{
    order_pair(laid, 0, 1);
    order_pair(laid, 1, 2);
    order_pair(laid, 0, 1);
    laid.align = (uint64_t)laid.run | align_of(laid.extent, laid.dst_stride, 1);
    if (laid.kind == ULI_GPU_COPY)
        laid.align |= align_of(laid.extent, laid.src_stride, 1);
}

/* Makes item `index` by the strides of this call. */
static __device__ void
lay_item(const struct call &c, int32_t index, uli_gpu_item &laid)
{
    const uli_gpu_rect &rect = c.args->rects[index];
    laid = c.args->items[index];
    laid.laid = 1;
    for (int d = 0; d < 3; d++)
        laid.extent[d] = rect.extent[d];
    laid.run = rect.run;
    lay_side(laid.dst_slot ? nullptr
                           : strides_of(c, laid.dst_rank, laid.tensor, true),
        rect.dst, laid.dst_stride, laid.dst_offset);
    if (laid.kind == ULI_GPU_COPY)
        lay_side(laid.src_slot
                     ? nullptr
                     : strides_of(c, laid.src_rank, laid.tensor, false),
            rect.src, laid.src_stride, laid.src_offset);
    if (laid.kind == ULI_GPU_SUM)
        lay_sum(c, laid);
    else
        lay_box(laid);
}

#endif
