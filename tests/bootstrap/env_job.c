/* SPDX-License-Identifier: Apache-2.0
 *
 * Jobs for tests.
 */
#include "bootstrap/env_job.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/status.h"
#include "bootstrap/meet/root.h"
#include "bootstrap/fixture_env.h"
#include "bootstrap/meeting.h"
#include "support/test.h"

enum { TEXT_BYTES = 96 };

/* Numbers that real environments do not use. */
static atomic_uint meetings = 1000;

uint32_t
env_job_meeting(void)
{
    return atomic_fetch_add(&meetings, 1);
}

void
env_job_init(struct env_job *job, int nranks)
{
    uli_root_limit_linger(0.5);
    memset(job, 0, sizeof(*job));
    assert_status(uli_settings_load_files(NULL, NULL, &job->settings), 0);
    job->nranks = nranks;
    job->meeting = env_job_meeting();
    job->patience_s = 20;
    job->absent = -1;
}

static ulyx_status_t
gather_twice(struct uli_bootstrap *bootstrap)
{
    int32_t mine = bootstrap->rank + 100, all[ENV_RANKS];
    for (int i = 0; i < 2; i++) {
        ULI_TRY(bootstrap->ops->gather(
            bootstrap, &mine, sizeof(mine), all, uli_deadline_in(20)));
        for (int r = 0; r < bootstrap->nranks; r++)
            if (all[r] != r + 100)
                return uli_error(ULYX_ERR_INTERNAL, "wrong table");
    }
    return ULYX_SUCCESS;
}

void *
env_job_rank(void *context)
{
    struct env_rank *rank = context;
    const struct env_job *job = rank->job;
    struct fixture_env fixture = {{NULL}};
    char rank_text[TEXT_BYTES], size_text[TEXT_BYTES];
    struct uli_bootstrap *bootstrap = NULL;
    snprintf(rank_text, TEXT_BYTES, "RANK=%d", rank->rank);
    snprintf(size_text, TEXT_BYTES, "WORLD_SIZE=%d", job->nranks);
    fixture.entries[0] = rank_text;
    fixture.entries[1] = size_text;
    for (int i = 0; i < 8 && job->entries[i]; i++)
        fixture.entries[i + 2] = job->entries[i];
    const struct uli_env env = fixture_env(&fixture);
    usleep((useconds_t)(rank->late_s * 1e6));
    rank->status = uli_bootstrap_open_from(&job->settings, &env, job->meeting,
        uli_deadline_in(job->patience_s), &bootstrap);
    if (!rank->status)
        rank->status = gather_twice(bootstrap);
    snprintf(rank->text, sizeof(rank->text), "%s",
        rank->status ? uli_error_text() : "");
    if (bootstrap)
        bootstrap->ops->close(bootstrap);
    return NULL;
}

void
env_job_run(const struct env_job *job, struct env_rank *ranks)
{
    for (int r = 0; r < job->nranks; r++) {
        ranks[r].job = job;
        ranks[r].rank = r;
        if (r != job->absent)
            assert_int_equal(
                pthread_create(&ranks[r].thread, NULL, env_job_rank, &ranks[r]),
                0);
    }
    for (int r = 0; r < job->nranks; r++)
        if (r != job->absent)
            pthread_join(ranks[r].thread, NULL);
}

void
env_job_expect(const struct env_job *job, const struct env_rank *ranks,
    ulyx_status_t status, const char *text)
{
    for (int r = 0; r < job->nranks; r++)
        if (r != job->absent &&
            (ranks[r].status != status || !strstr(ranks[r].text, text)))
            fail_msg("rank %d: status %d, \"%s\"", r, ranks[r].status,
                ranks[r].text);
}

/* Roots of failed meetings may still be ending; the job waits for them. */
void
env_job_run_well(const struct env_job *job)
{
    struct env_rank ranks[ENV_RANKS] = {0};
    assert_true(meeting_all_ended());
    int files = meeting_open_files();
    env_job_run(job, ranks);
    env_job_expect(job, ranks, ULYX_SUCCESS, "");
    assert_true(meeting_all_ended());
    assert_int_equal(meeting_open_files(), files);
}
