/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches. A launch that a card would refuse is refused here, with a fault
 * that names the reason. Kernels are identified by address; their names come
 * from the program's dynamic symbols.
 */
#include "emulate/api/api.h"
#include <dlfcn.h>

enum { KERNELS = 1024, DEFAULT_SHARED = 49152, NAME_BYTES = 80 };

static struct kernel {
    const void *address;
    size_t shared_limit;
    char name[NAME_BYTES];
} kernels[KERNELS];
static size_t kernel_count;

/* _Z13matmul_kernelPf becomes matmul_kernel; names of other forms stay as they
 * are. */
static void
name_kernel(struct kernel *k)
{
    Dl_info info;
    const char *name = NULL;
    if (dladdr(k->address, &info) && info.dli_saddr == k->address)
        name = info.dli_sname;
    if (name && strncmp(name, "_Z", 2) == 0) {
        char *rest;
        long length = strtol(name + 2, &rest, 10);
        if (length > 0 && (size_t)length <= strlen(rest)) {
            snprintf(k->name, sizeof k->name, "%.*s", (int)length, rest);
            return;
        }
    }
    snprintf(k->name, sizeof k->name, "%s", name ? name : "kernel");
}

static struct kernel *
kernel_of(const void *address)
{
    for (size_t i = 0; i < kernel_count; i++)
        if (kernels[i].address == address)
            return &kernels[i];
    if (kernel_count == KERNELS)
        emu_out_of_memory("kernels");
    struct kernel *k = &kernels[kernel_count++];
    k->address = address;
    k->shared_limit = DEFAULT_SHARED;
    name_kernel(k);
    return k;
}

void
emu_kernels_reset(void)
{
    kernel_count = 0;
}

cudaError_t
cudaFuncSetAttribute(
    const void *kernel, enum cudaFuncAttribute attribute, int value)
{
    cudaError_t error = cudaSuccess;
    emu_enter();
    struct kernel *k = kernel_of(kernel);
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value < 0 || value > emu.config.shared_bytes)
            error = cudaErrorInvalidValue;
        else
            k->shared_limit =
                value > DEFAULT_SHARED ? (size_t)value : DEFAULT_SHARED;
    }
    emu_leave();
    return emu_result(error);
}

cudaError_t
cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    int *blocks, const void *kernel, int threads, size_t shared_bytes)
{
    (void)kernel;
    int by_threads = EMU_SM_THREADS / (threads > 0 ? threads : 1);
    emu_enter();
    int room = emu.config.shared_bytes + 1024;
    int registers = (emu.config.registers + 7) / 8 * 8 * threads;
    emu_leave();
    int by_shared = room / (int)(shared_bytes + 1024);
    int n = by_threads < by_shared ? by_threads : by_shared;
    if (registers > 0 && n > EMU_SM_REGISTERS / registers)
        n = EMU_SM_REGISTERS / registers;
    *blocks = n < EMU_SM_BLOCKS ? n : EMU_SM_BLOCKS;
    return cudaSuccess;
}

static cudaError_t
kernel_refuse(
    const struct kernel *k, cudaError_t error, const char *why, size_t value)
{
    emu_fault(EMU_FAULT_LAUNCH, 0, "launch of %s refused: %s (%zu)", k->name,
        why, value);
    return error;
}

static cudaError_t
refuse_cluster(const struct kernel *k, unsigned blocks)
{
    emu_fault(EMU_FAULT_UNSUPPORTED, 0,
        "launch of %s refused: clusters (of %u blocks) are not emulated",
        k->name, blocks);
    return cudaErrorNotSupported;
}

static cudaError_t
kernel_check(const struct kernel *k, const struct emu_dim3 *grid,
    const struct emu_dim3 *block, size_t shared_bytes)
{
    uint64_t threads = (uint64_t)block->x * block->y * block->z;
    uint64_t blocks = (uint64_t)grid->x * grid->y * grid->z;
    if (!threads || threads > EMU_BLOCK_THREADS)
        return kernel_refuse(
            k, cudaErrorInvalidConfiguration, "threads in a block", threads);
    if (!blocks || grid->x > INT32_MAX || grid->y > 65535 || grid->z > 65535)
        return kernel_refuse(
            k, cudaErrorInvalidConfiguration, "blocks", blocks);
    if (blocks > 1u << 24)
        return kernel_refuse(k, cudaErrorNotSupported,
            "more blocks than the emulator takes", blocks);
    if (shared_bytes > k->shared_limit)
        return kernel_refuse(k, cudaErrorInvalidValue,
            "more shared memory than uli_kernel_prepare allowed", shared_bytes);
    return cudaSuccess;
}

static void
launch_fill(struct emu_launch *launch, const void *args, size_t bytes)
{
    launch->args_bytes = (bytes + 63) / 64 * 64;
    launch->args = aligned_alloc(64, launch->args_bytes);
    if (!launch->args)
        emu_out_of_memory("arguments");
    memcpy(launch->args, args, bytes);
    launch->waiting = launch->grid.x * launch->grid.y * launch->grid.z;
}

cudaError_t emu_launch_kernel(const void *kernel,
    void (*invoke)(const void *args), const void *args, size_t args_bytes,
    const struct emu_dim3 *grid, const struct emu_dim3 *block,
    size_t shared_bytes, unsigned cluster_blocks, cudaStream_t stream);

cudaError_t
emu_launch_kernel(const void *kernel, void (*invoke)(const void *args),
    const void *args, size_t args_bytes, const struct emu_dim3 *grid,
    const struct emu_dim3 *block, size_t shared_bytes, unsigned cluster_blocks,
    cudaStream_t stream)
{
    emu_enter();
    struct kernel *k = kernel_of(kernel);
    cudaError_t error = kernel_check(k, grid, block, shared_bytes);
    if (!error && cluster_blocks > 1)
        error = refuse_cluster(k, cluster_blocks);
    struct emu_stream *s = emu_stream_of(stream);
    if (!error && s->device != emu_current_device())
        error = kernel_refuse(k, cudaErrorInvalidResourceHandle,
            "the stream is of another device than the current one",
            (size_t)s->device);
    if (!error) {
        struct emu_op *op = emu_op_new(EMU_OP_KERNEL, s->device);
        op->launch.name = k->name;
        op->launch.grid = *grid;
        op->launch.block = *block;
        op->launch.shared_bytes = shared_bytes;
        op->launch.invoke = invoke;
        launch_fill(&op->launch, args, args_bytes);
        emu_stream_push(s, op);
    }
    emu_leave();
    return emu_result(error);
}
