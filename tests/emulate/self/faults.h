/* SPDX-License-Identifier: Apache-2.0
 *
 * Planted faults. Each family is a small correct kernel that takes the number
 * of the one mistake to make; 0 is the correct kernel. The list says which kind
 * of fault the emulator must report. RING_BROKEN is a race or a misuse of the
 * mbarrier, whichever shows first; WRONG means that only the result is
 * wrong.
 */
#ifndef TESTS_EMULATE_SELF_FAULTS_H
#define TESTS_EMULATE_SELF_FAULTS_H

#include <stdint.h>
#include <cuda_runtime.h>

/* A producer's bulk loads through a ring of mbarriers to four warps. */
#define FAULTS_RING(X)                                                         \
    X(RING_STAGE_REUSED_EARLY, RING_BROKEN)                                    \
    X(RING_RELEASED_BEFORE_READ, RACE)                                         \
    X(RING_RELEASED_FOR_OTHERS, RACE)                                          \
    X(RING_NOT_WAITED_FOR, RACE)                                               \
    X(RING_WRONG_PARITY, RACE)                                                 \
    X(RING_EXPECTS_TOO_FEW, RACE)                                              \
    X(RING_EXPECTS_TOO_MANY, DEADLOCK)                                         \
    X(RING_NO_INIT_FENCE, MBARRIER)                                            \
    X(RING_NO_INIT_BARRIER, MBARRIER)                                          \
    X(RING_ARRIVES_TWICE, RING_BROKEN)                                         \
    X(RING_LOST_ARRIVAL, DEADLOCK)                                             \
    X(RING_LOAD_NOT_ALIGNED, ASYNC)

/* A wgmma on operands that the block's threads wrote. */
#define FAULTS_WGMMA(X)                                                        \
    X(WGMMA_NO_PROXY_FENCE, RACE)                                              \
    X(WGMMA_NO_BARRIER, RACE)                                                  \
    X(WGMMA_NO_FENCE, WGMMA)                                                   \
    X(WGMMA_NO_WAIT, WGMMA)                                                    \
    X(WGMMA_WAITS_FOR_ALL_BUT_ONE, WGMMA)                                      \
    X(WGMMA_NO_COMMIT, WGMMA)                                                  \
    X(WGMMA_OPERAND_OVERWRITTEN, RACE)                                         \
    X(WGMMA_LBO_SBO_EXCHANGED, WRONG)                                          \
    X(WGMMA_LANES_DISAGREE, DIVERGENT)                                         \
    X(WGMMA_ONE_WARP_SHORT, DIVERGENT)

/* A bulk store or plain stores to another device, then a flag, then plain loads
 * or a bulk load there. */
#define FAULTS_FLAG(X)                                                         \
    X(FLAG_READ_WAIT_ONLY, RACE)                                               \
    X(FLAG_NO_COMMIT, RACE)                                                    \
    X(FLAG_NO_PROXY_FENCE, RACE)                                               \
    X(FLAG_STAGE_OVERWRITTEN, RACE)                                            \
    X(FLAG_LOST_RELEASE, RACE)                                                 \
    X(FLAG_LOST_ACQUIRE, RACE)                                                 \
    X(FLAG_ACQUIRE_TOO_NARROW, RACE)                                           \
    X(FLAG_SCOPE_TOO_NARROW, RACE)                                             \
    X(FLAG_FENCE_TOO_NARROW, RACE)                                             \
    X(FLAG_NO_BLOCK_BARRIER, RACE)                                             \
    X(FLAG_BYTE_TWICE, TWICE)                                                  \
    X(FLAG_LOAD_NO_PROXY_FENCE, RACE)                                          \
    X(FLAG_LOAD_FENCE_OF_OTHER_SPACE, RACE)                                    \
    X(FLAG_NEVER_RAISED, DEADLOCK)

/* Barriers, shared memory, warps. */
#define FAULTS_BLOCK(X)                                                        \
    X(BLOCK_NO_BARRIER, RACE)                                                  \
    X(BLOCK_SHARED_BOUNDS, BOUNDS)                                             \
    X(BLOCK_GLOBAL_BOUNDS, BOUNDS)                                             \
    X(BLOCK_SHUFFLE_BY_HALF, DIVERGENT)                                        \
    X(BLOCK_BARRIER_COUNTS_DIFFER, BARRIER)                                    \
    X(BLOCK_BARRIER_MISSED, DEADLOCK)                                          \
    X(BLOCK_LANE_ENDED, DIVERGENT)                                             \
    X(BLOCK_COPY_NOT_WAITED_FOR, RACE)                                         \
    X(BLOCK_COPY_GROUP_LEFT, RACE)                                             \
    X(BLOCK_COPY_NO_BARRIER, RACE)                                             \
    X(BLOCK_REGISTERS_DISAGREE, DIVERGENT)                                     \
    X(BLOCK_REGISTERS_EXHAUSTED, DEADLOCK)

#define FAULT_ENUM(name, kind) name,
enum ring_fault { RING_RIGHT, FAULTS_RING(FAULT_ENUM) RING_END };
enum wgmma_fault { WGMMA_RIGHT, FAULTS_WGMMA(FAULT_ENUM) WGMMA_END };
enum flag_fault { FLAG_RIGHT, FAULTS_FLAG(FAULT_ENUM) FLAG_END };
enum block_fault { BLOCK_RIGHT, FAULTS_BLOCK(FAULT_ENUM) BLOCK_END };

#ifdef __cplusplus
extern "C" {
#endif

enum { RING_TILES = 9, RING_TILE = 256, FLAG_COUNT = 512, BLOCK_COUNT = 128 };

/* out[t] = sum of in[t * RING_TILE ..] */
cudaError_t ring_launch(int fault, const int *in, int *out);
/* d[64][64] = a b^T of 64 x 32 operands a[m][k], b[n][k], bf16 */
cudaError_t wgmma_launch(
    int fault, const uint16_t *a, const uint16_t *b, float *d);
/* out[i] = in[i] + 1, by way of `data`, which another device reads. Stores are
 * bulk stores or plain ones. */
cudaError_t flag_put_launch(
    int fault, int bulk, const int *in, int *data, unsigned *flag);
cudaError_t flag_take_launch(
    int fault, int bulk, const int *data, unsigned *flag, int *out);
/* out[i] = in[127 - i] + i */
cudaError_t block_launch(int fault, const int *in, int *out);

#ifdef __cplusplus
}
#endif
#endif
