/* SPDX-License-Identifier: Apache-2.0
 *
 * A job for tests. Ranks are threads, each with an environment of its own in
 * torchrun's variables, by which they meet; then they gather twice.
 */
#ifndef TESTS_BOOTSTRAP_ENV_JOB_H
#define TESTS_BOOTSTRAP_ENV_JOB_H

#include <pthread.h>
#include <stdint.h>
#include "bootstrap/launch/env.h"

enum { ENV_RANKS = 4 };

/* What the ranks of a test share. */
struct env_job {
    struct uli_settings settings;
    const char *entries[8]; /* entries other than rank and size */
    int nranks;
    uint32_t meeting;
    double patience_s;
    int absent; /* rank that does not come, or -1 */
};

struct env_rank {
    pthread_t thread;
    const struct env_job *job;
    int rank;
    double late_s;
    ulyx_status_t status;
    char text[1024];
};

/* Sets deadlines of 20 s and no absent rank. Failed meetings stay for 0.5 s
 * only. */
void env_job_init(struct env_job *job, int nranks);
/* Returns a meeting number that no other call in this process has returned. */
uint32_t env_job_meeting(void);
/* Runs all ranks and waits for them. */
void env_job_run(const struct env_job *job, struct env_rank *ranks);
/* The thread of one rank, for jobs whose ranks differ. */
void *env_job_rank(void *context);
/* Fails the test unless all ranks that came have this status and text. */
void env_job_expect(const struct env_job *job, const struct env_rank *ranks,
    ulyx_status_t status, const char *text);
/* Runs the job. Expects success, and that no thread and no descriptor is
 * left. */
void env_job_run_well(const struct env_job *job);

#endif
