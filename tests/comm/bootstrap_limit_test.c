/* SPDX-License-Identifier: Apache-2.0
 *
 * Roots that run out of file descriptors: the soft limit is raised, then the
 * oldest stranger goes, and only then does the meeting fail, by name. Hard
 * limits are tried in a forked root, since they cannot be raised again.
 */
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/random.h"
#include "comm/meeting.h"
#include "support/test.h"

enum { KNOCKS = 150, RANKS = 6 };

static void
fill_ranks(struct meeting_rank *ranks, int count, double patience_s)
{
    for (int r = 0; r < count; r++)
        ranks[r] = (struct meeting_rank){.rank = r,
            .nranks = count,
            .bytes = 8,
            .gathers = 2,
            .patience_s = patience_s};
}

static void
soft_limit_is_raised_for_strangers(void **state)
{
    (void)state;
    struct rlimit before, tight;
    struct uli_place place;
    struct meeting_rank ranks[3];
    int fds[KNOCKS];
    getrlimit(RLIMIT_NOFILE, &before);
    struct uli_root *root = meeting_open(MEETING_V4, 20, 10, &place);
    tight = before;
    tight.rlim_cur = (rlim_t)meeting_open_files() + 40;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    for (int i = 0; i < KNOCKS; i++)
        fds[i] = meeting_raw(&place);
    fill_ranks(ranks, 3, 20);
    meeting_run(&place, ranks, 3);
    for (int i = 0; i < KNOCKS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    meeting_close(root);
    setrlimit(RLIMIT_NOFILE, &before);
    for (int r = 0; r < 3; r++)
        if (ranks[r].status)
            fail_msg("rank %d: %s", r, ranks[r].text);
    assert_true(fds[KNOCKS - 1] >= 0);
}

/* A root in a child that may open `spare` connections. */
static pid_t
fork_root(int spare, struct uli_place *place_p)
{
    struct uli_root_params params = {.listener_count = 1};
    struct uli_root *root;
    memset(place_p, 0, sizeof(*place_p));
    place_p->count = 1;
    assert_status(uli_auth_init(), 0);
    assert_status(
        uli_random_bytes(place_p->secret, sizeof(place_p->secret)), 0);
    memcpy(params.secret, place_p->secret, ULI_SECRET_BYTES);
    params.deadline = uli_deadline_in(20);
    assert_true(uli_address_parse("127.0.0.1:1", &place_p->addresses[0]));
    uli_address_set_port(&place_p->addresses[0], 0);
    assert_int_equal(
        uli_socket_listen(&place_p->addresses[0], &params.listeners[0]), 0);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (uli_root_start(&params, &root))
            _exit(1);
        /* The lowest free number, then so many more. */
        int next = dup(0);
        close(next);
        struct rlimit limit = {(rlim_t)(next + spare), (rlim_t)(next + spare)};
        setrlimit(RLIMIT_NOFILE, &limit);
        for (;;)
            pause();
    }
    assert_true(child > 0);
    close(params.listeners[0]);
    return child;
}

static void
end_root(pid_t child)
{
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void
strangers_make_room_for_ranks(void **state)
{
    (void)state;
    struct uli_place place;
    struct meeting_rank ranks[RANKS];
    int fds[RANKS];
    pid_t child = fork_root(RANKS + 1, &place);
    for (int i = 0; i < RANKS; i++)
        fds[i] = meeting_raw(&place);
    fill_ranks(ranks, RANKS, 20);
    meeting_run(&place, ranks, RANKS);
    end_root(child);
    for (int i = 0; i < RANKS; i++)
        close(fds[i]);
    for (int r = 0; r < RANKS; r++)
        if (ranks[r].status)
            fail_msg("rank %d: %s", r, ranks[r].text);
}

static void
hard_limit_is_named(void **state)
{
    (void)state;
    struct uli_place place;
    struct meeting_rank ranks[RANKS];
    int told = 0;
    pid_t child = fork_root(RANKS - 2, &place);
    fill_ranks(ranks, RANKS, 2);
    meeting_run(&place, ranks, RANKS);
    end_root(child);
    for (int r = 0; r < RANKS; r++) {
        assert_int_not_equal(ranks[r].status, ULYX_SUCCESS);
        told += ranks[r].status == ULYX_ERR_SYSTEM &&
                strstr(ranks[r].text, "the hard limit of open files");
    }
    /* All that were in are told; no one else could be. */
    assert_in_range(told, RANKS - 3, RANKS - 2);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(soft_limit_is_raised_for_strangers),
    cmocka_unit_test(strangers_make_room_for_ranks),
    cmocka_unit_test(hard_limit_is_named),
};
ULI_TEST_MAIN("BootstrapLimit", tests)
