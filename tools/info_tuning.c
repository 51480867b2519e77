/* SPDX-License-Identifier: Apache-2.0
 *
 * ulyx_info tuning FILE: checks the file, and shows its links, fabric, host and
 * rules, and how long an exchange of each size would take with them. Sizes are
 * the sizes of rules: bytes of a message between two ranks.
 */
#include <inttypes.h>
#include <string.h>

#include "base/settings.h"
#include "base/text.h"
#include "info.h"
#include "info_options.h"
#include "info_predict.h"
#include "ulyx/ulyx.h"

static void
print_range(const char *name, const struct uli_range *range)
{
    if (range->low == 0 && range->high == INT64_MAX)
        return;
    if (range->low == range->high)
        printf(" %s=%" PRId64, name, range->low);
    else if (range->high >= INT64_C(1) << 60)
        printf(" %s=%" PRId64 "-", name, range->low);
    else
        printf(" %s=%" PRId64 "-%" PRId64, name, range->low, range->high);
}

static void
print_rules(const struct uli_tuning *tuning)
{
    printf(tuning->nrules > 0 ? "rules, of which the first that fits applies\n"
                              : "no rules: the model chooses\n");
    for (int32_t i = 0; i < tuning->nrules; i++) {
        const struct uli_tuning_rule *rule = &tuning->rules[i];

        printf("  line %" PRId32 ":", rule->line);
        print_range("nodes", &rule->nodes);
        print_range("ranks_per_node", &rule->ranks_per_node);
        print_range("bytes", &rule->bytes);
        printf(" -> %s", uli_algo_name(rule->algo));
        if (rule->chunks > 0)
            printf(" chunks=%" PRId32, rule->chunks);
        printf("\n");
    }
}

/* Makes a demand in which every rank has one token, and sends `bytes` bytes of
 * that token to every rank. */
static ulyx_status_t
make_demand(int64_t nodes, int64_t ranks_per_node, int64_t bytes,
    struct uli_demand *x_p)
{
    static int32_t node_of[1 << 16];
    int32_t nranks = (int32_t)(nodes * ranks_per_node);
    ulyx_status_t status;

    for (int32_t r = 0; r < nranks; r++)
        node_of[r] = (int32_t)(r / ranks_per_node);
    status = uli_demand_create_empty(nranks, (int32_t)nodes, node_of, x_p);
    for (int32_t r = 0; status == ULYX_SUCCESS && r < nranks; r++) {
        x_p->rows[r] = 1;
        x_p->reads.own[r] = x_p->partials.own[r] = x_p->gives[r] = bytes;
    }
    return status;
}

static ulyx_status_t
print_size(const struct uli_planner *planner, int64_t nodes,
    int64_t ranks_per_node, int64_t bytes)
{
    struct uli_demand x;
    struct uli_choice c;
    ulyx_status_t status = make_demand(nodes, ranks_per_node, bytes, &x);

    if (status != ULYX_SUCCESS)
        return status;
    status = uli_choose(planner, &x, "", &c);
    if (status == ULYX_SUCCESS)
        printf("  %12" PRId64 " %-9s %6d %12.1f %8.2f  %s\n", bytes,
            uli_algo_name(c.algo), c.best.schedules[ULYX_SEQ_TO_HEAD].chunks,
            c.best.time_s * 1e6,
            info_received_bytes(&x, ULYX_SEQ_TO_HEAD) / c.best.time_s * 1e-9,
            c.reason);
    uli_demand_destroy(&x);
    return status;
}

static ulyx_status_t
print_sizes(
    const struct uli_planner *planner, int64_t nodes, int64_t ranks_per_node)
{
    ulyx_status_t status = ULYX_SUCCESS;

    printf("what it gives for %" PRId64 " node%s of %" PRId64
           "\n  %12s %-9s %6s "
           "%12s %8s  %s\n",
        nodes, uli_plural(nodes), ranks_per_node, "message (B)", "schedule",
        "chunks", "time (us)", "busbw", "because");
    for (int64_t bytes = 256; status == ULYX_SUCCESS && bytes <= 16 << 20;
         bytes *= 4)
        status = print_size(planner, nodes, ranks_per_node, bytes);
    return status;
}

static void
print_file(const struct uli_planner *planner)
{
    printf("links\n");
    for (int class = 0; class < ULI_MODEL_CLASSES; class ++)
        info_print_link(&planner->model, class);
    info_print_fabric(&planner->model);
    info_print_host(&planner->model);
    print_rules(&planner->tuning);
}

int
info_tuning(int argc, char **argv)
{
    struct uli_settings settings;
    struct uli_planner planner;
    int64_t nodes = 2, ranks_per_node = 8;
    const char *path = NULL;
    const struct info_option options[] = {
        {"FILE", INFO_TEXT, (void *)&path, 0, 0, "tuning file"},
        {"--nodes", INFO_NUMBER, &nodes, 2, 1024,
            "nodes of the table of sizes (2)"},
        {"--ranks-per-node", INFO_NUMBER, &ranks_per_node, 1, 64,
            "ranks of each node (8)"}};
    const struct info_command command = {"tuning",
        "Checks a tuning file and shows its links, fabric and rules, and how "
        "long an\nexchange of each size would take with them. docs/TOPOLOGY.md "
        "describes the form.\n",
        options, sizeof(options) / sizeof(options[0])};
    int code = info_options_read(&command, argc, argv);
    ulyx_status_t status;

    if (code >= 0)
        return code;
    status = uli_settings_load(&settings);
    memset(&planner, 0, sizeof(planner));
    uli_model_defaults(&planner.model);
    uli_planner_apply(&planner, &settings);
    if (status != ULYX_SUCCESS)
        return info_finish(status);
    status = uli_tuning_read(path, &planner.model, &planner.tuning,
        info_print_finding, (void *)(uintptr_t)path);
    if (status == ULYX_ERR_INVALID_ARGUMENT)
        return 1; /* info_print_finding has printed every finding */
    if (status == ULYX_SUCCESS) {
        print_file(&planner);
        status = print_sizes(&planner, nodes, ranks_per_node);
    }
    return info_finish(status);
}
