/* SPDX-License-Identifier: Apache-2.0
 *
 * Records of pairs, which pairs may move bytes, and how a call of a collective
 * begins and ends on the device. Device code of the collectives' kernels;
 * collective_gpu.h has the protocol.
 */
#ifndef ULI_COLLECTIVES_DEVICE_COLLECTIVE_COLLECTIVE_FLAGS_H
#define ULI_COLLECTIVES_DEVICE_COLLECTIVE_COLLECTIVE_FLAGS_H

#include "collectives/device/collective/collective_gpu.h"
#include "collectives/device/mapped/exchange_work.h"

/* Word i of the record for rank p. */
static __device__ uint64_t
record_word(const uli_collective_args &a, int i, int32_t p)
{
    uint64_t word = a.base.record[i];
    switch (i) {
    case ULI_COLLECTIVE_SRC + 1:
        return word + (uint64_t)a.src_offset[p];
    case ULI_COLLECTIVE_DST + 1:
        return word + (uint64_t)a.dst_offset[p];
    case ULI_COLLECTIVE_SENDS:
        return (uint64_t)a.send_bytes[p];
    case ULI_COLLECTIVE_RECEIVES:
        return (uint64_t)a.receive_bytes[p];
    default:
        return word;
    }
}

/* One block: stores this rank's record at each peer, then READY(n). */
static __device__ void
block_posts_record(const struct call &c, const uli_collective_args &a)
{
    int32_t warps = (int32_t)(blockDim.x / WARP);
    int lane = (int)threadIdx.x % WARP;
    for (int32_t q = (int32_t)(threadIdx.x / WARP); q < a.base.nranks - 1;
         q += warps) {
        int32_t p = (a.base.rank + 1 + q) % a.base.nranks;
        uli_gpu_flags *yours = a.base.peers[p].yours;
        if (lane < ULI_COLLECTIVE_WORDS)
            yours->records[c.n & 1][lane] = record_word(a, lane, p);
        __syncwarp();
        if (lane == 0)
            ptx_st_release_sys_u64(&yours->ready, c.n);
    }
}

/* After READY(n) of the peer: whether the peer makes the same call, with the
 * same sizes between the two ranks. */
static __device__ bool
pair_agrees(const struct call &c, const uli_collective_args &a, int32_t p)
{
    const uint64_t *record = record_of(c, p);
    bool alike = !has_left(c, p);
    for (int i = ULI_COLLECTIVE_COUNT; i < ULI_COLLECTIVE_WORDS; i++)
        alike = alike && record[i] == a.base.record[i];
    return alike &&
           record[ULI_COLLECTIVE_CALL] == a.base.record[ULI_COLLECTIVE_CALL] &&
           record[ULI_COLLECTIVE_SENDS] == (uint64_t)a.receive_bytes[p] &&
           record[ULI_COLLECTIVE_RECEIVES] == (uint64_t)a.send_bytes[p];
}

/* One warp, the same in all lanes: whether the warp may move bytes between this
 * rank and the peer. */
static __device__ enum peer_state
warp_pairs(const struct call &c, const uli_collective_args &a, int32_t p)
{
    if (p == a.base.rank)
        return PEER_USE;
    if (!warp_awaits_ready(c, p))
        return PEER_LEAVE;
    return pair_agrees(c, a, p) ? PEER_USE : PEER_SKIP;
}

/* As warp_pairs, for all peers together: USE only if all of them agree. */
static __device__ enum peer_state
warp_pairs_all(const struct call &c, const uli_collective_args &a)
{
    enum peer_state all = PEER_USE;
    for (int32_t q = 1; q < a.base.nranks; q++) {
        enum peer_state one =
            warp_pairs(c, a, (a.base.rank + q) % a.base.nranks);
        if (one == PEER_LEAVE)
            return one;
        all = one == PEER_SKIP ? one : all;
    }
    return all;
}

/* ---- places -------------------------------------------------------------- */

/* Whether the peer's memory for a message (what: SRC or DST) lies in a
 * window. */
static __device__ bool
in_window(const struct call &c, int32_t p, int what)
{
    return record_of(c, p)[what] != ULI_GPU_NO_WINDOW;
}

/* The address here of the peer's memory that lies in a window. NULL: this rank
 * does not know the window; the call has then failed, because the peer relies
 * on that window. */
static __device__ unsigned char *
place_of(const struct call &c, int32_t p, int what)
{
    unsigned char *place = mapped_at(c, p, record_of(c, p) + what);
    if (!place)
        call_fail(c, 0, ULI_GPU_LOST, p);
    return place;
}

/* ---- outcomes ------------------------------------------------------------ */

/* Stores both records of the pair for the host. Called for the first outcome of
 * a call only; call_advance publishes them together with the outcome. */
static __device__ void
report_pair(const struct call &c, const uli_collective_args &a, int32_t p)
{
    struct uli_collective_report *report = a.report;
    for (int i = 0; i < ULI_COLLECTIVE_WORDS; i++) {
        ptx_st_relaxed_sys_u64(&report->ours[i], record_word(a, i, p));
        ptx_st_relaxed_sys_u64(&report->theirs[i], record_of(c, p)[i]);
    }
    ptx_st_relaxed_sys_u64(&report->reported, c.n);
}

/* After READY(n) of the peer: stores why nothing moved with the peer, if
 * nothing did. */
static __device__ void
note_pair(const struct call &c, const uli_collective_args &a, int32_t p)
{
    if (note_outcome(c, cause_of_pair(c, p, pair_agrees(c, a, p))))
        report_pair(c, a, p);
}

/* ---- begin and end ------------------------------------------------------- */

/* The first part of every kernel. False: the kernel has nothing more to do. */
static __device__ bool
collective_begins(const struct call &c, const uli_collective_args &a)
{
    if (block_stopped(c))
        return false;
    if (a.base.steps == ULI_GPU_LEAVE) {
        block_leaves(c);
        return false;
    }
    if (a.base.steps & ULI_GPU_OPEN && blockIdx.x == 0) {
        if (threadIdx.x == 0) {
            ptx_st_relaxed_sys_u64(
                &a.report->operation, a.base.record[ULI_COLLECTIVE_CALL] >> 32);
            ptx_st_relaxed_sys_u64(&a.base.report->begun, c.n);
        }
        block_posts_record(c, a);
    }
    if (a.base.steps == ULI_GPU_OPEN)
        (void)block_awaits(c, ULI_GPU_AWAITS_READY);
    return a.base.steps != ULI_GPU_OPEN;
}

/* One block, when all other blocks have ended their part: as block_closes. */
static __device__ bool
collective_closes(const struct call &c, const uli_collective_args &a)
{
    bool kept = true;
    if (!block_awaits(c, ULI_GPU_AWAITS_READY))
        return false;
    for (int32_t p = (int32_t)threadIdx.x; p < a.base.nranks;
         p += (int32_t)blockDim.x) {
        if (p == a.base.rank)
            continue;
        note_pair(c, a, p);
        kept = thread_posts_done(c, p) && kept;
    }
    return __syncthreads_and(kept) != 0 && block_ends(c);
}

/* The last part of every kernel. ok: this warp has ended its own part. */
static __device__ void
collective_ends(const struct call &c, const uli_collective_args &a, bool ok)
{
    ok = __syncthreads_and(ok) != 0;
    if (ok && a.base.steps & ULI_GPU_CLOSE && is_last_block(c) &&
        collective_closes(c, a))
        call_advance(c);
}

#endif
