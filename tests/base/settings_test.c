/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings: every source and its precedence, every type's good and bad values,
 * and the warning about names that do not exist. Lines that are logged once per
 * process are tested in a forked child, whose log goes to a file.
 */
#include "base/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "support/ranks.h"
#include "support/test.h"

struct fixture {
    char directory[64];
    char system_file[96], user_file[128], log_file[96], config[96];
};

/* Removes the settings of the test's environment. */
static void
clear_environment(void)
{
    size_t count;
    const struct uli_setting_row *rows = uli_settings_rows(&count);
    for (size_t i = 0; i < count; i++)
        unsetenv(rows[i].name);
}

static int
set_up(void **state)
{
    clear_environment();
    struct fixture *f = calloc(1, sizeof(*f));
    strcpy(f->directory, "/tmp/ulyx-settings-XXXXXX");
    if (!mkdtemp(f->directory))
        return -1;
    snprintf(f->system_file, 96, "%s/system.conf", f->directory);
    snprintf(f->log_file, 96, "%s/log", f->directory);
    snprintf(f->config, 96, "%s/.config", f->directory);
    mkdir(f->config, 0700);
    snprintf(f->user_file, 128, "%s/ulyx.conf", f->config);
    setenv("HOME", f->directory, 1);
    *state = f;
    return 0;
}

static int
tear_down(void **state)
{
    struct fixture *f = *state;
    unlink(f->system_file);
    unlink(f->user_file);
    unlink(f->log_file);
    rmdir(f->config);
    rmdir(f->directory);
    clear_environment();
    free(f);
    return 0;
}

static void
write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static ulyx_status_t
fixture_load(const struct fixture *f, struct uli_settings *settings_p)
{
    return uli_settings_load_files(f->system_file, f->user_file, settings_p);
}

/* Checks that loading fails and that its error text has all three words. */
static void
assert_refused(
    const struct fixture *f, const char *a, const char *b, const char *c)
{
    struct uli_settings settings, before;
    memset(&settings, 0x5A, sizeof(settings));
    before = settings;
    assert_status(fixture_load(f, &settings), ULYX_ERR_INVALID_ARGUMENT);
    assert_memory_equal(&settings, &before, sizeof(settings));
    assert_non_null(strstr(ulyx_last_error(), a));
    assert_non_null(strstr(ulyx_last_error(), b));
    assert_non_null(strstr(ulyx_last_error(), c));
}

/* ---- the table ----------------------------------------------------------- */

static void
every_default_parses(void **state)
{
    struct uli_settings settings;
    assert_status(fixture_load(*state, &settings), ULYX_SUCCESS);
    assert_true(settings.timeout_s == 600);
    assert_false(settings.insecure);
    assert_string_equal(settings.debug, "WARN");
    assert_int_equal(settings.ring_chunk_bytes, 1 << 20);
    assert_int_equal(settings.service_core, -1);
}

static void
rows_are_named_once_and_explained(void **state)
{
    (void)state;
    size_t count;
    const struct uli_setting_row *rows = uli_settings_rows(&count);
    assert_true(count > 10);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(strncmp(rows[i].name, "ULYX_", 5), 0);
        assert_true(strlen(rows[i].help) > 10);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(rows[i].name, rows[j].name);
    }
}

/* ---- sources ------------------------------------------------------------- */

static void
later_sources_win(void **state)
{
    struct fixture *f = *state;
    struct uli_settings settings;
    write_file(f->system_file,
        "# site\n\nULYX_TIMEOUT=10\n  ULYX_PORT = 11 \nULYX_ALGO=hier\n");
    assert_status(fixture_load(f, &settings), ULYX_SUCCESS);
    assert_true(settings.timeout_s == 10 && settings.port == 11);
    assert_string_equal(settings.algo, "hier");

    write_file(f->user_file, "ULYX_TIMEOUT=20\nULYX_PORT=21\n");
    assert_status(fixture_load(f, &settings), ULYX_SUCCESS);
    assert_true(settings.timeout_s == 20 && settings.port == 21);
    assert_string_equal(settings.algo, "hier");

    setenv("ULYX_TIMEOUT", "30", 1);
    assert_status(fixture_load(f, &settings), ULYX_SUCCESS);
    assert_true(settings.timeout_s == 30 && settings.port == 21);
}

static void
users_file_is_found_below_home(void **state)
{
    struct fixture *f = *state;
    struct uli_settings settings;
    write_file(f->user_file, "ULYX_PORT=4711\n");
    assert_status(uli_settings_load(&settings), ULYX_SUCCESS);
    assert_int_equal(settings.port, 4711);
    unsetenv("HOME");
    assert_status(uli_settings_load(&settings), ULYX_SUCCESS);
    assert_int_equal(settings.port, 0);
}

static void
explain_names_the_source(void **state)
{
    struct fixture *f = *state;
    char value[64], source[256];
    assert_status(uli_settings_explain("ULYX_PORT", value, sizeof(value),
                      source, sizeof(source)),
        ULYX_SUCCESS);
    assert_string_equal(value, "0");
    assert_string_equal(source, "default");

    write_file(f->user_file, "ULYX_PORT=21\n");
    uli_settings_explain(
        "ULYX_PORT", value, sizeof(value), source, sizeof(source));
    assert_string_equal(value, "21");
    assert_string_equal(source, f->user_file);

    setenv("ULYX_PORT", "22", 1);
    uli_settings_explain(
        "ULYX_PORT", value, sizeof(value), source, sizeof(source));
    assert_string_equal(value, "22");
    assert_string_equal(source, "environment");
    assert_status(uli_settings_explain("ULYX_PORTS", value, sizeof(value),
                      source, sizeof(source)),
        ULYX_ERR_INVALID_ARGUMENT);
}

static void
bad_value_replaced_by_a_later_source_is_no_error(void **state)
{
    struct fixture *f = *state;
    struct uli_settings settings;
    write_file(f->system_file, "ULYX_PORT=bad\n");
    setenv("ULYX_PORT", "5", 1);
    assert_status(fixture_load(f, &settings), ULYX_SUCCESS);
    assert_int_equal(settings.port, 5);
}

/* ---- values -------------------------------------------------------------- */

static void
bad_value_names_variable_value_and_source(void **state)
{
    struct fixture *f = *state;
    setenv("ULYX_TIMEOUT", "soon", 1);
    assert_refused(f, "ULYX_TIMEOUT", "\"soon\"", "environment");
    unsetenv("ULYX_TIMEOUT");
    write_file(f->user_file, "ULYX_PORT=65536\n");
    assert_refused(f, "ULYX_PORT", "\"65536\"", f->user_file);
}

static void
bad_values_of_every_type_are_refused(void **state)
{
    static const char *const bad[][2] = {{"ULYX_TIMEOUT", "-1"},
        {"ULYX_TIMEOUT", "86401"}, {"ULYX_TIMEOUT", "nan"},
        {"ULYX_TIMEOUT", "inf"}, {"ULYX_TIMEOUT", ""}, {"ULYX_TIMEOUT", "10s"},
        {"ULYX_INSECURE", "2"}, {"ULYX_INSECURE", ""},
        {"ULYX_INSECURE", "maybe"}, {"ULYX_PORT", "-1"}, {"ULYX_PORT", "1.5"},
        {"ULYX_PORT", ""}, {"ULYX_PORT", "1K"},
        {"ULYX_PORT", "99999999999999999999"}, {"ULYX_RING_CHUNK", "1Q"},
        {"ULYX_RING_CHUNK", "1KB"}, {"ULYX_RING_CHUNK", "100M"},
        {"ULYX_RING_CHUNK", "K"}, {"ULYX_PORT_RANGE", "0"},
        {"ULYX_PORT_RANGE", "29600-29599"}, {"ULYX_PORT_RANGE", "29600-"},
        {"ULYX_PORT_RANGE", "1-65536"}, {"ULYX_PORT_RANGE", "1-2-3"},
        {"ULYX_PORT_RANGE", "-5"},
        {"ULYX_ARENA_BYTES", "9223372036854775807G"}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        setenv(bad[i][0], bad[i][1], 1);
        assert_refused(*state, bad[i][0], bad[i][1], "environment");
        unsetenv(bad[i][0]);
    }
}

static void
choice_takes_its_words_only(void **state)
{
    struct uli_settings settings;
    assert_status(fixture_load(*state, &settings), ULYX_SUCCESS);
    assert_string_equal(settings.cma, "auto");
    assert_string_equal(settings.algo, "");
    setenv("ULYX_CMA", "OFF", 1);
    setenv("ULYX_ALGO", "hier", 1);
    setenv("ULYX_SOCKET_FAMILY", "AF_INET", 1);
    assert_status(fixture_load(*state, &settings), ULYX_SUCCESS);
    assert_string_equal(settings.cma, "off");
    assert_string_equal(settings.algo, "hier");
    assert_string_equal(settings.socket_family, "AF_INET");
    static const char *const bad[] = {"", "o", "offf", "auto|on", "|"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        setenv("ULYX_CMA", bad[i], 1);
        assert_refused(*state, "ULYX_CMA", bad[i], "one of auto|on|off");
    }
}

static void
too_long_text_is_refused_not_cut(void **state)
{
    char text[ULI_SETTING_TEXT + 100];
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    setenv("ULYX_SECRET", text, 1);
    assert_refused(*state, "ULYX_SECRET", "aaaa", "environment");
}

static void
good_values_of_every_type_are_taken(void **state)
{
    struct uli_settings settings;
    setenv("ULYX_TIMEOUT", "0.25", 1);
    setenv("ULYX_INSECURE", "Yes", 1);
    setenv("ULYX_ARENA_BYTES", "3g", 1);
    setenv("ULYX_RING_CHUNK", "64K", 1);
    setenv("ULYX_SLOT_BYTES", "100", 1);
    setenv("ULYX_SOCKET_IFNAME", "=eth0,ib", 1);
    assert_status(fixture_load(*state, &settings), ULYX_SUCCESS);
    assert_true(settings.timeout_s == 0.25);
    assert_true(settings.insecure);
    assert_true(settings.arena_bytes == INT64_C(3) << 30);
    assert_true(settings.ring_chunk_bytes == 65536);
    assert_true(settings.slot_bytes == 100);
    assert_string_equal(settings.socket_ifname, "=eth0,ib");
    setenv("ULYX_INSECURE", "off", 1);
    assert_status(fixture_load(*state, &settings), ULYX_SUCCESS);
    assert_false(settings.insecure);
}

/* ---- names that do not exist --------------------------------------------- */

/* Runs in a child: loads the settings three times, with the log in log_file. */
static int
load_three_times(int rank, int nranks, void *context)
{
    (void)rank, (void)nranks;
    struct fixture *f = context;
    struct uli_settings settings;
    setenv("ULYX_DEBUG_FILE", f->log_file, 1);
    for (int i = 0; i < 3; i++) {
        if (!ranks_expect(fixture_load(f, &settings) == ULYX_SUCCESS))
            return 1;
    }
    return 0;
}

/* Reads the child's log. Returns how often it contains the word. */
static int
count_in_log(struct fixture *f, const char *word)
{
    static char text[8192];
    FILE *file = fopen(f->log_file, "r");
    size_t length = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
    text[length] = 0;
    if (file)
        fclose(file);
    int count = 0;
    for (char *at = text; (at = strstr(at, word)); at++)
        count++;
    return count;
}

static void
misspelt_variable_warns_once_with_the_nearest(void **state)
{
    struct fixture *f = *state;
    setenv("ULYX_TIMOUT", "5", 1);
    write_file(f->system_file, "ULYX_ALGOS=hier\n");
    assert_int_equal(ranks_run_processes(1, load_three_times, f, 20), 0);
    unsetenv("ULYX_TIMOUT");
    assert_int_equal(count_in_log(f, "ULYX_TIMOUT (environment)"), 1);
    assert_int_equal(count_in_log(f, "nearest is ULYX_TIMEOUT"), 1);
    assert_int_equal(count_in_log(f, "ULYX_ALGOS"), 1);
    assert_int_equal(count_in_log(f, "nearest is ULYX_ALGO\n"), 1);
    assert_int_equal(count_in_log(f, f->system_file), 1);
}

static void
variables_of_tests_and_tools_do_not_warn(void **state)
{
    struct fixture *f = *state;
    setenv("ULYX_TEST_DRAWS", "1", 1);
    setenv("ULYX_PERF_ANY", "1", 1);
    setenv("ULYX_PYTHON_ANY", "1", 1);
    setenv("ULYX_LIBRARY", "1", 1);
    setenv("ULYXTIMEOUT", "1", 1);
    setenv("ULYX_TIMEOUT", "1", 1);
    assert_int_equal(ranks_run_processes(1, load_three_times, f, 20), 0);
    unsetenv("ULYX_TEST_DRAWS");
    unsetenv("ULYX_PERF_ANY");
    unsetenv("ULYX_PYTHON_ANY");
    unsetenv("ULYX_LIBRARY");
    unsetenv("ULYXTIMEOUT");
    assert_int_equal(count_in_log(f, "ULYX"), 0);
}

static void
line_without_a_value_warns(void **state)
{
    struct fixture *f = *state;
    write_file(f->user_file, "# ULYX_PORT\nULYX_PORT 7\n");
    assert_int_equal(ranks_run_processes(1, load_three_times, f, 20), 0);
    assert_int_equal(count_in_log(f, "\"ULYX_PORT 7\" is not NAME=VALUE"), 1);
    assert_int_equal(count_in_log(f, "WARN"), 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static const struct CMUnitTest tests[] = {
    /* This case is first, because its child inherits what this process has
     * logged or opened. */
    CASE(misspelt_variable_warns_once_with_the_nearest),
    CASE(variables_of_tests_and_tools_do_not_warn),
    CASE(line_without_a_value_warns),
    CASE(every_default_parses),
    CASE(rows_are_named_once_and_explained),
    CASE(later_sources_win),
    CASE(users_file_is_found_below_home),
    CASE(explain_names_the_source),
    CASE(bad_value_replaced_by_a_later_source_is_no_error),
    CASE(bad_value_names_variable_value_and_source),
    CASE(bad_values_of_every_type_are_refused),
    CASE(choice_takes_its_words_only),
    CASE(too_long_text_is_refused_not_cut),
    CASE(good_values_of_every_type_are_taken),
};

ULI_TEST_MAIN("Settings", tests)
