/* SPDX-License-Identifier: Apache-2.0
 *
 * The words of the exchange on a device: posts, waits, and the peers' records.
 * Device code of all kernels of the exchange. exchange_gpu.h has the protocol
 * and the reasons for it.
 */
#ifndef ULI_COLLECTIVES_DEVICE_MAPPED_EXCHANGE_FLAGS_H
#define ULI_COLLECTIVES_DEVICE_MAPPED_EXCHANGE_FLAGS_H

#include "collectives/device/mapped/exchange_gpu.h"
#include "device/cuda/ptx.h"
#include "device/cuda/warp.h"
#include "ulyx/types.h"

enum {
    EAGER_POLLS = 64, /* before a thread looks for failures and sleeps */
    POLL_SLEEP_NS = 100,
};

/* What a warp may do with a peer in this call. */
enum peer_state { PEER_LEAVE, PEER_SKIP, PEER_USE };

/* One call in a kernel. */
struct call {
    const uli_gpu_args *args;
    uint64_t n;
    uint64_t start_ns;
};

/* Whether to leave the call. The poison lies on the host, a microsecond away,
 * so the poison and the state are loaded at the same time. */
static __device__ bool
call_stopped(const struct call &c)
{
    const uint64_t *poison = c.args->poison;
    uint64_t poisoned = poison ? ptx_ld_relaxed_sys_u64(poison) : 0;
    return (poisoned | ptx_ld_relaxed_gpu_u64(&c.args->state->failed)) != 0;
}

/* Whether to leave the call, with one answer for all threads of the block. */
static __device__ bool
block_stopped(const struct call &c)
{
    return __syncthreads_or(threadIdx.x == 0 && call_stopped(c)) != 0;
}

static __device__ void
call_fail(const struct call &c, uint64_t status, uint64_t phase, int32_t peer)
{
    uint64_t cause = ULI_GPU_CAUSE(status, phase, peer, c.n);
    if (ptx_atom_cas_relaxed_gpu_u64(&c.args->state->failed, 0, cause) == 0 &&
        c.args->report)
        ptx_st_release_sys_u64(&c.args->report->failed, cause);
}

/* One thread: waits until a peer's word has reached a value. False: the call
 * has failed, at this rank or at another. Polls are relaxed, because each
 * acquire empties the first-level cache of the multiprocessor while other warps
 * move bytes. The first polls, some 20 us, do not look for failures. */
static __device__ bool
await_value(const struct call &c, const uint64_t *word, uint64_t value,
    uint64_t phase, int32_t peer)
{
    for (int polls = 0; ptx_ld_relaxed_sys_u64(word) < value; polls++) {
        bool eager = polls < EAGER_POLLS;
        if (!eager && call_stopped(c))
            return false;
        if (ptx_globaltimer_ns() - c.start_ns > c.args->timeout_ns) {
            call_fail(c, (uint64_t)-ULYX_ERR_TIMEOUT, phase, peer);
            return false;
        }
        if (!eager)
            ptx_nanosleep(POLL_SLEEP_NS);
    }
    /* Pairs with the store that the last poll has read. */
    (void)ptx_ld_acquire_sys_u64(word);
    return true;
}

/* Waits until a word that counts calls has reached this call. */
static __device__ bool
await_flag(
    const struct call &c, const uint64_t *word, uint64_t phase, int32_t peer)
{
    return await_value(c, word, c.n, phase, peer);
}

static __device__ const uint64_t *
record_of(const struct call &c, int32_t peer)
{
    return c.args->peers[peer].mine->records[c.n & 1];
}

static __device__ int64_t
tile_bytes_of(const struct call &c)
{
    return c.args->head ? c.args->head->tile_bytes : c.args->tile_bytes;
}

static __device__ uint64_t
hash_of(const struct call &c)
{
    uint64_t tables =
        c.args->head ? c.args->head->hash : c.args->record[ULI_GPU_RECORD_HASH];
    return tables ^ c.args->user_hash;
}

/* After READY(n) of the peer: whether the peer has destroyed its plan before
 * call n. It may also destroy the plan after a call n that both were in. */
static __device__ bool
has_left(const struct call &c, int32_t peer)
{
    uint64_t gone = ptx_ld_relaxed_sys_u64(&c.args->peers[peer].mine->gone);
    return gone != 0 && gone <= c.n;
}

/* After READY(n) of the peer: whether the peer executes the same call. */
static __device__ bool
record_agrees(const struct call &c, int32_t peer)
{
    const uint64_t *record = record_of(c, peer);
    return !has_left(c, peer) &&
           record[ULI_GPU_RECORD_CALL] == c.args->record[ULI_GPU_RECORD_CALL] &&
           record[ULI_GPU_RECORD_HASH] == hash_of(c);
}

/* The address here of (window, offset) of a peer; NULL when this rank does not
 * know the window. */
static __device__ unsigned char *
mapped_at(const struct call &c, int32_t peer, const uint64_t *address)
{
    const uli_gpu_peer *p = &c.args->peers[peer];
    unsigned char *base =
        address[0] < p->nwindows ? p->windows[address[0]] : nullptr;
    return base ? base + address[1] : nullptr;
}

/* The address here of a rank's tensor; NULL as above. */
static __device__ unsigned char *
tensor_of(const struct call &c, int32_t peer, int32_t tensor, bool dst)
{
    if (peer == c.args->rank)
        return dst ? c.args->dst[tensor] : c.args->src[tensor];
    return mapped_at(c, peer,
        record_of(c, peer) + (dst ? ULI_GPU_RECORD_DST : ULI_GPU_RECORD_SRC) +
            2 * tensor);
}

/* One warp, the same in all lanes: waits for the peer's record of this call.
 * False: the call has failed. */
static __device__ bool
warp_awaits_ready(const struct call &c, int32_t peer)
{
    bool here = true;
    if (threadIdx.x % WARP == 0)
        here = await_flag(
            c, &c.args->peers[peer].mine->ready, ULI_GPU_AWAITS_READY, peer);
    return warp_first((int)here) != 0;
}

/* One warp, the same in all lanes: whether the warp may touch the tensors or
 * the slot of this peer. */
static __device__ enum peer_state
warp_meets(const struct call &c, int32_t peer)
{
    if (peer == c.args->rank)
        return PEER_USE;
    if (!c.args->slots && !warp_awaits_ready(c, peer))
        return PEER_LEAVE;
    return record_agrees(c, peer) ? PEER_USE : PEER_SKIP;
}

static __device__ void
warp_posts_strides(const struct call &c, struct uli_gpu_strides *yours)
{
    enum { COUNT = sizeof(*yours) / sizeof(int64_t) };
    const int64_t *own = &c.args->strides.at[0][0][0];
    for (int i = (int)threadIdx.x % WARP; i < COUNT; i += WARP)
        (&yours->at[0][0][0])[i] = own[i];
}

/* One warp: stores the record at the peer, then READY(n), and with `done` also
 * DONE(n). */
static __device__ void
warp_posts(const struct call &c, int32_t peer, bool done)
{
    uli_gpu_flags *yours = c.args->peers[peer].yours;
    uint64_t *record = yours->records[c.n & 1];
    for (int i = (int)threadIdx.x % WARP; i < ULI_GPU_RECORD_WORDS; i += WARP)
        record[i] = i == ULI_GPU_RECORD_HASH ? hash_of(c) : c.args->record[i];
    if (c.args->record[ULI_GPU_RECORD_USUAL] != ULI_GPU_USUAL_ALL)
        warp_posts_strides(c, &yours->strides[c.n & 1]);
    __syncwarp();
    if (threadIdx.x % WARP == 0) {
        ptx_fence_acq_rel_sys(); /* releases both stores */
        ptx_st_relaxed_sys_u64(&yours->ready, c.n);
        if (done)
            ptx_st_relaxed_sys_u64(&yours->done, c.n);
    }
}

/* One block: posts to all peers that share bytes. */
static __device__ void
block_posts(const struct call &c, bool done)
{
    int32_t warps = (int32_t)(blockDim.x / WARP);
    for (int32_t q = (int32_t)(threadIdx.x / WARP); q < c.args->nranks - 1;
         q += warps) {
        int32_t p = (c.args->rank + 1 + q) % c.args->nranks;
        if (c.args->peers[p].shares)
            warp_posts(c, p, done);
    }
}

/* Whether a tensor of the peer lies in a window that is not known here. */
static __device__ bool
lost_window(const struct call &c, int32_t peer)
{
    const uint64_t *record = record_of(c, peer);
    const uli_gpu_peer *p = &c.args->peers[peer];
    for (int i = ULI_GPU_RECORD_SRC; i < ULI_GPU_RECORD_WORDS; i += 2)
        if (record[i] != ULI_GPU_NO_WINDOW &&
            (record[i] >= p->nwindows || !p->windows[record[i]]))
            return true;
    return false;
}

/* Whether this rank refuses the call. */
static __device__ bool
call_refuses(const struct call &c)
{
    return (c.args->record[ULI_GPU_RECORD_CALL] & 0xFFFFFFFFu) != 0;
}

/* Why nothing moved between this rank and a peer, from their two records.
 * agrees: whether the records agree. 0: the records have no cause, or this rank
 * refuses the call. */
static __device__ uint64_t
cause_of_pair(const struct call &c, int32_t peer, bool agrees)
{
    uint64_t call = record_of(c, peer)[ULI_GPU_RECORD_CALL];
    uint64_t own = c.args->record[ULI_GPU_RECORD_CALL];
    uint64_t status = call & 0xFFFFFFFFu, phase = ULI_GPU_REFUSED;
    if (has_left(c, peer)) {
        status = ULI_GPU_HAS_LEFT;
    } else if (status == 0) {
        if (call_refuses(c) || agrees)
            return 0;
        phase = ULI_GPU_DISAGREES;
        status = call == own ? 0 : call >> 32 | ULI_GPU_OTHER_OPERATION;
    }
    return ULI_GPU_CAUSE(status & 0xFF, phase, peer, c.n);
}

/* Stores the cause as the call's outcome. True: it is the first. */
static __device__ bool
note_outcome(const struct call &c, uint64_t cause)
{
    return cause &&
           ptx_atom_cas_relaxed_gpu_u64(&c.args->state->outcome, 0, cause) == 0;
}

/* Stores the outcome of the pair. By slots this comes after DONE, when the peer
 * may have detached the windows of its tensors already; nothing was moved
 * through them. */
static __device__ void
call_check(const struct call &c, int32_t peer)
{
    uint64_t cause = cause_of_pair(c, peer, record_agrees(c, peer));
    if (!cause && !call_refuses(c) && !c.args->slots && lost_window(c, peer))
        cause = ULI_GPU_CAUSE(0, ULI_GPU_LOST, peer, c.n);
    (void)note_outcome(c, cause);
}

/* One block: waits for a word of all peers, with a thread per peer. */
static __device__ bool
block_awaits(const struct call &c, uint64_t phase)
{
    bool here = true;
    for (int32_t p = (int32_t)threadIdx.x; here && p < c.args->nranks;
         p += (int32_t)blockDim.x) {
        if (p == c.args->rank || !c.args->peers[p].shares)
            continue;
        const uli_gpu_flags *mine = c.args->peers[p].mine;
        here = await_flag(c,
            phase == ULI_GPU_AWAITS_READY ? &mine->ready : &mine->done, phase,
            p);
    }
    return __syncthreads_and(here) != 0;
}

/* One thread, after this rank's last load from the peer: posts DONE(n), unless
 * the peer has given up the call: the peer's caller may then have written to
 * what was loaded. The fence orders the loads before the check, and makes the
 * store a release. */
static __device__ bool
thread_posts_done(const struct call &c, int32_t peer)
{
    const uli_gpu_peer *p = &c.args->peers[peer];
    ptx_fence_acq_rel_sys(); /* after the loads, before the store */
    if (ptx_ld_relaxed_sys_u64(&p->mine->given_up) != 0) {
        call_fail(c, (uint64_t)-ULYX_ERR_TIMEOUT, ULI_GPU_GIVEN_UP, peer);
        return false;
    }
    ptx_st_relaxed_sys_u64(&p->yours->done, c.n);
    return true;
}

/* One block, after its DONE(n): waits for the peers' DONE(n). If one does not
 * come, stores given_up at all peers, which may load nothing here any more. */
static __device__ bool
block_ends(const struct call &c)
{
    if (block_awaits(c, ULI_GPU_AWAITS_DONE))
        return true;
    for (int32_t p = (int32_t)threadIdx.x; p < c.args->nranks;
         p += (int32_t)blockDim.x)
        if (p != c.args->rank && c.args->peers[p].shares)
            ptx_st_release_sys_u64(&c.args->peers[p].yours->given_up, c.n);
    return false;
}

/* One block, when all other blocks have ended their part: reads the peers'
 * records, posts DONE(n) to all peers, and waits for the peers' DONE(n). */
static __device__ bool
block_closes(const struct call &c)
{
    bool kept = true;
    if (!block_awaits(c, ULI_GPU_AWAITS_READY))
        return false;
    for (int32_t p = (int32_t)threadIdx.x; p < c.args->nranks;
         p += (int32_t)blockDim.x) {
        if (p == c.args->rank || !c.args->peers[p].shares)
            continue;
        call_check(c, p);
        kept = thread_posts_done(c, p) && kept;
    }
    return __syncthreads_and(kept) != 0 && block_ends(c);
}

/* One block, after the plan's last call: the peers' next calls find at once
 * that this rank takes no part in them. */
static __device__ void
block_leaves(const struct call &c)
{
    for (int32_t p = (int32_t)threadIdx.x; p < c.args->nranks;
         p += (int32_t)blockDim.x) {
        if (p == c.args->rank || !c.args->peers[p].shares)
            continue;
        uli_gpu_flags *yours = c.args->peers[p].yours;
        ptx_st_relaxed_sys_u64(&yours->gone, c.n);
        ptx_st_release_sys_u64(&yours->ready, UINT64_MAX);
        ptx_st_release_sys_u64(&yours->done, UINT64_MAX);
    }
}

#endif
