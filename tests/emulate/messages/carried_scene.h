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

enum { RANKS = 3 }; /* the most ranks of a case */
/* a timeout that tests wait out; a plan must be made within it */
#define LATE_S 6.0

struct job {
    struct world *w;
    struct world_ranks storage;
    ulyx_unique_id_t id;
    double timeout_s;
    int devices;    /* devices over which the ranks are spread */
    bool processes; /* each rank is a process with an emulator of its own */
    int (*play)(struct job *job, int rank);
    _Atomic int met;
    cudaStream_t streams[RANKS];
    unsigned char *src[ULYX_DIRECTIONS][RANKS][ULI_TENSORS];
    unsigned char *dst[ULYX_DIRECTIONS][RANKS][ULI_TENSORS];
};

#define well(call)    ranks_expect((call) == ULYX_SUCCESS)
#define well_cu(call) ranks_expect((call) == cudaSuccess)

/* Return whether the last error, or a text, contains the part. If not, print
 * both. */
bool carried_error_has(const char *part);
bool carried_has(const char *text, const char *part);
void carried_sleep(int ms);

/* Opens devices that cannot reach each other. */
bool carried_open(int devices, int host_threads);
/* Closes the devices. Returns how many faults, objects of the driver and pinned
 * ranges there were. */
int carried_close(void);

struct job *carried_new(double timeout_s, int devices);
/* A world with q, k, v and dense heads, in which every two ranks exchange
 * bytes. */
void carried_plain(struct job *job, int nranks, uint64_t seed);
void carried_end(struct job *job);
/* As carried_end, for a job whose world was not drawn. */
void carried_forget(struct job *job);
/* Makes communicators, streams and images on the devices, runs `play` on each
 * rank, and destroys everything. Returns how many ranks failed. `victim` is a
 * rank that may end in any way, or -1. */
int carried_run(struct job *job, int (*play)(struct job *job, int rank),
    double limit_s, int victim);

/* The following functions are for `play`. */
ulyx_status_t carried_execute(struct job *job, int rank, int op);
bool carried_sync(struct job *job, int rank);
/* Waits until all ranks of the process are here, or have given up. */
void carried_meet(struct job *job);
/* Draws new bytes for all images of the rank, on the device as well. */
bool carried_upload(struct job *job, int rank);
/* Copies the results of the operations back and checks every byte. */
bool carried_check(struct job *job, int rank, uint64_t directions);
/* Calls all operations of the world, in order. */
bool carried_execute_all(struct job *job, int rank);
/* Waits for the communicator to fail, half a minute at most, and returns
 * how. */
ulyx_status_t carried_failure(struct job *job, int rank);
/* Checks that the call fails as expected, that the stream ends, and that the
 * next call returns the cause. */
bool carried_fails(
    struct job *job, int rank, ulyx_status_t wanted, const char *part);

/* Cases that every batch transport tests. late: the last rank does not come,
 * and the other ranks report this with the words `part` at their deadline.
 * refusal: rank 0 refuses call 1, and the other ranks report its reason. */
int carried_play_late(struct job *job, int rank, const char *part);
int carried_play_refusal(struct job *job, int rank);

#endif
