/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans by NCCL through the public calls, on emulated devices whose memory
 * cannot be mapped: a thread a rank, an NCCL with kernels of its own. Every
 * byte against obvious placement; a rank that does not come, refusals, a
 * library that is not there.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "emulate/carried_scene.h"
#include "emulate/fake_nccl_kernels.h"
#include "support/test.h"

enum { RANKS = 3 };
#define LATE_S 6.0 /* and for the plan to be made */

static struct fake_nccl *fake;

/* ---- the machine --------------------------------------------------------- */

static void *
host_room(size_t bytes)
{
    void *memory = NULL;
    return cudaHostAlloc(&memory, bytes, cudaHostAllocMapped) == cudaSuccess
               ? memory
               : NULL;
}

static void
host_release(void *memory)
{
    cudaFreeHost(memory);
}

static int
set_up(void **state)
{
    void *library = dlopen(FAKE_NCCL_OK, RTLD_NOW);
    (void)state;
    fake = library ? dlsym(library, "fake_nccl") : NULL;
    if (!fake || !carried_open(RANKS, RANKS))
        return -1;
    *fake = (struct fake_nccl){.version = 22809,
        .alloc = host_room,
        .release = host_release,
        .launch = fake_nccl_kernels_launch};
    return setenv("ULYX_NCCL_LIB", FAKE_NCCL_OK, 1);
}

static int
tear_down(void **state)
{
    (void)state;
    if (fake->alive)
        fprintf(stderr, "left: %d NCCL communicators\n", fake->alive);
    return carried_close() || fake->alive;
}

static void
run(struct job *job, int (*play)(struct job *job, int rank))
{
    int failed = carried_run(job, play, 90, -1);
    carried_end(job);
    assert_int_equal(failed, 0);
}

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
        for (int op = 0; good && op < ULYX_OPERATIONS; op++)
            if (job->w->operations >> op & 1)
                good = well(carried_execute(job, rank, op));
    return !(good && carried_check(job, rank, job->w->operations));
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
        /* one device for all: mapped, and asked for all the same */
        job->devices = draw % 3 == 1 || job->storage.nranks == 1 ? 1 : RANKS;
        if (!world_draw(job->w, &job->storage, &random, 0)) {
            carried_forget(job);
            continue;
        }
        job->w->algo = job->devices == 1 ? "nccl" : NULL;
        run(job, play_all);
    }
}

/* ---- a rank that does not come ------------------------------------------- */

static int
play_late(struct job *job, int rank)
{
    ulyx_comm_t *comm = job->storage.comms[rank];
    ulyx_status_t now = ULYX_SUCCESS;
    bool good = well(world_create(job->w, rank));
    carried_meet(job);
    if (!good || rank == RANKS - 1) {
        carried_meet(job);
        return !good;
    }
    good = well(carried_execute(job, rank, ULYX_HEAD_TO_SEQ));
    for (int i = 0; i < 30000 && now == ULYX_SUCCESS; i++) {
        ulyx_comm_get_async_error(comm, &now);
        carried_sleep(1);
    }
    good = good && ranks_expect(now == ULYX_ERR_TIMEOUT) &&
           carried_sync(job, rank);
    good =
        good &&
        ranks_expect(
            carried_execute(job, rank, ULYX_HEAD_TO_SEQ) == ULYX_ERR_TIMEOUT) &&
        carried_says("call 1: not ended after 6 s: rank 2 has not reached it");
    carried_meet(job);
    return !good;
}

static void
a_missing_rank_is_named_and_streams_end(void **state)
{
    (void)state;
    struct job *job = carried_new(LATE_S, RANKS);
    carried_plain(job, RANKS, 3);
    run(job, play_late);
}

/* ---- refusals ------------------------------------------------------------ */

static int
play_refusal(struct job *job, int rank)
{
    const void *none[ULI_TENSORS] = {NULL};
    void *nowhere[ULI_TENSORS] = {NULL};
    bool good = well(world_create(job->w, rank));
    if (good && rank == 0)
        good = ranks_expect(
            ulyx_reshuffle_execute(job->w->plans[0], ULYX_SEQ_TO_HEAD, none,
                nowhere, job->streams[0]) == ULYX_ERR_INVALID_ARGUMENT);
    else if (good)
        good = well(carried_execute(job, rank, ULYX_SEQ_TO_HEAD));
    good = good && carried_sync(job, rank);
    carried_meet(job);
    ulyx_status_t next =
        good ? carried_execute(job, rank, ULYX_HEAD_TO_SEQ) : 0;
    good =
        good &&
        ranks_expect(next == (rank ? ULYX_ERR_PEER_REFUSED : ULYX_SUCCESS)) &&
        (rank == 0 || carried_says("call 1: rank 0 refused"));
    return !(good && carried_check(job, rank, 1u << ULYX_HEAD_TO_SEQ));
}

static void
a_refusal_is_told_and_the_next_call_is_well(void **state)
{
    (void)state;
    struct job *job = carried_new(30, RANKS);
    carried_plain(job, RANKS, 4);
    run(job, play_refusal);
}

static int
play_without(struct job *job, int rank)
{
    return !(ranks_expect(world_create(job->w, rank) == ULYX_ERR_UNSUPPORTED) &&
             carried_says("rank 0: nccl: /nowhere/libnccl.so"));
}

static void
without_the_library_no_plan_is_made(void **state)
{
    (void)state;
    struct job *job = carried_new(30, RANKS);
    carried_plain(job, RANKS, 5);
    job->w->algo = "nccl";
    setenv("ULYX_NCCL_LIB", "/nowhere/libnccl.so", 1);
    run(job, play_without);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
static const struct CMUnitTest tests[] = {
    CASE(every_byte_of_every_operation),
    CASE(a_missing_rank_is_named_and_streams_end),
    CASE(a_refusal_is_told_and_the_next_call_is_well),
    CASE(without_the_library_no_plan_is_made),
};

ULI_TEST_MAIN("EmulateNcclPlan", tests)
