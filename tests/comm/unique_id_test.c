/* SPDX-License-Identifier: Apache-2.0
 *
 * Unique ids: bytes and text and back, every way in which they can be damaged,
 * and creation with the settings that choose addresses.
 */
#include "comm/unique_id.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "comm/meeting.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/test.h"

static void
make_place(struct uli_place *place, int count)
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
        struct uli_place place, back;
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
    struct uli_place place;
    ulyx_unique_id_t id;
    char text[600];
    make_place(&place, 2);
    uli_unique_id_encode(&place, &id);
    assert_status(uli_unique_id_to_string(&id, text, sizeof(text)), 0);
    text[strlen(text) - 8] = 0;
    assert_string_equal(text, "ulyx1/00112233445566778899aabbccddeeff/"
                              "10.0.0.1:1,[fd00::2]:65535/");
}

/* Whatever is cut off or changed, it is seen. */
static void
damaged_text_is_refused(void **state)
{
    (void)state;
    struct uli_place place;
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
    struct uli_place place, out;
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
    struct uli_place place;
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
    setenv("ULYX_SOCKET_IFNAME", "=nowhere9", 1);
    assert_status(uli_unique_id_create(&id), ULYX_ERR_SYSTEM);
    unsetenv("ULYX_SOCKET_IFNAME");
    unsetenv("ULYX_SOCKET_FAMILY");
    unsetenv("ULYX_TIMEOUT");
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
};
ULI_TEST_MAIN("UniqueId", tests)
