/* SPDX-License-Identifier: Apache-2.0
 *
 * hwloc's XML with one value changed: in a file with all kinds of elements,
 * every attribute is set to each of a list of hostile texts. hwloc ends the
 * process on some of them, so the library's check before hwloc must refuse
 * these. A text that passes is read and written again, because hwloc asserts
 * there, too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/status.h"
#include "support/ranks.h"
#include "support/test.h"
#include "topology/graph.h"

enum { MACHINE_BYTES = 8192, TEXT_BYTES = MACHINE_BYTES + 64 };

static char machine[MACHINE_BYTES];

static int
read_machine(void **state)
{
    FILE *file = fopen(TEST_MACHINE, "re");
    (void)state;
    if (!file)
        return -1;
    size_t bytes = fread(machine, 1, sizeof(machine) - 1, file);
    fclose(file);
    return bytes > 1000 && bytes < sizeof(machine) - 1 ? 0 : -1;
}

static const char *const hostile[] = {"", ",", "0", "1", "2", "3", "7", "255",
    "-1", "4095", "65536", "4294967295", "4294967296", "9223372036854775807",
    "18446744073709551615", "99999999999999999999", "1e308", "nan", "x", "0x",
    "0x0", ",0x00000001", "0x00000001,", "0x00000001,,", "0x00000001,,0x0",
    ",,,,0x1", "0x00000001,0x", "0x000000001", "0xf...f", "0xf...f,0x00000001",
    "0x00000001 ", "0x1;0x1", "0x3", "0x4", "0x00000001,0x00000001", "0-0",
    "1-0", "2-1", "7-9", "ffff:ff:1f.7", "ffffffff:ffff:ffff.f", "0000:[ff-00]",
    "0000:[0000-ffff]", "PU", "Core", "NUMANode", "Bridge", "Misc", "Machine",
    "Die", "MemCache", "os", "gp", "NVLinkBandwidth", "Capacity", "Locality",
    "Latency", "base64", "%s%n"};
enum { HOSTILE = sizeof(hostile) / sizeof(hostile[0]) };

/* Returns whether the text was accepted. */
static bool
read_and_write(const char *text)
{
    struct uli_topology *graph = uli_graph_create();
    ulyx_status_t status = uli_hwloc_screen(text, strlen(text), "hostile.xml");
    if (status == ULYX_SUCCESS)
        status = uli_hwloc_import(
            text, strlen(text), "hostile.xml", "/dev/null", graph);
    if (status == ULYX_SUCCESS)
        status = uli_graph_finish(graph);
    uli_topology_free(graph);
    return status == ULYX_SUCCESS;
}

/* Finds the next ="value" at or after *at, and stores the begin and the end of
 * its value. */
static bool
next_value(size_t *at, size_t *end_p)
{
    const char *found = strstr(machine + *at, "=\"");
    if (!found)
        return false;
    *at = (size_t)(found + 2 - machine);
    *end_p = *at + strcspn(machine + *at, "\"");
    return true;
}

/* Runs in a child. *which is the number of the text under test. */
static void
try_all(size_t begin, size_t end, volatile int *which)
{
    static char text[TEXT_BYTES];
    for (int i = 0; i < HOSTILE; i++) {
        *which = i;
        snprintf(text, sizeof(text), "%.*s%s%s", (int)begin, machine,
            hostile[i], machine + end);
        (void)read_and_write(text);
    }
    _exit(0);
}

static void
no_value_of_an_attribute_ends_the_process(void **state)
{
    int *which = ranks_shared(sizeof(*which));
    int values = 0, ended = 0;
    (void)state;
    for (size_t at = 0, end; next_value(&at, &end); at = end, values++) {
        pid_t child = fork();
        int how = 0;
        if (child == 0)
            try_all(at, end, which);
        assert_true(child > 0 && waitpid(child, &how, 0) == child);
        if (!how)
            continue;
        ended++;
        print_error("...%.*s\"%s\" ends the process: %d\n", 45,
            machine + at - 45, hostile[*which], how);
    }
    ranks_shared_free(which, sizeof(*which));
    assert_true(values > 100);
    assert_int_equal(ended, 0);
}

static void
unchanged_file_is_read(void **state)
{
    (void)state;
    assert_true(read_and_write(machine));
}

static void
expect_set(const char *set, bool good)
{
    char text[TEXT_BYTES];
    const char *at = strstr(machine, "<cpukind cpuset=\"");
    size_t begin = (size_t)(at - machine) + strlen("<cpukind cpuset=\"");
    snprintf(text, sizeof(text), "%.*s%s%s", (int)begin, machine, set,
        strchr(machine + begin, '"'));
    assert_status(uli_hwloc_screen(text, strlen(text), "set.xml"),
        good ? ULYX_SUCCESS : ULYX_ERR_INVALID_ARGUMENT);
    if (!good)
        assert_non_null(strstr(uli_error_text(), "cpuset"));
}

static void
sets_may_leave_out_inner_words_only(void **state)
{
    (void)state;
    expect_set("0x00000001", true);
    expect_set("0x1", true);
    expect_set("0x0", true);
    expect_set("0x00000001,,0x0", true);
    expect_set("0x00000001,,,0xffffffff,,0x0000000f", true);
    expect_set("", false);
    expect_set(",", false);
    expect_set(",0x00000001", false);
    expect_set("0x00000001,", false);
    expect_set("0x00000001,,", false);
    expect_set("0x000000001", false);
    expect_set("00000001", false);
    expect_set("0x", false);
    expect_set("0x1,0x", false);
    expect_set("0x1 ,0x1", false);
    expect_set("0xf...f", false);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup(unchanged_file_is_read, read_machine),
    cmocka_unit_test_setup(sets_may_leave_out_inner_words_only, read_machine),
    cmocka_unit_test_setup(
        no_value_of_an_attribute_ends_the_process, read_machine),
};

ULI_TEST_MAIN("HwlocHostile", tests)
