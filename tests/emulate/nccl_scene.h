/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of packed plans through the public calls, on emulated devices whose
 * memory cannot be mapped: a thread a rank, an NCCL with kernels of its own.
 */
#ifndef TESTS_EMULATE_NCCL_SCENE_H
#define TESTS_EMULATE_NCCL_SCENE_H

#include <cuda_runtime.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "collectives/reshuffle_world.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/test.h"

enum { RANKS = 3 };
#define LATE_S 6.0 /* and for the plan to be made */

struct job {
    struct world *w;
    struct world_ranks storage;
    ulyx_unique_id_t id;
    double timeout_s;
    int devices;
    bool whole;        /* all images are to be right at the end */
    uint64_t captured; /* hash of the documents of a capture */
    bool replaced;     /* the documents, in the last round of updates */
    struct test_random random;
    int (*play)(struct job *job, int rank);
    _Atomic int met;
    cudaStream_t streams[RANKS];
    unsigned char *src[ULYX_OPERATIONS][RANKS][ULI_TENSORS];
    unsigned char *dst[ULYX_OPERATIONS][RANKS][ULI_TENSORS];
};

#define well(call)    ranks_expect((call) == ULYX_SUCCESS)
#define well_cu(call) ranks_expect((call) == cudaSuccess)

int scene_set_up(void **state);
/* Fails where anything is left. */
int scene_tear_down(void **state);
/* What a rank's thread plays returns 0 if all went well; it is given its
 * communicator, stream and images. */
struct job *scene_new_job(double timeout_s);
/* A small world of RANKS ranks. */
void scene_plain(struct job *job, uint64_t seed);
void scene_run(struct job *job, int (*play)(struct job *job, int rank));
void scene_end_job(struct job *job);
/* All of the world's operations, in order. */
void scene_list_operations(struct world *w);

/* All ranks are here, or one has given up. */
void scene_meet(struct job *job);
ulyx_status_t scene_execute(struct job *job, int rank, int op);
bool scene_sync(struct job *job, int rank);
/* Sources and poisoned destinations; the first time with their memory. */
bool scene_put_images(struct job *job, int rank);
bool scene_bring_back(struct job *job, int rank, bool release);
bool scene_says(const char *part);
void scene_sleep_ms(int ms);

#endif
