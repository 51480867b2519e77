/* SPDX-License-Identifier: Apache-2.0
 *
 * uli_kernel_launch on the emulator: the arguments, converted to the kernel's
 * parameter types, are kept in one object that each emulated thread applies
 * the kernel to. Included by src/device/cuda/kernel.h.
 */
#ifndef EMULATE_EMULATE_LAUNCH_H
#define EMULATE_EMULATE_LAUNCH_H

#include <tuple>

extern "C" cudaError_t emu_launch_kernel(const void *kernel,
    void (*invoke)(const void *args), const void *args, size_t args_bytes,
    const emu_dim3 *grid, const emu_dim3 *block, size_t shared_bytes,
    unsigned cluster_blocks, cudaStream_t stream);

template <typename... P> struct emu_call {
    void (*kernel)(P...);
    std::tuple<P...> args;
};

template <typename... P>
static void
emu_invoke(const void *p)
{
    const auto *call = static_cast<const emu_call<P...> *>(p);
    std::apply(call->kernel, call->args);
}

template <typename... P, typename... A>
static inline cudaError_t
uli_kernel_launch(const struct uli_launch_config &launch, void (*kernel)(P...),
    const A &...args)
{
    emu_call<P...> call = {kernel, std::tuple<P...>(static_cast<P>(args)...)};
    emu_dim3 grid = {launch.grid.x, launch.grid.y, launch.grid.z};
    emu_dim3 block = {launch.block.x, launch.block.y, launch.block.z};
    return emu_launch_kernel((const void *)kernel, emu_invoke<P...>, &call,
        sizeof call, &grid, &block, launch.shared_bytes, launch.cluster_blocks,
        launch.stream);
}

#endif
