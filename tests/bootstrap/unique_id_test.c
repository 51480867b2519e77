/* SPDX-License-Identifier: Apache-2.0
 *
 * Unique ids: bytes and text and back, every way in which they can be damaged,
 * creation with the settings that choose addresses, and their end: an id that
 * was used or destroyed is refused at once, and its resources are freed.
 */
#include "bootstrap/meet/unique_id.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/status.h"
#include "bootstrap/meeting.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/test.h"

/* how long a failed meeting stays, unless a test sets less */
#define LINGER_S 30.0

static void
make_place(struct uli_endpoint *place, int count)
{
    static const char *const addresses[] = {"10.0.0.1:1", "[fd00::2]:65535",
        "[2001:db8:1111:2222:3333:4444:5555:6666]:10000", "[fe80::1%7]:80",
        "192.168.100.200:40000", "[::1]:5", "127.0.0.1:5",
        "[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:65535"};
    memset(place, 0, sizeof(*place));
    place->count = count;
    for (int i = 0; i < count; i++)
        assert_true(uli_address_parse(addresses[i], &place->addresses[i]));
    for (int i = 0; i < ULI_SECRET_BYTES; i++)
        place->secret[i] = (unsigned char)(i * 17);
}

static void
id_goes_through_text_and_back(void **state)
{
    (void)state;
    for (int count = 1; count <= ULI_ADDRESS_MAX; count++) {
        struct uli_endpoint place, back;
        ulyx_unique_id_t id, again;
        char text[600];
        make_place(&place, count);
        assert_status(uli_auth_init(), 0);
        uli_unique_id_encode(&place, &id);
        assert_status(uli_unique_id_to_string(&id, text, sizeof(text)), 0);
        assert_true(strlen(text) < 510);
        assert_status(uli_unique_id_from_string(text, &again), 0);
        assert_memory_equal(&id, &again, sizeof(id));
        assert_status(uli_unique_id_decode(&again, &back), 0);
        assert_memory_equal(&place, &back, sizeof(place));
    }
}

static void
text_shows_the_addresses(void **state)
{
    (void)state;
    struct uli_endpoint place;
    ulyx_unique_id_t id;
    char text[600];
    make_place(&place, 2);
    uli_unique_id_encode(&place, &id);
    assert_status(uli_unique_id_to_string(&id, text, sizeof(text)), 0);
    text[strlen(text) - 8] = 0;
    assert_string_equal(text, "ulyx1/00112233445566778899aabbccddeeff/"
                              "10.0.0.1:1,[fd00::2]:65535/");
}

/* Any cut or change is detected. */
static void
damaged_text_is_refused(void **state)
{
    (void)state;
    struct uli_endpoint place;
    ulyx_unique_id_t id, untouched, out;
    char text[600], bad[601];
    make_place(&place, 3);
    uli_unique_id_encode(&place, &id);
    assert_status(uli_unique_id_to_string(&id, text, sizeof(text)), 0);
    memset(&untouched, 0x3C, sizeof(untouched));
    out = untouched;
    for (size_t length = 0; length < strlen(text); length++) {
        snprintf(bad, sizeof(bad), "%.*s", (int)length, text);
        assert_int_not_equal(uli_unique_id_from_string(bad, &out), 0);
    }
    for (size_t i = 0; i < strlen(text); i++) {
        strcpy(bad, text);
        bad[i] = bad[i] == '7' ? '8' : '7';
        assert_int_not_equal(uli_unique_id_from_string(bad, &out), 0);
    }
    snprintf(bad, sizeof(bad), "%s ", text);
    assert_int_not_equal(uli_unique_id_from_string(bad, &out), 0);
    assert_memory_equal(&out, &untouched, sizeof(out));
    assert_status(uli_unique_id_from_string("ulyx2/", &out), ULYX_ERR_VERSION);
    assert_status(
        uli_unique_id_from_string("", &out), ULYX_ERR_INVALID_ARGUMENT);
    snprintf(bad, sizeof(bad), "%.*s", (int)strlen(text) - 3, text);
    assert_status(
        uli_unique_id_from_string(bad, &out), ULYX_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(ulyx_last_error(), "it is cut or altered"));
}

static void
damaged_bytes_are_refused(void **state)
{
    (void)state;
    struct uli_endpoint place, out;
    ulyx_unique_id_t id;
    char text[600];
    make_place(&place, 3);
    for (size_t i = 0; i < 224; i++) {
        uli_unique_id_encode(&place, &id);
        id.bytes[i] ^= 0x10;
        assert_int_not_equal(uli_unique_id_decode(&id, &out), 0);
        assert_int_not_equal(
            uli_unique_id_to_string(&id, text, sizeof(text)), 0);
    }
    memset(&id, 0, sizeof(id));
    assert_status(uli_unique_id_decode(&id, &out), ULYX_ERR_INVALID_ARGUMENT);
}

static void
random_text_is_refused(void **state)
{
    (void)state;
    struct test_random random = {test_seed(5)};
    static const char letters[] = "ulyx1/0123456789abcdef:.,[]%/";
    int64_t draws = test_draws(3000);
    ulyx_unique_id_t out;
    for (int64_t draw = 0; draw < draws; draw++) {
        char text[700] = "ulyx1/";
        int64_t length = test_random_in(&random, 6, 690);
        for (int64_t i = 6; i < length; i++)
            text[i] = letters[test_random_in(
                &random, 0, (int64_t)sizeof(letters) - 2)];
        assert_int_not_equal(uli_unique_id_from_string(text, &out), 0);
    }
}

static void
short_buffer_is_refused_by_size(void **state)
{
    (void)state;
    struct uli_endpoint place;
    ulyx_unique_id_t id;
    char text[600], small[600];
    make_place(&place, 1);
    uli_unique_id_encode(&place, &id);
    assert_status(uli_unique_id_to_string(&id, text, sizeof(text)), 0);
    memset(small, 'x', sizeof(small));
    assert_status(uli_unique_id_to_string(&id, small, strlen(text)),
        ULYX_ERR_INVALID_ARGUMENT);
    assert_int_equal(small[0], 'x');
    assert_status(uli_unique_id_to_string(&id, small, strlen(text) + 1), 0);
}

/* ---- creation ------------------------------------------------------------ */

struct shared {
    ulyx_unique_id_t id;
    atomic_int made;
};

static int
join_by_id(int rank, int nranks, void *context)
{
    const struct shared *shared = context;
    struct uli_settings settings;
    struct uli_bootstrap *bootstrap;
    int32_t mine = rank * 3, all[8];
    uli_deadline_t deadline = uli_deadline_in(20);
    if (!ranks_expect(uli_settings_load(&settings) == 0) ||
        !ranks_expect(uli_bootstrap_open_id(&shared->id, nranks, rank,
                          &settings, deadline, &bootstrap) == 0))
        return 1;
    bool good = bootstrap->rank == rank && bootstrap->nranks == nranks;
    for (int i = 0; i < 3 && good; i++)
        good = bootstrap->ops->gather(bootstrap, &mine, sizeof(mine), all,
                   deadline) == ULYX_SUCCESS &&
               all[nranks - 1] == (nranks - 1) * 3;
    bootstrap->ops->close(bootstrap);
    return !ranks_expect(good);
}

/* Rank 0 makes the id, within the process that has no other ranks: a process
 * with threads is better not forked under the leak checker. */
static int
make_and_join(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    if (rank == 0) {
        if (!ranks_expect(uli_unique_id_create(&shared->id) == 0))
            return 1;
        atomic_store(&shared->made, 1);
    }
    while (!atomic_load(&shared->made))
        usleep(1000);
    int result = join_by_id(rank, nranks, context);
    if (rank == 0)
        result |= !ranks_expect(uli_unique_id_destroy(&shared->id) == 0);
    return result || !ranks_expect(meeting_all_ended());
}

static void
processes_meet_by_an_id_of_one(void **state)
{
    (void)state;
    struct shared *shared = ranks_shared(sizeof(*shared));
    assert_int_equal(ranks_run_processes(5, make_and_join, shared, 30), 0);
    ranks_shared_free(shared, sizeof(*shared));
}

static void
threads_meet_by_an_id(void **state)
{
    (void)state;
    struct shared shared;
    int files = meeting_open_files();
    for (int i = 0; i < 20; i++) {
        assert_status(uli_unique_id_create(&shared.id), 0);
        assert_int_equal(ranks_run_threads(4, join_by_id, &shared, 30), 0);
        assert_status(uli_unique_id_destroy(&shared.id), 0);
        assert_true(meeting_all_ended());
    }
    assert_int_equal(meeting_open_files(), files);
}

static void
creation_honours_the_settings(void **state)
{
    (void)state;
    ulyx_unique_id_t id;
    char text[600];
    setenv("ULYX_SOCKET_IFNAME", "=lo", 1);
    setenv("ULYX_SOCKET_FAMILY", "AF_INET", 1);
    setenv("ULYX_TIMEOUT", "0.2", 1);
    assert_status(uli_unique_id_create(&id), 0);
    assert_status(uli_unique_id_to_string(&id, text, sizeof(text)), 0);
    assert_non_null(strstr(text, "/127.0.0.1:"));
    assert_null(strchr(text, ','));
    /* the deadline is over, and the root answers ranks that come late */
    usleep(300000);
    assert_status(uli_unique_id_destroy(&id), 0);
    assert_true(meeting_all_ended());
    setenv("ULYX_SOCKET_IFNAME", "=nowhere9", 1);
    assert_status(uli_unique_id_create(&id), ULYX_ERR_SYSTEM);
    unsetenv("ULYX_SOCKET_IFNAME");
    unsetenv("ULYX_SOCKET_FAMILY");
    unsetenv("ULYX_TIMEOUT");
}

/* ---- the end ------------------------------------------------------------- */

/* Joins with a timeout of 20 s. Returns the status of a gather and stores how
 * long it took. */
static ulyx_status_t
try_id(const ulyx_unique_id_t *id, int nranks, int rank, double *took_s_p)
{
    struct uli_settings settings;
    struct uli_bootstrap *bootstrap;
    int32_t mine = rank, all[8];
    int64_t begin = uli_clock_ns();
    uli_deadline_t deadline = uli_deadline_in(20);
    ulyx_status_t status = uli_settings_load(&settings);
    if (!status)
        status = uli_bootstrap_open_id(
            id, nranks, rank, &settings, deadline, &bootstrap);
    if (!status) {
        status = bootstrap->ops->gather(
            bootstrap, &mine, sizeof(mine), all, deadline);
        bootstrap->ops->close(bootstrap);
    }
    *took_s_p = (double)(uli_clock_ns() - begin) / 1e9;
    return status;
}

static void
served_id_is_refused_at_once_where_it_was_made(void **state)
{
    (void)state;
    struct shared shared;
    double took_s;
    /* The root of a used id stays in one round; in the other, at a requested
     * port, it has gone. */
    for (int stays = 0; stays < 2; stays++) {
        if (!stays)
            setenv("ULYX_PORT", "27831", 1);
        assert_status(uli_unique_id_create(&shared.id), 0);
        unsetenv("ULYX_PORT");
        assert_int_equal(ranks_run_threads(2, join_by_id, &shared, 30), 0);
        assert_status(
            try_id(&shared.id, 2, 0, &took_s), ULYX_ERR_INVALID_ARGUMENT);
        assert_true(took_s < 1);
        assert_non_null(strstr(ulyx_last_error(),
            "this unique id has been used: an id serves one communicator"));
        if (!stays)
            assert_true(meeting_all_ended());
        assert_status(uli_unique_id_destroy(&shared.id), 0);
    }
    assert_true(meeting_all_ended());
}

/* All three ranks meet. Then ranks 1 and 2, whose process did not make the id,
 * come again. */
static int
meet_and_come_again(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    double took_s;
    if (rank == 0 && !ranks_expect(uli_unique_id_create(&shared->id) == 0))
        return 1;
    if (rank == 0)
        atomic_store(&shared->made, 1);
    while (!atomic_load(&shared->made))
        usleep(1000);
    int result = join_by_id(rank, nranks, context);
    for (int i = 0; i < 2 && rank > 0; i++) {
        result |= !ranks_expect(try_id(&shared->id, nranks, rank, &took_s) ==
                                ULYX_ERR_INVALID_ARGUMENT);
        result |= !ranks_expect(took_s < 2);
        result |= !ranks_expect(
            strstr(ulyx_last_error(), "a unique id serves one communicator"));
    }
    atomic_fetch_add(&shared->made, 1);
    while (atomic_load(&shared->made) < 1 + nranks)
        usleep(1000);
    return result;
}

static void
served_id_is_refused_at_once_by_its_root(void **state)
{
    (void)state;
    struct shared *shared = ranks_shared(sizeof(*shared));
    assert_int_equal(
        ranks_run_processes(3, meet_and_come_again, shared, 30), 0);
    ranks_shared_free(shared, sizeof(*shared));
}

/* A connection that comes while the ranks are still meeting harms no rank. */
static void
late_rank_does_not_disturb_a_meeting(void **state)
{
    (void)state;
    struct shared shared;
    struct uli_endpoint place;
    struct uli_bootstrap *bootstrap, *late;
    struct uli_settings settings;
    int32_t mine = 7, all[1] = {0};
    int fd;
    uli_deadline_t deadline = uli_deadline_in(20);
    assert_status(uli_unique_id_create(&shared.id), 0);
    assert_status(uli_settings_load(&settings), 0);
    assert_status(uli_bootstrap_open_id(
                      &shared.id, 1, 0, &settings, deadline, &bootstrap),
        0);
    assert_status(
        bootstrap->ops->gather(bootstrap, &mine, sizeof(mine), all, deadline),
        0);
    assert_status(uli_unique_id_decode(&shared.id, &place), 0);
    assert_status(uli_dial(&place, 0, deadline, &fd), 0);
    assert_status(uli_bootstrap_open_star(fd, NULL, 1, 0,
                      (struct uli_port_range){0}, deadline, &late),
        0);
    assert_status(late->ops->gather(late, &mine, sizeof(mine), all, deadline),
        ULYX_ERR_INVALID_ARGUMENT);
    late->ops->close(late);
    assert_status(
        bootstrap->ops->gather(bootstrap, &mine, sizeof(mine), all, deadline),
        0);
    bootstrap->ops->close(bootstrap);
    assert_status(uli_unique_id_destroy(&shared.id), 0);
    assert_true(meeting_all_ended());
}

/* Rank 0 waits for a rank that never comes; the other thread destroys the
 * id. */
static int
wait_or_destroy(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    double took_s;
    (void)nranks;
    if (rank == 1) {
        usleep(300000);
        return !ranks_expect(uli_unique_id_destroy(&shared->id) == 0);
    }
    return !ranks_expect(
               try_id(&shared->id, 2, 0, &took_s) == ULYX_ERR_ABORTED) ||
           !ranks_expect(took_s < 5) ||
           !ranks_expect(strstr(ulyx_last_error(),
               "the unique id of this meeting was destroyed"));
}

static void
destroyed_id_notifies_waiting_ranks(void **state)
{
    (void)state;
    struct shared shared;
    double took_s;
    int files = meeting_open_files();
    assert_status(uli_unique_id_create(&shared.id), 0);
    assert_int_equal(ranks_run_threads(2, wait_or_destroy, &shared, 30), 0);
    assert_true(meeting_all_ended());
    assert_int_equal(meeting_open_files(), files);
    assert_status(try_id(&shared.id, 2, 0, &took_s), ULYX_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(ulyx_last_error(), "this unique id was destroyed"));
    assert_status(uli_unique_id_destroy(&shared.id), ULYX_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(ulyx_last_error(), "destroyed before"));
    /* An id that no rank has joined is freed as well, without a log line. */
    assert_status(uli_unique_id_create(&shared.id), 0);
    assert_status(uli_unique_id_destroy(&shared.id), 0);
    assert_true(meeting_all_ended());
}

static int
destroy_of_another(int rank, int nranks, void *context)
{
    (void)rank, (void)nranks;
    return !ranks_expect(
        uli_unique_id_destroy(context) == ULYX_ERR_INVALID_ARGUMENT);
}

static void
id_is_destroyed_by_its_maker_only(void **state)
{
    (void)state;
    struct uli_endpoint place;
    struct shared shared;
    ulyx_unique_id_t foreign;
    make_place(&place, 2);
    uli_unique_id_encode(&place, &foreign);
    assert_status(uli_unique_id_destroy(&foreign), ULYX_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(ulyx_last_error(), "did not make this unique id"));
    foreign.bytes[30] ^= 1;
    assert_status(uli_unique_id_destroy(&foreign), ULYX_ERR_INVALID_ARGUMENT);
    /* A child has a copy of the maker's list of ids, but not the thread that
     * serves them. */
    assert_status(uli_unique_id_create(&shared.id), 0);
    assert_int_equal(
        ranks_run_processes(1, destroy_of_another, &shared.id, 30), 0);
    assert_int_equal(ranks_run_threads(3, join_by_id, &shared, 30), 0);
    assert_status(uli_unique_id_destroy(&shared.id), 0);
    assert_true(meeting_all_ended());
}

enum { IDS = 20, STAY = 8 };

/* Ids that are never destroyed keep few threads, because each creation ends old
 * ones. */
static void
assert_few_stay(const ulyx_unique_id_t ids[IDS])
{
    uli_deadline_t deadline = uli_deadline_in(5);
    while (uli_root_count() > STAY && !uli_deadline_over(deadline)) {
        ulyx_unique_id_t another;
        assert_status(uli_unique_id_create(&another), 0);
        assert_status(uli_unique_id_destroy(&another), 0);
        usleep(1000);
    }
    assert_int_equal(uli_root_count(), STAY);
    for (int i = 0; i < IDS; i++)
        assert_status(uli_unique_id_destroy(&ids[i]), 0);
    assert_true(meeting_all_ended());
}

static void
roots_of_served_ids_are_few(void **state)
{
    (void)state;
    static ulyx_unique_id_t ids[IDS];
    for (int i = 0; i < IDS; i++) {
        double took_s;
        assert_status(uli_unique_id_create(&ids[i]), 0);
        assert_status(try_id(&ids[i], 1, 0, &took_s), 0);
    }
    assert_few_stay(ids);
}

/* Otherwise the roots of failed ids would answer late ranks for half a minute
 * each. */
static void
roots_of_failed_ids_are_few(void **state)
{
    (void)state;
    static ulyx_unique_id_t ids[IDS];
    setenv("ULYX_TIMEOUT", "0.05", 1);
    for (int i = 0; i < IDS; i++)
        assert_status(uli_unique_id_create(&ids[i]), 0);
    unsetenv("ULYX_TIMEOUT");
    assert_few_stay(ids);
}

static int
count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* The id is not destroyed, and no other call on ids follows. */
static void
id_whose_meeting_failed_holds_no_descriptor(void **state)
{
    (void)state;
    ulyx_unique_id_t id;
    int before = count_descriptors();
    uli_root_limit_linger(0.1);
    setenv("ULYX_TIMEOUT", "0.1", 1);
    assert_status(uli_unique_id_create(&id), 0);
    unsetenv("ULYX_TIMEOUT");
    assert_true(count_descriptors() > before);
    assert_true(meeting_all_ended());
    uli_root_limit_linger(LINGER_S);
    assert_int_equal(count_descriptors(), before);
    assert_status(uli_unique_id_destroy(&id), 0);
}

static void
port_that_is_given_serves_again(void **state)
{
    (void)state;
    setenv("ULYX_PORT", "27832", 1);
    for (int i = 0; i < 3; i++) {
        struct shared shared;
        assert_status(uli_unique_id_create(&shared.id), 0);
        assert_int_equal(ranks_run_threads(2, join_by_id, &shared, 30), 0);
        assert_true(meeting_all_ended());
    }
    unsetenv("ULYX_PORT");
}

/* For a moment the failed meeting still answers ranks that come late. */
static void
port_that_is_given_serves_after_a_failure(void **state)
{
    (void)state;
    setenv("ULYX_PORT", "27833", 1);
    setenv("ULYX_TIMEOUT", "0.05", 1);
    for (int i = 0; i < 2; i++) {
        ulyx_unique_id_t id;
        assert_status(uli_unique_id_create(&id), 0);
        usleep(200000);
    }
    unsetenv("ULYX_TIMEOUT");
    unsetenv("ULYX_PORT");
    assert_true(meeting_all_ended());
}

/* Two ids use two ports. For a third id no port is left, and its error names
 * the range. Like all ports in these tests, these are below the ports that the
 * kernel gives to connections of other programs. */
static void
ports_are_taken_from_the_range(void **state)
{
    ulyx_unique_id_t ids[3];
    int ports[2];
    (void)state;
    setenv("ULYX_SOCKET_IFNAME", "=lo", 1);
    setenv("ULYX_SOCKET_FAMILY", "AF_INET", 1);
    setenv("ULYX_PORT_RANGE", "27834-27835", 1);
    for (int i = 0; i < 2; i++) {
        struct uli_endpoint place;
        assert_status(uli_unique_id_create(&ids[i]), ULYX_SUCCESS);
        assert_status(uli_unique_id_decode(&ids[i], &place), ULYX_SUCCESS);
        assert_int_equal(place.count, 1);
        ports[i] = uli_address_port(&place.addresses[0]);
        assert_in_range(ports[i], 27834, 27835);
    }
    assert_int_not_equal(ports[0], ports[1]);
    assert_status(uli_unique_id_create(&ids[2]), ULYX_ERR_SYSTEM);
    if (!strstr(uli_error_text(), "no port of ULYX_PORT_RANGE=27834-27835"))
        fail_msg("\"%s\" does not name the range", uli_error_text());
    for (int i = 0; i < 2; i++)
        assert_status(uli_unique_id_destroy(&ids[i]), ULYX_SUCCESS);
    unsetenv("ULYX_PORT_RANGE");
    unsetenv("ULYX_SOCKET_FAMILY");
    unsetenv("ULYX_SOCKET_IFNAME");
    assert_true(meeting_all_ended());
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(id_goes_through_text_and_back),
    cmocka_unit_test(text_shows_the_addresses),
    cmocka_unit_test(damaged_text_is_refused),
    cmocka_unit_test(damaged_bytes_are_refused),
    cmocka_unit_test(random_text_is_refused),
    cmocka_unit_test(short_buffer_is_refused_by_size),
    cmocka_unit_test(processes_meet_by_an_id_of_one),
    cmocka_unit_test(threads_meet_by_an_id),
    cmocka_unit_test(creation_honours_the_settings),
    cmocka_unit_test(served_id_is_refused_at_once_where_it_was_made),
    cmocka_unit_test(served_id_is_refused_at_once_by_its_root),
    cmocka_unit_test(late_rank_does_not_disturb_a_meeting),
    cmocka_unit_test(destroyed_id_notifies_waiting_ranks),
    cmocka_unit_test(id_is_destroyed_by_its_maker_only),
    cmocka_unit_test(roots_of_served_ids_are_few),
    cmocka_unit_test(roots_of_failed_ids_are_few),
    cmocka_unit_test(id_whose_meeting_failed_holds_no_descriptor),
    cmocka_unit_test(port_that_is_given_serves_again),
    cmocka_unit_test(port_that_is_given_serves_after_a_failure),
    cmocka_unit_test(ports_are_taken_from_the_range),
};
ULI_TEST_MAIN("UniqueId", tests)
