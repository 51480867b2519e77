/* SPDX-License-Identifier: Apache-2.0
 *
 * Tuning files: values and rules taken, every error named with
 * its line, damaged files harmless.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/status.h"
#include "support/random.h"
#include "support/test.h"
#include "topology/choose/tuning.h"

static const char good[] =
    "# site file\n"
    "ulyx tuning 1\n"
    "\n"
    "link nic latency=4.1us send=350ns gap=0 4K=90ps/B 64K=21.7ps/B "
    "source=measured # n=50\n"
    "link near 1M=0.1ns/B\n"
    "host launch=3us source=assumed\n"
    "fabric taper=2 unit_nodes=16 nics=4\n"
    "rule nodes=2-32 ranks_per_node=8 bytes=0-16K -> hier chunks=2\n"
    "rule nodes=2- -> pairwise\n";

struct findings {
    char text[2048];
    int count;
};

static void
finding_note(void *context, int32_t line, const char *text)
{
    struct findings *f = context;
    size_t used = strlen(f->text);
    snprintf(f->text + used, sizeof(f->text) - used, "%d: %s\n", line, text);
    f->count++;
}

static ulyx_status_t
read_text(const char *text, size_t bytes, struct uli_model *model,
    struct uli_tuning *tuning, struct findings *f)
{
    char path[] = "/tmp/ulyx-tuning-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_true(write(fd, text, bytes) == (ssize_t)bytes);
    close(fd);
    memset(f, 0, sizeof(*f));
    ulyx_status_t status =
        uli_tuning_read(path, model, tuning, finding_note, f);
    unlink(path);
    return status;
}

static void
values_and_rules_are_taken(void **state)
{
    (void)state;
    struct uli_model model, before;
    struct uli_tuning tuning;
    struct findings f;
    uli_model_defaults(&model);
    before = model;
    assert_status(
        read_text(good, strlen(good), &model, &tuning, &f), ULYX_SUCCESS);
    assert_string_equal(f.text, "");
    const struct uli_model_link *nic = &model.links[ULI_MODEL_NIC];
    assert_true(fabs(nic->latency_s - 4.1e-6) < 1e-15);
    assert_true(fabs(nic->send_s - 0.35e-6) < 1e-15);
    assert_true(nic->receive_s == before.links[ULI_MODEL_NIC].receive_s);
    assert_int_equal(nic->npoints, 2);
    assert_true(nic->bytes[1] == 65536);
    assert_true(fabs(nic->s_per_byte[1] - 21.7e-12) < 1e-20);
    assert_int_equal(nic->source, ULI_SOURCE_MEASURED);
    assert_int_equal(model.links[ULI_MODEL_NEAR].source, ULI_SOURCE_FILE);
    assert_int_equal(model.links[ULI_MODEL_FAR].source, ULI_SOURCE_ASSUMED);
    assert_true(fabs(model.launch_s - 3e-6) < 1e-15);
    assert_int_equal(model.host_source, ULI_SOURCE_ASSUMED);
    assert_true(model.taper == 2 && model.unit_nodes == 16);
    assert_true(model.nics == 4);
    const struct uli_model_link *spine = &model.links[ULI_MODEL_SPINE];
    assert_int_equal(spine->source, ULI_SOURCE_MEASURED);
    assert_true(spine->latency_s == nic->latency_s);
    assert_int_equal(tuning.nrules, 2);
    assert_int_equal(tuning.rules[0].bytes.high, 16384);
    assert_int_equal(tuning.rules[0].chunks, 2);
    assert_int_equal(tuning.rules[1].line, 9);
}

static void
errors_name_line_and_cause(void **state)
{
    static const struct {
        const char *line, *cause;
    } rows[] = {{"link nic latancy=4us", "unknown key latancy"},
        {"fabric nisc=4", "unknown key nisc"},
        {"rule bytse=0-64K -> hier",
            "bytse: expected nodes, ranks_per_node, bytes or chunks"},
        {"host speed=4us", "unknown key speed"},
        {"rule gpu=h100 -> hier", "gpu: expected nodes, ranks_per_node"},
        {"link nix latency=4us", "link nix: expected near"},
        {"link", "link : expected near"},
        {"link nic latency=4", "latency=4: expected a time"},
        {"link nic latency=-4us", "latency=-4us: expected a time"},
        {"link nic latency=nanus", "expected a time"},
        {"link nic latency", "latency: expected key=value"},
        {"link nic 64K=0ps/B", "64K=0ps/B: expected a rate"},
        {"link nic 64K=2ps/B 4K=3ps/B", "4K=3ps/B: expected a rate"},
        {"link nic source=guess", "expected measured or assumed"},
        {"fabric nics=0", "nics=0: expected a number above 0"},
        {"fabric taper=0", "taper=0: expected a number above 0"},
        {"rule nodes=8-2 -> hier", "nodes=8-2: expected a number"},
        {"rule nodes=2", "a rule without -> and a schedule"},
        {"rule -> unheard", "unheard: expected direct, pairwise or hier"},
        {"rule -> hier chunks=0", "chunks=0"},
        {"lnk nic", "lnk: expected link, host, fabric or rule"}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[256];
        struct uli_model model, before;
        struct uli_tuning tuning;
        struct findings f;
        snprintf(
            text, sizeof(text), "ulyx tuning 1\n# two\n%s\n", rows[i].line);
        uli_model_defaults(&model);
        before = model;
        memset(&tuning, 0x5a, sizeof(tuning));
        ulyx_status_t status =
            read_text(text, strlen(text), &model, &tuning, &f);
        if (strncmp(f.text, "3: ", 3) != 0 || !strstr(f.text, rows[i].cause))
            fail_msg("%s: found \"%s\"", rows[i].line, f.text);
        assert_true(f.count > 0);
        assert_status(status, ULYX_ERR_INVALID_ARGUMENT);
        assert_non_null(strstr(uli_error_text(), ":3: "));
        assert_memory_equal(&model, &before, sizeof(model));
        assert_int_equal(tuning.nrules, 0x5a5a5a5a);
    }
}

static void
the_first_line_has_form_and_version(void **state)
{
    static const char *const texts[] = {
        "", "\n# only\n", "link nic gap=0\n", "ulyx tuning 2\n", "ulyx\n"};
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct uli_model model;
        struct uli_tuning tuning;
        struct findings f;
        uli_model_defaults(&model);
        assert_status(
            read_text(texts[i], strlen(texts[i]), &model, &tuning, &f),
            ULYX_ERR_INVALID_ARGUMENT);
    }
    struct uli_model model;
    struct uli_tuning tuning;
    assert_status(
        uli_tuning_read("/nonexistent/tuning", &model, &tuning, NULL, NULL),
        ULYX_ERR_SYSTEM);
    assert_status(uli_tuning_read("/dev/zero", &model, &tuning, NULL, NULL),
        ULYX_ERR_SYSTEM);
}

/* Every accepted file leaves a model that evaluates to a number. */
static void
damaged_files_are_harmless(void **state)
{
    (void)state;
    struct test_random random = {test_seed(9)};
    for (int64_t i = 0; i < test_draws(1500); i++) {
        char text[sizeof(good)];
        size_t bytes = strlen(good);
        struct uli_model model;
        struct uli_tuning tuning;
        struct findings f;
        memcpy(text, good, sizeof(good));
        for (int64_t k = test_random_in(&random, 1, 6); k > 0; k--)
            text[test_random_in(&random, 15, (int64_t)bytes - 1)] =
                "0123456789-=>. \nKuspB#e"[test_random_in(&random, 0, 22)];
        uli_model_defaults(&model);
        if (read_text(text, bytes, &model, &tuning, &f) != ULYX_SUCCESS)
            continue;
        struct uli_flow flow = {ULI_MODEL_NIC, 3, 1e6, 1, 0};
        double time = uli_model_occupancy(&model, &flow);
        assert_true(isfinite(time) && time >= 0);
        assert_in_range(tuning.nrules, 0, 2);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(values_and_rules_are_taken),
    cmocka_unit_test(errors_name_line_and_cause),
    cmocka_unit_test(the_first_line_has_form_and_version),
    cmocka_unit_test(damaged_files_are_harmless),
};

ULI_TEST_MAIN("Tuning", tests)
