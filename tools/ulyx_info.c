/* SPDX-License-Identifier: Apache-2.0
 *
 * ulyx_info: what this build is, what it can use on this machine and why not,
 * every setting with its value and source, and the plan for a shape.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/settings.h"
#include "collectives/kernels/copy.h"
#include "info.h"
#include "topology/node.h"
#include "transport/transport.h"
#include "ulyx/ulyx.h"

static int
usage(FILE *out, int code)
{
    fprintf(out,
        "ulyx_info [build|settings|transports|all]\n"
        "ulyx_info plan [--ranks P] [--seq S] [--batch B] [--heads H]\n"
        "               [--kv-heads HKV] [--dim D] [--dim-v DV]\n"
        "               [--split heads|balanced] [--order contiguous|zigzag]\n"
        "ulyx_info plan --nodes N [--ranks-per-node G] ...\n"
        "ulyx_info topology [--ranks G]\n"
        "ulyx_info tuning FILE\n"
        "\n"
        "  build       version, options, kernels of this processor\n"
        "  settings    every ULYX_ setting: value, source, default, meaning\n"
        "  transports  which can be used here, and why others cannot\n"
        "  plan        who holds what, and what moves, for a shape; with "
        "--nodes\n"
        "              the schedule and its predicted time, on any machine\n"
        "              (ulyx_info plan --nodes lists its options)\n"
        "  topology    this machine, or ULYX_TOPO_FILE's, and its ranks\n"
        "  tuning      checks a tuning file and shows its links\n");
    return code;
}

static const char *
yes(int have)
{
    return have ? "yes" : "no";
}

static void
print_build(void)
{
    int32_t count;
    const char *const *kernels = uli_copy_kernel_names(&count);
    struct uli_settings settings;

    printf("ulyx %d.%d.%d\n", ULYX_VERSION_MAJOR, ULYX_VERSION_MINOR,
        ULYX_VERSION_PATCH);
    printf("  CUDA %s, UCX %s, NCCL %s, MPI comparison %s, PMIx %s\n",
        yes(ULI_HAVE_CUDA), yes(ULI_HAVE_UCX), yes(ULI_HAVE_NCCL),
        yes(ULI_HAVE_MPI), yes(ULI_HAVE_PMIX));
    printf("  copy kernels here, best last:");
    for (int32_t i = 0; i < count; i++)
        printf(" %s", kernels[i]);
    printf("\n  cores that this process may use: %d\n", uli_node_cores());
    if (uli_settings_load(&settings) == ULYX_SUCCESS) {
        uint64_t hash[2];

        uli_node_hash(&settings, hash);
        printf("  node: %016llx%016llx%s\n", (unsigned long long)hash[0],
            (unsigned long long)hash[1],
            settings.host_id[0] ? " (ULYX_HOSTID)" : "");
    }
}

/* The help in lines of at most 76 columns. */
static void
print_wrapped(const char *text)
{
    while (*text != 0) {
        size_t length = strlen(text), cut = length;

        if (length > 70)
            for (cut = 70; cut > 0 && text[cut] != ' '; cut--)
                ;
        cut = cut == 0 ? length : cut;
        printf("      %.*s\n", (int)cut, text);
        text += cut;
        while (*text == ' ')
            text++;
    }
}

static int
print_settings(void)
{
    size_t count;
    const struct uli_setting_row *rows = uli_settings_rows(&count);
    struct uli_settings settings;
    int code = uli_settings_load(&settings) == ULYX_SUCCESS ? 0 : 1;

    for (size_t i = 0; i < count; i++) {
        char value[ULI_SETTING_TEXT] = "", source[ULI_SETTING_TEXT] = "";

        if (uli_settings_explain(rows[i].name, value, sizeof(value), source,
                sizeof(source)) != ULYX_SUCCESS)
            code = 1;
        if (strcmp(rows[i].name, "ULYX_SECRET") == 0 ||
            strcmp(rows[i].name, "ULYX_COMM_ID") == 0)
            snprintf(value, sizeof(value), "%s", value[0] ? "(hidden)" : "");
        printf("  %s=%s  [%s]\n", rows[i].name, value, source);
        print_wrapped(rows[i].help);
    }
    if (code != 0)
        fprintf(stderr, "ulyx_info: %s\n", ulyx_last_error());
    return code;
}

static void
print_caps(uint64_t caps)
{
    static const struct {
        uint64_t bit;
        const char *name;
    } names[] = {{ULI_TR_MAP, "map windows"},
        {ULI_TR_READ, "read ordinary memory"}, {ULI_TR_PUT, "put"},
        {ULI_TR_BATCH, "send/receive batches"},
        {ULI_TR_MAP_DEVICE, "map windows in device memory"}};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (caps & names[i].bit)
            printf(", %s", names[i].name);
}

static int
print_transports(void)
{
    size_t count;
    const struct uli_tr_ops *const *list = uli_tr_list(&count);
    struct uli_settings settings;

    if (uli_settings_load(&settings) != ULYX_SUCCESS) {
        fprintf(stderr, "ulyx_info: %s\n", ulyx_last_error());
        return 1;
    }
    for (size_t i = 0; i < count; i++) {
        char why[512] = "";
        bool usable = uli_tr_usable(list[i], &settings, why, sizeof(why));

        printf("  %-6s %s", list[i]->name, usable ? "usable" : "not usable");
        print_caps(list[i]->caps);
        printf("%s%s\n", why[0] ? ": " : "", why);
    }
    return 0;
}

/* ---- plan ---------------------------------------------------------------- */

struct shape {
    long long ranks, seq, batch, heads, kv_heads, dim, dim_v;
    int32_t work, order;
};

static bool
refuse(const char *name, const char *value)
{
    if (value == NULL)
        fprintf(stderr, "ulyx_info: plan: %s wants a value\n", name);
    else
        fprintf(
            stderr, "ulyx_info: plan: %s %s is not understood\n", name, value);
    return false;
}

/* One of two words: 0 or 1 into *choice_p. */
static bool
choose(
    const char *value, const char *first, const char *second, int32_t *choice_p)
{
    *choice_p = strcmp(value, second) == 0;
    return *choice_p || strcmp(value, first) == 0;
}

static bool
parse_one(struct shape *s, const char *name, const char *value)
{
    struct {
        const char *name;
        long long *value;
    } numbers[] = {{"--ranks", &s->ranks}, {"--seq", &s->seq},
        {"--batch", &s->batch}, {"--heads", &s->heads},
        {"--kv-heads", &s->kv_heads}, {"--dim", &s->dim},
        {"--dim-v", &s->dim_v}};

    for (size_t n = 0; n < sizeof(numbers) / sizeof(numbers[0]); n++)
        if (strcmp(name, numbers[n].name) == 0) {
            char *end;

            errno = 0;
            *numbers[n].value = strtoll(value, &end, 10);
            return end != value && *end == 0 && errno == 0;
        }
    if (strcmp(name, "--split") == 0)
        return choose(value, "heads", "balanced", &s->work);
    if (strcmp(name, "--order") == 0)
        return choose(value, "contiguous", "zigzag", &s->order);
    return false;
}

static bool
parse_shape(int argc, char **argv, struct shape *s)
{
    for (int i = 0; i < argc; i += 2)
        if (i + 1 == argc || !parse_one(s, argv[i], argv[i + 1]))
            return refuse(argv[i], i + 1 < argc ? argv[i + 1] : NULL);
    s->kv_heads = s->kv_heads > 0 ? s->kv_heads : s->heads;
    s->dim_v = s->dim_v > 0 ? s->dim_v : s->dim;
    if (s->ranks < 1 || s->ranks > 4096)
        return refuse("--ranks", "outside 1 to 4096");
    return true;
}

static void
print_rank(ulyx_plan_t *plan, int rank)
{
    ulyx_traffic_t there = ULYX_TRAFFIC_INIT, back = ULYX_TRAFFIC_INIT;
    int64_t rows = 0, first = 0, heads = 0, kv_first = 0, kv = 0, bytes = 0;

    ulyx_plan_get_seq_rows(plan, 0, rank, &rows);
    ulyx_plan_get_heads(plan, 0, rank, &first, &heads);
    ulyx_plan_get_heads(plan, 1, rank, &kv_first, &kv);
    ulyx_plan_get_traffic(plan, ULYX_SEQ_TO_HEAD, &there);
    ulyx_plan_get_traffic(plan, ULYX_HEAD_TO_SEQ, &back);
    ulyx_plan_get_memory(plan, &bytes);
    printf("  %5d %10lld %5lld +%-5lld %5lld +%-4lld %14lld %14lld %12lld\n",
        rank, (long long)rows, (long long)first, (long long)heads,
        (long long)kv_first, (long long)kv, (long long)there.received_bytes,
        (long long)back.received_bytes, (long long)bytes);
}

static int
print_plans(const struct shape *s, ulyx_plan_t **plans)
{
    char text[1024];

    if (ulyx_plan_describe(plans[0], text, sizeof(text)) != ULYX_SUCCESS)
        return 1;
    printf("%s\n  %5s %10s %12s %11s %14s %14s %12s\n", text, "rank", "rows",
        "heads", "kv heads", "received s2h", "received h2s", "held (B)");
    for (int r = 0; r < s->ranks; r++)
        print_rank(plans[r], r);
    return 0;
}

static int
make_plans(const struct shape *s, ulyx_comm_t **comms, ulyx_plan_t **plans)
{
    ulyx_part_t part = ULYX_PART_INIT;
    ulyx_tensor_t tensors[3] = {
        ULYX_TENSOR_INIT, ULYX_TENSOR_INIT, ULYX_TENSOR_INIT};
    ulyx_plan_params_t params = ULYX_PLAN_PARAMS_INIT;
    ulyx_status_t status = ULYX_SUCCESS, end;

    part.rows = s->seq;
    part.order = s->order;
    tensors[0].heads = s->heads;
    tensors[1].heads = tensors[2].heads = s->kv_heads;
    tensors[0].dim = tensors[1].dim = s->dim;
    tensors[2].dim = s->dim_v;
    tensors[1].ownership = tensors[2].ownership = ULYX_READERS;
    params.batch = s->batch;
    params.heads = s->heads;
    params.parts = &part;
    params.nparts = 1;
    params.tensors = tensors;
    params.ntensors = 3;
    params.work_split = s->work;
    params.mask_kind = ULYX_MASK_CAUSAL;
    params.seq_memory = params.head_memory = ULYX_POINTER_WINDOW;
    ulyx_group_start();
    for (int r = 0; r < s->ranks && status == ULYX_SUCCESS; r++)
        status = ulyx_plan_create(comms[r], &params, &plans[r]);
    end = ulyx_group_end();
    return status == ULYX_SUCCESS && end == ULYX_SUCCESS ? 0 : 1;
}

static int
print_plan(int argc, char **argv)
{
    struct shape s = {.ranks = 4,
        .seq = 8192,
        .batch = 1,
        .heads = 32,
        .kv_heads = 8,
        .dim = 128};
    ulyx_comm_t **comms;
    ulyx_plan_t **plans;
    int code;

    if (!parse_shape(argc, argv, &s))
        return usage(stderr, 6);
    comms = calloc((size_t)s.ranks, sizeof(*comms));
    plans = calloc((size_t)s.ranks, sizeof(*plans));
    code =
        comms == NULL || plans == NULL ||
        ulyx_comm_create_local((int32_t)s.ranks, NULL, comms) != ULYX_SUCCESS;
    if (code == 0)
        code = make_plans(&s, comms, plans);
    if (code == 0)
        code = print_plans(&s, plans);
    if (code != 0)
        fprintf(stderr, "ulyx_info: %s\n", ulyx_last_error());
    for (int r = 0; comms && plans && r < s.ranks; r++) {
        ulyx_plan_destroy(plans[r]);
        ulyx_comm_destroy(comms[r]);
    }
    free(comms);
    free(plans);
    return code;
}

static bool
has_word(int argc, char **argv, const char *word)
{
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], word))
            return true;
    return false;
}

static int
run(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "all";
    bool all = strcmp(what, "all") == 0;
    bool nodes = !strcmp(what, "plan") && has_word(argc, argv, "--nodes");
    int code = 0;

    if (has_word(argc, argv, "-h") || has_word(argc, argv, "--help"))
        return nodes ? info_predict_usage(stdout, 0) : usage(stdout, 0);
    if (nodes)
        return info_predict(argc - 2, argv + 2);
    if (!strcmp(what, "plan"))
        return print_plan(argc - 2, argv + 2);
    if (!strcmp(what, "topology"))
        return info_topology(argc - 2, argv + 2);
    if (!strcmp(what, "tuning"))
        return info_tuning(argc - 2, argv + 2);
    if (argc > 2 ||
        (!all && strcmp(what, "build") && strcmp(what, "settings") &&
            strcmp(what, "transports"))) {
        fprintf(stderr, "ulyx_info: %s is not understood\n",
            argc > 2 ? argv[2] : what);
        return usage(stderr, 6);
    }
    if (all || !strcmp(what, "build"))
        print_build();
    if (all)
        printf("transports\n");
    if (all || !strcmp(what, "transports"))
        code |= print_transports();
    if (all)
        printf("settings\n");
    if (all || !strcmp(what, "settings"))
        code |= print_settings();
    return code;
}

/* What was printed has to have arrived: a full disk is no success. */
int
main(int argc, char **argv)
{
    int code = run(argc, argv);

    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr, "ulyx_info: standard output cannot be written\n");
    return code == 0 ? 1 : code;
}
