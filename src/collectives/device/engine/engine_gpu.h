/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels between the copies of an exchange by copy engines. Each is one
 * warp, so that multiprocessors stay free, and each ends by the deadline or the
 * poison word. Copies cannot wait or read a word, so the order of two streams
 * and these kernels holds them back. Plain C and CUDA C++.
 *
 *     caller's stream   ENTER  push 0  OUT 1  push 1  OUT 2  push 2 .. OUT K
 *     own stream               own     IN 0  take 0   IN 1   take 1 .. IN K
 *     caller's stream   (both joined)  CLOSE
 *
 *     ENTER   record and READY(n) to each peer; awaits the peers' READY(n)
 *     OUT k   FILLED(n, k) to each peer: rounds below k have landed there;
 *             awaits CONSUMED(n, k - 1): the slot of round k - 2 is free
 *     IN k    CONSUMED(n, k): rounds below k are out of their slots; awaits
 *             FILLED(n, k + 1), that round k is in its slot
 *     CLOSE   DONE(n) to each peer; awaits the peers' DONE(n)
 *
 * FILLED and CONSUMED hold n * 2^20 + k, so they only grow. n is read on the
 * device, so a captured call can be replayed. The host enqueues in the order
 * OUT k, push k, IN k - 1, take k - 1 at every rank. So whatever a kernel waits
 * for has been enqueued before the kernel, even if both streams share one queue
 * of the hardware.
 *
 * No rank waits for a peer that refuses the call or has left. A push to such a
 * peer writes memory of the library, which the peer does not read in this call;
 * a take from its part of the receive buffer leaves dst undefined, as a failed
 * call may. The peer cannot start its next call before this rank's DONE(n),
 * which comes after the last push. Of a peer that executes another direction,
 * as many rounds are awaited as that direction has. Pushes after a deadline or
 * poison wait for nothing and may race with takes of the peer. No DONE(n)
 * follows, so no rank's call succeeds with such bytes.
 */
#ifndef ULI_COLLECTIVES_DEVICE_ENGINE_ENGINE_GPU_H
#define ULI_COLLECTIVES_DEVICE_ENGINE_ENGINE_GPU_H

#include "collectives/device/mapped/exchange_gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

enum uli_engine_step {
    ULI_ENGINE_ENTER,
    ULI_ENGINE_OUT,
    ULI_ENGINE_IN,
    ULI_ENGINE_CLOSE,
};
enum { ULI_ENGINE_ROUND_BITS = 20 };

struct uli_engine_args {
    struct uli_gpu_args call; /* tables are not read; report is there */
    const int32_t *rounds;    /* on the device, [ULYX_DIRECTIONS][2][nranks]: to
                               * and from each peer; none in small calls */
    int32_t step, round;
};

/* Enqueues a step: one block of a warp. Returns a cudaError_t. Allocates
 * nothing; may be captured. */
int uli_engine_launch(const struct uli_engine_args *args, void *stream);
/* Loads the kernel on the current device. Returns a cudaError_t. */
int uli_engine_prepare(void);

#ifdef __cplusplus
}
#endif
#endif
