/* SPDX-License-Identifier: Apache-2.0
 *
 * What a call promises beyond its bytes: nothing is touched early, refusals
 * and disagreements are named and leave the communicator usable, one call at
 * a time, operations in two steps, ranks that do not come.
 * Each on windows, rings and slots.
 */
#include "collectives/reshuffle_world.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "support/ranks.h"
#include "support/test.h"

enum { RANKS = 4, LIMIT_S = 30 };

struct mode {
    const char *name;
    int memory;
    int64_t slot_bytes, bytes_in_flight;
};
static const struct mode modes[] = {{"windows", 1, -1, 0},
    {"rings", 0, -1, 512}, {"slots", 0, 65536, 0}, {"mixed", 2, -1, 512}};
enum { MODES = sizeof(modes) / sizeof(modes[0]) };

struct fixture {
    struct world_ranks ranks;
    struct world w;
    void *extra;
};

static struct fixture *
fixture_new(const struct mode *mode, int32_t dtype)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct test_random random = {42};
    setenv("ULYX_CMA", "off", 1);
    world_ranks_init(&f->ranks, RANKS);
    unsetenv("ULYX_CMA");
    world_plain_case(&f->w, RANKS, 32, 8, 2, 8, dtype);
    f->w.fixed_limits = true;
    f->w.slot_bytes = mode->slot_bytes;
    f->w.bytes_in_flight = mode->bytes_in_flight;
    assert_true(world_draw(&f->w, &f->ranks, &random, mode->memory));
    world_fill(&f->w);
    return f;
}

static void
fixture_free(struct fixture *f)
{
    world_free(&f->w);
    world_ranks_free(&f->ranks);
    free(f);
}

static void
run(struct fixture *f, rank_fn body)
{
    assert_int_equal(ranks_run_threads(RANKS, body, f, LIMIT_S), 0);
}

static void
pause_ms(int ms)
{
    struct timespec time = {0, ms * 1000000L};
    nanosleep(&time, NULL);
}

static bool
says(const char *text)
{
    if (strstr(ulyx_last_error(), text))
        return true;
    fprintf(stderr, "\"%s\" is not in \"%s\"\n", text, ulyx_last_error());
    return false;
}

/* ---- nothing is touched early -------------------------------------------- */

/* Odd calls have their sources inverted, so a byte of the next call shows. */
static void
invert_sources(struct world *w, int32_t rank, int op)
{
    for (int32_t t = 0; t < w->c.shape.ntensors; t++) {
        struct image *image = &w->src[op][rank][t];
        for (int64_t i = 0; i < image->bytes; i++)
            image->base[i] ^= 0xFF;
    }
}

static bool
dst_as(struct world *w, int32_t rank, int op, unsigned char *const seen[])
{
    for (int32_t t = 0; t < w->c.shape.ntensors; t++) {
        const struct image *image = &w->dst[op][rank][t];
        if (memcmp(image->base, seen[t], (size_t)image->bytes))
            return false;
    }
    return true;
}

static int
delayed_body(int rank, int nranks, void *context)
{
    struct fixture *f = context;
    struct world *w = &f->w;
    unsigned char *seen[ULI_TENSORS];
    bool good = ranks_expect(world_create(w, rank) == ULYX_SUCCESS);
    (void)nranks;
    for (int32_t t = 0; t < w->c.shape.ntensors; t++)
        seen[t] = malloc((size_t)w->dst[0][rank][t].bytes);
    for (int call = 0; good && call < 24; call++) {
        good = ranks_expect(world_execute(w, rank, 0) == ULYX_SUCCESS);
        /* Right after the call the sources may be overwritten. */
        invert_sources(w, rank, 0);
        for (int32_t t = 0; t < w->c.shape.ntensors; t++)
            memcpy(seen[t], w->dst[0][rank][t].base,
                (size_t)w->dst[0][rank][t].bytes);
        /* One slow consumer a call; it keeps reading. */
        for (int i = 0; rank == call % RANKS && good && i < 5; i++) {
            pause_ms(1);
            good = ranks_expect(dst_as(w, rank, 0, seen));
        }
        if (call % 2 == 0)
            good &= ranks_expect(memcmp(seen[0], w->dst[0][rank][0].expected,
                                     (size_t)w->dst[0][rank][0].bytes) == 0);
    }
    for (int32_t t = 0; t < w->c.shape.ntensors; t++)
        free(seen[t]);
    good &= ranks_expect(ulyx_plan_destroy(w->plans[rank]) == ULYX_SUCCESS);
    return !good;
}

static void
slow_consumers_are_left_alone(void **state)
{
    (void)state;
    for (int m = 0; m < MODES; m++) {
        struct fixture *f = fixture_new(&modes[m], ULYX_DTYPE_BF16);
        run(f, delayed_body);
        fixture_free(f);
    }
}

/* ---- refusals ------------------------------------------------------------ */

enum refusal {
    REFUSE_NULL_SRC,
    REFUSE_NULL_ARRAY,
    REFUSE_MISALIGNED,
    REFUSE_OUTSIDE,
    REFUSE_OVERLAP,
    REFUSE_OPERATION,
    REFUSE_UNSUPPORTED,
    REFUSE_STREAM,
    REFUSALS
};

/* Calls wrongly on purpose. */
static ulyx_status_t
call_wrongly(struct world *w, int32_t rank, int kind)
{
    const void *src[ULI_TENSORS];
    void *dst[ULI_TENSORS];
    static char outside[1 << 16];
    ulyx_plan_t *plan = w->plans[rank];
    world_pointers(w, rank, 0, src, dst);
    switch (kind) {
    case REFUSE_NULL_SRC:
        src[1] = NULL;
        break;
    case REFUSE_NULL_ARRAY:
        return ulyx_reshuffle_execute(plan, 0, NULL, dst, NULL);
    case REFUSE_MISALIGNED:
        dst[0] = (char *)dst[0] + 1;
        break;
    case REFUSE_OUTSIDE:
        if (w->memory[rank][1] != ULYX_POINTER_WINDOW)
            dst[0] = NULL;
        else
            dst[0] = outside;
        break;
    case REFUSE_OVERLAP:
        dst[1] = dst[0];
        break;
    case REFUSE_OPERATION:
        return ulyx_reshuffle_execute(plan, 4, src, dst, NULL);
    case REFUSE_UNSUPPORTED:
        return ulyx_reshuffle_execute(
            plan, ULYX_HEAD_TO_SEQ_ADJOINT, src, dst, NULL);
    default:
        return ulyx_reshuffle_execute(plan, 0, src, dst, outside);
    }
    return ulyx_reshuffle_execute(plan, 0, src, dst, NULL);
}

static int
refusal_body(int rank, int nranks, void *context)
{
    struct fixture *f = context;
    struct world *w = &f->w;
    bool good = ranks_expect(world_create(w, rank) == ULYX_SUCCESS);
    (void)nranks;
    for (int kind = 0; good && kind < REFUSALS; kind++) {
        int who = kind % RANKS;
        char name[32];
        snprintf(name, sizeof(name), "rank %d refused", who);
        /* Twice in a row, then a good call. */
        for (int twice = 0; good && twice < 2; twice++) {
            ulyx_status_t status = rank == who ? call_wrongly(w, rank, kind)
                                               : world_execute(w, rank, 0);
            ulyx_status_t expected = rank != who ? ULYX_ERR_PEER_REFUSED
                                     : kind == REFUSE_UNSUPPORTED
                                         ? ULYX_ERR_UNSUPPORTED
                                         : ULYX_ERR_INVALID_ARGUMENT;
            good = ranks_expect(status == expected);
            if (rank != who)
                good &= ranks_expect(says(name));
        }
        good &= ranks_expect(world_execute(w, rank, 0) == ULYX_SUCCESS) &&
                ranks_expect(world_check_rank(w, 0, rank));
    }
    good &= ranks_expect(ulyx_plan_destroy(w->plans[rank]) == ULYX_SUCCESS);
    return !good;
}

static void
refusals_are_named_and_survived(void **state)
{
    (void)state;
    for (int m = 0; m < MODES; m++) {
        struct fixture *f = fixture_new(&modes[m], ULYX_DTYPE_BF16);
        f->w.operations = 1;
        run(f, refusal_body);
        fixture_free(f);
    }
}

/* ---- disagreement -------------------------------------------------------- */

static int
mismatch_body(int rank, int nranks, void *context)
{
    struct fixture *f = context;
    struct world *w = &f->w;
    bool good = ranks_expect(world_create(w, rank) == ULYX_SUCCESS);
    (void)nranks;
    for (int call = 0; good && call < 6; call++) {
        int odd = call % RANKS;
        good = ranks_expect(world_execute(w, rank, rank == odd ? 1 : 0) ==
                            ULYX_ERR_MISMATCH) &&
               ranks_expect(says("head_to_seq")) &&
               ranks_expect(says("seq_to_head"));
        good &= ranks_expect(world_execute(w, rank, 1) == ULYX_SUCCESS) &&
                ranks_expect(world_check_rank(w, 1, rank));
    }
    good &= ranks_expect(ulyx_plan_destroy(w->plans[rank]) == ULYX_SUCCESS);
    return !good;
}

static void
different_operations_are_named(void **state)
{
    (void)state;
    for (int m = 0; m < MODES; m++) {
        struct fixture *f = fixture_new(&modes[m], ULYX_DTYPE_F32);
        run(f, mismatch_body);
        fixture_free(f);
    }
}

/* ---- one call at a time -------------------------------------------------- */

static int
busy_body(int rank, int nranks, void *context)
{
    struct fixture *f = context;
    struct world *w = &f->w;
    const void *src[ULI_TENSORS];
    void *dst[ULI_TENSORS];
    ulyx_op_t *op, *other;
    (void)nranks;
    bool good = ranks_expect(world_create(w, rank) == ULYX_SUCCESS);
    world_pointers(w, rank, 0, src, dst);
    for (int call = 0; good && call < 4; call++) {
        good = ranks_expect(ulyx_reshuffle_start(w->plans[rank], 0, src, dst, 0,
                                &op) == ULYX_SUCCESS);
        good &= ranks_expect(ulyx_reshuffle_start(w->plans[rank], 0, src, dst,
                                 0, &other) == ULYX_ERR_BUSY);
        good &=
            ranks_expect(ulyx_plan_destroy(w->plans[rank]) == ULYX_ERR_BUSY);
        good &= ranks_expect(ulyx_op_wait(op) == ULYX_SUCCESS);
        good &= ranks_expect(world_check_rank(w, 0, rank));
        good &= ranks_expect(ulyx_op_test(op) == ULYX_ERR_INVALID_ARGUMENT);
    }
    good &= ranks_expect(ulyx_plan_destroy(w->plans[rank]) == ULYX_SUCCESS);
    return !good;
}

static void
second_call_is_busy(void **state)
{
    (void)state;
    for (int m = 0; m < MODES; m++) {
        struct fixture *f = fixture_new(&modes[m], ULYX_DTYPE_BF16);
        run(f, busy_body);
        fixture_free(f);
    }
}

struct thief {
    ulyx_op_t *op;
    ulyx_status_t test, wait;
};

static void *
thief_main(void *context)
{
    struct thief *thief = context;
    thief->test = ulyx_op_test(thief->op);
    thief->wait = ulyx_op_wait(thief->op);
    return NULL;
}

static int
owner_body(int rank, int nranks, void *context)
{
    struct fixture *f = context;
    struct world *w = &f->w;
    const void *src[ULI_TENSORS];
    void *dst[ULI_TENSORS];
    struct thief thief;
    pthread_t thread;
    (void)nranks;
    bool good = ranks_expect(world_create(w, rank) == ULYX_SUCCESS);
    world_pointers(w, rank, 0, src, dst);
    good &= ranks_expect(ulyx_reshuffle_start(w->plans[rank], 0, src, dst, 0,
                             &thief.op) == ULYX_SUCCESS);
    pthread_create(&thread, NULL, thief_main, &thief);
    pthread_join(thread, NULL);
    good &= ranks_expect(thief.test == ULYX_ERR_INVALID_ARGUMENT);
    good &= ranks_expect(thief.wait == ULYX_ERR_INVALID_ARGUMENT);
    good &= ranks_expect(ulyx_op_wait(thief.op) == ULYX_SUCCESS);
    good &= ranks_expect(ulyx_plan_destroy(w->plans[rank]) == ULYX_SUCCESS);
    return !good;
}

static void
operations_belong_to_their_thread(void **state)
{
    (void)state;
    struct fixture *f = fixture_new(&modes[0], ULYX_DTYPE_BF16);
    run(f, owner_body);
    fixture_free(f);
}

/* ---- one thread, many ranks ---------------------------------------------- */

static void
create_all_in_group(struct world *w)
{
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    for (int32_t r = 0; r < RANKS; r++)
        assert_status(world_create(w, r), ULYX_SUCCESS);
    assert_status(ulyx_group_end(), ULYX_SUCCESS);
}

static void
destroy_all(struct world *w)
{
    for (int32_t r = 0; r < RANKS; r++)
        assert_status(ulyx_plan_destroy(w->plans[r]), ULYX_SUCCESS);
}

static void
one_thread_drives_all_ranks(void **state)
{
    (void)state;
    for (int m = 0; m < MODES; m++) {
        struct fixture *f = fixture_new(&modes[m], ULYX_DTYPE_F32);
        struct world *w = &f->w;
        create_all_in_group(w);
        for (int op = 0; op < ULYX_OPERATIONS; op++) {
            assert_status(ulyx_group_start(), ULYX_SUCCESS);
            for (int32_t r = 0; r < RANKS; r++)
                assert_status(world_execute(w, r, op), ULYX_SUCCESS);
            assert_status(world_execute(w, 0, op), ULYX_ERR_BUSY);
            assert_status(ulyx_group_end(), ULYX_SUCCESS);
            for (int32_t r = 0; r < RANKS; r++)
                assert_true(world_check_rank(w, op, r));
        }
        destroy_all(w);
        fixture_free(f);
    }
}

static void
a_wait_moves_the_other_operations(void **state)
{
    (void)state;
    for (int m = 0; m < MODES; m++) {
        struct fixture *f = fixture_new(&modes[m], ULYX_DTYPE_F32);
        struct world *w = &f->w;
        create_all_in_group(w);
        for (int call = 0; call < 8; call++) {
            const void *src[ULI_TENSORS];
            void *dst[ULI_TENSORS];
            ulyx_op_t *ops[RANKS];
            int op = call % ULYX_OPERATIONS;
            for (int32_t r = 0; r < RANKS; r++) {
                world_pointers(w, r, op, src, dst);
                assert_status(
                    ulyx_reshuffle_start(w->plans[r], op, src, dst, 0, &ops[r]),
                    ULYX_SUCCESS);
            }
            for (int32_t r = 0; r < RANKS; r++)
                assert_status(
                    ulyx_op_wait(ops[(r * 3 + call) % RANKS]), ULYX_SUCCESS);
            for (int32_t r = 0; r < RANKS; r++)
                assert_true(world_check_rank(w, op, r));
        }
        destroy_all(w);
        fixture_free(f);
    }
}

static void
the_library_thread_copies(void **state)
{
    (void)state;
    for (int m = 0; m < MODES; m++) {
        struct fixture *f = fixture_new(&modes[m], ULYX_DTYPE_F32);
        struct world *w = &f->w;
        w->flags = ULYX_PLAN_PROGRESS_THREAD;
        create_all_in_group(w);
        for (int op = 0; op < ULYX_OPERATIONS; op++) {
            const void *src[ULI_TENSORS];
            void *dst[ULI_TENSORS];
            ulyx_op_t *ops[RANKS];
            for (int32_t r = 0; r < RANKS; r++) {
                world_pointers(w, r, op, src, dst);
                assert_status(
                    ulyx_reshuffle_start(w->plans[r], op, src, dst, 0, &ops[r]),
                    ULYX_SUCCESS);
            }
            for (int32_t r = 0; r < RANKS - 1; r++)
                assert_status(ulyx_op_wait(ops[r]), ULYX_SUCCESS);
            ulyx_status_t status;
            while ((status = ulyx_op_test(ops[RANKS - 1])) == ULYX_IN_PROGRESS)
                pause_ms(1);
            assert_int_equal(status, ULYX_SUCCESS);
            for (int32_t r = 0; r < RANKS; r++)
                assert_true(world_check_rank(w, op, r));
        }
        destroy_all(w);
        fixture_free(f);
    }
}

/* ---- ranks that do not come ---------------------------------------------- */

static int
missing_body(int rank, int nranks, void *context)
{
    struct fixture *f = context;
    struct world *w = &f->w;
    const void *src[ULI_TENSORS];
    void *dst[ULI_TENSORS];
    ulyx_op_t *op;
    (void)nranks;
    bool good = ranks_expect(world_create(w, rank) == ULYX_SUCCESS);
    if (rank != 2) {
        world_pointers(w, rank, 0, src, dst);
        good &= ranks_expect(ulyx_reshuffle_start(w->plans[rank], 0, src, dst,
                                 0.2, &op) == ULYX_SUCCESS);
        good &= ranks_expect(ulyx_op_wait(op) == ULYX_ERR_TIMEOUT) &&
                ranks_expect(says("2"));
        good &= ranks_expect(world_execute(w, rank, 0) == ULYX_ERR_TIMEOUT);
    }
    return !good;
}

static void
a_missing_rank_is_named(void **state)
{
    (void)state;
    for (int m = 0; m < MODES; m++) {
        struct fixture *f = fixture_new(&modes[m], ULYX_DTYPE_BF16);
        run(f, missing_body);
        for (int32_t r = 0; r < RANKS; r++) {
            assert_status(ulyx_comm_abort(f->ranks.comms[r]), ULYX_SUCCESS);
            assert_status(ulyx_plan_destroy(f->w.plans[r]), ULYX_SUCCESS);
        }
        fixture_free(f);
    }
}

static int
abort_body(int rank, int nranks, void *context)
{
    struct fixture *f = context;
    (void)nranks;
    bool good = ranks_expect(world_create(&f->w, rank) == ULYX_SUCCESS);
    if (rank == 1) {
        pause_ms(20);
        good &=
            ranks_expect(ulyx_comm_abort(f->ranks.comms[rank]) == ULYX_SUCCESS);
    } else {
        good &=
            ranks_expect(world_execute(&f->w, rank, 0) == ULYX_ERR_ABORTED) &&
            ranks_expect(says("rank 1"));
    }
    good &= ranks_expect(ulyx_plan_destroy(f->w.plans[rank]) == ULYX_SUCCESS);
    return !good;
}

static void
an_abort_ends_the_call(void **state)
{
    (void)state;
    for (int m = 0; m < MODES; m++) {
        struct fixture *f = fixture_new(&modes[m], ULYX_DTYPE_BF16);
        run(f, abort_body);
        fixture_free(f);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(slow_consumers_are_left_alone),
    cmocka_unit_test(refusals_are_named_and_survived),
    cmocka_unit_test(different_operations_are_named),
    cmocka_unit_test(second_call_is_busy),
    cmocka_unit_test(operations_belong_to_their_thread),
    cmocka_unit_test(one_thread_drives_all_ranks),
    cmocka_unit_test(a_wait_moves_the_other_operations),
    cmocka_unit_test(the_library_thread_copies),
    cmocka_unit_test(a_missing_rank_is_named),
    cmocka_unit_test(an_abort_ends_the_call),
};

ULI_TEST_MAIN("ReshuffleProtocol", tests)
