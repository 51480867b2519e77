/* SPDX-License-Identifier: Apache-2.0
 *
 * alltoall and alltoallv with threads as ranks: all sizes, windows and ordinary
 * memory in any mixture, disagreement between only two ranks, refusals.
 */
#include "ulyx/collective.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "support/pattern.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/test.h"
#include "ulyx/comm.h"
#include "ulyx/memory.h"

enum { MAX_RANKS = 6, BYTES = 4 << 20, LIMIT_S = 30, GUARD = 64 };

/* What the ranks of a draw share. */
struct net {
    int32_t nranks;
    ulyx_comm_t *comms[MAX_RANKS];
    ulyx_mem_t *mems[MAX_RANKS];
    char *window[MAX_RANKS], *plain[MAX_RANKS];
    /* sizes[s][d] bytes go from s to d; and the offset of each piece at each
     * rank */
    int64_t sizes[MAX_RANKS][MAX_RANKS];
    int64_t src_at[MAX_RANKS][MAX_RANKS], dst_at[MAX_RANKS][MAX_RANKS];
    char *src[MAX_RANKS], *dst[MAX_RANKS];
    bool even;
    int64_t salt;
    ulyx_status_t expected[MAX_RANKS];
    int bad; /* rank that calls something else, or -1 */
};

static struct net *
net_new(int32_t nranks)
{
    struct net *net = calloc(1, sizeof(*net));
    net->nranks = nranks;
    net->bad = -1;
    assert_status(
        ulyx_comm_create_local(nranks, NULL, net->comms), ULYX_SUCCESS);
    for (int32_t r = 0; r < nranks; r++) {
        net->window[r] = aligned_alloc(4096, BYTES);
        net->plain[r] = aligned_alloc(4096, BYTES);
        assert_status(
            ulyx_mem_register(net->window[r], BYTES, NULL, &net->mems[r]),
            ULYX_SUCCESS);
        assert_status(
            ulyx_mem_attach(net->comms[r], net->mems[r]), ULYX_SUCCESS);
    }
    return net;
}

static void
net_free(struct net *net)
{
    for (int32_t r = 0; r < net->nranks; r++) {
        assert_status(
            ulyx_mem_detach(net->comms[r], net->mems[r]), ULYX_SUCCESS);
        assert_status(ulyx_mem_free(net->mems[r]), ULYX_SUCCESS);
        assert_status(ulyx_comm_destroy(net->comms[r]), ULYX_SUCCESS);
        free(net->window[r]);
        free(net->plain[r]);
    }
    free(net);
}

/* ---- draws --------------------------------------------------------------- */

static void
write_piece(const struct net *net, int32_t from, int32_t to, char *at)
{
    struct pattern pattern = {net->salt, from, to, 0, 0, 0};
    for (int64_t i = 0; i < net->sizes[from][to]; i++)
        pattern_write(&pattern, i, ULYX_DTYPE_BYTES, 1, at + i);
}

static int64_t
draw_size(struct test_random *random)
{
    static const int64_t most[] = {0, 1, 16, 300, 5000, 70000, 500000};
    return test_random_in(random, 0, most[test_random_in(random, 0, 6)]);
}

static void
net_draw(struct net *net, struct test_random *random)
{
    net->even = test_random_in(random, 0, 1);
    net->salt++;
    int64_t even = draw_size(random) / 8;
    for (int32_t s = 0; s < net->nranks; s++)
        for (int32_t d = 0; d < net->nranks; d++)
            net->sizes[s][d] = net->even ? even : draw_size(random) / 8;
    for (int32_t r = 0; r < net->nranks; r++) {
        int64_t src = 0, dst = 0, gap = net->even ? 0 : 3;
        net->src[r] =
            (test_random_in(random, 0, 1) ? net->window : net->plain)[r] +
            GUARD + test_random_in(random, 0, 15);
        net->dst[r] =
            (test_random_in(random, 0, 1) ? net->window : net->plain)[r] +
            BYTES / 2 + test_random_in(random, 0, 15);
        for (int32_t p = 0; p < net->nranks; p++) {
            net->src_at[r][p] = src;
            net->dst_at[r][p] = dst;
            src += net->sizes[r][p] + gap;
            dst += net->sizes[p][r] + gap;
            write_piece(net, r, p, net->src[r] + net->src_at[r][p]);
        }
        memset(net->dst[r] - GUARD, 0xA5, (size_t)(dst + 2 * GUARD));
        net->expected[r] = ULYX_SUCCESS;
    }
}

static bool
check_rank(const struct net *net, int32_t rank)
{
    char *piece = malloc(BYTES);
    bool good = true;
    int64_t at = -GUARD;
    for (int32_t p = 0; good && p < net->nranks; p++) {
        for (; at < net->dst_at[rank][p]; at++)
            good &= (unsigned char)net->dst[rank][at] == 0xA5;
        write_piece(net, p, rank, piece);
        good &= memcmp(net->dst[rank] + at, piece,
                    (size_t)net->sizes[p][rank]) == 0;
        at += net->sizes[p][rank];
    }
    for (int64_t end = at + GUARD; at < end; at++)
        good &= (unsigned char)net->dst[rank][at] == 0xA5;
    free(piece);
    return good;
}

static ulyx_status_t
alltoall_call(struct net *net, int32_t rank)
{
    int64_t src_bytes[MAX_RANKS], dst_bytes[MAX_RANKS];
    if (net->even)
        return ulyx_alltoall(net->comms[rank], net->src[rank], net->dst[rank],
            net->sizes[0][0], NULL);
    for (int32_t p = 0; p < net->nranks; p++) {
        src_bytes[p] = net->sizes[rank][p];
        dst_bytes[p] = net->sizes[p][rank];
    }
    return ulyx_alltoallv(net->comms[rank], net->src[rank], src_bytes,
        net->src_at[rank], net->dst[rank], dst_bytes, net->dst_at[rank], NULL);
}

static int
random_body(int rank, int nranks, void *context)
{
    struct net *net = context;
    (void)nranks;
    bool good = ranks_expect(alltoall_call(net, rank) == ULYX_SUCCESS) &&
                ranks_expect(check_rank(net, rank));
    return !good;
}

static void
run_random(uint64_t seed)
{
    struct test_random random = {test_seed(seed)};
    for (int32_t nranks = 1; nranks <= MAX_RANKS; nranks++) {
        struct net *net = net_new(nranks);
        for (int64_t i = 0; i < test_draws(25); i++) {
            net_draw(net, &random);
            assert_int_equal(
                ranks_run_threads(nranks, random_body, net, LIMIT_S), 0);
        }
        net_free(net);
    }
}

static void
pieces_arrive(void **state)
{
    (void)state;
    run_random(301);
}

static void
pieces_arrive_by_rings(void **state)
{
    (void)state;
    setenv("ULYX_CMA", "off", 1);
    setenv("ULYX_RING_CHUNK", "4096", 1);
    run_random(302);
    unsetenv("ULYX_CMA");
    unsetenv("ULYX_RING_CHUNK");
}

static void
one_thread_in_a_group(void **state)
{
    (void)state;
    struct test_random random = {test_seed(303)};
    struct net *net = net_new(4);
    for (int i = 0; i < 10; i++) {
        net_draw(net, &random);
        assert_status(ulyx_group_start(), ULYX_SUCCESS);
        for (int32_t r = 0; r < 4; r++)
            assert_status(alltoall_call(net, r), ULYX_SUCCESS);
        assert_status(ulyx_group_end(), ULYX_SUCCESS);
        for (int32_t r = 0; r < 4; r++)
            assert_true(check_rank(net, r));
    }
    net_free(net);
}

/* ---- disagreement and refusal -------------------------------------------- */

/* Rank 1 expects one byte more from rank 0 than rank 0 sends: only these two
 * ranks report the error. */
static int
sizes_body(int rank, int nranks, void *context)
{
    struct net *net = context;
    int64_t src_bytes[MAX_RANKS], dst_bytes[MAX_RANKS];
    for (int32_t p = 0; p < nranks; p++) {
        src_bytes[p] = net->sizes[rank][p];
        dst_bytes[p] = net->sizes[p][rank] + (rank == 1 && p == 0);
    }
    ulyx_status_t status = ulyx_alltoallv(net->comms[rank], net->src[rank],
        src_bytes, net->src_at[rank], net->dst[rank], dst_bytes,
        net->dst_at[rank], NULL);
    bool good =
        ranks_expect(status == (rank < 2 ? ULYX_ERR_MISMATCH : ULYX_SUCCESS));
    if (rank < 2)
        good &= ranks_expect(strstr(ulyx_last_error(), "bytes") != NULL);
    else
        good &= ranks_expect(check_rank(net, rank));
    return !(good && ranks_expect(alltoall_call(net, rank) == ULYX_SUCCESS) &&
             ranks_expect(check_rank(net, rank)));
}

static int
refusal_body(int rank, int nranks, void *context)
{
    struct net *net = context;
    bool bad = rank == net->bad, good = true;
    (void)nranks;
    for (int i = 0; i < 3; i++) {
        ulyx_status_t status = ulyx_alltoall(net->comms[rank], net->src[rank],
            bad && i != 1 ? NULL : net->dst[rank], bad && i == 1 ? -1 : 100,
            NULL);
        good &= ranks_expect(status == (bad ? ULYX_ERR_INVALID_ARGUMENT
                                            : ULYX_ERR_PEER_REFUSED));
        if (!bad)
            good &= ranks_expect(strstr(ulyx_last_error(), "rank 2") != NULL);
        good &= ranks_expect(ulyx_alltoall(net->comms[rank], net->src[rank],
                                 net->dst[rank], 100, NULL) == ULYX_SUCCESS);
    }
    return !good;
}

static int
other_call_body(int rank, int nranks, void *context)
{
    struct net *net = context;
    int64_t bytes[MAX_RANKS], offsets[MAX_RANKS];
    for (int32_t p = 0; p < nranks; p++) {
        bytes[p] = 10;
        offsets[p] = 10 * p;
    }
    ulyx_status_t status =
        rank ? ulyx_alltoall(
                   net->comms[rank], net->src[rank], net->dst[rank], 10, NULL)
             : ulyx_alltoallv(net->comms[rank], net->src[rank], bytes, offsets,
                   net->dst[rank], bytes, offsets, NULL);
    return !(ranks_expect(status == ULYX_ERR_MISMATCH) &&
             ranks_expect(strstr(ulyx_last_error(), "alltoallv") != NULL));
}

/* After a good call some ranks make another call: every rank reports both
 * calls, and the communicator stays usable. */
static int
stray_body(int rank, int nranks, void *context)
{
    struct net *net = context;
    ulyx_comm_t *comm = net->comms[rank], *part = NULL;
    char text[256], more[8], few[2][10 * MAX_RANKS] = {{0}};
    bool good = ranks_expect(alltoall_call(net, rank) == ULYX_SUCCESS);
    for (int i = 0; good && i < 6; i++) {
        bool strays = rank == (i + net->bad) % nranks ||
                      (nranks > 2 && i > 3 && rank == 1);
        ulyx_status_t status = ULYX_SUCCESS;
        if (!strays)
            status = ulyx_alltoall(comm, few[0], few[1], 10, NULL);
        else if (i % 3 == 0)
            status = ulyx_comm_barrier(comm);
        else if (i % 3 == 1)
            status = ulyx_broadcast(comm, more, sizeof(more), 0, NULL);
        else
            status = ulyx_comm_split(comm, 0, 0, NULL, &part);
        snprintf(text, sizeof(text), "%s", ulyx_last_error());
        good = ranks_expect(status == ULYX_ERR_MISMATCH) &&
               ranks_expect(strstr(text, "alltoall")) &&
               ranks_expect(strstr(text, i % 3 == 0   ? "barrier"
                                         : i % 3 == 1 ? "reduction"
                                                      : "split"));
        good = good && ranks_expect(alltoall_call(net, rank) == ULYX_SUCCESS) &&
               ranks_expect(check_rank(net, rank)) &&
               ranks_expect(ulyx_comm_barrier(comm) == ULYX_SUCCESS);
    }
    if (!good)
        fprintf(stderr, "rank %d: %s\n", rank, text);
    return !good;
}

static void
other_call_after_the_first_is_named_on_all(void **state)
{
    (void)state;
    struct test_random random = {test_seed(306)};
    for (int nranks = 2; nranks <= 4; nranks++) {
        struct net *net = net_new(nranks);
        net_draw(net, &random);
        net->bad = nranks - 1;
        assert_int_equal(
            ranks_run_threads(nranks, stray_body, net, LIMIT_S), 0);
        net_free(net);
    }
}

static void
two_ranks_disagree(void **state)
{
    (void)state;
    struct test_random random = {test_seed(304)};
    struct net *net = net_new(4);
    do
        net_draw(net, &random);
    while (net->even);
    assert_int_equal(ranks_run_threads(4, sizes_body, net, LIMIT_S), 0);
    assert_int_equal(ranks_run_threads(4, other_call_body, net, LIMIT_S), 0);
    net_free(net);
}

static void
refusals_are_named(void **state)
{
    (void)state;
    struct test_random random = {test_seed(305)};
    struct net *net = net_new(4);
    net_draw(net, &random);
    net->bad = 2;
    assert_int_equal(ranks_run_threads(4, refusal_body, net, LIMIT_S), 0);
    net_free(net);
}

static void
bad_arguments(void **state)
{
    (void)state;
    struct net *net = net_new(1);
    char *a = net->plain[0], *b = a + 4096;
    int64_t ten = 10, zero = 0, minus = -1, much = INT64_MAX, eleven = 11;
    ulyx_comm_t *comm = net->comms[0];
    assert_status(
        ulyx_alltoall(NULL, a, b, 10, NULL), ULYX_ERR_INVALID_ARGUMENT);
    assert_status(
        ulyx_alltoall(comm, a, b, -1, NULL), ULYX_ERR_INVALID_ARGUMENT);
    assert_status(
        ulyx_alltoall(comm, NULL, b, 10, NULL), ULYX_ERR_INVALID_ARGUMENT);
    assert_status(
        ulyx_alltoall(comm, a, a + 5, 10, NULL), ULYX_ERR_INVALID_ARGUMENT);
    assert_status(ulyx_alltoall(comm, a, b, 10, a), ULYX_ERR_INVALID_ARGUMENT);
    assert_status(ulyx_alltoallv(comm, a, NULL, &zero, b, &ten, &zero, NULL),
        ULYX_ERR_INVALID_ARGUMENT);
    assert_status(ulyx_alltoallv(comm, a, &ten, &minus, b, &ten, &zero, NULL),
        ULYX_ERR_INVALID_ARGUMENT);
    assert_status(ulyx_alltoallv(comm, a, &much, &ten, b, &ten, &zero, NULL),
        ULYX_ERR_OVERFLOW);
    assert_status(ulyx_alltoallv(comm, a, &ten, &zero, b, &eleven, &zero, NULL),
        ULYX_ERR_INVALID_ARGUMENT);
    assert_status(ulyx_alltoall(comm, a, b, 10, NULL), ULYX_SUCCESS);
    assert_status(ulyx_alltoall(comm, NULL, NULL, 0, NULL), ULYX_SUCCESS);
    net_free(net);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(pieces_arrive),
    cmocka_unit_test(pieces_arrive_by_rings),
    cmocka_unit_test(one_thread_in_a_group),
    cmocka_unit_test(two_ranks_disagree),
    cmocka_unit_test(other_call_after_the_first_is_named_on_all),
    cmocka_unit_test(refusals_are_named),
    cmocka_unit_test(bad_arguments),
};

ULI_TEST_MAIN("Alltoall", tests)
