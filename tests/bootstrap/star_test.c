/* SPDX-License-Identifier: Apache-2.0
 *
 * The star bootstrap: gathers over every kind of socket, and every way in which
 * ranks of one meeting can disagree, be late or be lost.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>
#include "bootstrap/meet/meeting.h"
#include "bootstrap/meeting.h"
#include "bootstrap/meet/unique_id.h"
#include "support/ranks.h"
#include "support/test.h"

enum { MANY = 256 };

static void
fill_ranks(struct meeting_rank *ranks, int count, size_t bytes, int gathers)
{
    memset(ranks, 0, (size_t)count * sizeof(*ranks));
    for (int i = 0; i < count; i++) {
        ranks[i].rank = i;
        ranks[i].nranks = count;
        ranks[i].bytes = bytes;
        ranks[i].gathers = gathers;
        ranks[i].patience_s = 20;
    }
}

/* Checks that all ranks that came have this status, and an error with this
 * text. */
static void
assert_all(const struct meeting_rank *ranks, int count, ulyx_status_t status,
    const char *text)
{
    for (int i = 0; i < count; i++) {
        if (ranks[i].absent)
            continue;
        if (ranks[i].status != status || !strstr(ranks[i].text, text))
            fail_msg("place %d, rank %d: status %d, text \"%s\"; expected %d, "
                     "\"%s\"",
                i, ranks[i].rank, ranks[i].status, ranks[i].text, status, text);
    }
}

/* ---- success ------------------------------------------------------------- */

static void
gather_over(enum meeting_kind kind)
{
    static const size_t sizes[] = {0, 1, 100, 4097, ULI_RECORD_BYTES_MAX};
    struct meeting_rank ranks[5];
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct uli_endpoint place;
        struct uli_root *root = meeting_open(kind, 20, 0, &place);
        fill_ranks(ranks, 5, sizes[i], 7);
        meeting_run(&place, ranks, 5);
        assert_all(ranks, 5, ULYX_SUCCESS, "");
        /* A meeting that all ranks have left ends by itself. */
        assert_true(meeting_all_ended());
        uli_root_release(root, 0);
    }
}

static void
gather_over_ipv4(void **state)
{
    (void)state;
    gather_over(MEETING_V4);
}

static void
gather_over_ipv6(void **state)
{
    (void)state;
    struct uli_socket_address address;
    int fd;
    assert_true(uli_address_parse("[::1]:1", &address));
    uli_address_set_port(&address, 0);
    if (uli_socket_listen(&address, &fd))
        test_skip("no IPv6 loopback here");
    close(fd);
    gather_over(MEETING_V6);
}

static void
gather_over_unix(void **state)
{
    (void)state;
    gather_over(MEETING_UNIX);
}

static void
gather_of_many_threads(void **state)
{
    (void)state;
    static struct meeting_rank ranks[MANY];
    struct uli_endpoint place;
    struct uli_root *root = meeting_open(MEETING_V4, 30, 0, &place);
    int64_t begin = uli_clock_ns();
    fill_ranks(ranks, MANY, 512, 3);
    meeting_run(&place, ranks, MANY);
    printf("%d ranks, 3 gathers of 512 bytes: %.0f ms\n", MANY,
        (double)(uli_clock_ns() - begin) / 1e6);
    assert_all(ranks, MANY, ULYX_SUCCESS, "");
    meeting_close(root);
}

static void
gather_of_one_rank(void **state)
{
    (void)state;
    struct meeting_rank rank;
    struct uli_endpoint place;
    struct uli_root *root = meeting_open(MEETING_V4, 20, 0, &place);
    fill_ranks(&rank, 1, 64, 3);
    meeting_run(&place, &rank, 1);
    assert_all(&rank, 1, ULYX_SUCCESS, "");
    meeting_close(root);
}

/* The ranks differ in speed: the slow rank reads old tables late. */
static void
gather_with_late_rank(void **state)
{
    (void)state;
    struct meeting_rank ranks[3];
    struct uli_endpoint place;
    struct uli_root *root = meeting_open(MEETING_V4, 20, 0, &place);
    fill_ranks(ranks, 3, 8, 4);
    ranks[1].late_s = 0.3;
    meeting_run(&place, ranks, 3);
    assert_all(ranks, 3, ULYX_SUCCESS, "");
    meeting_close(root);
}

/* ---- disagreement -------------------------------------------------------- */

static void
run_failing(struct meeting_rank *ranks, int count, ulyx_status_t status,
    const char *text)
{
    struct uli_endpoint place;
    int files = meeting_open_files();
    struct uli_root *root = meeting_open(MEETING_V4, 20, 0, &place);
    meeting_run(&place, ranks, count);
    assert_all(ranks, count, status, text);
    meeting_close(root);
    assert_int_equal(meeting_open_files(), files);
}

static void
timeout_lists_missing_ranks(void **state)
{
    (void)state;
    struct meeting_rank ranks[8];
    fill_ranks(ranks, 8, 8, 1);
    for (int i = 0; i < 8; i++) {
        ranks[i].absent = i == 3 || i >= 5;
        ranks[i].patience_s = 0.4;
    }
    run_failing(ranks, 8, ULYX_ERR_TIMEOUT,
        "bootstrap: meeting of 8 ranks: timed out waiting for ranks 3, 5-7 to "
        "join");
    for (int i = 0; i < 8; i++)
        if (!ranks[i].absent)
            assert_string_equal(ranks[i].text,
                "bootstrap: meeting of 8 ranks: timed out "
                "waiting for ranks 3, 5-7 to join");
}

static void
timeout_of_the_root_lists_missing_ranks(void **state)
{
    (void)state;
    struct meeting_rank ranks[3];
    struct uli_endpoint place;
    fill_ranks(ranks, 3, 8, 1);
    ranks[2].absent = true;
    struct uli_root *root = meeting_open(MEETING_V4, 0.3, 0, &place);
    meeting_run(&place, ranks, 3);
    assert_all(ranks, 3, ULYX_ERR_TIMEOUT,
        "meeting of 3 ranks: timed out waiting for rank 2 to join");
    meeting_close(root);
}

static void
timeout_names_rank_that_does_not_gather(void **state)
{
    (void)state;
    struct meeting_rank ranks[3];
    struct uli_endpoint place;
    fill_ranks(ranks, 3, 8, 1);
    ranks[0].patience_s = ranks[2].patience_s = 0.3;
    ranks[1].silent = true;
    ranks[1].patience_s = 1;
    struct uli_root *root = meeting_open(MEETING_V4, 20, 0, &place);
    meeting_run(&place, ranks, 3);
    assert_int_equal(ranks[0].status, ULYX_ERR_TIMEOUT);
    assert_int_equal(ranks[2].status, ULYX_ERR_TIMEOUT);
    assert_non_null(strstr(ranks[0].text,
        "bootstrap: gather 1 of 3 ranks: timed out waiting for rank 1 ("));
    meeting_close(root);
}

static void
duplicate_rank_fails_all(void **state)
{
    (void)state;
    struct meeting_rank ranks[4];
    fill_ranks(ranks, 4, 8, 1);
    ranks[3].rank = 1; /* there is no rank 3 */
    run_failing(ranks, 4, ULYX_ERR_MISMATCH,
        "bootstrap: two processes are rank 1 of 4: ");
}

static void
different_nranks_fails_all(void **state)
{
    (void)state;
    struct meeting_rank ranks[3];
    fill_ranks(ranks, 3, 8, 1);
    ranks[2].nranks = 4;
    run_failing(ranks, 3, ULYX_ERR_MISMATCH, "nranks is 3 on rank ");
}

static void
rank_out_of_range_fails_all(void **state)
{
    (void)state;
    struct meeting_rank ranks[3];
    fill_ranks(ranks, 3, 8, 1);
    ranks[1].rank = 7;
    run_failing(ranks, 3, ULYX_ERR_MISMATCH, "gives its rank as 7 of 3");
}

static void
different_bytes_fails_all(void **state)
{
    (void)state;
    struct meeting_rank ranks[3];
    fill_ranks(ranks, 3, 8, 1);
    ranks[1].bytes = 9;
    run_failing(ranks, 3, ULYX_ERR_MISMATCH, "bytes, rank ");
}

static void
rank_that_leaves_early_is_named(void **state)
{
    (void)state;
    struct meeting_rank ranks[3];
    fill_ranks(ranks, 3, 8, 2);
    ranks[1].gathers = 1;
    struct uli_endpoint place;
    struct uli_root *root = meeting_open(MEETING_V4, 20, 0, &place);
    meeting_run(&place, ranks, 3);
    assert_int_equal(ranks[1].status, ULYX_SUCCESS);
    assert_int_equal(ranks[0].status, ULYX_ERR_RANK_LOST);
    assert_int_equal(ranks[2].status, ULYX_ERR_RANK_LOST);
    assert_non_null(strstr(ranks[2].text, "left before the end of gather 2"));
    assert_non_null(strstr(ranks[2].text, "rank 1 ("));
    meeting_close(root);
}

/* Meanwhile the other ranks wait for the rank that fails, and their timeout is
 * ten seconds. */
static void
rank_that_fails_sends_the_reason(void **state)
{
    (void)state;
    struct meeting_rank ranks[3];
    fill_ranks(ranks, 3, 8, 2);
    ranks[1].gathers = 1;
    ranks[1].fails = true;
    run_failing(ranks, 3, ULYX_ERR_NO_MEMORY, "bootstrap: rank 1 (");
    for (int i = 0; i < 3; i++)
        assert_non_null(strstr(
            ranks[i].text, ") failed: out of memory: no memory for ? window"));
}

/* A rank that comes after the failure receives its cause. */
static void
late_rank_receives_the_failure(void **state)
{
    (void)state;
    struct meeting_rank ranks[4];
    fill_ranks(ranks, 4, 8, 1);
    ranks[0].patience_s = ranks[1].patience_s = 0.2;
    ranks[2].absent = true;
    ranks[3].late_s = 0.6;
    run_failing(ranks, 4, ULYX_ERR_TIMEOUT,
        "meeting of 4 ranks: timed out waiting for ranks 2-3 to join");
}

/* ---- lost ends ----------------------------------------------------------- */

struct shared {
    struct uli_endpoint place;
    atomic_int open;
    pid_t pids[3];
};

/* The process of rank 0 runs the root. A process with threads should not be
 * forked under the leak checker. */
static void
open_in_rank_0(int rank, struct shared *shared)
{
    if (rank == 0) {
        uli_root_release(meeting_open(MEETING_V4, 20, 0, &shared->place), 0);
        atomic_store(&shared->open, 1);
    }
    while (!atomic_load(&shared->open))
        usleep(1000);
}

static int
kill_oneself(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    struct uli_bootstrap *bootstrap;
    int32_t mine = rank, all[3];
    int fd;
    open_in_rank_0(rank, shared);
    uli_deadline_t deadline = uli_deadline_in(20);
    if (!ranks_expect(uli_dial(&shared->place, 0, deadline, &fd) == 0) ||
        !ranks_expect(
            uli_bootstrap_open_star(fd, NULL, nranks, rank,
                (struct uli_port_range){0}, deadline, &bootstrap) == 0))
        return 1;
    ulyx_status_t status =
        bootstrap->ops->gather(bootstrap, &mine, sizeof(mine), all, deadline);
    if (!ranks_expect(status == ULYX_SUCCESS && all[2] == 2))
        return 1;
    if (rank == 1)
        kill(getpid(), SIGKILL);
    status =
        bootstrap->ops->gather(bootstrap, &mine, sizeof(mine), all, deadline);
    bool named = strstr(ulyx_last_error(), "rank 1 (") &&
                 strstr(ulyx_last_error(), "broke its connection") &&
                 strstr(ulyx_last_error(), "before the end of gather 2");
    bootstrap->ops->close(bootstrap);
    return !ranks_expect(status == ULYX_ERR_RANK_LOST && named) ||
           !ranks_expect(meeting_all_ended());
}

static void
killed_rank_is_named_by_all(void **state)
{
    (void)state;
    struct shared *shared = ranks_shared(sizeof(*shared));
    assert_int_equal(ranks_run_processes_victim(
                         3, kill_oneself, shared, 20, 1, shared->pids),
        0);
    ranks_shared_free(shared, sizeof(*shared));
}

static void
lost_root_is_named(void **state)
{
    (void)state;
    struct uli_endpoint place;
    struct uli_bootstrap *bootstrap;
    int32_t mine = 0, all[2];
    int fd;
    struct uli_root *root = meeting_open(MEETING_V4, 20, 0, &place);
    assert_status(uli_dial(&place, 0, uli_deadline_in(5), &fd), 0);
    assert_status(
        uli_bootstrap_open_star(fd, NULL, 2, 0, (struct uli_port_range){0},
            uli_deadline_in(5), &bootstrap),
        0);
    meeting_close(root);
    assert_status(bootstrap->ops->gather(
                      bootstrap, &mine, sizeof(mine), all, uli_deadline_in(5)),
        ULYX_ERR_RANK_LOST);
    assert_non_null(strstr(ulyx_last_error(), "to the root at 127.0.0.1:"));
    bootstrap->ops->close(bootstrap);
}

static void
no_root_times_out_by_name(void **state)
{
    (void)state;
    struct uli_endpoint place;
    int fd;
    meeting_close(meeting_open(MEETING_V4, 20, 0, &place));
    assert_status(
        uli_dial(&place, 0, uli_deadline_in(0.3), &fd), ULYX_ERR_TIMEOUT);
    assert_non_null(strstr(ulyx_last_error(), "127.0.0.1:"));
    assert_non_null(strstr(ulyx_last_error(), "Connection refused"));
}

/* No root is at the first address, so the second is used. */
static void
dead_address_is_passed_over(void **state)
{
    (void)state;
    struct meeting_rank ranks[2];
    struct uli_endpoint place, dead;
    meeting_close(meeting_open(MEETING_V4, 20, 0, &dead));
    struct uli_root *root = meeting_open(MEETING_V4, 20, 0, &place);
    place.addresses[1] = place.addresses[0];
    place.addresses[0] = dead.addresses[0];
    place.count = 2;
    fill_ranks(ranks, 2, 16, 2);
    meeting_run(&place, ranks, 2);
    assert_all(ranks, 2, ULYX_SUCCESS, "");
    meeting_close(root);
}

/* ---- signals ------------------------------------------------------------- */

static atomic_int signals;

static void
count_signal(int number)
{
    (void)number;
    atomic_fetch_add_explicit(&signals, 1, memory_order_relaxed);
}

static void
interrupted_calls_are_retried(void **state)
{
    (void)state;
    struct meeting_rank ranks[4];
    struct uli_endpoint place;
    struct sigaction action = {.sa_handler = count_signal}, before;
    struct itimerval timer = {{0, 200}, {0, 200}}, off = {{0, 0}, {0, 0}};
    signals = 0;
    sigaction(SIGALRM, &action, &before);
    setitimer(ITIMER_REAL, &timer, NULL);
    for (int i = 0; i < 5; i++) {
        struct uli_root *root = meeting_open(MEETING_V4, 20, 0, &place);
        fill_ranks(ranks, 4, 30000, 10);
        ranks[2].late_s = 0.02;
        meeting_run(&place, ranks, 4);
        assert_all(ranks, 4, ULYX_SUCCESS, "");
        meeting_close(root);
    }
    setitimer(ITIMER_REAL, &off, NULL);
    sigaction(SIGALRM, &before, NULL);
    assert_true(signals > 20);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(gather_over_ipv4),
    cmocka_unit_test(gather_over_ipv6),
    cmocka_unit_test(gather_over_unix),
    cmocka_unit_test(gather_of_many_threads),
    cmocka_unit_test(gather_of_one_rank),
    cmocka_unit_test(gather_with_late_rank),
    cmocka_unit_test(timeout_lists_missing_ranks),
    cmocka_unit_test(timeout_of_the_root_lists_missing_ranks),
    cmocka_unit_test(timeout_names_rank_that_does_not_gather),
    cmocka_unit_test(duplicate_rank_fails_all),
    cmocka_unit_test(different_nranks_fails_all),
    cmocka_unit_test(rank_out_of_range_fails_all),
    cmocka_unit_test(different_bytes_fails_all),
    cmocka_unit_test(rank_that_leaves_early_is_named),
    cmocka_unit_test(rank_that_fails_sends_the_reason),
    cmocka_unit_test(late_rank_receives_the_failure),
    cmocka_unit_test(killed_rank_is_named_by_all),
    cmocka_unit_test(lost_root_is_named),
    cmocka_unit_test(no_root_times_out_by_name),
    cmocka_unit_test(dead_address_is_passed_over),
    cmocka_unit_test(interrupted_calls_are_retried),
};
ULI_TEST_MAIN("BootstrapStar", tests)
