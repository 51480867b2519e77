/* SPDX-License-Identifier: Apache-2.0
 *
 * Paths that are no regular files, or files that never end: each is refused by
 * name and at once.
 */
#include "base/system/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "support/test.h"

static char folder[] = "/tmp/ulyx-file-XXXXXX";

static char *
path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static int
set_up(void **state)
{
    (void)state;
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int
tear_down(void **state)
{
    (void)state;
    unlink(path_of("it"));
    return rmdir(folder);
}

static void
write_bytes(const char *text, size_t bytes)
{
    FILE *file = fopen(path_of("it"), "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    fclose(file);
}

static void
expect_refused(const char *path, ulyx_status_t status, const char *cause)
{
    char why[ULI_FILE_WHY], *text = why;
    size_t bytes = 7;
    alarm(20); /* a hang fails the test */
    assert_int_equal(uli_file_read(path, 1000, &text, &bytes, why), status);
    alarm(0);
    if (!strstr(why, cause))
        fail_msg("%s: \"%s\" does not name %s", path, why, cause);
    assert_ptr_equal(text, why);
    assert_int_equal(bytes, 7);
}

static void
whole_file_is_read(void **state)
{
    static char large[300000];
    char why[ULI_FILE_WHY], *text;
    size_t bytes;
    (void)state;
    for (size_t i = 0; i < sizeof(large); i++)
        large[i] = (char)('a' + i % 23);
    static const size_t sizes[] = {0, 1, 65534, 65535, 65536, 65537, 300000};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        write_bytes(large, sizes[i]);
        assert_int_equal(
            uli_file_read(path_of("it"), sizes[i], &text, &bytes, why),
            ULYX_SUCCESS);
        assert_int_equal(bytes, sizes[i]);
        assert_memory_equal(text, large, bytes);
        assert_int_equal(text[bytes], 0);
        free(text);
    }
}

static void
what_is_no_file_is_refused(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(path_of("it"), 0600), 0);
    expect_refused(path_of("it"), ULYX_ERR_SYSTEM, "not a regular file");
    expect_refused("/dev/zero", ULYX_ERR_SYSTEM, "not a regular file");
    expect_refused("/dev/tty", ULYX_ERR_SYSTEM, "");
    expect_refused("/", ULYX_ERR_SYSTEM, "Is a directory");
    errno = 0;
    expect_refused(path_of("none"), ULYX_ERR_SYSTEM, "No such file");
    assert_int_equal(errno, ENOENT);
}

/* By its mode the file is regular, but a plain read of it waits. */
static void
file_without_end_is_not_waited_for(void **state)
{
    char why[ULI_FILE_WHY], *text = NULL;
    size_t bytes;
    (void)state;
    alarm(20);
    ulyx_status_t status =
        uli_file_read("/proc/kmsg", 1 << 26, &text, &bytes, why);
    alarm(0);
    assert_int_equal(status, ULYX_ERR_SYSTEM);
    assert_null(text);
}

static void
size_is_bounded(void **state)
{
    static char text[1001];
    (void)state;
    memset(text, 'x', sizeof(text));
    write_bytes(text, sizeof(text));
    expect_refused(
        path_of("it"), ULYX_ERR_INVALID_ARGUMENT, "more than 1000 bytes");
}

static void
lines_are_cut_at_newlines(void **state)
{
    char text[] = "one\n\ntwo\0three\nfour";
    char *at = text, *end = text + sizeof(text) - 1;
    (void)state;
    assert_string_equal(uli_file_next_line(&at, end), "one");
    assert_string_equal(uli_file_next_line(&at, end), "");
    assert_string_equal(uli_file_next_line(&at, end), "two");
    assert_string_equal(uli_file_next_line(&at, end), "four");
    assert_null(uli_file_next_line(&at, end));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static const struct CMUnitTest tests[] = {
    CASE(whole_file_is_read),
    CASE(what_is_no_file_is_refused),
    CASE(file_without_end_is_not_waited_for),
    CASE(size_is_bounded),
    CASE(lines_are_cut_at_newlines),
};

ULI_TEST_MAIN("File", tests)
