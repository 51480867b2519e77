/* SPDX-License-Identifier: Apache-2.0
 *
 * Strides of a call that are refused, and invalid strides in a peer's record:
 * detected before an address is used.
 */
#include "collectives/exchange/reshuffle_fixture.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "support/test.h"

/* ---- refusals ------------------------------------------------------------ */

enum refusal { NEGATIVE, ROW_ON_ROW, OVERFLOWS, HEAD_ON_HEAD, REFUSALS };

static const char *const refusal_texts[REFUSALS] = {"must not be negative",
    "bytes overlap", "do not fit 64 bits", "bytes overlap"};

static void
strides_spoil(int kind, int64_t strides[3])
{
    if (kind == NEGATIVE)
        strides[1] = -strides[1];
    else if (kind == ROW_ON_ROW)
        strides[1] = strides[2] = 16; /* the bytes of a head */
    else if (kind == OVERFLOWS)
        strides[1] = INT64_MAX / 4;
    else
        strides[2] = 0;
}

/* Makes a call with one bad stride, in src or dst, which must leave dst
 * unchanged. */
static bool
call_wrongly(struct world *w, int32_t rank, int kind, bool source)
{
    const void *src[ULI_TENSORS];
    void *dst[ULI_TENSORS];
    int64_t strides[ULI_TENSORS][3];
    unsigned char *before[ULI_TENSORS];
    enum uli_side side = uli_plan_side(0, source);
    bool good = true;
    for (int32_t t = 0; t < 3; t++) {
        struct image *image = &w->dst[0][rank][t];
        memcpy(strides[t], w->strides[rank][t][side], sizeof(strides[t]));
        before[t] = malloc((size_t)image->bytes);
        memcpy(before[t], image->base, (size_t)image->bytes);
    }
    strides_spoil(kind, strides[0]);
    world_pointers(w, rank, 0, src, dst);
    const int64_t(*given)[3] = (const int64_t(*)[3])strides;
    good &= ranks_expect(
        ulyx_reshuffle_execute_strided(w->plans[rank], 0, src,
            source ? given : NULL, dst, source ? NULL : given, NULL) ==
        (kind == OVERFLOWS ? ULYX_ERR_OVERFLOW : ULYX_ERR_INVALID_ARGUMENT));
    good &=
        ranks_expect(error_has(source ? "src_strides[0]" : "dst_strides[0]"));
    good &= ranks_expect(error_has(refusal_texts[kind]));
    for (int32_t t = 0; t < 3; t++) {
        struct image *image = &w->dst[0][rank][t];
        good &=
            ranks_expect(!memcmp(before[t], image->base, (size_t)image->bytes));
        free(before[t]);
    }
    return good;
}

static int
refusal_body(int rank, int nranks, void *context)
{
    struct fixture *f = context;
    struct world *w = &f->w;
    bool good = ranks_expect(world_create(w, rank) == ULYX_SUCCESS);
    (void)nranks;
    for (int kind = 0; good && kind < 2 * REFUSALS; kind++) {
        int who = kind % RANKS;
        char name[32];
        snprintf(name, sizeof(name), "rank %d refused", who);
        for (int twice = 0; good && twice < 2; twice++)
            good = rank == who ? call_wrongly(w, rank, kind / 2, kind % 2)
                               : ranks_expect(world_execute(w, rank, 0) ==
                                              ULYX_ERR_PEER_REFUSED) &&
                                     ranks_expect(error_has(name)) &&
                                     ranks_expect(error_has("_strides[0]"));
        good = good &&
               ranks_expect(world_execute(w, rank, 0) == ULYX_SUCCESS) &&
               ranks_expect(world_check_rank(w, 0, rank));
    }
    good &= ranks_expect(ulyx_plan_destroy(w->plans[rank]) == ULYX_SUCCESS);
    return !good;
}

/* Makes valid calls with strides between refused calls. */
static void
refused_strides_are_reported(void **state)
{
    (void)state;
    for (int m = 0; m < MODES; m++) {
        struct fixture *f = fixture_new(&modes[m], ULYX_DTYPE_BF16);
        struct test_random random = {7};
        f->w.directions = 1;
        world_move(&f->w, &random, 2);
        world_fill(&f->w);
        fixture_run(f, refusal_body);
        fixture_free(f);
    }
}

/* ---- records that lie ---------------------------------------------------- */

/* The row stride that rank 0 reports in place of its own, in src or dst. */
static int64_t lie;
static bool lie_of_source;
static const char *lie_found; /* text that the error must have */
static _Atomic int found;     /* number of ranks that have found it */

static void
record_lying(
    struct uli_exchange *exchange, int32_t p, struct uli_record *record)
{
    ulyx_plan_t *plan = (ulyx_plan_t *)exchange;
    int64_t(*strides)[ULI_TENSORS][3] = uli_record_strides(record);
    if (exchange->pairs[p].remote || exchange->work->pairs[p].slot)
        return;
    record->strided = 1;
    for (int source = 0; source < 2; source++)
        for (int32_t t = 0; t < exchange->ntensors; t++) {
            memcpy(strides[source][t],
                uli_plan_strides(
                    plan, exchange->direction, exchange->rank, t, source),
                sizeof(strides[source][t]));
            if (source == lie_of_source)
                strides[source][t][1] = lie;
        }
}

static int
lying_body(int rank, int nranks, void *context)
{
    struct fixture *f = context;
    struct world *w = &f->w;
    bool good = ranks_expect(world_create(w, rank) == ULYX_SUCCESS);
    if (!good)
        return 1;
    if (rank == 0) {
        ulyx_plan_t *plan = w->plans[0];
        plan->exchange.record = record_lying;
        /* calls by slots have no strides */
        for (int32_t p = 0; p < nranks; p++)
            plan->work[w->order[0]].pairs[p].brief = false;
    }
    ulyx_status_t status = world_execute(w, rank, w->order[0]);
    if (status == ULYX_ERR_INTERNAL) /* no call continues after the error */
        atomic_fetch_add(&found, ranks_expect(error_has(lie_found)));
    return !ranks_expect(
        status == ULYX_ERR_INTERNAL || status == ULYX_ERR_ABORTED);
}

static void
run_lie(int memory, int direction, bool source, int64_t row_stride,
    const char *words)
{
    static const struct mode mode = {"", 0, -1, 0};
    struct mode own = mode;
    own.memory = memory;
    struct fixture *f = fixture_new(&own, ULYX_DTYPE_F32);
    f->w.order[0] = direction;
    lie = row_stride;
    lie_of_source = source;
    lie_found = words;
    atomic_store(&found, 0);
    fixture_run(f, lying_body);
    assert_true(atomic_load(&found) > 0);
    for (int32_t r = 0; r < RANKS; r++) {
        assert_status(ulyx_comm_abort(f->ranks.comms[r]), ULYX_SUCCESS);
        assert_status(ulyx_plan_destroy(f->w.plans[r]), ULYX_SUCCESS);
    }
    fixture_free(f);
}

static void
false_records_are_detected(void **state)
{
    (void)state;
    static const char odd[] = "rank 0: its strides are negative or";
    static const int64_t odd_ones[] = {-64, INT64_MAX, INT64_MAX / 4};
    for (int i = 0; i < 3; i++) {
        run_lie(1, ULYX_SEQ_TO_HEAD, false, odd_ones[i], odd);
        run_lie(1, ULYX_SEQ_TO_HEAD_ADJOINT, true, odd_ones[i], odd);
        run_lie(0, ULYX_SEQ_TO_HEAD, true, odd_ones[i], odd);
    }
    /* Strides that lead outside of the window: destinations of stores, and
     * sources of sums. */
    run_lie(1, ULYX_SEQ_TO_HEAD, false, 1 << 24, "rank 0: tensor");
    run_lie(1, ULYX_SEQ_TO_HEAD_ADJOINT, true, 1 << 24, "rank 0: tensor");
}

/* ---- short records ------------------------------------------------------- */

/* Rank 0 makes no call, and posts READY(1) with places outside its windows. */
static void
post_falsely(ulyx_plan_t *plan)
{
    for (int32_t p = 1; p < RANKS; p++) {
        struct uli_short_record *brief =
            &plan->exchange.pairs[p].yours->brief[1];
        brief->hash = uli_layout_table_hash(plan->layout);
        brief->direction = ULYX_SEQ_TO_HEAD;
        for (int32_t t = 0; t < plan->exchange.ntensors; t++) {
            brief->window[t] = 1;
            brief->offset[t] = INT64_C(1) << 40;
        }
        atomic_store(&brief->flag, 1 << 1);
        uli_doorbell_ring(plan->comm->peers[p].control);
    }
}

static int
short_body(int rank, int nranks, void *context)
{
    struct fixture *f = context;
    struct world *w = &f->w;
    (void)nranks;
    if (!ranks_expect(world_create(w, rank) == ULYX_SUCCESS))
        return 1;
    const struct uli_work *work = &w->plans[rank]->work[ULYX_SEQ_TO_HEAD];
    if (!ranks_expect(work->pairs[(rank + 1) % RANKS].brief))
        return 1;
    if (rank == 0) {
        post_falsely(w->plans[0]);
        return 0;
    }
    ulyx_status_t status = world_execute(w, rank, ULYX_SEQ_TO_HEAD);
    if (status == ULYX_ERR_INTERNAL)
        atomic_fetch_add(&found, ranks_expect(error_has("rank 0: tensor")));
    return !ranks_expect(
        status == ULYX_ERR_INTERNAL || status == ULYX_ERR_ABORTED);
}

static void
false_short_records_are_detected(void **state)
{
    (void)state;
    static const struct mode windows = {"", 1, -1, 0};
    struct fixture *f = fixture_new(&windows, ULYX_DTYPE_F32);
    atomic_store(&found, 0);
    fixture_run(f, short_body);
    assert_true(atomic_load(&found) > 0);
    for (int32_t r = 0; r < RANKS; r++) {
        assert_status(ulyx_comm_abort(f->ranks.comms[r]), ULYX_SUCCESS);
        assert_status(ulyx_plan_destroy(f->w.plans[r]), ULYX_SUCCESS);
    }
    fixture_free(f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(refused_strides_are_reported),
    cmocka_unit_test(false_records_are_detected),
    cmocka_unit_test(false_short_records_are_detected),
};

ULI_TEST_MAIN("ReshuffleStrideFaults", tests)
