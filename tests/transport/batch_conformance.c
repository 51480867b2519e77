/* SPDX-License-Identifier: Apache-2.0
 *
 * See batch_conformance.h. The bytes of a piece are a function of sender,
 * receiver, run and the piece's number within the pair. Guard bytes surround
 * each received piece.
 */
#include "transport/batch_conformance.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "support/random.h"
#include "support/ranks.h"

#define SCENE      (batch_subject)
#define OPS        (batch_subject.transport->batch)
#define well(call) ranks_expect((call) == ULYX_SUCCESS)

enum { GUARD = 64, PIECES = 3, LONGEST = 60000, POISON = 0xA5 };

static void
sleep_ms(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

/* ---- ranks --------------------------------------------------------------- */

struct rank {
    int rank, nranks;
    struct uli_batch *batch;
};

/* The state that the ranks of a case share. */
struct play {
    int (*body)(struct rank *me, struct play *play);
    unsigned char id[ULI_BATCH_ID_BYTES];
    uint64_t seed;
    int runs;
    bool alone; /* only rank 0 opens a batch */
    _Atomic int met;
};

/* Waits until all ranks are here, or have given up. */
static void
play_meet(struct play *play, int nranks)
{
    int now = atomic_fetch_add(&play->met, 1) + 1;
    int all = (now + nranks - 1) / nranks * nranks;
    while (atomic_load(&play->met) < all)
        sleep_ms(1);
}

static ulyx_status_t
open_rank(struct rank *me, const struct play *play,
    struct uli_batch_params params, double seconds)
{
    params.id = play->id;
    params.deadline = uli_deadline_in(seconds);
    return OPS->open(&params, &me->batch);
}

static int
play_rank(int rank, int nranks, void *context)
{
    struct play *play = context;
    struct rank me = {rank, nranks, NULL};
    struct uli_batch_params params;
    bool good = SCENE.begin(rank, nranks, &params);
    if (good && play->alone && rank == 0)
        good = ranks_expect(
                   open_rank(&me, play, params, 0.2) == ULYX_ERR_TIMEOUT) &&
               ranks_expect(me.batch == NULL);
    else if (good && !play->alone)
        good = well(open_rank(&me, play, params, 30)) &&
               play->body(&me, play) == 0;
    play_meet(play, nranks);
    if (me.batch)
        OPS->close(me.batch, uli_deadline_in(10));
    play_meet(play, nranks);
    return !(SCENE.end(rank) && good);
}

static void
run_play(struct play *play, int nranks)
{
    struct uli_settings settings;
    char why[256];
    assert_int_equal(SCENE.open(), 0); /* the scene may set variables */
    assert_status(uli_settings_load(&settings), ULYX_SUCCESS);
    if (!SCENE.transport->usable(&settings, why, sizeof(why)))
        fail_msg("%s is not usable: %s", SCENE.transport->name, why);
    assert_true(OPS->ranks_max == 0 || OPS->ranks_max >= nranks);
    assert_status(OPS->make_id(&settings, play->id), ULYX_SUCCESS);
    int failed = ranks_run_threads(nranks, play_rank, play, 90);
    assert_int_equal(SCENE.close(), 0);
    assert_int_equal(failed, 0);
}

/* ---- pieces -------------------------------------------------------------- */

static unsigned char
byte_of(int from, int to, int run, int piece, int64_t i)
{
    return (unsigned char)(from * 57 + to * 101 + run * 13 + piece * 7 + i +
                           (i >> 8) * 3);
}

/* Returns the size of a piece, which is the same at both ends; 0: there is no
 * such piece. */
static int64_t
size_of(uint64_t seed, int from, int to, int run, int piece)
{
    struct test_random random = {
        seed + (uint64_t)(((from * 8 + to) * 16 + run) * PIECES + piece) * 977};
    switch (test_random_in(&random, 0, 3)) {
    case 0:
        return 0;
    case 1:
        return test_random_in(&random, 1, LONGEST);
    default:
        return test_random_in(&random, 1, 300);
    }
}

/* A piece that arrives in a run, and its place. */
struct arrival {
    unsigned char *at;
    int64_t bytes;
    int from, piece;
};

struct run {
    struct uli_batch_message pieces[2 * BATCH_RANKS * PIECES];
    struct arrival arrivals[BATCH_RANKS * PIECES];
    int count, narrivals;
};

static bool
add_piece(struct run *run, const struct rank *me, int peer, int n, int piece,
    int64_t bytes, bool send)
{
    size_t room = (size_t)bytes + 2 * GUARD;
    unsigned char *host = malloc(room), *at = SCENE.alloc(me->rank, room);
    memset(host, POISON, room);
    for (int64_t i = 0; send && i < bytes; i++)
        host[GUARD + i] = byte_of(me->rank, peer, n, piece, i);
    bool good = at && SCENE.copy(me->rank, at, host, room);
    run->pieces[run->count++] =
        (struct uli_batch_message){at + GUARD, bytes, peer, send};
    if (!send)
        run->arrivals[run->narrivals++] =
            (struct arrival){at, bytes, peer, piece};
    free(host);
    return good;
}

static bool
make_run(struct run *run, const struct rank *me, const struct play *play, int n)
{
    bool good = true;
    memset(run, 0, sizeof(*run));
    for (int p = 0; p < me->nranks; p++)
        for (int k = 0; k < PIECES && p != me->rank; k++) {
            int64_t out = size_of(play->seed, me->rank, p, n, k);
            int64_t in = size_of(play->seed, p, me->rank, n, k);
            good = (!out || add_piece(run, me, p, n, k, out, true)) && good;
            good = (!in || add_piece(run, me, p, n, k, in, false)) && good;
        }
    return good;
}

static bool
arrived_well(const struct run *run, const struct rank *me, int n)
{
    int64_t wrong = 0;
    for (int a = 0; a < run->narrivals; a++) {
        const struct arrival *got = &run->arrivals[a];
        size_t room = (size_t)got->bytes + 2 * GUARD;
        unsigned char *host = malloc(room);
        wrong += !SCENE.copy(me->rank, host, got->at, room);
        for (int64_t i = 0; i < got->bytes; i++)
            wrong += host[GUARD + i] !=
                     byte_of(got->from, me->rank, n, got->piece, i);
        for (int64_t i = 0; i < GUARD; i++)
            wrong +=
                (host[i] != POISON) + (host[GUARD + got->bytes + i] != POISON);
        free(host);
    }
    return ranks_expect(wrong == 0);
}

static ulyx_status_t
run_on_stream(const struct rank *me, const struct run *run, double seconds)
{
    return OPS->run(me->batch, run->pieces, run->count, SCENE.stream(me->rank),
        uli_deadline_in(seconds));
}

/* ---- every byte ---------------------------------------------------------- */

/* A rank that has no piece in a run makes no call for that run. */
static int
play_runs(struct rank *me, struct play *play)
{
    struct run *runs = calloc((size_t)play->runs, sizeof(*runs));
    bool good = true;
    for (int n = 0; n < play->runs && good; n++) {
        good = make_run(&runs[n], me, play, n);
        if (good && runs[n].count)
            good = well(run_on_stream(me, &runs[n], 30));
    }
    good = SCENE.settle(me->rank) && good;
    for (int n = 0; n < play->runs && good; n++)
        good = arrived_well(&runs[n], me, n);
    good = well(OPS->check(me->batch)) && good;
    free(runs);
    return !good;
}

void
batch_moves_every_byte(void **state)
{
    (void)state;
    struct test_random random = {test_seed(81)};
    for (int64_t draw = 0; draw < test_draws(4); draw++) {
        struct play play = {.body = play_runs,
            .seed = (uint64_t)test_random_in(&random, 1, 1 << 30),
            .runs = (int)test_random_in(&random, 1, 4)};
        run_play(&play, (int)test_random_in(&random, 2, BATCH_RANKS));
    }
}

/* Equal sizes, so that only their order distinguishes the pieces. */
static int
play_order(struct rank *me, struct play *play)
{
    struct run run = {.count = 0};
    int peer = 1 - me->rank;
    bool good = true;
    (void)play;
    for (int k = 0; k < PIECES; k++)
        good = add_piece(&run, me, peer, 0, k, 999, true) && good;
    for (int k = 0; k < PIECES; k++)
        good = add_piece(&run, me, peer, 0, k, 999, false) && good;
    good = good && well(run_on_stream(me, &run, 30)) && SCENE.settle(me->rank);
    return !(good && arrived_well(&run, me, 0));
}

void
batch_keeps_the_order_of_a_pair(void **state)
{
    struct play play = {.body = play_order};
    (void)state;
    run_play(&play, 2);
}

/* Ranks 0 and 2 run while rank 1 has no piece, then 0 and 1 while 2 has
 * none. */
static int
play_left_out(struct rank *me, struct play *play)
{
    bool good = true;
    for (int n = 0; n < 4; n++) {
        struct run run = {.count = 0};
        int other = n % 2 ? 1 : 2;
        int peer = me->rank == 0 ? other : 0;
        if (me->rank == 0 || me->rank == other)
            good = good && add_piece(&run, me, peer, n, 0, 5000, true) &&
                   add_piece(&run, me, peer, n, 0, 5000, false) &&
                   well(run_on_stream(me, &run, 30)) &&
                   SCENE.settle(me->rank) && arrived_well(&run, me, n);
        play_meet(play, me->nranks);
    }
    return !good;
}

void
batch_leaves_out_ranks(void **state)
{
    struct play play = {.body = play_left_out};
    (void)state;
    run_play(&play, 3);
}

/* ---- life ---------------------------------------------------------------- */

static int
play_nothing(struct rank *me, struct play *play)
{
    const struct run empty = {.count = 0};
    (void)play;
    return !(well(run_on_stream(me, &empty, 5)) &&
             well(OPS->check(me->batch)) && SCENE.settle(me->rank));
}

void
batch_of_one_rank(void **state)
{
    struct play play = {.body = play_nothing};
    (void)state;
    run_play(&play, 1);
}

/* All memory is given back: close of the scene checks that. */
void
batch_opens_and_closes(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct play play = {.body = play_nothing};
        run_play(&play, 2 + i % 2);
    }
}

void
batch_open_ends_without_a_rank(void **state)
{
    struct play play = {.alone = true};
    (void)state;
    run_play(&play, 2);
}

/* ---- abort --------------------------------------------------------------- */

static void *
abort_soon(void *context)
{
    struct rank *me = context;
    sleep_ms(30);
    OPS->abort(me->batch);
    OPS->abort(me->batch); /* a second abort has no effect */
    return NULL;
}

static bool
is_aborted(const struct rank *me)
{
    return ranks_expect(OPS->check(me->batch) == ULYX_ERR_ABORTED);
}

/* Once both have run, connections exist: then rank 0 alone enqueues a run and
 * waits on its stream, where only the abort ends the run. */
static int
play_abort(struct rank *me, struct play *play)
{
    struct run both = {.count = 0}, lonely = {.count = 0};
    int peer = 1 - me->rank;
    pthread_t thread;
    bool good = add_piece(&both, me, peer, 0, 0, 100, true) &&
                add_piece(&both, me, peer, 0, 0, 100, false) &&
                well(run_on_stream(me, &both, 30)) && SCENE.settle(me->rank) &&
                arrived_well(&both, me, 0);
    play_meet(play, me->nranks);
    if (me->rank == 0 && good) {
        good = add_piece(&lonely, me, 1, 1, 0, 9000, false) &&
               well(run_on_stream(me, &lonely, 3000));
        pthread_create(&thread, NULL, abort_soon, me);
        good = SCENE.settle(me->rank) && good;
        pthread_join(thread, NULL);
        good = is_aborted(me) && good;
        good =
            ranks_expect(run_on_stream(me, &lonely, 5) == ULYX_ERR_ABORTED) &&
            good;
    }
    return !good;
}

void
batch_abort_ends_its_stream(void **state)
{
    struct play play = {.body = play_abort};
    (void)state;
    run_play(&play, 2);
}

static int
play_aborted(struct rank *me, struct play *play)
{
    struct run run = {.count = 0};
    bool good = add_piece(&run, me, 1 - me->rank, 0, 0, 100, true);
    (void)play;
    OPS->abort(me->batch);
    good = is_aborted(me) && good;
    good =
        ranks_expect(run_on_stream(me, &run, 30) == ULYX_ERR_ABORTED) && good;
    return !(is_aborted(me) && good);
}

void
batch_abort_forbids_runs(void **state)
{
    struct play play = {.body = play_aborted};
    (void)state;
    run_play(&play, 2);
}

/* ---- check, describe ----------------------------------------------------- */

struct checker {
    const struct rank *me;
    _Atomic bool stop;
    int64_t wrong;
};

static void *
check_on(void *context)
{
    struct checker *checker = context;
    while (!atomic_load(&checker->stop)) {
        ulyx_status_t status = OPS->check(checker->me->batch);
        checker->wrong += status != ULYX_SUCCESS && status != ULYX_IN_PROGRESS;
    }
    return NULL;
}

static int
play_checked(struct rank *me, struct play *play)
{
    struct checker checker = {.me = me};
    pthread_t thread;
    pthread_create(&thread, NULL, check_on, &checker);
    int failed = play_runs(me, play);
    atomic_store(&checker.stop, true);
    pthread_join(thread, NULL);
    return failed || !ranks_expect(checker.wrong == 0);
}

void
batch_is_checked_while_it_runs(void **state)
{
    struct play play = {.body = play_checked, .seed = 4711, .runs = 4};
    (void)state;
    run_play(&play, 3);
}

static int
play_describe(struct rank *me, struct play *play)
{
    const char *name = SCENE.transport->name;
    char text[200], small[8];
    (void)play;
    memset(small, 'x', sizeof(small));
    OPS->describe(me->batch, text, sizeof(text));
    OPS->describe(me->batch, small, sizeof(small) - 1);
    return !(ranks_expect(strncmp(text, name, strlen(name)) == 0) &&
             ranks_expect(small[6] == 0) && ranks_expect(small[7] == 'x'));
}

void
batch_describes_itself(void **state)
{
    struct play play = {.body = play_describe};
    (void)state;
    run_play(&play, 2);
}
