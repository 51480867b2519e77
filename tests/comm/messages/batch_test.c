/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicator's batch and the watch over its calls, over the tests' own
 * driver and NCCL: one rank's failure is an error of all that names it; a call
 * that does not end in time fails the communicator and names the rank that has
 * not come; and any failure of the communicator aborts the batch.
 */
#include "comm/messages/batch.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/status.h"
#include "comm/device/gpu_scene.h"
#include "comm/service/service.h"
#include "support/ranks.h"
#include "support/test.h"
#include "transport/nccl/fake_nccl.h"

enum { RANKS = 3, ASYNC_REMOTE = 6 };
#define LATE_S 0.15

struct world {
    ulyx_comm_t *comms[RANKS];
    struct uli_batch_watch watches[RANKS];
    struct uli_batch_place progress[RANKS];
    bool shares[RANKS][RANKS];
    uint64_t begun[RANKS], ended[RANKS];
    const char *expected; /* part of the error of open; NULL = success */
};

static struct fake_nccl *fake;

static int
set_up(void **state)
{
    static const int32_t devices[RANKS] = {0, 1, 0};
    static struct world world;
    void *library = dlopen(FAKE_NCCL_OK, RTLD_NOW);
    fake = library ? dlsym(library, "fake_nccl") : NULL;
    if (!fake)
        return -1;
    *fake = (struct fake_nccl){.version = 22809};
    memset(&world, 0, sizeof(world));
    *state = &world;
    setenv("ULYX_NCCL_LIB", FAKE_NCCL_OK, 1);
    return gpu_open(state) || gpu_threads(RANKS, devices, 20, world.comms);
}

static int
tear_down(void **state)
{
    struct world *w = *state;
    for (int r = 0; r < RANKS; r++)
        if (w->comms[r] && uli_comm_destroy(w->comms[r]) != ULYX_SUCCESS)
            return -1;
    return gpu_close(state) || fake->alive != 0;
}

static void
sleep_ms(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static bool
text_has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fprintf(stderr, "\"%s\" is not in \"%s\"\n", part, text);
    return strstr(text, part) != NULL;
}

/* ---- opening ------------------------------------------------------------- */

static int
open_rank(int rank, int nranks, void *context)
{
    struct world *w = context;
    ulyx_comm_t *comm = w->comms[rank];
    (void)nranks;
    ulyx_status_t status = uli_comm_batch_open(comm, 0, uli_deadline_in(20));
    if (w->expected)
        return !(ranks_expect(status != ULYX_SUCCESS) &&
                 text_has(uli_error_text(), w->expected) &&
                 ranks_expect(uli_comm_batch(comm) == NULL) &&
                 ranks_expect(uli_comm_barrier(comm) == ULYX_SUCCESS));
    /* a second open returns at once, also at one rank alone */
    return !(ranks_expect(status == ULYX_SUCCESS) &&
             ranks_expect(uli_comm_batch(comm) != NULL) &&
             (rank > 0 || ranks_expect(uli_comm_batch_open(comm,
                                           uli_comm_batch_transport("nccl"),
                                           0) == ULYX_SUCCESS)));
}

static void
open_all(struct world *w, const char *expected)
{
    w->expected = expected;
    assert_int_equal(ranks_run_threads(RANKS, open_rank, w, 60), 0);
}

static void
all_ranks_open_once(void **state)
{
    struct world *w = *state;
    open_all(w, NULL);
    assert_int_equal(fake->alive, RANKS);
}

static void
one_ranks_failure_is_reported_by_all_and_open_succeeds_later(void **state)
{
    struct world *w = *state;
    char *name = w->comms[1]->settings.nccl_lib;
    snprintf(name, ULI_SETTING_TEXT, "/nowhere/libnccl.so");
    open_all(w, "rank 1: nccl: /nowhere/libnccl.so");
    assert_int_equal(fake->alive, 0);
    snprintf(name, ULI_SETTING_TEXT, "%s", FAKE_NCCL_OK);
    fake->failing = "CommInitRankConfig";
    fake->result = 2;
    open_all(w, "rank 0: nccl: ncclCommInitRankConfig: unhandled system error");
    assert_int_equal(fake->alive, 0);
    fake->failing = NULL;
    snprintf(w->comms[2]->settings.transports, ULI_SETTING_TEXT, "^nccl");
    open_all(w, "rank 2: nccl: ULYX_TRANSPORTS=^nccl leaves it out");
    w->comms[2]->settings.transports[0] = 0;
    open_all(w, NULL);
}

/* ---- the watch ----------------------------------------------------------- */

static void
watch_all(struct world *w)
{
    open_all(w, NULL);
    for (int r = 0; r < RANKS; r++) {
        struct uli_batch_watch *watch = &w->watches[r];
        *watch = (struct uli_batch_watch){.begun = &w->begun[r],
            .ended = &w->ended[r],
            .timeout_s = LATE_S,
            .what = "reshuffle",
            .progress = w->progress,
            .shares = w->shares[r]};
        assert_status(uli_arena_alloc(
                          w->comms[r], ULI_BATCH_PROGRESS_BYTES, &watch->block),
            ULYX_SUCCESS);
        w->progress[r].window = watch->block.window;
        w->progress[r].offset = watch->block.offset;
        for (int p = 0; p < RANKS; p++)
            w->shares[r][p] = p != r;
    }
    for (int r = 0; r < RANKS; r++)
        uli_batch_watch_add(w->comms[r], &w->watches[r]);
}

static void
unwatch_all(struct world *w)
{
    for (int r = 0; r < RANKS; r++) {
        uli_batch_watch_remove(w->comms[r], &w->watches[r]);
        uli_arena_free(w->comms[r], &w->watches[r].block);
    }
}

static void
set_word(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* Waits until the rank's communicator has failed and its batch is aborted. */
static void
await_failure(struct world *w, int rank, int aborts)
{
    int64_t end = uli_clock_ns() + INT64_C(20000000000);
    while ((!atomic_load(&w->comms[rank]->failed) ||
               __atomic_load_n(&fake->aborts, __ATOMIC_RELAXED) < aborts) &&
           uli_clock_ns() < end)
        sleep_ms(1);
    assert_true(atomic_load(&w->comms[rank]->failed) != 0);
    assert_int_equal(__atomic_load_n(&fake->aborts, __ATOMIC_RELAXED), aborts);
}

static void
a_late_call_names_the_rank_that_has_not_come(void **state)
{
    struct world *w = *state;
    watch_all(w);
    set_word(&w->begun[0], 4);
    set_word(&w->begun[1], 4);
    set_word(&w->begun[2], 3);
    set_word(&w->ended[2], 3);
    await_failure(w, 0, 2);
    await_failure(w, 1, 2);
    for (int r = 0; r < 2; r++) {
        assert_status(uli_comm_check(w->comms[r]), ULYX_ERR_TIMEOUT);
        assert_true(text_has(uli_error_text(),
            "reshuffle, call 4, after 0.15 s: timed out waiting for rank 2 "));
        assert_true(text_has(uli_error_text(), ") to reach it"));
        assert_int_equal(atomic_load(&w->comms[r]->failed_rank), 2);
        assert_status(
            uli_comm_batch_ops(w->comms[r])->check(uli_comm_batch(w->comms[r])),
            ULYX_ERR_ABORTED);
    }
    assert_status(uli_comm_check(w->comms[2]), ULYX_SUCCESS);
    unwatch_all(w);
}

static void
a_late_call_that_all_ranks_have_begun_is_reported_as_such(void **state)
{
    struct world *w = *state;
    watch_all(w);
    set_word(&w->begun[1], 1);
    set_word(&w->begun[2], 1);
    w->shares[0][1] = w->shares[0][2] = false; /* and needs neither */
    sleep_ms(30);
    w->shares[1][0] = false;
    set_word(&w->ended[2], 1);
    await_failure(w, 1, 1);
    assert_status(uli_comm_check(w->comms[1]), ULYX_ERR_TIMEOUT);
    assert_true(text_has(uli_error_text(), "timed out waiting for rank 2 ("));
    assert_true(
        text_has(uli_error_text(), ") to end it, which all have reached"));
    unwatch_all(w);
}

/* Many calls, each shorter than the timeout, together longer. */
static void
calls_that_end_are_never_late(void **state)
{
    struct world *w = *state;
    watch_all(w);
    const int64_t late = (int64_t)(LATE_S * 1e9);
    int64_t longest = 0, end = uli_clock_ns() + 4 * late;
    for (uint64_t n = 1; uli_clock_ns() < end; n++)
        for (int r = 0; r < RANKS; r++) {
            int64_t begin = uli_clock_ns();
            set_word(&w->begun[r], n);
            sleep_ms(1);
            set_word(&w->ended[r], n);
            int64_t took = uli_clock_ns() - begin;
            longest = took > longest ? took : longest;
        }
    sleep_ms((int)(2 * LATE_S * 1000)); /* an idle plan is not late */
    for (int r = 0; r < RANKS && longest < late; r++)
        assert_status(uli_comm_check(w->comms[r]), ULYX_SUCCESS);
    unwatch_all(w);
    if (longest >= late)
        test_skip(
            "this thread was paused for %lld ms within a call, which is late",
            (long long)(longest / 1000000));
}

static void
any_failure_aborts_all_batches(void **state)
{
    struct world *w = *state;
    watch_all(w);
    uli_comm_abort(w->comms[1]);
    for (int r = 0; r < RANKS; r++)
        await_failure(w, r, RANKS);
    unwatch_all(w);
}

/* An error that the batch transport finds fails the communicator, with its
 * text. No call has begun, so no deadline is involved. */
static void
an_error_of_the_batch_transport_fails_the_communicator_at_once(void **state)
{
    struct world *w = *state;
    watch_all(w);
    __atomic_store_n(&fake->async, ASYNC_REMOTE, __ATOMIC_RELAXED);
    for (int r = 0; r < RANKS; r++)
        await_failure(w, r, RANKS);
    __atomic_store_n(&fake->async, 0, __ATOMIC_RELAXED);
    bool found = false;
    for (int r = 0; r < RANKS; r++) { /* the first look poisons the others */
        ulyx_status_t status = uli_comm_check(w->comms[r]);
        assert_true(status == ULYX_ERR_SYSTEM || status == ULYX_ERR_ABORTED);
        found = found ||
                strstr(uli_error_text(), "device memory goes by nccl: nccl: "
                                         "ncclCommGetAsyncError: ") != NULL;
    }
    assert_true(found);
    unwatch_all(w);
}

/* While NCCL is inside its aborts the service continues: it has begun the
 * aborts of all ranks, and its lock can be taken. */
static void
aborts_that_take_long_hold_up_nobody(void **state)
{
    struct world *w = *state;
    watch_all(w);
    __atomic_store_n(&fake->hold_aborts, 1, __ATOMIC_RELAXED);
    uli_comm_abort(w->comms[1]);
    int64_t end = uli_clock_ns() + INT64_C(20000000000);
    while (__atomic_load_n(&fake->aborting, __ATOMIC_RELAXED) < RANKS &&
           uli_clock_ns() < end)
        sleep_ms(1);
    int aborting = __atomic_load_n(&fake->aborting, __ATOMIC_RELAXED);
    uli_service_lock();
    int still = __atomic_load_n(&fake->aborting, __ATOMIC_RELAXED);
    uli_service_unlock();
    __atomic_store_n(&fake->hold_aborts, 0, __ATOMIC_RELAXED);
    assert_int_equal(aborting, RANKS);
    assert_int_equal(still, RANKS);
    for (int r = 0; r < RANKS; r++)
        await_failure(w, r, RANKS);
    unwatch_all(w);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
static const struct CMUnitTest tests[] = {
    CASE(all_ranks_open_once),
    CASE(one_ranks_failure_is_reported_by_all_and_open_succeeds_later),
    CASE(a_late_call_names_the_rank_that_has_not_come),
    CASE(a_late_call_that_all_ranks_have_begun_is_reported_as_such),
    CASE(calls_that_end_are_never_late),
    CASE(any_failure_aborts_all_batches),
    CASE(an_error_of_the_batch_transport_fails_the_communicator_at_once),
    CASE(aborts_that_take_long_hold_up_nobody),
};

ULI_TEST_MAIN("CommBatch", tests)
