/* SPDX-License-Identifier: Apache-2.0
 *
 * The tree by which many ranks gather: its shape and its messages, counted for
 * up to 131072 ranks without running them; gathers of any size; 512 ranks;
 * strangers at every rank's listener; and absent ranks, which have the same
 * effect as in the star.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "bootstrap/meet/tree.h"
#include "bootstrap/meeting.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/test.h"

enum { DEFAULT_LEAST = 384, MANY = 512 };

/* ---- shape --------------------------------------------------------------- */

static int
depth_of(int32_t nranks, int32_t rank)
{
    struct uli_tree_place place;
    uli_tree_place(nranks, rank, &place);
    return place.parent < 0 ? 0 : 1 + depth_of(nranks, place.parent);
}

/* Each rank is a child of its parent and of no other rank; the children of a
 * rank divide the rest of its range. */
static void
every_rank_has_one_place(void **state)
{
    static const int32_t sizes[] = {1, 2, 3, 9, 10, 73, 512, 4096};
    (void)state;
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        int32_t nranks = sizes[s], links = 0;
        int *seen = calloc((size_t)nranks, sizeof(*seen));
        for (int32_t r = 0; r < nranks; r++) {
            struct uli_tree_place place, child;
            uli_tree_place(nranks, r, &place);
            assert_int_equal(place.first[0], r + 1);
            assert_int_equal(place.first[place.nchildren], place.end);
            for (int32_t i = 0; i < place.nchildren; i++) {
                uli_tree_place(nranks, place.first[i], &child);
                assert_int_equal(child.parent, r);
                assert_int_equal(child.end, place.first[i + 1]);
                seen[place.first[i]]++;
                links++;
            }
        }
        assert_int_equal(links, nranks - 1);
        for (int32_t r = 0; r < nranks; r++)
            assert_int_equal(seen[r], r > 0);
        free(seen);
    }
}

/* The cost of a gather, computed from the places: messages, bytes of tables
 * that leave the busiest rank, and steps. The costs of a star's root are beside
 * them. */
static void
messages_of_4096_ranks_are_few_everywhere(void **state)
{
    static const struct {
        int32_t nranks;
        int depth;
    } cases[] = {{64, 2}, {512, 3}, {4096, 4}, {131072, 6}};
    (void)state;
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        int32_t nranks = cases[c].nranks;
        int64_t sent = 0, most = 0, tables = 0;
        int depth = 0;
        for (int32_t r = 0; r < nranks; r++) {
            struct uli_tree_place place;
            uli_tree_place(nranks, r, &place);
            int64_t mine = place.nchildren + (place.parent >= 0);
            sent += mine;
            most = mine > most ? mine : most;
            tables = place.nchildren > tables ? place.nchildren : tables;
            if (r % 61 == 0 || r == nranks - 1) {
                int d = depth_of(nranks, r);
                depth = d > depth ? d : depth;
            }
        }
        printf("%d ranks: %lld messages, at most %lld from a rank, %lld tables "
               "from the busiest (star: %d), depth %d\n",
            nranks, (long long)sent, (long long)most, (long long)tables, nranks,
            depth);
        assert_int_equal(sent, 2 * (nranks - 1));
        assert_true(most <= ULI_TREE_ARITY + 1);
        assert_true(tables <= ULI_TREE_ARITY);
        assert_true(depth <= cases[c].depth);
    }
}

/* ---- gathers ------------------------------------------------------------- */

static void
ranks_gather(enum meeting_kind kind, int count, size_t bytes)
{
    struct meeting_rank *ranks = calloc((size_t)count, sizeof(*ranks));
    struct uli_endpoint place;
    struct uli_root *root = meeting_open(kind, 60, 0, &place);
    for (int i = 0; i < count; i++) {
        ranks[i].rank = i;
        ranks[i].nranks = count;
        ranks[i].bytes = bytes;
        ranks[i].gathers = 3;
        ranks[i].patience_s = 60;
    }
    meeting_run(&place, ranks, count);
    for (int i = 0; i < count; i++)
        if (ranks[i].status != ULYX_SUCCESS)
            fail_msg("rank %d: %s", i, ranks[i].text);
    assert_true(meeting_all_ended());
    uli_root_release(root, 0);
    free(ranks);
}

static void
gathers_of_any_size_are_right(void **state)
{
    struct test_random random = {test_seed(71)};
    (void)state;
    uli_tree_set_least(1);
    for (int64_t i = test_draws(12); i > 0; i--)
        ranks_gather(i % 3 == 0   ? MEETING_V4
                     : i % 3 == 1 ? MEETING_V6
                                  : MEETING_UNIX,
            (int)test_random_in(&random, 1, 40),
            (size_t)test_random_in(&random, 0, 5000));
    uli_tree_set_least(DEFAULT_LEAST);
}

static void
gathers_of_512_ranks_take_moments(void **state)
{
    (void)state;
    for (int star = 0; star < 2; star++) {
        int64_t start = uli_clock_ns();
        uli_tree_set_least(star ? MANY + 1 : DEFAULT_LEAST);
        ranks_gather(MEETING_V4, MANY, 1040);
        printf("%d ranks by %s: %.2f s\n", MANY, star ? "star" : "tree",
            (double)(uli_clock_ns() - start) * 1e-9);
    }
    uli_tree_set_least(DEFAULT_LEAST);
}

/* Whole communicators; most of the time goes into P * P control blocks. */
static int
communicator_body(int rank, int nranks, void *context)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    ulyx_comm_t *comm = NULL;
    params.timeout_s = 90;
    bool right = ranks_expect(ulyx_comm_create(context, nranks, rank, &params,
                                  &comm) == ULYX_SUCCESS) &&
                 ranks_expect(ulyx_comm_barrier(comm) == ULYX_SUCCESS);
    return !(ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS) && right);
}

static void
communicator_of_many_ranks_meets_by_the_tree(void **state)
{
    ulyx_unique_id_t id;
    (void)state;
    setenv("ULYX_ARENA_BYTES", "64K", 1);
    assert_status(ulyx_unique_id_create(&id), ULYX_SUCCESS);
    assert_int_equal(
        ranks_run_threads(DEFAULT_LEAST, communicator_body, &id, 100), 0);
    assert_status(ulyx_unique_id_destroy(&id), ULYX_SUCCESS);
    unsetenv("ULYX_ARENA_BYTES");
}

/* ---- absence ------------------------------------------------------------- */

/* First, rank 5 joins and gathers nothing, so the tree cannot be built. Then
 * rank 5 takes part in one gather less than the others. */
static void
missing_ranks_are_named_everywhere(void **state)
{
    (void)state;
    uli_tree_set_least(1);
    for (int late = 0; late < 2; late++) {
        struct meeting_rank ranks[12];
        struct uli_endpoint place;
        struct uli_root *root = meeting_open(MEETING_V4, 30, 0, &place);
        memset(ranks, 0, sizeof(ranks));
        for (int i = 0; i < 12; i++) {
            ranks[i].rank = i;
            ranks[i].nranks = 12;
            ranks[i].bytes = 100;
            ranks[i].gathers = 3;
            ranks[i].patience_s = 1;
        }
        ranks[5].silent = !late;
        ranks[5].gathers = late ? 1 : 3;
        meeting_run(&place, ranks, 12);
        for (int i = 0; i < 12; i++)
            if (i != 5 && (ranks[i].status == ULYX_SUCCESS ||
                              !strstr(ranks[i].text, "rank 5")))
                fail_msg("rank %d: %d %s", i, ranks[i].status, ranks[i].text);
        meeting_close(root);
    }
    uli_tree_set_least(DEFAULT_LEAST);
}

/* ---- strangers ----------------------------------------------------------- */

enum { STRANGERS = 15, STRANGERS_MAX = 1024 };

/* While `on` is set, each new listener first gets so many silent connections,
 * before any other rank can connect. */
static struct {
    atomic_bool on;
    atomic_int count;
    int fds[STRANGERS_MAX];
} strangers;

int __real_uli_socket_listen(struct uli_socket_address *address, int *fd_p);
int __wrap_uli_socket_listen(struct uli_socket_address *address, int *fd_p);

int
__wrap_uli_socket_listen(struct uli_socket_address *address, int *fd_p)
{
    int number = __real_uli_socket_listen(address, fd_p);
    for (int i = 0; !number && strangers.on && i < STRANGERS; i++) {
        int fd, at = atomic_fetch_add(&strangers.count, 1);
        if (at < STRANGERS_MAX &&
            uli_socket_connect(address, uli_deadline_in(5), &fd) == 0)
            strangers.fds[at] = fd;
    }
    return number;
}

static void
silent_connections_delay_no_rank(void **state)
{
    struct meeting_rank ranks[24];
    struct uli_endpoint place;
    struct uli_root *root = meeting_open(MEETING_V4, 60, 0, &place);
    (void)state;
    uli_tree_set_least(2);
    for (int i = 0; i < 24; i++)
        ranks[i] = (struct meeting_rank){.rank = i,
            .nranks = 24,
            .bytes = 100,
            .gathers = 3,
            .patience_s = 60};
    strangers.on = true;
    int64_t begin = uli_clock_ns();
    meeting_run(&place, ranks, 24);
    int64_t took = uli_clock_ns() - begin;
    strangers.on = false;
    for (int i = 0; i < strangers.count && i < STRANGERS_MAX; i++)
        if (strangers.fds[i])
            close(strangers.fds[i]);
    meeting_close(root);
    uli_tree_set_least(DEFAULT_LEAST);
    for (int i = 0; i < 24; i++)
        if (ranks[i].status)
            fail_msg("rank %d: %s", i, ranks[i].text);
    assert_true(strangers.count >= STRANGERS);
    /* Waiting for even one silent connection would take two seconds. */
    if (took > 1500000000)
        fail_msg("it took %g s", (double)took / 1e9);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_rank_has_one_place),
    cmocka_unit_test(messages_of_4096_ranks_are_few_everywhere),
    cmocka_unit_test(gathers_of_any_size_are_right),
    cmocka_unit_test(gathers_of_512_ranks_take_moments),
    cmocka_unit_test(communicator_of_many_ranks_meets_by_the_tree),
    cmocka_unit_test(silent_connections_delay_no_rank),
    cmocka_unit_test(missing_ranks_are_named_everywhere),
};

ULI_TEST_MAIN("BootstrapTree", tests)
