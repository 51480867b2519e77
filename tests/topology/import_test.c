/* SPDX-License-Identifier: Apache-2.0
 *
 * The importers and bad input: files that must be refused with the reason, and
 * randomly damaged files, which must be refused or read without harm. Also the
 * detection of this machine, and what is used when it fails.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/status.h"
#include "support/random.h"
#include "support/test.h"
#include "topology/graph.h"
#include "topology/node.h"

/* Reads the bytes as the file test.xml in a folder of its own. */
static ulyx_status_t
parse_bytes(const char *text, size_t bytes, struct uli_topology **t_p)
{
    char folder[] = "/tmp/ulyx-import-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/test.xml", folder);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    ulyx_status_t status = uli_topology_read(path, t_p);
    unlink(path);
    rmdir(folder);
    return status;
}

static ulyx_status_t
text_parse(const char *text, struct uli_topology **t_p)
{
    return parse_bytes(text, strlen(text), t_p);
}

/* Checks that the text is refused with an error that names the file and the
 * cause, and that the output is untouched. */
static void
expect_refused(const char *text, const char *cause)
{
    struct uli_topology *t = (struct uli_topology *)&t;
    assert_status(text_parse(text, &t), ULYX_ERR_INVALID_ARGUMENT);
    assert_ptr_equal(t, &t);
    if (!strstr(uli_error_text(), "test.xml") ||
        !strstr(uli_error_text(), cause))
        fail_msg(
            "\"%s\" does not name test.xml and %s", uli_error_text(), cause);
}

static void
other_versions_are_refused(void **state)
{
    (void)state;
    expect_refused("<?xml version=\"1.0\"?>\n<!DOCTYPE topology SYSTEM "
                   "\"hwloc2.dtd\">\n<topology version=\"4.0\"></topology>",
        "hwloc XML of version 4.0; versions 2 and 3 are read");
    expect_refused("<?xml version=\"1.0\"?>\n<!DOCTYPE topology SYSTEM "
                   "\"hwloc2.dtd\">\n<topology version=\"3.0\"></topology>",
        "no object of type Machine");
    expect_refused("<?xml version=\"1.0\"?>\n<!DOCTYPE topology SYSTEM "
                   "\"hwloc2.dtd\">\n<topology version=\"3.0\">\n"
                   "<object type=\"OSDev\" osdev_type=\"4x\"/></topology>",
        "test.xml:4: not a number in range: osdev_type");
    expect_refused("<topology><object type=\"Machine\"/></topology>",
        "hwloc XML of version 1;");
    expect_refused("<system version=\"2\"/>", "version of <system>");
}

static void
other_files_are_refused(void **state)
{
    (void)state;
    const char *cause = "neither hwloc's <topology> nor NCCL's <system>";
    expect_refused("", cause);
    expect_refused("no XML at all", cause);
    expect_refused("<?xml version=\"1.0\"?><html/>", cause);
    expect_refused("<!-- never closed <system version=\"1\">", cause);
    expect_refused("<topology version=\"2.0\"></topology>", "");
    expect_refused("<topology version=\"2.0\"><object type=\"Machine\"", "");
    struct uli_topology *t = NULL;
    assert_status(
        uli_topology_read("/nonexistent/topo.xml", &t), ULYX_ERR_SYSTEM);
    assert_status(uli_topology_read("/", &t), ULYX_ERR_SYSTEM);
}

#define IN_CPU(text)                                                           \
    "<system version=\"1\">\n<cpu numaid=\"0\">\n" text "</cpu></system>"

static void
nccl_errors_name_the_line(void **state)
{
    (void)state;
    expect_refused(IN_CPU("<pci class=\"0x030200\"/>"), "test.xml:3: busid");
    expect_refused(
        IN_CPU("<pci busid=\"0000:xx:00.0\"/>"), "test.xml:3: busid");
    expect_refused(
        IN_CPU("<pci busid=\"0000:00:00.0\" class=\"99999999999999999999\"/>"),
        "test.xml:3: class=\"99999999999999999999\"");
    expect_refused(
        IN_CPU(
            "<pci busid=\"0:0:0.0\" class=\"0x020000\" link_width=\"1e9\"/>"),
        "link_width");
    expect_refused(IN_CPU("<gpu dev=\"0\" sm=\"90\"/>"), "<gpu> outside");
    expect_refused(IN_CPU("\n<nic>\n<net speed=\"-3\"/></nic>"),
        "test.xml:5: speed=\"-3\"");
    expect_refused("<system version=\"1\"><cpu numaid=\"0\" affinity=\"xyz\"/>"
                   "</system>",
        "affinity=\"xyz\"");
    expect_refused("<system version=\"1\"><cpu host_hash=\"0x1\"/>"
                   "<cpu host_hash=\"0x2\"/></system>",
        "more than one node");
    expect_refused("<system version=\"1\"><cpu></system>", "test.xml:1: ");
    expect_refused("<system version=\"1\">", "test.xml:1: ");
}

/* A file whose entities would expand to gigabytes, and a very deep one. */
static void
nccl_files_with_entities_or_depth_are_refused(void **state)
{
    (void)state;
    char deep[4096] = "<system version=\"1\">";
    expect_refused("<!DOCTYPE x [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]>"
                   "<system version=\"1\"><cpu numaid=\"&b;\"/></system>",
        "entities are refused");
    for (int i = 0; i < 200; i++)
        strcat(deep, "<x>");
    expect_refused(deep, "deep");
    char *wide = malloc(1 << 19);
    size_t used = (size_t)sprintf(
        wide, "<system version=\"1\"><cpu numaid=\"0\" affinity=\"");
    memset(wide + used, 'f', (1 << 18) + 9);
    strcpy(wide + used + (1 << 18) + 9, "\"/></system>");
    expect_refused(wide, "affinity");
    free(wide);
}

/* One GPU is linked to itself, to a GPU that does not exist, and to the other
 * GPU twice. */
static void
nvlinks_to_nowhere_are_left_out(void **state)
{
    (void)state;
    struct uli_topology *t = NULL;
    assert_status(
        text_parse(
            IN_CPU("<pci busid=\"0:1:0.0\" class=\"0x030200\"><gpu sm=\"90\">"
                   "<nvlink target=\"0:1:0.0\" count=\"2\"/>"
                   "<nvlink target=\"0:7:0.0\" count=\"2\"/>"
                   "<nvlink target=\"0:2:0.0\" count=\"3\"/></gpu></pci>"
                   "<pci busid=\"0:2:0.0\" class=\"0x030200\"><gpu sm=\"90\">"
                   "<nvlink target=\"0:1:0.0\" count=\"3\"/></gpu></pci>"),
            &t),
        ULYX_SUCCESS);
    assert_int_equal(t->nlinks, 1);
    struct uli_topo_link link =
        uli_topology_link(t, uli_topology_node(t, ULI_TOPO_GPU, 0),
            uli_topology_node(t, ULI_TOPO_GPU, 1));
    assert_int_equal(link.class, ULI_LINK_NVLINK);
    assert_true(link.bytes_per_s == 3 * 20.6e9);
    assert_null(uli_topology_node(t, ULI_TOPO_GPU, 2));
    assert_null(uli_topology_node(t, ULI_TOPO_GPU, -1));
    uli_topology_free(t);
}

/* A virtual machine has NICs without a PCI address. There are more NICs than
 * the graph has room for at first. */
static void
each_of_many_virtual_nics_keeps_its_name_and_rate(void **state)
{
    enum { NICS = 100 };
    char text[NICS * 64 + 128] =
        "<system version=\"1\"><cpu numaid=\"0\" affinity=\"3\">";
    struct uli_topology *t = NULL;
    (void)state;
    for (int i = 0; i < NICS; i++)
        sprintf(text + strlen(text),
            "<nic><net name=\"eth%d\" speed=\"%d\"/></nic>", i, 1000 + i);
    strcat(text, "</cpu></system>");
    assert_status(text_parse(text, &t), ULYX_SUCCESS);
    assert_int_equal(uli_topology_count(t, ULI_TOPO_NIC), NICS);
    for (int i = 0; i < NICS; i++) {
        const struct uli_topo_node *nic = uli_topology_node(t, ULI_TOPO_NIC, i);
        char name[ULI_TOPO_NAME];
        snprintf(name, sizeof(name), "eth%d", i);
        assert_string_equal(nic->name, name);
        assert_true(nic->bytes_per_s == (1000 + i) * 125e3);
    }
    uli_topology_free(t);
}

/* ---- files broken at random ---------------------------------------------- */

static char *
read_machine(const char *name, size_t *bytes_p)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s.xml", TEST_DATA_DIR, name);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    char *text = malloc(1 << 18);
    *bytes_p = fread(text, 1, (1 << 18) - 1, file);
    text[*bytes_p] = 0;
    fclose(file);
    return text;
}

/* Returns the begin of the first run of digits at or after a random place. */
static size_t
find_number(const char *text, size_t bytes, struct test_random *random)
{
    size_t at = (size_t)test_random_in(random, 0, (int64_t)bytes - 1);
    while (at < bytes && (text[at] < '0' || text[at] > '9'))
        at++;
    return at;
}

/* Makes one to four changes: a cut, changed bytes, a piece copied over another,
 * a number replaced by an extreme one. */
static size_t
text_damage(char *text, size_t bytes, struct test_random *random)
{
    static const char *const extremes[] = {
        "99999999999999999999", "-1", "4294967296", "0x", "1e308", ""};
    int64_t count = test_random_in(random, 1, 4);
    for (int64_t i = 0; i < count && bytes > 64; i++) {
        size_t at = (size_t)test_random_in(random, 0, (int64_t)bytes - 32);
        size_t from = (size_t)test_random_in(random, 0, (int64_t)bytes - 32);
        int64_t kind = test_random_in(random, 0, 7);
        if (kind == 0) {
            bytes = at;
        } else if (kind < 3) {
            text[at] = (char)test_random_in(random, 1, 255);
        } else if (kind < 5) {
            memmove(text + at, text + from, 32);
        } else {
            const char *put = extremes[test_random_in(random, 0, 5)];
            size_t number = find_number(text, bytes - 32, random);
            memcpy(text + number, put, strlen(put));
        }
    }
    return bytes;
}

/* Makes all queries, none of which may leave the topology that was read. */
static void
topology_use(const struct uli_topology *t)
{
    struct uli_rank_place places[5];
    int32_t cores[8];
    uli_topology_place_ranks(t, 5, places);
    for (int r = 0; r < 25; r++)
        (void)uli_topology_place_link(t, &places[r / 5], &places[r % 5]);
    for (int kind = 0; kind < ULI_TOPO_KINDS; kind++)
        for (int32_t i = 0; i < uli_topology_count(t, kind); i++) {
            const struct uli_topo_node *n = uli_topology_node(t, kind, i);
            uli_topology_numa_of(t, n);
            uli_topology_cores_near(t, n, cores, 8);
        }
}

static void
files_fuzz(const char *const *names, size_t count, int64_t draws)
{
    struct test_random random = {test_seed(8)};
    int64_t read = 0;
    for (int64_t i = 0; i < draws; i++) {
        size_t bytes;
        char *text = read_machine(
            names[test_random_in(&random, 0, (int64_t)count - 1)], &bytes);
        bytes = text_damage(text, bytes, &random);
        struct uli_topology *t = NULL;
        if (parse_bytes(text, bytes, &t) == ULYX_SUCCESS) {
            topology_use(t);
            uli_topology_free(t);
            read++;
        }
        free(text);
    }
    fprintf(
        stderr, "%d of %d damaged files were read\n", (int)read, (int)draws);
}

static void
damaged_nccl_files(void **state)
{
    static const char *const names[] = {
        "dgx-h100.nccl", "gb200-nvl.nccl", "vm.nccl"};
    (void)state;
    files_fuzz(names, 3, test_draws(3000));
}

static void
damaged_hwloc_files(void **state)
{
    static const char *const names[] = {
        "flat-vm", "vm-unknown-numa", "memoryless-numa", "two-nic"};
    (void)state;
    files_fuzz(names, 4, test_draws(400));
}

/* ---- this machine -------------------------------------------------------- */

static struct uli_topology *
files_load(const char *topo_file, const char *dump_file)
{
    struct uli_settings settings;
    struct uli_topology *t = NULL;
    assert_status(uli_settings_load(&settings), ULYX_SUCCESS);
    snprintf(settings.topo_file, sizeof(settings.topo_file), "%s", topo_file);
    snprintf(settings.topo_dump_file, sizeof(settings.topo_dump_file), "%s",
        dump_file);
    assert_status(uli_topology_load(&settings, &t), ULYX_SUCCESS);
    return t;
}

static void
this_machine_is_read_back_from_its_dump(void **state)
{
    (void)state;
    char pattern[128], path[160];
    snprintf(pattern, sizeof(pattern), "/tmp/ulyx-topology-test-%%p.xml");
    snprintf(
        path, sizeof(path), "/tmp/ulyx-topology-test-%d.xml", (int)getpid());
    struct uli_topology *t = files_load("", pattern);
    assert_string_equal(uli_topology_source(t), "hwloc, this machine");
    assert_true(uli_topology_cores(t) >= uli_node_cores());
    struct uli_topology *again = files_load(path, "");
    assert_string_equal(uli_topology_source(again), path);
    for (int kind = 0; kind < ULI_TOPO_KINDS; kind++)
        assert_int_equal(
            uli_topology_count(t, kind), uli_topology_count(again, kind));
    assert_int_equal(uli_topology_cores(t), uli_topology_cores(again));
    unlink(path);
    uli_topology_free(t);
    uli_topology_free(again);
}

static void
failures_leave_a_flat_machine(void **state)
{
    (void)state;
    struct uli_rank_place places[3];
    struct uli_topology *t = files_load("/nonexistent/topo.xml", "");
    assert_int_equal(uli_topology_cores(t), uli_node_cores());
    assert_int_equal(uli_topology_count(t, ULI_TOPO_NUMA), 0);
    assert_non_null(strstr(uli_topology_source(t), "flat"));
    assert_non_null(strstr(uli_topology_source(t), "/nonexistent/topo.xml"));
    uli_topology_place_ranks(t, 3, places);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(places[r].numa, ULI_TOPO_UNKNOWN);
        assert_int_equal(places[r].nic, ULI_TOPO_UNKNOWN);
    }
    uli_topology_free(t);
}

/* FIFOs without a writer. */
static void
pipes_as_files_are_not_waited_for(void **state)
{
    char path[160];
    (void)state;
    snprintf(path, sizeof(path), "/tmp/ulyx-topology-fifo-%d", (int)getpid());
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(20);
    struct uli_topology *t = files_load(path, "");
    assert_non_null(strstr(uli_topology_source(t), "not a regular file"));
    uli_topology_free(t);
    t = files_load("", path); /* the dump is not used */
    assert_string_equal(uli_topology_source(t), "hwloc, this machine");
    uli_topology_free(t);
    t = files_load("/dev/zero", "");
    assert_non_null(strstr(uli_topology_source(t), "not a regular file"));
    uli_topology_free(t);
    alarm(0);
    unlink(path);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(other_versions_are_refused),
    cmocka_unit_test(other_files_are_refused),
    cmocka_unit_test(nccl_errors_name_the_line),
    cmocka_unit_test(nccl_files_with_entities_or_depth_are_refused),
    cmocka_unit_test(nvlinks_to_nowhere_are_left_out),
    cmocka_unit_test(each_of_many_virtual_nics_keeps_its_name_and_rate),
    cmocka_unit_test(damaged_nccl_files),
    cmocka_unit_test(damaged_hwloc_files),
    cmocka_unit_test(this_machine_is_read_back_from_its_dump),
    cmocka_unit_test(failures_leave_a_flat_machine),
    cmocka_unit_test(pipes_as_files_are_not_waited_for),
};

ULI_TEST_MAIN("TopologyImport", tests)
