/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocation, copies and fills.
 */
#include "emulate/api/api.h"

static cudaError_t
memory_allocate(void **p, size_t bytes, int device)
{
    emu_enter();
    void *got = emu_memory_allocate(bytes, device);
    emu_leave();
    if (!got)
        return emu_result(cudaErrorMemoryAllocation);
    *p = got;
    return cudaSuccess;
}

cudaError_t
cudaMalloc(void **p, size_t bytes)
{
    return memory_allocate(p, bytes, emu_current_device());
}

cudaError_t
cudaHostAlloc(void **p, size_t bytes, unsigned flags)
{
    (void)flags;
    return memory_allocate(p, bytes, -1);
}

cudaError_t
cudaMallocHost(void **p, size_t bytes)
{
    return memory_allocate(p, bytes, -1);
}

/* As on a card, freeing memory waits for the work of its device. */
cudaError_t
cudaFree(void *p)
{
    if (!p)
        return cudaSuccess;
    emu_enter();
    const struct emu_allocation *a = emu_memory_find(p);
    if (a)
        emu_device_wait(a->device);
    int result = emu_memory_release(p);
    emu_leave();
    return emu_result(result ? cudaErrorInvalidValue : cudaSuccess);
}

cudaError_t
cudaFreeHost(void *p)
{
    return cudaFree(p);
}

static cudaError_t
copy_enqueue(enum emu_op_kind kind, void *dst, const void *src, int value,
    size_t bytes, cudaStream_t stream, bool wait)
{
    emu_enter();
    struct emu_stream *s = emu_stream_of(stream);
    struct emu_op *op = emu_op_new(kind, s->device);
    op->dst = dst;
    op->src = src;
    op->value = value;
    op->bytes = bytes;
    emu_op_hold(op);
    emu_stream_push(s, op);
    cudaError_t error = wait ? emu_host_wait(op) : cudaSuccess;
    emu_op_drop(op);
    emu_leave();
    return emu_result(error);
}

cudaError_t
cudaMemcpyAsync(void *dst, const void *src, size_t bytes,
    enum cudaMemcpyKind kind, cudaStream_t stream)
{
    (void)kind;
    return copy_enqueue(EMU_OP_COPY, dst, src, 0, bytes, stream, false);
}

cudaError_t
cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    (void)kind;
    return copy_enqueue(EMU_OP_COPY, dst, src, 0, bytes, NULL, true);
}

void
emu_copy_rows(void *dst, const void *src, size_t bytes,
    const struct emu_rect *rows, cudaStream_t stream)
{
    emu_enter();
    struct emu_stream *s = emu_stream_of(stream);
    struct emu_op *op = emu_op_new(EMU_OP_COPY, s->device);
    op->dst = dst;
    op->src = src;
    op->bytes = bytes;
    op->rows = *rows;
    emu_stream_push(s, op);
    emu_leave();
}

cudaError_t
cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream)
{
    return copy_enqueue(EMU_OP_FILL, p, NULL, value, bytes, stream, false);
}

cudaError_t
cudaMemset(void *p, int value, size_t bytes)
{
    return copy_enqueue(EMU_OP_FILL, p, NULL, value, bytes, NULL, true);
}
