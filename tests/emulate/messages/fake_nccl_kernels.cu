/* SPDX-License-Identifier: Apache-2.0
 *
 * See fake_nccl_kernels.h. The kernels use the rings of fake_nccl.c's thread.
 */
#include "emulate/messages/fake_nccl_kernels.h"
#include "device/cuda/kernel.h"
#include "device/cuda/ptx.h"

enum { LANES = 32 };

struct fake_nccl_launch {
    fake_nccl_op ops[FAKE_NCCL_OPS];
    fake_nccl_words *words;
};

/* Returns how many bytes of the operation can move now; equal for all lanes. */
static __device__ uint64_t
step_of(const fake_nccl_op &op, uint64_t moved, uint64_t *at_p)
{
    uint64_t step = 0, at = 0;
    if (threadIdx.x % LANES == 0) {
        uint64_t written = ptx_ld_acquire_sys_u64(&op.channel->written);
        uint64_t read = ptx_ld_acquire_sys_u64(&op.channel->read);
        uint64_t room =
            op.send ? FAKE_NCCL_RING - (written - read) : written - read;
        uint64_t left = op.bytes - moved;
        at = op.send ? written : read;
        step = left < room ? left : room;
    }
    *at_p = __shfl_sync(0xFFFFFFFFu, at, 0);
    return __shfl_sync(0xFFFFFFFFu, step, 0);
}

static __device__ bool
is_aborted(fake_nccl_words *words)
{
    uint32_t aborted = 0;
    if (threadIdx.x % LANES == 0)
        aborted = ptx_ld_relaxed_sys_u32(&words->aborted);
    return __shfl_sync(0xFFFFFFFFu, aborted, 0) != 0;
}

static __device__ void
warp_moves_op(const fake_nccl_op &op, fake_nccl_words *words)
{
    for (uint64_t moved = 0; moved < op.bytes;) {
        uint64_t at, step = step_of(op, moved, &at);
        if (!step) {
            if (is_aborted(words))
                return;
            continue; /* no sleep: the emulated clock may stand still until a rank comes */
        }
        for (uint64_t i = threadIdx.x % LANES; i < step; i += LANES) {
            unsigned char *ring = &op.channel->ring[(at + i) % FAKE_NCCL_RING];
            unsigned char *data = op.data + moved + i;
            if (op.send)
                *ring = *data;
            else
                *data = *ring;
        }
        __syncwarp();
        if (threadIdx.x % LANES == 0)
            ptx_st_release_sys_u64(
                op.send ? &op.channel->written : &op.channel->read, at + step);
        __syncwarp();
        moved += step;
    }
}

__global__ void
fake_nccl_kernel(const __grid_constant__ fake_nccl_launch launch)
{
    warp_moves_op(launch.ops[threadIdx.x / LANES], launch.words);
    __syncthreads();
    if (threadIdx.x == 0)
        ptx_red_add_release_sys_u32(&launch.words->ended, 1);
}

int
fake_nccl_kernels_launch(const struct fake_nccl_op *ops, int count,
    struct fake_nccl_words *words, void *stream)
{
    fake_nccl_launch launch = {};
    if (count > FAKE_NCCL_OPS)
        return cudaErrorInvalidValue;
    for (int i = 0; i < count; i++)
        launch.ops[i] = ops[i];
    launch.words = words;
    struct uli_launch_config how = {
        dim3(1), dim3((unsigned)(count * LANES)), 0, (cudaStream_t)stream};
    return uli_kernel_launch(how, fake_nccl_kernel, launch);
}
