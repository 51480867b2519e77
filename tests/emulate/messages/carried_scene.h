/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans whose device memory cannot be mapped, so that a batch transport moves
 * it, through the public calls, on emulated devices. Each rank is a thread or a
 * process. Every byte is compared with obvious placement.
 */
#ifndef TESTS_EMULATE_MESSAGES_CARRIED_SCENE_H
#define TESTS_EMULATE_MESSAGES_CARRIED_SCENE_H

#include <cuda_runtime.h>
#include <stdatomic.h>
#include "collectives/exchange/reshuffle_world.h"
#include "support/ranks.h"

enum { RANKS = 3 }; /* of a case, at most */
#define LATE_S 6.0  /* a deadline to wait for, and for the plan to be made */

struct job {
    struct world *w;
    struct world_ranks storage;
    ulyx_unique_id_t id;
    double timeout_s;
    int devices;    /* that the ranks are spread over */
    bool processes; /* each has an emulator of its own */
    int (*play)(struct job *job, int rank);
    _Atomic int met;
    cudaStream_t streams[RANKS];
    unsigned char *src[ULYX_DIRECTIONS][RANKS][ULI_TENSORS];
    unsigned char *dst[ULYX_DIRECTIONS][RANKS][ULI_TENSORS];
};

#define well(call)    ranks_expect((call) == ULYX_SUCCESS)
#define well_cu(call) ranks_expect((call) == cudaSuccess)

/* Does the last error, or a text, have the part? Prints both if not. */
bool carried_error_has(const char *part);
bool carried_has(const char *text, const char *part);
void carried_sleep(int ms);

/* Devices that cannot reach each other. */
bool carried_open(int devices, int host_threads);
/* Faults, objects of the driver and pinned ranges that were left; closes. */
int carried_close(void);

struct job *carried_new(double timeout_s, int devices);
/* q, k, v, dense heads: every two ranks share bytes. */
void carried_plain(struct job *job, int nranks, uint64_t seed);
void carried_end(struct job *job);
/* As above, where the world was not drawn. */
void carried_forget(struct job *job);
/* Communicators, streams, images on the devices; play; and their ends. Returns
 * how many ranks failed; victim: one that may end in any way, or -1. */
int carried_run(struct job *job, int (*play)(struct job *job, int rank),
    double limit_s, int victim);

/* For play. */
ulyx_status_t carried_execute(struct job *job, int rank, int op);
bool carried_sync(struct job *job, int rank);
/* All ranks are here, or have given up; of one process. */
void carried_meet(struct job *job);
/* New bytes in all images of the rank, on the device, too. */
bool carried_upload(struct job *job, int rank);
/* Brings back what the operations have left, and checks every byte. */
bool carried_check(struct job *job, int rank, uint64_t directions);
/* Calls of all the world's operations, in order. */
bool carried_execute_all(struct job *job, int rank);
/* Waits, half a minute at most, for the communicator to fail: how. */
ulyx_status_t carried_failure(struct job *job, int rank);
/* Checks that the call fails as expected, that the stream ends, and that the
 * next call returns the cause. */
bool carried_fails(
    struct job *job, int rank, ulyx_status_t wanted, const char *part);

/* Cases of all batch transports' tests: the last rank does not come, which the
 * other ranks report in these words at the deadline; rank 0 refuses call 1, and
 * the other ranks report its reason. */
int carried_play_late(struct job *job, int rank, const char *part);
int carried_play_refusal(struct job *job, int rank);

#endif
