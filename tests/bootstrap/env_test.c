/* SPDX-License-Identifier: Apache-2.0
 *
 * The meeting points that an environment offers, except files: success,
 * precedence, and what is refused.
 */
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "bootstrap/env_job.h"
#include "bootstrap/meeting.h"
#include "bootstrap/meet/unique_id.h"
#include "support/ranks.h"
#include "support/test.h"

/* ---- ULYX_COMM_ID -------------------------------------------------------- */

static void
id_of_the_parent_is_taken_first(void **state)
{
    (void)state;
    struct env_job job;
    struct env_rank ranks[ENV_RANKS] = {0};
    ulyx_unique_id_t id;
    env_job_init(&job, ENV_RANKS);
    assert_status(uli_unique_id_create(&id), 0);
    assert_status(
        uli_unique_id_to_string(&id, job.settings.comm_id, ULI_SETTING_TEXT),
        0);
    /* These meeting points do not exist, so the ranks must not use them. */
    strcpy(job.settings.rendezvous_dir, "/nonexistent");
    job.entries[0] = "LOCAL_WORLD_SIZE=4";
    env_job_run(&job, ranks);
    env_job_expect(&job, ranks, ULYX_SUCCESS, "");
    assert_status(uli_unique_id_destroy(&id), 0);
    assert_true(meeting_all_ended());
}

static void
cut_id_is_refused_by_name(void **state)
{
    (void)state;
    struct env_job job;
    struct env_rank ranks[ENV_RANKS] = {0};
    env_job_init(&job, 2);
    strcpy(job.settings.comm_id, "ulyx1/00112233445566778899aabbccddeeff/10.");
    env_job_run(&job, ranks);
    env_job_expect(&job, ranks, ULYX_ERR_INVALID_ARGUMENT, "cut or altered");
}

/* ---- one node ------------------------------------------------------------ */

/* The name contains the process id, because tests of another checkout may run
 * on this machine at the same time. */
static void
one_node_job(struct env_job *job)
{
    static char run_id[64];
    env_job_init(job, ENV_RANKS);
    snprintf(run_id, sizeof(run_id), "TORCHELASTIC_RUN_ID=one-node-test-%d",
        (int)getpid());
    job->entries[0] = "LOCAL_WORLD_SIZE=4";
    job->entries[1] = run_id;
    job->entries[2] = "MASTER_ADDR=127.0.0.1";
    job->entries[3] = "MASTER_PORT=29400";
}

static void
ranks_of_one_node_meet_without_a_secret(void **state)
{
    (void)state;
    struct env_job job;
    one_node_job(&job);
    for (int i = 0; i < 20; i++) {
        job.meeting = env_job_meeting();
        env_job_run_well(&job);
    }
}

/* Uses the name again at once: a meeting closes its listener before it
 * answers. */
static void
one_node_name_can_be_used_again(void **state)
{
    (void)state;
    struct env_job job;
    one_node_job(&job);
    for (int i = 0; i < 20; i++) {
        struct env_rank ranks[ENV_RANKS] = {0};
        env_job_run(&job, ranks);
        env_job_expect(&job, ranks, ULYX_SUCCESS, "");
    }
    assert_true(meeting_all_ended());
}

static void
one_node_names_the_missing_rank(void **state)
{
    (void)state;
    struct env_job job;
    struct env_rank ranks[ENV_RANKS] = {0};
    one_node_job(&job);
    job.absent = 2;
    job.patience_s = 0.4;
    env_job_run(&job, ranks);
    env_job_expect(&job, ranks, ULYX_ERR_TIMEOUT,
        "meeting of 4 ranks: timed out waiting for rank 2 to join");
}

static void
one_node_without_rank_0_times_out(void **state)
{
    (void)state;
    struct env_job job;
    struct env_rank ranks[ENV_RANKS] = {0};
    one_node_job(&job);
    job.absent = 0;
    job.patience_s = 0.4;
    env_job_run(&job, ranks);
    env_job_expect(&job, ranks, ULYX_ERR_TIMEOUT,
        "no root could be reached before the deadline: the meeting is served "
        "by rank 0 on this host; last: @ulyx/");
}

/* Holds the abstract name of a job as another user, until the test ends this
 * process. */
static int
port_squat(int rank, int nranks, void *context)
{
    struct uli_socket_address address;
    int *taken = context, fd;
    (void)rank, (void)nranks;
    if (setresuid(65534, 65534, 65534) != 0 ||
        !uli_address_abstract("ulyx/squatted", &address) ||
        uli_socket_listen(&address, &fd))
        return 1;
    __atomic_store_n(taken, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(taken, __ATOMIC_ACQUIRE) == 1)
        usleep(1000);
    return 0;
}

static void *
dial_squatter(void *context)
{
    struct uli_endpoint place = {.count = 1, .same_user = true};
    int *taken = context, fd;
    while (!__atomic_load_n(taken, __ATOMIC_ACQUIRE))
        usleep(1000);
    bool named = uli_address_abstract("ulyx/squatted", &place.addresses[0]);
    ulyx_status_t status = uli_dial(&place, 0, uli_deadline_in(5), &fd);
    bool good = named && status == ULYX_ERR_AUTH &&
                strstr(ulyx_last_error(), "@ulyx/squatted: ") &&
                strstr(ulyx_last_error(),
                    "65534 holds this name, which user 0 needs") &&
                strstr(ulyx_last_error(), "ULYX_JOB") &&
                strstr(ulyx_last_error(), "ULYX_RENDEZVOUS_DIR");
    __atomic_store_n(taken, 2, __ATOMIC_RELEASE);
    return good ? context : NULL;
}

static void
name_that_another_user_holds_is_refused_with_the_holder(void **state)
{
    (void)state;
    pthread_t thread;
    void *good = NULL;
    if (geteuid() != 0)
        test_skip("no right to become another user");
    int *taken = ranks_shared(sizeof(*taken));
    assert_status(uli_auth_init(), ULYX_SUCCESS);
    pthread_create(&thread, NULL, dial_squatter, taken);
    assert_int_equal(ranks_run_processes(1, port_squat, taken, 30), 0);
    pthread_join(thread, &good);
    ranks_shared_free(taken, sizeof(*taken));
    assert_non_null(good);
}

/* ---- MASTER_ADDR --------------------------------------------------------- */

#define SECRET "0123456789abcdef" /* the shortest that is allowed */

/* Returns a port that was free a moment ago. */
static int
free_port(void)
{
    struct uli_socket_address address;
    int fd;
    assert_true(uli_address_parse("127.0.0.1:1", &address));
    uli_address_set_port(&address, 0);
    assert_int_equal(uli_socket_listen(&address, &fd), 0);
    close(fd);
    return uli_address_port(&address);
}

static void
master_job(struct env_job *job)
{
    env_job_init(job, ENV_RANKS);
    job->settings.port = free_port();
    job->entries[0] = "MASTER_ADDR=127.0.0.1";
    job->entries[1] = "MASTER_PORT=29400";
}

static void
ranks_meet_at_master_addr_with_a_secret(void **state)
{
    (void)state;
    struct env_job job;
    master_job(&job);
    strcpy(job.settings.secret, SECRET);
    env_job_run_well(&job);
    job.meeting++; /* the same port again */
    env_job_run_well(&job);
}

static void
ranks_meet_at_a_name(void **state)
{
    (void)state;
    struct env_job job;
    master_job(&job);
    strcpy(job.settings.secret, SECRET);
    strcpy(job.settings.socket_family, "AF_INET");
    job.entries[0] = "MASTER_ADDR=localhost";
    env_job_run_well(&job);
}

/* The address is written as in a URL. */
static void
address_in_brackets_is_an_address(void **state)
{
    (void)state;
    struct env_job job;
    master_job(&job);
    strcpy(job.settings.secret, SECRET);
    job.entries[0] = "MASTER_ADDR=[::1]";
    env_job_run_well(&job);
}

static void
link_local_address_without_interface_is_refused_at_once(void **state)
{
    (void)state;
    struct env_job job;
    struct env_rank ranks[ENV_RANKS] = {0};
    struct uli_endpoint place = {.count = 1};
    int fd;
    master_job(&job);
    strcpy(job.settings.secret, SECRET);
    job.entries[0] = "MASTER_ADDR=fe80::1";
    int64_t begin = uli_clock_ns();
    env_job_run(&job, ranks);
    env_job_expect(&job, ranks, ULYX_ERR_INVALID_ARGUMENT,
        "MASTER_ADDR=\"fe80::1\" is a link-local address without its "
        "interface: write fe80::1%<interface>");
    assert_true(uli_address_parse("[fe80::1]:2000", &place.addresses[0]));
    assert_status(uli_dial(&place, 0, uli_deadline_in(20), &fd),
        ULYX_ERR_INVALID_ARGUMENT);
    assert_non_null(
        strstr(ulyx_last_error(), "[fe80::1]:2000 is a link-local"));
    assert_true(uli_clock_ns() - begin < 5 * INT64_C(1000000000));
    /* A scope is an interface of this machine, by name or number. */
    assert_true(uli_address_parse("[fe80::1%lo]:2000", &place.addresses[0]));
    assert_false(uli_address_lacks_scope(&place.addresses[0]));
    assert_false(
        uli_address_parse("[fe80::1%nowhere9]:2000", &place.addresses[0]));
}

/* ---- where rank 0 listens ------------------------------------------------ */

static struct {
    atomic_bool on;
    atomic_int count, elsewhere; /* listeners; those not on 127.0.0.1 */
} listening;

int __real_uli_socket_listen(struct uli_socket_address *address, int *fd_p);
int __wrap_uli_socket_listen(struct uli_socket_address *address, int *fd_p);

int
__wrap_uli_socket_listen(struct uli_socket_address *address, int *fd_p)
{
    const struct sockaddr_in *v4 = (const void *)&address->storage;
    if (listening.on) {
        atomic_fetch_add(&listening.count, 1);
        if (v4->sin_family != AF_INET ||
            v4->sin_addr.s_addr != htonl(INADDR_LOOPBACK))
            atomic_fetch_add(&listening.elsewhere, 1);
    }
    return __real_uli_socket_listen(address, fd_p);
}

static void
rank_0_listens_at_its_address_only(void **state)
{
    (void)state;
    struct env_job job;
    master_job(&job);
    strcpy(job.settings.secret, SECRET);
    listening.on = true;
    env_job_run_well(&job);
    listening.on = false;
    assert_true(listening.count > 0);
    assert_int_equal(listening.elsewhere, 0);
}

static void
master_without_rank_0_is_named(void **state)
{
    (void)state;
    struct env_job job;
    struct env_rank ranks[ENV_RANKS] = {0};
    master_job(&job);
    strcpy(job.settings.secret, SECRET);
    job.absent = 0;
    job.patience_s = 0.4;
    env_job_run(&job, ranks);
    env_job_expect(&job, ranks, ULYX_ERR_TIMEOUT,
        "served by rank 0 on the host of MASTER_ADDR=127.0.0.1; last: "
        "127.0.0.1:");
}

static void
master_addr_without_a_long_secret_is_refused(void **state)
{
    (void)state;
    struct env_job job;
    struct env_rank ranks[ENV_RANKS] = {0};
    master_job(&job);
    env_job_run(&job, ranks);
    env_job_expect(&job, ranks, ULYX_ERR_AUTH, "set ULYX_SECRET");
    strcpy(job.settings.secret, "0123456789abcde");
    env_job_run(&job, ranks);
    env_job_expect(&job, ranks, ULYX_ERR_AUTH,
        "whose secret has 15 characters, fewer than 16 is refused");
    job.settings.insecure = true;
    env_job_run_well(&job);
    job.settings.secret[0] = 0;
    job.meeting++;
    env_job_run_well(&job);
}

static void
other_secret_is_refused_by_name(void **state)
{
    (void)state;
    struct env_job job, other;
    struct env_rank ranks[2] = {{0}};
    master_job(&job);
    job.nranks = 2;
    job.patience_s = 2;
    strcpy(job.settings.secret, SECRET);
    other = job;
    strcpy(other.settings.secret, "another " SECRET);
    for (int r = 0; r < 2; r++) {
        ranks[r].job = r ? &other : &job;
        ranks[r].rank = r;
        pthread_create(&ranks[r].thread, NULL, env_job_rank, &ranks[r]);
    }
    for (int r = 0; r < 2; r++)
        pthread_join(ranks[r].thread, NULL);
    assert_int_equal(ranks[0].status, ULYX_ERR_TIMEOUT);
    assert_non_null(strstr(ranks[0].text,
        "meeting of 2 ranks: timed out waiting for rank 1 to join"));
    assert_non_null(strstr(ranks[0].text, "127.0.0.1 (wrong secret)"));
    assert_int_equal(ranks[1].status, ULYX_ERR_AUTH);
    assert_non_null(strstr(ranks[1].text, "wrong secret"));
}

static void
unknown_master_is_named(void **state)
{
    (void)state;
    struct env_job job;
    struct env_rank ranks[ENV_RANKS] = {0};
    master_job(&job);
    strcpy(job.settings.secret, SECRET);
    job.entries[0] = "MASTER_ADDR=no.such.host.invalid";
    job.nranks = 2;
    env_job_run(&job, ranks);
    env_job_expect(
        &job, ranks, ULYX_ERR_SYSTEM, "MASTER_ADDR=\"no.such.host.invalid\"");
}

/* ---- none ---------------------------------------------------------------- */

static void
no_meeting_point_is_refused_by_name(void **state)
{
    (void)state;
    struct env_job job;
    struct env_rank ranks[ENV_RANKS] = {0};
    env_job_init(&job, 2);
    env_job_run(&job, ranks);
    env_job_expect(&job, ranks, ULYX_ERR_INVALID_ARGUMENT,
        "has no meeting point: set ULYX_COMM_ID");
}

static void
one_rank_needs_no_meeting_point(void **state)
{
    (void)state;
    struct env_job job;
    env_job_init(&job, 1);
    env_job_run_well(&job);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(id_of_the_parent_is_taken_first),
    cmocka_unit_test(cut_id_is_refused_by_name),
    cmocka_unit_test(ranks_of_one_node_meet_without_a_secret),
    cmocka_unit_test(one_node_name_can_be_used_again),
    cmocka_unit_test(one_node_names_the_missing_rank),
    cmocka_unit_test(one_node_without_rank_0_times_out),
    cmocka_unit_test(ranks_meet_at_master_addr_with_a_secret),
    cmocka_unit_test(ranks_meet_at_a_name),
    cmocka_unit_test(name_that_another_user_holds_is_refused_with_the_holder),
    cmocka_unit_test(address_in_brackets_is_an_address),
    cmocka_unit_test(link_local_address_without_interface_is_refused_at_once),
    cmocka_unit_test(rank_0_listens_at_its_address_only),
    cmocka_unit_test(master_without_rank_0_is_named),
    cmocka_unit_test(master_addr_without_a_long_secret_is_refused),
    cmocka_unit_test(other_secret_is_refused_by_name),
    cmocka_unit_test(unknown_master_is_named),
    cmocka_unit_test(no_meeting_point_is_refused_by_name),
    cmocka_unit_test(one_rank_needs_no_meeting_point),
};
ULI_TEST_MAIN("BootstrapEnv", tests)
