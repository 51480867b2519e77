/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions against sums in rank order, over random sizes and dtypes, with
 * guards; and the errors that all ranks return when one of them errs.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attention/element.h"
#include "base/dtype.h"
#include "support/buffers.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/test.h"
#include "ulyx/ulyx.h"

enum { RANKS = 8, LIMIT_S = 30 };

struct scene {
    int nranks;
    ulyx_comm_t *comms[RANKS];
    int64_t count;
    ulyx_dtype_t dtype;
    bool in_place;
    int root;
    uint64_t seed;
};

/* Element i of rank r's tensor, rounded to the dtype. */
static double
scene_value(const struct scene *s, int r, int64_t i)
{
    unsigned char at[8];
    struct test_random random = {
        s->seed + (uint64_t)r * 1000003u + (uint64_t)i * 7919u};
    uli_element_store(at, s->dtype, 0, test_random_normal(&random));
    return uli_element_load(at, s->dtype, 0);
}

static double
scene_expected(const struct scene *s, int64_t i)
{
    unsigned char at[8];
    double sum = scene_value(s, 0, i);
    float narrow = (float)sum;
    for (int r = 1; r < s->nranks; r++) {
        sum += scene_value(s, r, i);
        narrow += (float)scene_value(s, r, i);
    }
    uli_element_store(
        at, s->dtype, 0, s->dtype == ULYX_DTYPE_F64 ? sum : (double)narrow);
    return uli_element_load(at, s->dtype, 0);
}

static int
reduce_body(int rank, int nranks, void *context)
{
    const struct scene *s = context;
    struct test_buffer src, dst;
    int64_t elem = uli_dtype_size(s->dtype);
    bool good = true;
    (void)nranks;
    test_buffer_init(&src, (size_t)(s->count * elem), (size_t)elem);
    test_buffer_init(&dst, (size_t)(s->count * elem), 0);
    unsigned char *from = s->in_place ? dst.data : src.data;
    for (int64_t i = 0; i < s->count; i++)
        uli_element_store(from, s->dtype, i, scene_value(s, rank, i));
    good &= ranks_expect(ulyx_allreduce(s->comms[rank], from, dst.data,
                             s->count, s->dtype, NULL) == ULYX_SUCCESS);
    for (int64_t i = 0; i < s->count && good; i++)
        good &= ranks_expect(
            uli_element_load(dst.data, s->dtype, i) == scene_expected(s, i));
    good &= ranks_expect(test_buffer_guards_ok(&src));
    good &= ranks_expect(test_buffer_guards_ok(&dst));
    test_buffer_free(&src);
    test_buffer_free(&dst);
    return !good;
}

static int
gather_body(int rank, int nranks, void *context)
{
    const struct scene *s = context;
    struct test_buffer src, dst;
    bool good = true;
    test_buffer_init(&src, (size_t)s->count, 1);
    test_buffer_init(&dst, (size_t)(s->count * nranks), 3);
    unsigned char *from = s->in_place ? dst.data + rank * s->count : src.data;
    memset(from, rank + 1, (size_t)s->count);
    good &= ranks_expect(ulyx_allgather(s->comms[rank], from, dst.data,
                             s->count, NULL) == ULYX_SUCCESS);
    for (int64_t i = 0; i < s->count * nranks; i++)
        good = good && ranks_expect(dst.data[i] == i / s->count + 1);
    memset(src.data, rank == s->root ? 77 : 0, (size_t)s->count);
    good &= ranks_expect(ulyx_broadcast(s->comms[rank], src.data, s->count,
                             s->root, NULL) == ULYX_SUCCESS);
    for (int64_t i = 0; i < s->count; i++)
        good = good && ranks_expect(src.data[i] == 77);
    good &= ranks_expect(test_buffer_guards_ok(&src));
    good &= ranks_expect(test_buffer_guards_ok(&dst));
    test_buffer_free(&src);
    test_buffer_free(&dst);
    return !good;
}

static void
open_comms(struct scene *s)
{
    assert_status(
        ulyx_comm_create_local(s->nranks, NULL, s->comms), ULYX_SUCCESS);
}

static void
close_comms(struct scene *s)
{
    for (int r = 0; r < s->nranks; r++)
        assert_status(ulyx_comm_destroy(s->comms[r]), ULYX_SUCCESS);
}

static void
random_draws(uint64_t seed, int64_t draws, int64_t most, rank_fn body)
{
    struct test_random random = {test_seed(seed)};
    for (int64_t i = 0; i < draws; i++) {
        struct scene s = {0};
        s.nranks = (int)test_random_in(&random, 1, RANKS);
        s.count = test_random_in(&random, 0, 3) == 0
                      ? test_random_in(&random, 0, 9)
                      : test_random_in(&random, 0, most);
        s.dtype =
            (int32_t)test_random_in(&random, ULYX_DTYPE_F64, ULYX_DTYPE_F16);
        s.in_place = test_random_in(&random, 0, 1);
        s.root = (int)test_random_in(&random, 0, s.nranks - 1);
        s.seed = test_random_next(&random);
        open_comms(&s);
        assert_int_equal(ranks_run_threads(s.nranks, body, &s, LIMIT_S), 0);
        close_comms(&s);
    }
}

static void
sums_in_rank_order(void **state)
{
    (void)state;
    random_draws(31, test_draws(20), 3000, reduce_body);
}

/* More than one slice: with 2 ranks, pieces of 256 KiB. */
static void
sums_of_several_slices(void **state)
{
    (void)state;
    struct scene s = {.nranks = 2, .count = 300001, .dtype = ULYX_DTYPE_F32};
    open_comms(&s);
    assert_int_equal(ranks_run_threads(2, reduce_body, &s, LIMIT_S), 0);
    close_comms(&s);
}

static void
gathers_and_broadcasts(void **state)
{
    (void)state;
    random_draws(32, test_draws(20), 5000, gather_body);
}

/* ---- errors -------------------------------------------------------------- */

/* Ranks differ in the count, the dtype and the call, or pass invalid arguments:
 * each error names what differs, the destination stays untouched, and a later
 * good call succeeds. */
static int
error_body(int rank, int nranks, void *context)
{
    struct scene *s = context;
    float in[64] = {0}, out[64];
    ulyx_comm_t *comm = s->comms[rank];
    bool good = true;
    (void)nranks;
    memset(out, 0x5a, sizeof(out));
    ulyx_status_t status = ulyx_allreduce(
        comm, in, out, rank == 2 ? 63 : 64, ULYX_DTYPE_F32, NULL);
    good &= ranks_expect(status == ULYX_ERR_MISMATCH);
    good &= ranks_expect(error_has("count is 64 on rank 0 and 63 on rank 2"));
    status = ulyx_allreduce(
        comm, in, out, 64, rank == 1 ? ULYX_DTYPE_BF16 : ULYX_DTYPE_F32, NULL);
    good &=
        ranks_expect(status == ULYX_ERR_MISMATCH && error_has("dtype is 2"));
    status = ulyx_allreduce(
        comm, rank == 2 ? NULL : in, out, 64, ULYX_DTYPE_F32, NULL);
    good &=
        ranks_expect(status == (rank == 2 ? ULYX_ERR_INVALID_ARGUMENT
                                          : ULYX_ERR_PEER_REFUSED) &&
                     error_has(rank == 2 ? "src is NULL" : "rank 2 refused"));
    status = rank == 0 ? ulyx_broadcast(comm, out, 8, 0, NULL)
                       : ulyx_allgather(comm, in, out, 8, NULL);
    good &= ranks_expect(status == ULYX_ERR_MISMATCH);
    status = ulyx_broadcast(comm, out, 8, 9, NULL);
    good &= ranks_expect(
        status == ULYX_ERR_INVALID_ARGUMENT && error_has("root is 9"));
    status = ulyx_allreduce(comm, in, out, 64, ULYX_DTYPE_F8_E4M3, NULL);
    good &= ranks_expect(status == ULYX_ERR_UNSUPPORTED);
    status = ulyx_allreduce(comm, in, out, INT64_MAX / 2, ULYX_DTYPE_F32, NULL);
    good &= ranks_expect(
        status == ULYX_ERR_OVERFLOW &&
        error_has("count is 4611686018427387903: this many elements"));
    status = ulyx_allgather(comm, in, out, INT64_MAX, NULL);
    good &= ranks_expect(
        status == ULYX_ERR_OVERFLOW &&
        error_has("message_bytes is 9223372036854775807: the bytes of"));
    status = ulyx_broadcast(comm, NULL, 8, 0, NULL);
    good &= ranks_expect(
        status == ULYX_ERR_INVALID_ARGUMENT && error_has("buffer is NULL"));
    unsigned char untouched[sizeof(out)];
    memset(untouched, 0x5a, sizeof(untouched));
    good &= ranks_expect(memcmp(out, untouched, sizeof(out)) == 0);
    status = ulyx_allreduce(comm, in, out, 64, ULYX_DTYPE_F32, NULL);
    return !(good & ranks_expect(status == ULYX_SUCCESS && out[63] == 0));
}

static void
differences_are_named_on_all_ranks(void **state)
{
    (void)state;
    struct scene s = {.nranks = 4};
    open_comms(&s);
    assert_int_equal(ranks_run_threads(4, error_body, &s, LIMIT_S), 0);
    close_comms(&s);
}

/* One thread makes the calls of all ranks. */
static void
groups_queue_reductions(void **state)
{
    (void)state;
    struct scene s = {.nranks = 3};
    double in[3] = {1, 2, 4}, out[3] = {0};
    open_comms(&s);
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    for (int r = 0; r < 3; r++)
        assert_status(ulyx_allreduce(
                          s.comms[r], &in[r], &out[r], 1, ULYX_DTYPE_F64, NULL),
            ULYX_SUCCESS);
    assert_status(ulyx_group_end(), ULYX_SUCCESS);
    for (int r = 0; r < 3; r++)
        assert_true(out[r] == 7);
    close_comms(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(sums_in_rank_order),
    cmocka_unit_test(sums_of_several_slices),
    cmocka_unit_test(gathers_and_broadcasts),
    cmocka_unit_test(differences_are_named_on_all_ranks),
    cmocka_unit_test(groups_queue_reductions),
};

ULI_TEST_MAIN("Reduce", tests)
