/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel of the steps of engine_gpu.h. One thread per peer posts and waits.
 * When a step begins, the copies before it in its stream are complete and visible
 * to peers.
 *
 * Cost: a launch, and one release and one acquire at system scope per peer.
 */
#include "collectives/device/engine/engine_gpu.h"
#include "collectives/device/mapped/exchange_work.h"
#include "ulyx/reshuffle.h"

static __device__ uint64_t
round_word(const struct call &c, int32_t round)
{
    return c.n << ULI_ENGINE_ROUND_BITS | (uint64_t)round;
}

/* Also a call that finds the plan failed stores this word for the host, because
 * the copies of such a call are in the stream too. */
static __device__ void
note_enter(const struct call &c)
{
    if (threadIdx.x == 0)
        ptx_st_relaxed_sys_u64(
            &c.args->report->entered, ++c.args->state->entered);
}

static __device__ void
note_leave(const struct call &c)
{
    if (threadIdx.x == 0)
        ptx_st_release_sys_u64(&c.args->report->left, c.args->state->entered);
}

static __device__ void
call_enter(const struct call &c)
{
    if (threadIdx.x == 0)
        ptx_st_relaxed_sys_u64(&c.args->report->begun, c.n);
    block_posts(c, false);
    block_awaits(c, ULI_GPU_AWAITS_READY);
}

/* Rounds to (way 0) or from (way 1) each peer in a direction. */
static __device__ const int32_t *
rounds_of(const uli_engine_args &args, uint64_t direction, int way)
{
    return args.rounds + (direction * 2 + way) * args.call.nranks;
}

/* Rounds to (way 0) or from (way 1) the peer in the call n that the peer
 * executes. */
static __device__ int32_t
rounds_with(
    const struct call &c, const uli_engine_args &args, int32_t peer, int way)
{
    uint64_t its = record_of(c, peer)[ULI_GPU_RECORD_CALL];
    if (has_left(c, peer) || (its & 0xFFFFFFFFu) != 0 ||
        its >> 32 >= ULYX_DIRECTIONS)
        return 0;
    return rounds_of(args, its >> 32, way)[peer];
}

static __device__ bool
await_round(
    const struct call &c, const uint64_t *word, int32_t round, int32_t peer)
{
    return await_value(
        c, word, round_word(c, round), ULI_GPU_AWAITS_DONE, peer);
}

/* Posts to all peers before the first wait, because waits of several ranks may
 * depend on each other. */
static __device__ void
turn_out(const struct call &c, const uli_engine_args &args)
{
    const int32_t *own =
        rounds_of(args, args.call.record[ULI_GPU_RECORD_CALL] >> 32, 0);
    int32_t first = (int32_t)threadIdx.x, step = (int32_t)blockDim.x;
    int32_t k = args.round;
    bool here = true;
    for (int32_t p = first; p < c.args->nranks; p += step)
        if (own[p] >= k)
            ptx_st_release_sys_u64(
                &c.args->peers[p].yours->filled, round_word(c, k));
    for (int32_t p = first; here && p < c.args->nranks; p += step)
        if (k > 1 && own[p] > k && rounds_with(c, args, p, 0) >= k - 1)
            here = await_round(c, &c.args->peers[p].mine->consumed, k - 1, p);
}

static __device__ void
turn_in(const struct call &c, const uli_engine_args &args)
{
    const int32_t *own =
        rounds_of(args, args.call.record[ULI_GPU_RECORD_CALL] >> 32, 1);
    int32_t first = (int32_t)threadIdx.x, step = (int32_t)blockDim.x;
    int32_t k = args.round;
    bool here = true;
    for (int32_t p = first; p < c.args->nranks; p += step)
        if (k > 0 && own[p] >= k)
            ptx_st_release_sys_u64(
                &c.args->peers[p].yours->consumed, round_word(c, k));
    for (int32_t p = first; here && p < c.args->nranks; p += step)
        if (own[p] > k && rounds_with(c, args, p, 1) > k)
            here = await_round(c, &c.args->peers[p].mine->filled, k + 1, p);
}

__global__ void
__launch_bounds__(WARP)
    engine_kernel(const __grid_constant__ uli_engine_args args)
{
    struct call c = begin_call(args.call);
    if (args.step == ULI_ENGINE_ENTER)
        note_enter(c);
    if (!block_stopped(c)) {
        if (args.step == ULI_ENGINE_ENTER)
            call_enter(c);
        else if (args.step == ULI_ENGINE_OUT)
            turn_out(c, args);
        else if (args.step == ULI_ENGINE_IN)
            turn_in(c, args);
        else if (block_closes(c))
            call_advance(c);
    }
    if (args.step == ULI_ENGINE_CLOSE)
        note_leave(c);
}

/* ---- host ---------------------------------------------------------------- */

int
uli_engine_launch(const struct uli_engine_args *args, void *stream)
{
    struct uli_launch_config launch = {dim3(1), dim3(WARP), 0, (cudaStream_t)stream};
    return uli_kernel_launch(launch, engine_kernel, *args);
}

int
uli_engine_prepare(void)
{
    return uli_kernel_prepare(engine_kernel, 0);
}
