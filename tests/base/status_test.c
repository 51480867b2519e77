/* SPDX-License-Identifier: Apache-2.0
 *
 * Status names and texts, and the thread's last error.
 */
#include "base/status.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include "support/test.h"

static const struct {
    ulyx_status_t value;
    const char *name, *text;
} statuses[] = {
#define ROW(name, value, text) {value, "ULYX_" #name, text},
    ULYX_STATUS_MAP(ROW)
#undef ROW
};

#define STATUS_COUNT (sizeof(statuses) / sizeof(statuses[0]))

static void
every_status_has_its_name_and_text(void **fixture)
{
    (void)fixture;
    for (size_t i = 0; i < STATUS_COUNT; i++) {
        ulyx_status_t value = statuses[i].value;
        assert_string_equal(ulyx_status_name(value), statuses[i].name);
        assert_string_equal(ulyx_status_text(value), statuses[i].text);
    }
    assert_string_equal(ulyx_status_name(ULYX_ERR_TIMEOUT), "ULYX_ERR_TIMEOUT");
}

static void
unknown_status_has_a_name_and_text(void **fixture)
{
    (void)fixture;
    const ulyx_status_t unknown[] = {2, -16, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(
            ulyx_status_name(unknown[i]), "ULYX_UNKNOWN_STATUS");
        assert_string_equal(ulyx_status_text(unknown[i]), "unknown status");
    }
}

static void
last_error_is_empty_before_the_first(void **fixture)
{
    (void)fixture;
    assert_string_equal(ulyx_last_error(), "");
}

static void
error_sets_text_and_returns_status(void **fixture)
{
    (void)fixture;
    assert_int_equal(uli_error(ULYX_ERR_MISMATCH, "rank %d: heads is %d", 3, 7),
        ULYX_ERR_MISMATCH);
    assert_string_equal(ulyx_last_error(), "rank 3: heads is 7");
}

static void
error_may_quote_the_last_one(void **fixture)
{
    (void)fixture;
    uli_error(ULYX_ERR_SYSTEM, "inner");
    uli_error(ULYX_ERR_SYSTEM, "outer (%s)", ulyx_last_error());
    assert_string_equal(ulyx_last_error(), "outer (inner)");
}

static void
error_errno_appends_the_reason(void **fixture)
{
    (void)fixture;
    errno = EACCES;
    assert_status(uli_error_errno("open of %s", "x"), ULYX_ERR_SYSTEM);
    assert_string_equal(ulyx_last_error(), "open of x: Permission denied");
    assert_int_equal(errno, EACCES);
    errno = ENOMEM;
    assert_status(uli_error_errno("mmap"), ULYX_ERR_NO_MEMORY);
}

static void
long_text_is_cut_not_overrun(void **fixture)
{
    (void)fixture;
    char text[4000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    errno = EIO;
    uli_error_errno("%s", text);
    size_t length = strlen(ulyx_last_error());
    assert_in_range(length, 500, 2000);
    uli_error_pass(ULYX_ERR_SYSTEM, text);
    assert_int_equal(strlen(ulyx_last_error()), length);
}

static void
error_pass_keeps_text_given_from_itself(void **fixture)
{
    (void)fixture;
    assert_status(
        uli_error_pass(ULYX_ERR_RANK_LOST, "rank 2 died"), ULYX_ERR_RANK_LOST);
    uli_error_pass(ULYX_ERR_ABORTED, ulyx_last_error());
    assert_string_equal(ulyx_last_error(), "rank 2 died");
}

static void *
fail_in_thread(void *seen_p)
{
    *(bool *)seen_p = ulyx_last_error()[0] != 0;
    uli_error(ULYX_ERR_INTERNAL, "of the other thread");
    return NULL;
}

static void
last_error_belongs_to_the_thread(void **fixture)
{
    (void)fixture;
    pthread_t thread;
    bool seen = true;
    uli_error(ULYX_ERR_SYSTEM, "mine");
    assert_int_equal(pthread_create(&thread, NULL, fail_in_thread, &seen), 0);
    pthread_join(thread, NULL);
    assert_false(seen);
    assert_string_equal(ulyx_last_error(), "mine");
}

static ulyx_status_t
try_it(ulyx_status_t status, bool *reached_p)
{
    *reached_p = false;
    ULI_TRY(status);
    *reached_p = true;
    return ULYX_SUCCESS;
}

static void
try_returns_on_failure_only(void **fixture)
{
    (void)fixture;
    bool reached;
    assert_status(try_it(ULYX_SUCCESS, &reached), ULYX_SUCCESS);
    assert_true(reached);
    assert_status(try_it(ULYX_ERR_BUSY, &reached), ULYX_ERR_BUSY);
    assert_false(reached);
}

static void
version_is_the_headers(void **fixture)
{
    (void)fixture;
    int32_t major = -1, minor = -1, patch = -1;
    assert_status(ulyx_get_version(&major, &minor, &patch), ULYX_SUCCESS);
    assert_int_equal(major, ULYX_VERSION_MAJOR);
    assert_int_equal(minor, ULYX_VERSION_MINOR);
    assert_int_equal(patch, ULYX_VERSION_PATCH);
    major = -7;
    assert_status(
        ulyx_get_version(&major, NULL, &patch), ULYX_ERR_INVALID_ARGUMENT);
    assert_int_equal(major, -7);
}

static void
every_dtype_has_its_size(void **fixture)
{
    (void)fixture;
    assert_int_equal(ulyx_dtype_size(ULYX_DTYPE_F64), 8);
    assert_int_equal(ulyx_dtype_size(ULYX_DTYPE_F32), 4);
    assert_int_equal(ulyx_dtype_size(ULYX_DTYPE_BF16), 2);
    assert_int_equal(ulyx_dtype_size(ULYX_DTYPE_F16), 2);
    assert_int_equal(ulyx_dtype_size(ULYX_DTYPE_F8_E4M3), 1);
    assert_int_equal(ulyx_dtype_size(ULYX_DTYPE_F8_E5M2), 1);
    assert_int_equal(ulyx_dtype_size(ULYX_DTYPE_BYTES), 0);
    assert_int_equal(ulyx_dtype_size(99), 0);
    assert_int_equal(ulyx_dtype_size(-1), 0);
}

/* A status that concerns a third rank, or memory, is true at every rank. */
static void
status_of_a_peer_is_kept_where_it_is_true_here(void **state)
{
    (void)state;
    assert_int_equal(uli_status_of_peer(ULYX_ERR_TIMEOUT), ULYX_ERR_TIMEOUT);
    assert_int_equal(
        uli_status_of_peer(ULYX_ERR_RANK_LOST), ULYX_ERR_RANK_LOST);
    assert_int_equal(
        uli_status_of_peer(ULYX_ERR_NO_MEMORY), ULYX_ERR_NO_MEMORY);
    assert_int_equal(
        uli_status_of_peer(ULYX_ERR_INVALID_ARGUMENT), ULYX_ERR_PEER_REFUSED);
    assert_int_equal(
        uli_status_of_peer(ULYX_ERR_SYSTEM), ULYX_ERR_PEER_REFUSED);
}

/* A text from a peer keeps its length and is made printable. */
static void
reasons_of_peers_are_bounded(void **state)
{
    (void)state;
    char text[ULI_REFUSAL_TEXT_BYTES], sent[ULI_REFUSAL_BYTES + 40];
    const ulyx_status_t invalid = ULYX_ERR_INVALID_ARGUMENT;
    assert_string_equal(uli_status_reason(invalid, "heads is 7", 11, text),
        "invalid argument: heads is 7");
    assert_string_equal(uli_status_reason(invalid, "heads is 7", 5, text),
        "invalid argument: heads");
    assert_string_equal(
        uli_status_reason(invalid, NULL, 0, text), "invalid argument");
    assert_string_equal(
        uli_status_reason(invalid, "", 1, text), "invalid argument");
    assert_string_equal(uli_status_reason(invalid, "a\nb\x1b[0m\xff", 9, text),
        "invalid argument: a?b?[0m?");
    memset(sent, 'x', sizeof(sent)); /* no terminating zero */
    uli_status_reason(invalid, sent, sizeof(sent), text);
    assert_int_equal(
        strlen(text), strlen("invalid argument: ") + ULI_REFUSAL_BYTES);
    assert_string_equal(
        uli_status_reason(4711, "so", 3, text), "unknown status: so");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(last_error_is_empty_before_the_first),
    cmocka_unit_test(every_status_has_its_name_and_text),
    cmocka_unit_test(unknown_status_has_a_name_and_text),
    cmocka_unit_test(error_sets_text_and_returns_status),
    cmocka_unit_test(error_may_quote_the_last_one),
    cmocka_unit_test(error_errno_appends_the_reason),
    cmocka_unit_test(long_text_is_cut_not_overrun),
    cmocka_unit_test(error_pass_keeps_text_given_from_itself),
    cmocka_unit_test(last_error_belongs_to_the_thread),
    cmocka_unit_test(try_returns_on_failure_only),
    cmocka_unit_test(version_is_the_headers),
    cmocka_unit_test(every_dtype_has_its_size),
    cmocka_unit_test(status_of_a_peer_is_kept_where_it_is_true_here),
    cmocka_unit_test(reasons_of_peers_are_bounded),
};

ULI_TEST_MAIN("Status", tests)
