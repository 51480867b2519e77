/* SPDX-License-Identifier: Apache-2.0
 *
 * Roots that run out of file descriptors, or of anything else that accept()
 * needs. First the root raises its soft limit, then it drops the oldest
 * connection of a stranger, then it stops listening for a while. Only the
 * deadline ends the meeting, with an error that names the shortage. Hard limits
 * are tested in forked processes, because they cannot be raised again.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/system/random.h"
#include "bootstrap/meeting.h"
#include "bootstrap/meet/unique_id.h"
#include "support/ranks.h"
#include "support/test.h"
#include "ulyx/ulyx.h"

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
    struct uli_endpoint place;
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

/* Leaves `spare` descriptor numbers free, even if there are gaps between the
 * numbers in use. */
static void
leave_files(int spare)
{
    int taken[2 * RANKS], last = 0;
    for (int i = 0; i < spare; i++)
        last = taken[i] = dup(0);
    for (int i = 0; i < spare; i++)
        close(taken[i]);
    struct rlimit limit = {(rlim_t)last + 1, (rlim_t)last + 1};
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Starts a root in a child that may open `spare` connections. */
static pid_t
fork_root(int spare, struct uli_endpoint *place_p)
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
    int ready[2];
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (uli_root_start(&params, &root))
            _exit(1);
        leave_files(spare);
        if (write(ready[1], &byte, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_true(child > 0);
    close(ready[1]);
    close(params.listeners[0]);
    /* read returns once the child has set its limit */
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
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
    struct uli_endpoint place;
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
    struct uli_endpoint place;
    struct meeting_rank ranks[RANKS];
    int refused = 0;
    pid_t child = fork_root(RANKS - 2, &place);
    fill_ranks(ranks, RANKS, 2);
    meeting_run(&place, ranks, RANKS);
    end_root(child);
    for (int r = 0; r < RANKS; r++) {
        assert_int_not_equal(ranks[r].status, ULYX_SUCCESS);
        refused += ranks[r].status == ULYX_ERR_SYSTEM &&
                   strstr(ranks[r].text, "the hard limit of open files");
    }
    /* All ranks that had joined receive the failure. Of the other ranks, those
     * do that get a descriptor before their deadline, after joined ranks have
     * left. */
    assert_in_range(refused, RANKS - 3, RANKS);
}

/* ---- accept() that fails ------------------------------------------------- */

/* The calls of accept4 that fail in this process: `count` calls from number
 * `first` on, with the errno `number`. */
static struct {
    atomic_int first, count, number, calls;
} shortage;

int __real_accept4(int fd, struct sockaddr *peer, socklen_t *bytes, int flags);
int __wrap_accept4(int fd, struct sockaddr *peer, socklen_t *bytes, int flags);

int
__wrap_accept4(int fd, struct sockaddr *peer, socklen_t *bytes, int flags)
{
    int call = atomic_fetch_add(&shortage.calls, 1) - shortage.first;
    if (call < 0 || call >= shortage.count)
        return __real_accept4(fd, peer, bytes, flags);
    errno = shortage.number;
    return -1;
}

static void
fail_accepts(int first, int count, int number)
{
    shortage.calls = 0;
    shortage.first = first;
    shortage.number = number;
    shortage.count = count;
}

static const int numbers[] = {EMFILE, ENFILE, ENOBUFS, ENOMEM};
enum { NUMBERS = sizeof(numbers) / sizeof(numbers[0]) };

static void
shortage_that_passes_ends_no_meeting(void **state)
{
    (void)state;
    for (int i = 0; i < NUMBERS; i++) {
        struct uli_endpoint place;
        struct meeting_rank ranks[3];
        fail_accepts(0, 8, numbers[i]);
        struct uli_root *root = meeting_open(MEETING_V4, 20, 10, &place);
        fill_ranks(ranks, 3, 20);
        meeting_run(&place, ranks, 3);
        meeting_close(root);
        fail_accepts(0, 0, 0);
        for (int r = 0; r < 3; r++)
            if (ranks[r].status)
                fail_msg(
                    "%s, rank %d: %s", strerror(numbers[i]), r, ranks[r].text);
    }
}

/* While the shortage lasts, the root retries only now and then. */
static void
shortage_that_stays_is_named(void **state)
{
    (void)state;
    for (int i = 0; i < NUMBERS; i++) {
        struct uli_endpoint place;
        struct meeting_rank ranks[2];
        struct uli_root *root = meeting_open(MEETING_V4, 20, 10, &place);
        const char *what = numbers[i] == EMFILE
                               ? "the root has no file descriptor left"
                               : strerror(numbers[i]);
        fail_accepts(1, 1 << 30, numbers[i]);
        fill_ranks(ranks, 2, 1);
        ranks[1].late_s = 0.2;
        meeting_run(&place, ranks, 2);
        int calls = shortage.calls;
        meeting_close(root);
        fail_accepts(0, 0, 0);
        if (ranks[0].status != ULYX_ERR_SYSTEM ||
            !strstr(ranks[0].text, what) ||
            !strstr(ranks[0].text,
                "meeting of 2 ranks: timed out waiting for rank 1 to join"))
            fail_msg("status %d, \"%s\"", ranks[0].status, ranks[0].text);
        assert_in_range(calls, 2, 100);
    }
}

/* ---- strangers and the job ----------------------------------------------- */

struct siege {
    /* the hard limit of each process; how many silent connections */
    int files, strangers;
    ulyx_unique_id_t id;
    atomic_int stage; /* 1: the id is made, 2: the strangers have connected */
};

static void
await_stage(struct siege *siege, int stage)
{
    while (atomic_load(&siege->stage) < stage)
        usleep(1000);
}

/* Makes silent connections and holds them until the test closes them or the
 * root drops them. */
static int
siege_begin(struct siege *siege)
{
    struct uli_endpoint place;
    int in = 0;
    await_stage(siege, 1);
    if (!ranks_expect(uli_unique_id_decode(&siege->id, &place) == 0))
        return 1;
    for (int i = 0; i < siege->strangers; i++)
        in += meeting_raw(&place) >= 0;
    usleep(200000);
    atomic_store(&siege->stage, 2);
    await_stage(siege, 4);
    return !ranks_expect(in > 0);
}

static int
form_job(struct siege *siege, int rank)
{
    struct rlimit limit = {(rlim_t)siege->files, (rlim_t)siege->files};
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    ulyx_comm_t *comm;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (rank == 0) {
        if (!ranks_expect(ulyx_unique_id_create(&siege->id) == 0))
            return 1;
        atomic_store(&siege->stage, 1);
    }
    await_stage(siege, 2);
    params.timeout_s = 20;
    bool good = ranks_expect(
        ulyx_comm_create(&siege->id, 2, rank, &params, &comm) == 0);
    if (good) {
        good = ranks_expect(ulyx_comm_barrier(comm) == 0);
        ulyx_comm_destroy(comm);
    }
    atomic_fetch_add(&siege->stage, 1);
    return !good;
}

static int
siege_process(int process, int nprocesses, void *context)
{
    (void)nprocesses;
    return process == 2 ? siege_begin(context) : form_job(context, process);
}

static void
silent_connections_leave_room_for_the_job(void **state)
{
    (void)state;
    static const int scenes[][2] = {{64, 200}, {256, 600}, {1024, 3000}};
    for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++) {
        struct siege *siege = ranks_shared(sizeof(*siege));
        siege->files = scenes[i][0];
        siege->strangers = scenes[i][1];
        int failed = ranks_run_processes(3, siege_process, siege, 60);
        ranks_shared_free(siege, sizeof(*siege));
        if (failed)
            fail_msg("%d descriptors, %d strangers: %d processes failed",
                scenes[i][0], scenes[i][1], failed);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(shortage_that_passes_ends_no_meeting),
    cmocka_unit_test(shortage_that_stays_is_named),
    cmocka_unit_test(silent_connections_leave_room_for_the_job),
    cmocka_unit_test(soft_limit_is_raised_for_strangers),
    cmocka_unit_test(strangers_make_room_for_ranks),
    cmocka_unit_test(hard_limit_is_named),
};
ULI_TEST_MAIN("BootstrapLimit", tests)
