/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches by NCCL, over the tests' own library (fake_nccl.h): the bytes, the
 * reasons where NCCL cannot be used, and that no wait outlives its deadline or
 * an abort. No communicator may be left after any case.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "support/random.h"
#include "support/ranks.h"
#include "support/test.h"
#include "transport/nccl/fake_nccl.h"
#include "transport/nccl/library.h"
#include "transport/transport.h"
#ifdef HAVE_NCCL_H
#include <nccl.h>
#endif

#define OPS (uli_tr_nccl_ops.batch)

enum { RANKS = 4, LONGEST = 3 * FAKE_NCCL_RING, GUARD = 32, PIECES = 4 };

static struct uli_settings settings;
static struct fake_nccl *fake;

/* ---- the library --------------------------------------------------------- */

static void
name_library(const char *path)
{
    snprintf(settings.nccl_lib, sizeof(settings.nccl_lib), "%s", path);
}

static int
open_fake(void **state)
{
    (void)state;
    void *library = dlopen(FAKE_NCCL_OK, RTLD_NOW);
    fake = library ? dlsym(library, "fake_nccl") : NULL;
    if (!fake || uli_settings_load(&settings) != ULYX_SUCCESS)
        return -1;
    memset(fake, 0, sizeof(*fake));
    fake->version = 22809;
    name_library(FAKE_NCCL_OK);
    return 0;
}

static int
nothing_left(void **state)
{
    (void)state;
    return fake->alive == 0 ? 0 : -1;
}

static ulyx_status_t
open_rank(int rank, int nranks, const unsigned char *id, double seconds,
    struct uli_batch **batch_p)
{
    struct uli_batch_params params = {.rank = rank,
        .nranks = nranks,
        .memory_kind = ULYX_MEMORY_HOST,
        .settings = &settings,
        .id = id,
        .deadline = uli_deadline_in(seconds)};
    return OPS->open(&params, batch_p);
}

static void
sleep_ms(int ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

/* ---- bytes --------------------------------------------------------------- */

struct job {
    unsigned char id[ULI_BATCH_ID_BYTES];
    uint64_t seed;
    int runs;
};

static unsigned char
byte_of(int from, int to, int run, int piece, int64_t i)
{
    return (unsigned char)(from * 57 + to * 101 + run * 13 + piece * 7 + i +
                           (i >> 8) * 3);
}

/* The size of a pair's piece in a run, the same at both ends. */
static int64_t
size_of(uint64_t seed, int from, int to, int run, int piece)
{
    struct test_random random = {
        seed + (uint64_t)(((from * RANKS + to) * 16 + run) * PIECES + piece)};
    test_random_in(&random, 0, 9);
    return test_random_in(&random, 0, 3) ? test_random_in(&random, 1, 200)
                                         : test_random_in(&random, 1, LONGEST);
}

struct ends {
    unsigned char *out[RANKS][PIECES], *in[RANKS][PIECES];
    struct uli_batch_message pieces[2 * RANKS * PIECES];
    int count;
};

static unsigned char *
add_piece(struct ends *e, int peer, int64_t bytes, bool send)
{
    unsigned char *data = malloc((size_t)bytes + GUARD);
    memset(data, 0xA5, (size_t)bytes + GUARD);
    e->pieces[e->count++] = (struct uli_batch_message){
        .data = data, .bytes = bytes, .peer = peer, .send = send};
    return data;
}

static void
make_run(struct ends *e, const struct job *job, int rank, int nranks, int run)
{
    memset(e, 0, sizeof(*e));
    for (int p = 0; p < nranks; p++)
        for (int i = 0; i < PIECES && p != rank; i++) {
            int64_t bytes = size_of(job->seed, rank, p, run, i);
            e->out[p][i] = add_piece(e, p, bytes, true);
            for (int64_t b = 0; b < bytes; b++)
                e->out[p][i][b] = byte_of(rank, p, run, i, b);
            e->in[p][i] =
                add_piece(e, p, size_of(job->seed, p, rank, run, i), false);
        }
}

static bool
run_is_right(
    struct ends *e, const struct job *job, int rank, int nranks, int run)
{
    bool well = true;
    for (int p = 0; p < nranks; p++)
        for (int i = 0; i < PIECES && p != rank; i++) {
            int64_t bytes = size_of(job->seed, p, rank, run, i);
            for (int64_t b = 0; b < bytes; b++)
                well = well && e->in[p][i][b] == byte_of(p, rank, run, i, b);
            for (int64_t b = bytes; b < bytes + GUARD; b++)
                well = well && e->in[p][i][b] == 0xA5;
            free(e->in[p][i]);
            free(e->out[p][i]);
        }
    return well;
}

/* The batch is closed before bytes are checked: by then all have arrived.
 */
static int
exchange_rank(int rank, int nranks, void *context)
{
    const struct job *job = context;
    struct uli_batch *batch;
    struct ends ends[3];
    char text[64];
    if (!ranks_expect(
            open_rank(rank, nranks, job->id, 20, &batch) == ULYX_SUCCESS))
        return 1;
    for (int run = 0; run < job->runs; run++) {
        make_run(&ends[run], job, rank, nranks, run);
        if (!ranks_expect(OPS->run(batch, ends[run].pieces, ends[run].count,
                              NULL, uli_deadline_in(20)) == ULYX_SUCCESS))
            return 1;
    }
    OPS->describe(batch, text, sizeof(text));
    bool well = ranks_expect(strcmp(text, "nccl 2.28.9") == 0);
    well = ranks_expect(OPS->check(batch) == ULYX_SUCCESS) && well;
    OPS->close(batch, uli_deadline_in(20));
    for (int run = 0; run < job->runs; run++)
        well = ranks_expect(run_is_right(&ends[run], job, rank, nranks, run)) &&
               well;
    return !well;
}

static void
ranks_exchange(int (*start)(int, rank_fn, void *, double))
{
    struct test_random random = {test_seed(71)};
    for (int64_t draw = 0; draw < test_draws(6); draw++) {
        struct job job = {.seed = (uint64_t)test_random_in(&random, 1, 1 << 30),
            .runs = (int)test_random_in(&random, 1, 3)};
        assert_status(OPS->make_id(&settings, job.id), ULYX_SUCCESS);
        assert_int_equal(start((int)test_random_in(&random, 2, RANKS),
                             exchange_rank, &job, 60),
            0);
    }
    assert_int_equal(fake->aborts, 0);
}

static void
threads_exchange_bytes(void **state)
{
    (void)state;
    ranks_exchange(ranks_run_threads);
}

static void
processes_exchange_bytes(void **state)
{
    (void)state;
    ranks_exchange(ranks_run_processes);
}

/* ---- unusable libraries -------------------------------------------------- */

static void
unusable_library_is_reported_with_the_reason(void **state)
{
    (void)state;
    unsigned char id[ULI_BATCH_ID_BYTES];
    char why[256];
    name_library("/nowhere/libnccl.so");
    assert_status(OPS->make_id(&settings, id), ULYX_ERR_UNSUPPORTED);
    assert_true(error_has("/nowhere/libnccl.so") && error_has("ULYX_NCCL_LIB"));
    name_library(FAKE_NCCL_OLD);
    assert_status(OPS->make_id(&settings, id), ULYX_ERR_UNSUPPORTED);
    assert_true(error_has("is NCCL 2.14: 2.18 or later is needed"));
    name_library(FAKE_NCCL_LACKS);
    assert_false(uli_tr_nccl_ops.usable(&settings, why, sizeof(why)));
    assert_non_null(strstr(why, "has no ncclGetLastError"));
    name_library(FAKE_NCCL_OK);
    fake->version = 2804;
    assert_status(OPS->make_id(&settings, id), ULYX_ERR_UNSUPPORTED);
    assert_true(error_has("is NCCL 2.8"));
    fake->version = ULI_NCCL_OLDEST;
    assert_true(uli_tr_nccl_ops.usable(&settings, why, sizeof(why)));
}

static void
every_failing_call_is_named(void **state)
{
    (void)state;
    static const char *const calls[] = {
        "GetUniqueId", "CommInitRankConfig", "CommGetAsyncError"};
    unsigned char id[ULI_BATCH_ID_BYTES];
    struct uli_batch *batch = NULL;
    fake->result = 2;
    for (int i = 0; i < 3; i++) {
        char name[128];
        fake->failing = calls[i];
        ulyx_status_t status = OPS->make_id(&settings, id);
        if (i)
            status = open_rank(0, 1, id, 5, &batch);
        assert_status(status, ULYX_ERR_SYSTEM);
        snprintf(name, sizeof(name),
            "nccl%s: unhandled system error (2): "
            "words of the library",
            i == 1 ? calls[i] : "");
        assert_true(error_has(i == 1 ? name : "unhandled system error"));
        assert_null(batch);
        assert_int_equal(fake->alive, 0);
    }
}

static void
a_failing_run_ends_the_batch(void **state)
{
    (void)state;
    static const char *const calls[] = {
        "GroupStart", "Send", "Recv", "GroupEnd"};
    unsigned char id[ULI_BATCH_ID_BYTES], data[8];
    struct uli_batch_message pieces[2] = {
        {data, 4, 1, true}, {data + 4, 4, 1, false}};
    for (int i = 0; i < 4; i++) {
        struct uli_batch *batch;
        assert_status(OPS->make_id(&settings, id), ULYX_SUCCESS);
        assert_status(open_rank(0, 1, id, 5, &batch), ULYX_SUCCESS);
        fake->failing = calls[i];
        fake->result = 2;
        assert_status(OPS->run(batch, pieces, 2, NULL, uli_deadline_in(5)),
            ULYX_ERR_SYSTEM);
        assert_true(error_has(calls[i]));
        fake->failing = NULL;
        assert_int_equal(fake->alive, 0);
        assert_status(OPS->run(batch, pieces, 2, NULL, uli_deadline_in(5)),
            ULYX_ERR_ABORTED);
        assert_status(OPS->check(batch), ULYX_ERR_ABORTED);
        OPS->close(batch, uli_deadline_in(5));
    }
}

static void
error_of_another_rank_is_found_by_check(void **state)
{
    (void)state;
    unsigned char id[ULI_BATCH_ID_BYTES];
    struct uli_batch *batch;
    assert_status(OPS->make_id(&settings, id), ULYX_SUCCESS);
    assert_status(open_rank(0, 1, id, 5, &batch), ULYX_SUCCESS);
    assert_status(OPS->check(batch), ULYX_SUCCESS);
    fake->async = ULI_NCCL_REMOTE;
    assert_status(OPS->check(batch), ULYX_ERR_SYSTEM);
    assert_true(error_has("ncclCommGetAsyncError"));
    OPS->close(batch, uli_deadline_in(5));
}

/* ---- ranks that do not come ---------------------------------------------- */

static void
a_missing_rank_ends_open_at_its_deadline(void **state)
{
    (void)state;
    unsigned char id[ULI_BATCH_ID_BYTES];
    struct uli_batch *batch = NULL;
    assert_status(OPS->make_id(&settings, id), ULYX_SUCCESS);
    assert_status(open_rank(0, 2, id, 0.05, &batch), ULYX_ERR_TIMEOUT);
    assert_null(batch);
    assert_int_equal(fake->alive, 0);
}

/* Rank 0 runs, rank 1 opens and does nothing more until rank 0 has ended. */
struct scene {
    unsigned char id[ULI_BATCH_ID_BYTES];
    _Atomic int over;
    bool connect;   /* both run once before */
    bool abort;     /* aborted by another thread, else by the deadline */
    bool on_stream; /* run has returned before the abort */
};

struct aborter {
    struct uli_batch *batch;
    int ms;
};

static void *
abort_soon(void *context)
{
    struct aborter *aborter = context;
    sleep_ms(aborter->ms);
    OPS->abort(aborter->batch);
    OPS->abort(aborter->batch); /* a second abort has no effect */
    return NULL;
}

static bool
run_once(
    struct uli_batch *batch, int peer, double seconds, ulyx_status_t expected)
{
    static unsigned char data[2][64];
    struct uli_batch_message pieces[2] = {
        {data[peer], 32, peer, true}, {data[peer] + 32, 32, peer, false}};
    return ranks_expect(
        OPS->run(batch, pieces, 2, NULL, uli_deadline_in(seconds)) == expected);
}

static bool
lonely_rank(struct scene *scene, struct uli_batch *batch)
{
    struct aborter aborter = {batch, 30};
    ulyx_status_t expected = scene->on_stream ? ULYX_SUCCESS
                             : scene->abort   ? ULYX_ERR_ABORTED
                                              : ULYX_ERR_TIMEOUT;
    pthread_t thread;
    if (scene->abort)
        pthread_create(&thread, NULL, abort_soon, &aborter);
    bool well = run_once(batch, 1, scene->abort ? 20 : 0.05, expected);
    if (scene->abort)
        pthread_join(thread, NULL);
    well = run_once(batch, 1, 5, ULYX_ERR_ABORTED) && well;
    return ranks_expect(OPS->check(batch) == ULYX_ERR_ABORTED) && well;
}

static int
scene_rank(int rank, int nranks, void *context)
{
    struct scene *scene = context;
    struct uli_batch *batch;
    bool well = ranks_expect(
        open_rank(rank, nranks, scene->id, 20, &batch) == ULYX_SUCCESS);
    if (!well)
        return 1;
    if (scene->connect)
        well = run_once(batch, 1 - rank, 20, ULYX_SUCCESS);
    if (rank == 0) {
        well = lonely_rank(scene, batch) && well;
        atomic_store(&scene->over, 1);
    }
    while (!atomic_load(&scene->over))
        sleep_ms(1);
    OPS->close(batch, uli_deadline_in(20));
    return !well;
}

static void
ranks_play(bool connect, bool by_abort, bool on_stream)
{
    struct scene scene = {
        .connect = connect, .abort = by_abort, .on_stream = on_stream};
    assert_status(OPS->make_id(&settings, scene.id), ULYX_SUCCESS);
    assert_int_equal(ranks_run_threads(2, scene_rank, &scene, 60), 0);
    assert_int_equal(fake->aborts, 1);
}

static void
a_peer_that_does_not_run_ends_run_at_its_deadline(void **state)
{
    (void)state;
    ranks_play(false, false, false);
}

static void
an_abort_ends_a_run_that_waits(void **state)
{
    (void)state;
    ranks_play(false, true, false);
}

static void
an_abort_ends_what_is_on_the_stream(void **state)
{
    (void)state;
    ranks_play(true, true, true);
}

/* ---- two threads --------------------------------------------------------- */

static void *
run_long(void *batch)
{
    static unsigned char data[8];
    struct uli_batch_message piece = {data, 8, 1, true};
    OPS->run(batch, &piece, 1, NULL, uli_deadline_in(20));
    return NULL;
}

static int
busy_rank(int rank, int nranks, void *context)
{
    struct scene *scene = context;
    struct uli_batch *batch;
    unsigned char data[8];
    struct uli_batch_message piece = {data, 8, 1, true};
    pthread_t thread;
    bool well = ranks_expect(
        open_rank(rank, nranks, scene->id, 20, &batch) == ULYX_SUCCESS);
    if (well && rank == 0) {
        pthread_create(&thread, NULL, run_long, batch);
        while (OPS->check(batch) != ULYX_IN_PROGRESS)
            sleep_ms(1);
        well = ranks_expect(OPS->run(batch, &piece, 1, NULL,
                                uli_deadline_in(5)) == ULYX_ERR_BUSY);
        OPS->abort(batch);
        pthread_join(thread, NULL);
        atomic_store(&scene->over, 1);
    }
    while (!atomic_load(&scene->over))
        sleep_ms(1);
    OPS->close(batch, uli_deadline_in(20));
    return !well;
}

static void
a_second_thread_is_refused(void **state)
{
    (void)state;
    struct scene scene = {.over = 0};
    assert_status(OPS->make_id(&settings, scene.id), ULYX_SUCCESS);
    assert_int_equal(ranks_run_threads(2, busy_rank, &scene, 60), 0);
}

/* ---- the end ------------------------------------------------------------- */

static void
close_does_not_outlive_its_deadline(void **state)
{
    (void)state;
    unsigned char id[ULI_BATCH_ID_BYTES];
    struct uli_batch *batch;
    assert_status(OPS->make_id(&settings, id), ULYX_SUCCESS);
    assert_status(open_rank(0, 1, id, 5, &batch), ULYX_SUCCESS);
    fake->stuck = 1;
    OPS->close(batch, uli_deadline_in(0.05));
    fake->stuck = 0;
    assert_int_equal(fake->aborts, 1);
}

static void
types_are_those_of_the_header(void **state)
{
    (void)state;
#ifdef HAVE_NCCL_H
    _Static_assert(sizeof(struct uli_nccl_id) == sizeof(ncclUniqueId), "id");
    _Static_assert(
        sizeof(struct uli_nccl_config) <= sizeof(ncclConfig_t), "config");
#define SAME(ours, theirs)                                                     \
    _Static_assert(offsetof(struct uli_nccl_config, ours) ==                   \
                       offsetof(ncclConfig_t, theirs),                         \
        #ours)
    SAME(magic, magic);
    SAME(version, version);
    SAME(blocking, blocking);
    SAME(cga_cluster_size, cgaClusterSize);
    SAME(min_ctas, minCTAs);
    SAME(max_ctas, maxCTAs);
    SAME(net_name, netName);
    SAME(split_share, splitShare);
    assert_int_equal(ULI_NCCL_IN_PROGRESS, ncclInProgress);
    assert_int_equal(ULI_NCCL_REMOTE, ncclRemoteError);
    assert_int_equal(ULI_NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
    assert_int_equal(ULI_NCCL_INT8, ncclInt8);
    assert_int_equal(ULI_NCCL_UNDEFINED, NCCL_CONFIG_UNDEF_INT);
#else
    test_skip("nccl.h is not here");
#endif
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, open_fake, nothing_left)
static const struct CMUnitTest tests[] = {
    CASE(threads_exchange_bytes),
    CASE(processes_exchange_bytes),
    CASE(unusable_library_is_reported_with_the_reason),
    CASE(every_failing_call_is_named),
    CASE(a_failing_run_ends_the_batch),
    CASE(error_of_another_rank_is_found_by_check),
    CASE(a_missing_rank_ends_open_at_its_deadline),
    CASE(a_peer_that_does_not_run_ends_run_at_its_deadline),
    CASE(an_abort_ends_a_run_that_waits),
    CASE(an_abort_ends_what_is_on_the_stream),
    CASE(a_second_thread_is_refused),
    CASE(close_does_not_outlive_its_deadline),
    CASE(types_are_those_of_the_header),
};

ULI_TEST_MAIN("NcclBatch", tests)
