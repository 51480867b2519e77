/* SPDX-License-Identifier: Apache-2.0
 *
 * What a call guarantees besides its bytes: nothing is touched early; refusals
 * and disagreements are named and leave the communicator usable; ranks that
 * make no call. Each on windows, rings and slots.
 */
#include "collectives/exchange/reshuffle_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "support/test.h"

/* ---- nothing is touched early -------------------------------------------- */

/* In odd calls the sources are inverted, so that a byte of the next call
 * shows. */
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
        /* The caller may overwrite the sources as soon as the call has
         * returned. */
        invert_sources(w, rank, 0);
        for (int32_t t = 0; t < w->c.shape.ntensors; t++)
            memcpy(seen[t], w->dst[0][rank][t].base,
                (size_t)w->dst[0][rank][t].bytes);
        /* In each call one rank is slow and keeps reading. */
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
slow_readers_see_no_byte_of_the_next_call(void **state)
{
    (void)state;
    for (int m = 0; m < MODES; m++) {
        struct fixture *f = fixture_new(&modes[m], ULYX_DTYPE_BF16);
        fixture_run(f, delayed_body);
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
    REFUSE_BY_CALL,
    REFUSALS
};

/* Makes an invalid call. */
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
    case REFUSE_STREAM:
        return ulyx_reshuffle_execute(plan, 0, src, dst, outside);
    default:
        return ulyx_reshuffle_refuse(plan, 0, "the caller's own reason", NULL);
    }
    return ulyx_reshuffle_execute(plan, 0, src, dst, NULL);
}

/* The error text of the rank that refused a call, which its peers must report.
 * Barriers keep the text valid while they compare it. */
static char refused_with[256];

static bool
peers_get_reason(struct world *w, int32_t rank, int who)
{
    char mine[512], words[384];
    snprintf(mine, sizeof(mine), "%s", ulyx_last_error());
    if (rank == who)
        snprintf(refused_with, sizeof(refused_with), "%.100s", mine);
    if (!ranks_expect(ulyx_comm_barrier(w->ranks->comms[rank]) == ULYX_SUCCESS))
        return false;
    snprintf(words, sizeof(words), "rank %d refused: ", who);
    const char *found = strstr(mine, words);
    bool good = rank == who || (found && strstr(found, refused_with));
    if (!good)
        fprintf(stderr, "rank %d: \"%s\" does not say \"%s\"\n", rank, mine,
            refused_with);
    return ranks_expect(good) &&
           ranks_expect(
               ulyx_comm_barrier(w->ranks->comms[rank]) == ULYX_SUCCESS);
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
        /* Two bad calls in a row, then a good one. */
        for (int twice = 0; good && twice < 2; twice++) {
            ulyx_status_t status = rank == who ? call_wrongly(w, rank, kind)
                                               : world_execute(w, rank, 0);
            ulyx_status_t expected = rank != who ? ULYX_ERR_PEER_REFUSED
                                     : kind == REFUSE_UNSUPPORTED
                                         ? ULYX_ERR_UNSUPPORTED
                                         : ULYX_ERR_INVALID_ARGUMENT;
            good = ranks_expect(status == expected) &&
                   peers_get_reason(w, rank, who);
        }
        good &= ranks_expect(world_execute(w, rank, 0) == ULYX_SUCCESS) &&
                ranks_expect(world_check_rank(w, 0, rank));
    }
    good &= ranks_expect(ulyx_plan_destroy(w->plans[rank]) == ULYX_SUCCESS);
    return !good;
}

/* What ulyx_reshuffle_refuse itself refuses reaches no peer. */
static void
wrong_refusals_announce_nothing(void **state)
{
    (void)state;
    struct world_ranks *ranks = calloc(1, sizeof(*ranks));
    struct world *w = calloc(1, sizeof(*w));
    struct test_random random = {7};
    assert_true(ranks && w);
    world_ranks_init(ranks, 1);
    world_plain_case(w, 1, 8, 2, 2, 8, ULYX_DTYPE_BF16);
    assert_true(world_draw(w, ranks, &random, 0));
    world_fill(w);
    assert_int_equal(world_create(w, 0), ULYX_SUCCESS);
    ulyx_plan_t *plan = w->plans[0];
    assert_int_equal(
        ulyx_reshuffle_refuse(NULL, 0, "why", NULL), ULYX_ERR_INVALID_ARGUMENT);
    assert_int_equal(
        ulyx_reshuffle_refuse(plan, 4, "why", NULL), ULYX_ERR_INVALID_ARGUMENT);
    assert_true(error_has("direction is 4, must be 0 to 3"));
    assert_int_equal(
        ulyx_reshuffle_refuse(plan, 0, NULL, NULL), ULYX_ERR_INVALID_ARGUMENT);
    assert_true(error_has("reason is NULL"));
    assert_int_equal(ulyx_group_start(), ULYX_SUCCESS);
    assert_int_equal(
        ulyx_reshuffle_refuse(plan, 0, "why", NULL), ULYX_ERR_INVALID_ARGUMENT);
    assert_true(error_has("does not work in a group"));
    assert_int_equal(ulyx_group_end(), ULYX_SUCCESS);
    assert_int_equal(world_execute(w, 0, 0), ULYX_SUCCESS);
    assert_int_equal(ulyx_plan_destroy(plan), ULYX_SUCCESS);
    world_free(w);
    world_ranks_free(ranks);
    free(w);
    free(ranks);
}

static void
refusals_are_named_and_survived(void **state)
{
    (void)state;
    for (int m = 0; m < MODES; m++) {
        struct fixture *f = fixture_new(&modes[m], ULYX_DTYPE_BF16);
        f->w.directions = 1;
        fixture_run(f, refusal_body);
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
               ranks_expect(error_has("head_to_seq")) &&
               ranks_expect(error_has("seq_to_head"));
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
        fixture_run(f, mismatch_body);
        fixture_free(f);
    }
}

/* ---- ranks that make no call --------------------------------------------- */

static int
missing_body(int rank, int nranks, void *context)
{
    struct fixture *f = context;
    struct world *w = &f->w;
    const void *src[ULI_TENSORS];
    void *dst[ULI_TENSORS];
    ulyx_request_t *request;
    (void)nranks;
    bool good = ranks_expect(world_create(w, rank) == ULYX_SUCCESS);
    if (rank != 2) {
        world_pointers(w, rank, 0, src, dst);
        good &= ranks_expect(ulyx_reshuffle_start(w->plans[rank], 0, src, dst,
                                 0.2, &request) == ULYX_SUCCESS);
        good &= ranks_expect(ulyx_request_wait(request) == ULYX_ERR_TIMEOUT) &&
                ranks_expect(error_has("2"));
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
        fixture_run(f, missing_body);
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
            ranks_expect(error_has("rank 1"));
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
        fixture_run(f, abort_body);
        fixture_free(f);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(slow_readers_see_no_byte_of_the_next_call),
    cmocka_unit_test(refusals_are_named_and_survived),
    cmocka_unit_test(wrong_refusals_announce_nothing),
    cmocka_unit_test(different_operations_are_named),
    cmocka_unit_test(a_missing_rank_is_named),
    cmocka_unit_test(an_abort_ends_the_call),
};

ULI_TEST_MAIN("ReshuffleProtocol", tests)
