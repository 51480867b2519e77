/* SPDX-License-Identifier: Apache-2.0
 *
 * Shape of a Hopper forward kernel: tiles, shared memory, barriers, and the
 * facts of a work item that the producer sends to the consumers.
 *
 * A block is one producer warpgroup and WGS consumers of 64 query rows each.
 * Shared memory holds, each a stack of panels [rows][64 columns] of 128-byte
 * rows under the 128-byte swizzle:
 *   Q[QBUF][panel][64 * WGS][64], K[STAGES][panel][N][64], V[..][panel][N][64]
 * then an item's facts twice, two numbers per row for ALiBi, what the producer
 * keeps, and the barriers. A warp's rows of the output pass through its rows of
 * Q.
 */
#ifndef ULI_ATTENTION_CUDA_HOPPER_SM90_FAMILY_H
#define ULI_ATTENTION_CUDA_HOPPER_SM90_FAMILY_H

#include "attention/cuda/hopper/forward_sm90.h"
#include "attention/cuda/mask_range.h"
#include "device/cuda/ptx.h"

/* One work item: a tile of query rows of one head, and its keys. */
struct sm90_item {
    /* Key tiles [first, end); those in [full, masked) are seen whole. 32 bits,
     * as rows are fewer than 2^31: coordinates of TMA. */
    int32_t first, full, masked, end;
    /* Row n of the tile sees keys [low + n, min(high + n, k_rows)). */
    int64_t low, high, k_rows, k_begin;
    int64_t row, packed, around; /* around: i + off of row 0 */
    int32_t rows, head, batch, k_batch, kv;
    int32_t done; /* no item: the block ends */
    float slope;  /* 0: none */
    float pad;
    double sink; /* -inf: none */
};

/* What the producer's warps keep: which pieces of q, k and v have arrived, when
 * the kernel began; the barrier of a box that is cleared in part after its
 * arrival, and how many such boxes each warp has cleared. */
struct sm90_producer {
    uint64_t ready[4][3], start_ns[4];
    uint64_t tail;
    uint32_t tails[4];
};

/* Of a row, under ALiBi. */
struct sm90_alibi {
    int64_t around, nearest;
};

/* Variants to be measured on a card: the wait for the previous product where
 * ptxas puts it; no turns; hints that the cache keeps keys and values and drops
 * queries. */
enum sm90_variant {
    SM90_WAITS_FIRST = 1,
    SM90_NO_TURNS = 2,
    SM90_HINTS = 4,
};

template <int DimQk, int DimV, int Keys, int Consumers, int Stages,
    int QBuffers, bool Bf16, int Variant = 0>
struct sm90_family {
    static constexpr int D = DimQk, DV = DimV, N = Keys, WGS = Consumers;
    static constexpr int STAGES = Stages, QBUF = QBuffers;
    static constexpr bool BF16 = Bf16;
    static constexpr bool HINTS = Variant & SM90_HINTS;
    static constexpr bool WAITS_FIRST = Variant & SM90_WAITS_FIRST;
    static constexpr int M = 64 * WGS;
    static constexpr int THREADS = 128 * (1 + WGS);
    static constexpr int PANELS_QK = (D + 63) / 64, PANELS_V = (DV + 63) / 64;
    /* Registers per thread; three consumers leave 32 for the producer. */
    static constexpr int PRODUCER_REGS = WGS == 3 ? 32 : 56;
    static constexpr int CONSUMER_REGS = WGS == 3 ? 160 : 224;
    /* Consumers take turns at the tensor cores while the others compute
     * exponentials; with large heads the products alone fill the tensor
     * cores. */
    static constexpr bool TURNS =
        D <= 128 && WGS > 1 && !(Variant & SM90_NO_TURNS);

    static constexpr uint32_t Q_BYTES = PANELS_QK * M * 128;
    static constexpr uint32_t K_BYTES = PANELS_QK * N * 128;
    static constexpr uint32_t V_BYTES = PANELS_V * N * 128;
    static constexpr uint32_t K_AT = QBUF * Q_BYTES;
    static constexpr uint32_t V_AT = K_AT + STAGES * K_BYTES;
    static constexpr uint32_t ITEMS_AT = V_AT + STAGES * V_BYTES;
    static constexpr uint32_t ALIBI_AT = ITEMS_AT + 2 * sizeof(sm90_item);
    static constexpr uint32_t KEPT_AT = ALIBI_AT + M * sizeof(sm90_alibi);
    static constexpr uint32_t BARS_AT = KEPT_AT + sizeof(sm90_producer);
    static constexpr uint32_t BARS = 2 * (QBUF + 2 * STAGES + 2);
    static constexpr uint32_t SHARED_BYTES = BARS_AT + 8 * BARS;

    static_assert(PANELS_V <= PANELS_QK, "the output leaves through Q");
    static_assert(N % 16 == 0 && D % 16 == 0 && DV % 16 == 0, "k16 steps");
    static_assert((STAGES & (STAGES - 1)) == 0 && (QBUF & (QBUF - 1)) == 0,
        "laps are counted modulo 2^32");
    static_assert(SHARED_BYTES <= 232448, "an H100 block's shared memory");
};

/* Addresses of a ring's pairs of barriers, full then empty of each stage. The
 * n-th use of a ring of S stages waits for the parity of lap n / S. */
template <class F> struct sm90_bars {
    uint32_t base;

    __device__ __forceinline__ uint32_t q(uint32_t n) const
    {
        return base + 16 * (n % F::QBUF);
    }
    __device__ __forceinline__ uint32_t k(uint32_t n) const
    {
        return base + 16 * (F::QBUF + n % F::STAGES);
    }
    __device__ __forceinline__ uint32_t v(uint32_t n) const
    {
        return base + 16 * (F::QBUF + F::STAGES + n % F::STAGES);
    }
    __device__ __forceinline__ uint32_t item(uint32_t n) const
    {
        return base + 16 * (F::QBUF + 2 * F::STAGES + n % 2);
    }
};

#if PTX_SM90
/* Waits until use n of a ring has arrived, or until its place is free again. */
static __device__ __forceinline__ void
sm90_wait_full(uint32_t bar, uint32_t lap)
{
    ptx_mbarrier_wait(bar, lap & 1);
}

static __device__ __forceinline__ void
sm90_wait_empty(uint32_t bar, uint32_t lap)
{
    ptx_mbarrier_wait(bar + 8, (lap + 1) & 1);
}

template <class F>
static __device__ __forceinline__ void
sm90_bars_init(uint32_t base)
{
    for (uint32_t n = 0; n < F::BARS / 2; n++) {
        bool q = n < F::QBUF, item = n >= F::QBUF + 2 * F::STAGES;
        /* arrivals. full: each producer warp; of an item the warp that takes
         * it. empty: each warp that reads an item, each warp's output, each
         * consumer */
        ptx_mbarrier_init(base + 16 * n, item ? 1 : 4);
        ptx_mbarrier_init(base + 16 * n + 8, item ? 4 * F::WGS + 3
                                             : q  ? 4 * F::WGS
                                                  : F::WGS);
    }
    ptx_mbarrier_init(
        base - F::BARS_AT + F::KEPT_AT + offsetof(sm90_producer, tail), 1);
    ptx_fence_mbarrier_init();
}
#endif

#endif
