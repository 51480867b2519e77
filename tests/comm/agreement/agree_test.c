/* SPDX-License-Identifier: Apache-2.0
 *
 * Agreement rounds: payloads of any length, different on every rank, with
 * outcomes, many times in a row.
 */
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "support/random.h"
#include "support/ranks.h"

enum { RANKS = 4, MAX_BYTES = 3 * ULI_AGREE_BYTES + 17, ROUNDS = 60 };

/* The bytes that rank r gives in round i: length and content depend only on
 * rank and round. */
static int64_t
length_of(int rank, int i)
{
    struct test_random random = {(uint64_t)(rank * 1000 + i)};

    return test_random_in(&random, 0, 3) == 0
               ? 0
               : test_random_in(&random, 0, MAX_BYTES);
}

static void
bytes_fill(unsigned char *bytes, int64_t count, int rank, int i)
{
    for (int64_t b = 0; b < count; b++)
        bytes[b] = (unsigned char)(b * 7 + rank * 31 + i);
}

static bool
round_is_right(int i, const unsigned char *all, const int64_t *bytes,
    const ulyx_status_t *outcomes)
{
    unsigned char *expected = malloc(MAX_BYTES);
    bool right = true;

    for (int p = 0; p < RANKS; p++) {
        int64_t length = length_of(p, i);

        bytes_fill(expected, length, p, i);
        right =
            right && bytes[p] == length && outcomes[p] == -p &&
            memcmp(all + (int64_t)p * MAX_BYTES, expected, (size_t)length) == 0;
    }
    free(expected);
    return right;
}

static int
gather_body(int rank, int nranks, void *context)
{
    ulyx_comm_t *comm = ((ulyx_comm_t **)context)[rank];
    unsigned char *mine = malloc(MAX_BYTES);
    unsigned char *all = malloc((size_t)nranks * MAX_BYTES);
    int64_t bytes[RANKS];
    ulyx_status_t outcomes[RANKS], status;
    int failed = 0;

    for (int i = 0; i < ROUNDS && !failed; i++) {
        bytes_fill(mine, length_of(rank, i), rank, i);
        status = uli_agree_gather(
            comm, &(struct uli_gather){.call = ULI_CALL_PLAN_CREATE,
                      .status = -rank,
                      .mine = mine,
                      .bytes = length_of(rank, i),
                      .max_bytes = MAX_BYTES,
                      .all_p = all,
                      .bytes_p = bytes,
                      .status_p = outcomes,
                      .deadline = uli_deadline_in(20)});
        failed = !ranks_expect(status == ULYX_SUCCESS) ||
                 !ranks_expect(round_is_right(i, all, bytes, outcomes));
    }
    free(mine);
    free(all);
    return failed;
}

static void
gather_any_lengths_reach_every_rank(void **state)
{
    ulyx_comm_t *comms[RANKS];

    (void)state;
    assert_status(ulyx_comm_create_local(RANKS, NULL, comms), ULYX_SUCCESS);
    assert_int_equal(ranks_run_threads(RANKS, gather_body, comms, 60), 0);
    for (int r = 0; r < RANKS; r++)
        assert_status(ulyx_comm_destroy(comms[r]), ULYX_SUCCESS);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(gather_any_lengths_reach_every_rank),
};

ULI_TEST_MAIN("Agree", tests)
