/* SPDX-License-Identifier: Apache-2.0
 *
 * 1 to 8 ranks on 1 to 4 devices, each a thread, exchange with random delays
 * before, between and after the calls that they enqueue. Every byte of every
 * call is checked. ULYX_TEST_DRAWS=N makes the test N times as long; 1250 give
 * 100,000 exchanges and more.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/status.h"
#include "emulate/plan/plan_scene.h"
#include "support/ranks.h"
#include "support/test.h"

enum { CALLS = 24, DRAWS = 4, DELAY_US = 300 };

struct soak {
    struct plan_scene s;
    /* pinned memory for copies in both directions */
    unsigned char *staged[PLAN_RANKS_MAX];
    uint64_t seed;
    /* calls: exchanges, each of which all ranks make */
    atomic_int wrong, calls;
};

static void
random_delay(struct test_random *random)
{
    struct timespec nap = {0, 1000 * test_random_in(random, 0, DELAY_US)};
    if (test_random_in(random, 0, 2) == 0)
        nanosleep(&nap, NULL);
}

/* Copies all images of an operation at a rank to or from the device, on the
 * rank's stream, by way of the pinned memory `staged`. */
static int
plan_scene_move(
    struct plan_scene *s, int32_t rank, int op, unsigned char *staged, bool up)
{
    struct world *w = s->w;
    int error = 0;
    for (int32_t t = 0; t < w->c.shape.ntensors; t++) {
        const struct image *image = &w->dst[op][rank][t];
        unsigned char *there = s->dst[op][rank][t];
        if (up)
            memcpy(staged, image->base, (size_t)image->bytes);
        error |= cudaMemcpyAsync(up ? there : staged, up ? staged : there,
            (size_t)image->bytes, cudaMemcpyDefault, s->streams[rank]);
        staged += image->bytes;
    }
    return error;
}

/* Takes over what was copied from the device, once the stream has ended. */
static void
plan_scene_unstage(
    struct plan_scene *s, int32_t rank, int op, const unsigned char *staged)
{
    struct world *w = s->w;
    for (int32_t t = 0; t < w->c.shape.ntensors; t++) {
        struct image *image = &w->dst[op][rank][t];
        memcpy(image->base, staged, (size_t)image->bytes);
        staged += image->bytes;
    }
}

static void
plan_scene_poison(
    struct plan_scene *s, int32_t rank, int op, unsigned char poisons[])
{
    struct world *w = s->w;
    for (int32_t t = 0; t < w->c.shape.ntensors; t++) {
        struct image *image = &w->dst[op][rank][t];
        memcpy(image->base, poisons, (size_t)image->bytes);
        poisons += image->bytes;
    }
}

static int64_t
images_bytes(const struct plan_scene *s, int32_t rank, int op)
{
    int64_t bytes = 0;
    for (int32_t t = 0; t < s->w->c.shape.ntensors; t++)
        bytes += s->w->dst[op][rank][t].bytes;
    return bytes;
}

static int64_t
largest_images(const struct plan_scene *s, int32_t rank)
{
    int64_t largest = 0;
    for (int op = 0; op < ULYX_DIRECTIONS; op++)
        if (images_bytes(s, rank, op) > largest)
            largest = images_bytes(s, rank, op);
    return largest;
}

/* Returns a copy of the poisoned destinations of an operation, as world_fill
 * left them. */
static unsigned char *
plan_scene_save(const struct plan_scene *s, int32_t rank, int op)
{
    const struct world *w = s->w;
    unsigned char *all = malloc((size_t)images_bytes(s, rank, op) + 1),
                  *at = all;
    for (int32_t t = 0; all && t < w->c.shape.ntensors; t++) {
        memcpy(at, w->dst[op][rank][t].base, (size_t)w->dst[op][rank][t].bytes);
        at += w->dst[op][rank][t].bytes;
    }
    return all;
}

/* All ranks draw the same operations, and each rank draws its own delays. */
static int
exchange_thread(int rank, int nranks, void *context)
{
    struct soak *k = context;
    struct plan_scene *s = &k->s;
    struct test_random same = {k->seed};
    struct test_random own = {k->seed * 31 + (uint64_t)rank + 1};
    unsigned char *saved[ULYX_DIRECTIONS], *staged = k->staged[rank];
    int failed = 0;
    (void)nranks;
    for (int op = 0; op < ULYX_DIRECTIONS; op++)
        saved[op] = plan_scene_save(s, rank, op);
    failed |= !ranks_expect(cudaSetDevice(rank % s->devices) == cudaSuccess);
    for (int n = 0; n < CALLS && !failed && !k->wrong; n++) {
        int op = (int)test_random_in(&same, 0, ULYX_DIRECTIONS - 1);
        if (!(s->w->directions >> op & 1))
            continue;
        plan_scene_poison(s, rank, op, saved[op]);
        random_delay(&own);
        failed |=
            !ranks_expect(plan_scene_move(s, rank, op, staged, true) == 0);
        random_delay(&own);
        failed |= !ranks_expect(plan_execute(s, rank, op) == ULYX_SUCCESS);
        random_delay(&own);
        failed |=
            !ranks_expect(plan_scene_move(s, rank, op, staged, false) == 0);
        failed |= !ranks_expect(
            cudaStreamSynchronize(s->streams[rank]) == cudaSuccess);
        plan_scene_unstage(s, rank, op, staged);
        failed |= !ranks_expect(world_check_rank(s->w, op, rank));
        k->calls += rank == 0;
    }
    if (failed)
        k->wrong = 1;
    for (int op = 0; op < ULYX_DIRECTIONS; op++)
        free(saved[op]);
    return failed;
}

/* Runs one case of `nranks` ranks. Returns false if the layout refuses it. */
static bool
run_case(struct soak *k, struct test_random *random, bool balanced)
{
    struct world *w = calloc(1, sizeof(*w));
    assert_non_null(w);
    do
        case_random(&w->c, random, k->s.nranks, balanced);
    while (w->c.shape.nranks != k->s.nranks);
    if (!plan_draw(&k->s, w, random)) {
        free(w);
        return false;
    }
    assert_status(plan_create(&k->s, w), ULYX_SUCCESS);
    plan_upload(&k->s);
    k->seed = test_random_next(random);
    for (int32_t r = 0; r < k->s.nranks; r++)
        k->staged[r] = plan_pinned_take(largest_images(&k->s, r));
    assert_int_equal(
        ranks_run_threads(k->s.nranks, exchange_thread, k, 100), 0);
    for (int32_t r = 0; r < k->s.nranks; r++)
        plan_pinned_free(k->staged[r]);
    plan_drop(&k->s);
    return true;
}

static void
exchanges_with_random_delays_are_right(void **state)
{
    struct test_random random = {test_seed(501)};
    int64_t draws = test_draws(DRAWS), calls = 0;
    (void)state;
    for (int64_t i = 0; i < draws;) {
        struct soak k;
        memset(&k, 0, sizeof(k));
        int32_t nranks = (int32_t)test_random_in(&random, 1, PLAN_RANKS_MAX);
        plan_open(&k.s, nranks, (int32_t)test_random_in(&random, 1, 4), 0);
        for (int n = 0; n < 3 && i < draws; n++)
            i += run_case(&k, &random, n == 2);
        plan_close(&k.s);
        calls += k.calls;
    }
    printf("%lld exchanges, each checked at all ranks\n", (long long)calls);
}

/* ---- a rank that stops --------------------------------------------------- */

enum { VICTIM = 1, STOPPED_RANKS = 3 };

/* Uses memory of its own, because a peer may still write to the tensors. */
static bool
device_works(cudaStream_t stream)
{
    uint64_t word = 0, *there = NULL;
    bool good = cudaMalloc((void **)&there, sizeof(word)) == 0 &&
                cudaMemsetAsync(there, 7, sizeof(word), stream) == 0 &&
                cudaMemcpyAsync(&word, there, sizeof(word), cudaMemcpyDefault,
                    stream) == 0 &&
                cudaStreamSynchronize(stream) == 0;
    return cudaFree(there) == 0 && good && word == 0x0707070707070707u;
}

/* The thread of the victim ends after the first call. The kernels of the
 * others' second call end at the deadline and name the victim, and the device
 * stays usable. */
static int
stop_after_one(int rank, int nranks, void *context)
{
    struct soak *k = context;
    struct plan_scene *s = &k->s;
    ulyx_comm_t *comm = s->ranks.comms[rank];
    ulyx_status_t status = ULYX_SUCCESS;
    int failed = 0;
    (void)nranks;
    cudaSetDevice(rank % s->devices);
    failed |= !ranks_expect(plan_execute(s, rank, 0) == ULYX_SUCCESS);
    failed |= !ranks_expect(cudaStreamSynchronize(s->streams[rank]) == 0);
    if (rank == VICTIM || failed)
        return failed;
    failed |= !ranks_expect(plan_execute(s, rank, 0) == ULYX_SUCCESS);
    failed |= !ranks_expect(cudaStreamSynchronize(s->streams[rank]) == 0);
    failed |=
        !ranks_expect(ulyx_comm_get_async_error(comm, &status) == ULYX_SUCCESS);
    failed |= !ranks_expect(status == ULYX_ERR_TIMEOUT);
    failed |= !ranks_expect(
        strstr(ulyx_last_error(), "reshuffle, call 2, after ") != NULL &&
        strstr(ulyx_last_error(), "waiting for rank 1 (") != NULL);
    failed |= !ranks_expect(plan_execute(s, rank, 0) == ULYX_ERR_TIMEOUT);
    return failed | !ranks_expect(device_works(s->streams[rank]));
}

static void
a_rank_that_stops_is_named_and_the_device_usable(void **state)
{
    struct test_random random = {test_seed(502)};
    struct world *w = calloc(1, sizeof(*w));
    struct soak k;
    (void)state;
    memset(&k, 0, sizeof(k));
    plan_open(&k.s, STOPPED_RANKS, STOPPED_RANKS, 1);
    world_plain_case(w, STOPPED_RANKS, 37, 8, 4, 5, ULYX_DTYPE_BF16);
    w->fixed_limits = true;
    w->slot_bytes = -1;
    assert_true(plan_draw(&k.s, w, &random));
    assert_status(plan_create(&k.s, w), ULYX_SUCCESS);
    plan_upload(&k.s);
    assert_int_equal(
        ranks_run_threads(STOPPED_RANKS, stop_after_one, &k, 60), 0);
    assert_int_equal(emu_fault_count(), 0);
    assert_status(ulyx_comm_abort(k.s.ranks.comms[VICTIM]), ULYX_SUCCESS);
    for (int32_t r = 0; r < STOPPED_RANKS; r++)
        assert_status(ulyx_plan_destroy(w->plans[r]), ULYX_SUCCESS);
    for (int32_t r = 0; r < STOPPED_RANKS; r++) {
        assert_int_equal(cudaStreamDestroy(k.s.streams[r]), cudaSuccess);
        assert_status(ulyx_comm_destroy(k.s.ranks.comms[r]), ULYX_SUCCESS);
    }
    for (int32_t r = 0; r < STOPPED_RANKS; r++)
        plan_free_window(k.s.mems[r]);
    world_free(w);
    free(w);
    plan_machine_close();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(exchanges_with_random_delays_are_right),
    cmocka_unit_test(a_rank_that_stops_is_named_and_the_device_usable),
};

ULI_TEST_MAIN("EmulateSoak", tests)
