/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans that exchange by NCCL, through the public calls, on emulated devices
 * whose memory cannot be mapped. Each rank is a thread, and the imitation of
 * NCCL has kernels of its own. Every byte is compared with obvious placement.
 * Also a rank that does not come, refusals, and a missing library.
 */
#include <stdlib.h>
#include "emulate/messages/carried_nccl.h"
#include "support/random.h"
#include "support/test.h"

/* ---- every byte ---------------------------------------------------------- */

static int
play_all(struct job *job, int rank)
{
    char text[1024] = "";
    bool good = well(world_create(job->w, rank));
    good = good &&
           well(ulyx_plan_describe(job->w->plans[rank], text, sizeof(text)));
    good = good && ranks_expect(carried_has(text, "nccl 2.28.9")) &&
           ranks_expect(job->w->c.shape.nranks == 1 || job->devices == 1 ||
                        carried_has(text, "cannot be mapped"));
    for (int round = 0; good && round < 2; round++)
        good = carried_execute_all(job, rank);
    return !(good && carried_check(job, rank, job->w->directions));
}

static void
every_byte_of_every_operation(void **state)
{
    (void)state;
    struct test_random random = {test_seed(501)};
    for (int64_t draw = 0; draw < test_draws(3); draw++) {
        struct job *job = carried_new(30, RANKS);
        case_random(&job->w->c, &random, RANKS, draw % 3 == 2);
        job->storage.nranks = job->w->c.shape.nranks;
        job->w->salt = draw;
        /* with one device for all ranks, memory can be mapped, so nccl is
         * requested */
        job->devices = draw % 3 == 1 || job->storage.nranks == 1 ? 1 : RANKS;
        if (!world_draw(job->w, &job->storage, &random, 0)) {
            carried_forget(job);
            continue;
        }
        job->w->algo = job->devices == 1 ? "nccl" : NULL;
        carried_nccl_run(job, play_all);
    }
}

/* ---- a rank that does not come ------------------------------------------- */

static int
play_late(struct job *job, int rank)
{
    return carried_play_late(
        job, rank, "call 1, after 6 s: timed out waiting for rank 2 ");
}

static void
a_missing_rank_is_named_and_streams_end(void **state)
{
    (void)state;
    struct job *job = carried_new(LATE_S, RANKS);
    carried_plain(job, RANKS, 3);
    carried_nccl_run(job, play_late);
}

/* ---- refusals ------------------------------------------------------------ */

static void
a_refusal_is_reported_and_the_next_call_succeeds(void **state)
{
    (void)state;
    struct job *job = carried_new(30, RANKS);
    carried_plain(job, RANKS, 4);
    carried_nccl_run(job, carried_play_refusal);
}

static int
play_without(struct job *job, int rank)
{
    return !(ranks_expect(world_create(job->w, rank) == ULYX_ERR_UNSUPPORTED) &&
             carried_error_has("rank 0: nccl: /nowhere/libnccl.so"));
}

static void
without_the_library_no_plan_is_made(void **state)
{
    (void)state;
    struct job *job = carried_new(30, RANKS);
    carried_plain(job, RANKS, 5);
    job->w->algo = "nccl";
    setenv("ULYX_NCCL_LIB", "/nowhere/libnccl.so", 1);
    carried_nccl_run(job, play_without);
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(                                           \
        name, carried_nccl_set_up, carried_nccl_tear_down)
static const struct CMUnitTest tests[] = {
    CASE(every_byte_of_every_operation),
    CASE(a_missing_rank_is_named_and_streams_end),
    CASE(a_refusal_is_reported_and_the_next_call_succeeds),
    CASE(without_the_library_no_plan_is_made),
};

ULI_TEST_MAIN("EmulateNcclPlan", tests)
