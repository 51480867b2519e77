/* SPDX-License-Identifier: Apache-2.0
 *
 * ulyx_info: what this build contains, which transports it can use on this
 * machine and why not the others, every setting with its value and source, and
 * the plan for a shape. Further commands have files of their own (info.h).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/settings.h"
#include "collectives/exchange/copies.h"
#include "collectives/kernels/copy_text.h"
#include "device/cuda_driver.h"
#include "info.h"
#include "info_options.h"
#include "topology/node.h"
#include "transport/transport.h"
#include "ulyx/ulyx.h"

static const char *
word_for(int have)
{
    return have ? "yes" : "no";
}

static void
print_attention_kernels(void)
{
    const char *names[16];
    int32_t count;

    if (ulyx_attention_list_kernels(ULYX_MEMORY_HOST, names, 16, &count) !=
        ULYX_SUCCESS)
        return;
    printf("\n  attention kernels here, fastest first:");
    for (int32_t i = 0; i < count && i < 16; i++)
        printf(" %s", names[i]);
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
        word_for(ULI_HAVE_CUDA), word_for(ULI_HAVE_UCX),
        word_for(ULI_HAVE_NCCL), word_for(ULI_HAVE_MPI),
        word_for(ULI_HAVE_PMIX));
    printf("  copy kernels here, best last:");
    for (int32_t i = 0; i < count; i++)
        printf(" %s", kernels[i]);
    print_attention_kernels();
    printf("\n  cores that this process may use: %d%s\n", uli_node_cores(),
        uli_node_quota() == uli_node_cores() ? " (CPU quota)" : "");
    if (uli_settings_load(&settings) == ULYX_SUCCESS) {
        uint64_t hash[2];

        if (uli_node_hash(&settings, hash) != ULYX_SUCCESS)
            return;
        printf("  node: %016llx%016llx%s\n", (unsigned long long)hash[0],
            (unsigned long long)hash[1],
            settings.host_id[0] ? " (ULYX_HOSTID)" : "");
    }
}

/* Prints the help of a setting in lines of at most 76 columns. */
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

/* Can the transport be used, as far as devices are concerned? A transport that
 * moves only device memory needs a device. */
static bool
has_devices(const struct uli_tr_ops *ops, char *why_p, size_t bytes)
{
    return ops->reaches != uli_tr_between_devices ||
           uli_cuda_present(why_p, bytes);
}

static int
print_transports(void)
{
    size_t count, width = 0;
    const struct uli_tr_ops *const *list = uli_tr_list(&count);
    struct uli_settings settings;

    if (uli_settings_load(&settings) != ULYX_SUCCESS) {
        fprintf(stderr, "ulyx_info: %s\n", ulyx_last_error());
        return 1;
    }
    for (size_t i = 0; i < count; i++)
        if (strlen(list[i]->name) > width)
            width = strlen(list[i]->name);
    for (size_t i = 0; i < count; i++) {
        char why[512] = "";
        bool usable = uli_tr_usable(list[i], &settings, why, sizeof(why)) &&
                      has_devices(list[i], why, sizeof(why));

        printf("  %-*s %s", (int)width, list[i]->name,
            usable ? "usable" : "not usable");
        print_caps(list[i]->caps);
        printf("%s%s\n", why[0] ? ": " : "", why);
    }
    return 0;
}

/* ---- plan ---------------------------------------------------------------- */

struct shape {
    int64_t ranks, seq, batch, heads, kv_heads, dim, dim_v;
    int32_t work, order;
    bool json;
};

enum { JSON_RANKS_MAX = 1024 }; /* a matrix of 8 MB per operation */

static int
parse_shape(int argc, char **argv, struct shape *s)
{
    const int64_t most = INT64_C(1) << 40;
    const char *work = "heads", *order = "contiguous";
    const struct info_option options[] = {
        {"--ranks", INFO_NUMBER, &s->ranks, 1, 4096, "ranks of one node (4)"},
        {"--seq", INFO_NUMBER, &s->seq, 0, most, "tokens (8192)"},
        {"--batch", INFO_NUMBER, &s->batch, 0, most, "batch items (1)"},
        {"--heads", INFO_NUMBER, &s->heads, 1, most, "query heads (32)"},
        {"--kv-heads", INFO_NUMBER, &s->kv_heads, 1, most, "KV heads (8)"},
        {"--dim", INFO_NUMBER, &s->dim, 1, most, "head dimension (128)"},
        {"--dim-v", INFO_NUMBER, &s->dim_v, 1, most,
            "head dimension of v (that of --dim)"},
        {"--work", INFO_TEXT, &work, 0, 0,
            "how work is divided: heads or balanced (heads)", "heads|balanced"},
        {"--split", INFO_TEXT, &work, 0, 0, NULL, "heads|balanced"},
        {"--order", INFO_TEXT, &order, 0, 0,
            "contiguous or zigzag (contiguous)", "contiguous|zigzag"},
        {"--json", INFO_FLAG, &s->json, 0, 0,
            "one line of JSON, with the bytes of each pair of ranks"}};
    const struct info_command command = {"plan",
        "What each rank of one node holds, and what moves. With --nodes: what\n"
        "an exchange between nodes costs (ulyx_info plan --nodes 2 --help).\n",
        options, sizeof(options) / sizeof(options[0])};
    int code = info_options_read(&command, argc, argv);

    s->work =
        strcmp(work, "balanced") == 0 ? ULYX_WORK_BALANCED : ULYX_WORK_HEADS;
    s->order = strcmp(order, "zigzag") == 0 ? ULYX_TOKENS_ZIGZAG
                                            : ULYX_TOKENS_CONTIGUOUS;
    s->dim_v = s->dim_v > 0 ? s->dim_v : s->dim;
    if (code < 0 && s->json && s->ranks > JSON_RANKS_MAX)
        return info_reject(
            "plan", "--json: expected at most %d --ranks", (int)JSON_RANKS_MAX);
    return code;
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
    tensors[1].ownership = tensors[2].ownership = ULYX_HEADS_KV;
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

    code = parse_shape(argc, argv, &s);
    if (code >= 0)
        return code;
    comms = calloc((size_t)s.ranks, sizeof(*comms));
    plans = calloc((size_t)s.ranks, sizeof(*plans));
    code =
        !comms || !plans ||
        ulyx_comm_create_local((int32_t)s.ranks, NULL, comms) != ULYX_SUCCESS;
    if (code == 0)
        code = make_plans(&s, comms, plans);
    if (code == 0 && !s.json)
        code = print_plans(&s, plans);
    if (code != 0)
        fprintf(stderr, "ulyx_info: %s\n", ulyx_last_error());
    else if (s.json)
        code = info_plan_json(plans[0],
            s.order == ULYX_TOKENS_ZIGZAG ? "zigzag" : "contiguous",
            s.work == ULYX_WORK_BALANCED ? "balanced" : "heads");
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
    size_t length = strlen(word);

    for (int i = 1; i < argc; i++)
        if (!strncmp(argv[i], word, length) &&
            (argv[i][length] == 0 || argv[i][length] == '='))
            return true;
    return false;
}

static int
info_plan(int argc, char **argv)
{
    return has_word(argc + 1, argv - 1, "--nodes") ? info_predict(argc, argv)
                                                   : print_plan(argc, argv);
}

static int
show_build(int argc, char **argv)
{
    (void)argc, (void)argv;
    print_build();
    return 0;
}

static int
show_settings(int argc, char **argv)
{
    (void)argc, (void)argv;
    return print_settings();
}

static int
show_transports(int argc, char **argv)
{
    (void)argc, (void)argv;
    return print_transports();
}

/* Prints how copies are made, in the form of a file for ULYX_CALIBRATE. */
static int
show_copies(int argc, char **argv)
{
    struct uli_settings settings;
    struct uli_copy_choice choice;
    char origin[ULI_COPIES_ORIGIN], text[ULI_COPY_TEXT];

    (void)argc, (void)argv;
    if (uli_settings_load(&settings) != ULYX_SUCCESS ||
        uli_copies_choose(&settings, &choice, origin) != ULYX_SUCCESS) {
        fprintf(stderr, "ulyx_info: %s\n", ulyx_last_error());
        return 1;
    }
    uli_copy_text_write(&choice, text);
    printf("%s# %s\n", text, origin);
    return 0;
}

static int
show_all(int argc, char **argv)
{
    int code;

    (void)argc, (void)argv;
    print_build();
    printf("transports\n");
    code = print_transports();
    printf("settings\n");
    return code | print_settings();
}

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    bool options; /* run receives the arguments after the name, also --help */
    const char *summary, *text;
} commands[] = {
    {"all", show_all, false, "the next three; the default command", NULL},
    {"build", show_build, false, "version, options, kernels of this processor",
        NULL},
    {"settings", show_settings, false,
        "every ULYX_ setting: value, source, default, meaning",
        "Sources, of which a later one overrides an earlier one: the default; "
        "/etc/ulyx.conf;\n~/.config/ulyx.conf (lines NAME=VALUE, # comments); "
        "the environment. A communicator\nreads them when it is created, and "
        "keeps them.\n"},
    {"transports", show_transports, false,
        "which can be used here, and why others cannot", NULL},
    {"copies", show_copies, false,
        "how copies between ranks are made, with measured rates",
        "Each line has the size of a call, where the rows of the source lie, a "
        "way of copying\n(hint of prefetches, rows side by side, lines ahead), "
        "and the GB/s measured with\nthis way and with the default way. The "
        "last line is the size from which stores\nstream. ULYX_CALIBRATE=FILE "
        "reads this output from a file.\n"},
    {"plan", info_plan, true, "what each rank holds, and what moves", NULL},
    {"plan --nodes", info_predict, true,
        "the schedule between nodes and its predicted time", NULL},
    {"topology", info_topology, true,
        "this machine, or that of ULYX_TOPO_FILE, and its ranks", NULL},
    {"ranks", info_ranks, true,
        "running ranks of this host: their calls, and which wait for which",
        NULL},
    {"report", info_report, true,
        "dumps of many hosts: which rank holds the others up", NULL},
    {"tuning", info_tuning, true, "checks a tuning file and shows its content",
        NULL}};
enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static int
usage_print(void)
{
    printf(
        "usage: ulyx_info [command] [options]\n"
        "Shows this build of ulyx, this machine, and what plans would do.\n\n");
    for (int i = 0; i < COMMANDS; i++)
        printf("  %-13s %s\n", commands[i].name, commands[i].summary);
    printf("\n  -h, --help    this text, or that of a command with options\n"
           "  --version     the version\n\n"
           "Exit code: 0 success, 1 an error, which is printed, 6 bad "
           "arguments.\n");
    return 0;
}

static void
settings_print_rows(void)
{
    static const char *const types[] = {[ULI_SETTING_STRING] = "text",
        [ULI_SETTING_CHOICE] = "word",
        [ULI_SETTING_BOOL] = "yes or no",
        [ULI_SETTING_INT] = "whole number",
        [ULI_SETTING_BYTES] = "bytes",
        [ULI_SETTING_SECONDS] = "seconds",
        [ULI_SETTING_PORTS] = "ports"};
    _Static_assert(
        sizeof(types) / sizeof(types[0]) == ULI_SETTING_TYPES, "a word a type");
    size_t count;
    const struct uli_setting_row *rows = uli_settings_rows(&count);

    for (size_t i = 0; i < count; i++)
        printf("setting\t%s\t%s\t%s\t%.15g\t%.15g\t%s\n", rows[i].name,
            types[rows[i].type], rows[i].default_text, rows[i].min, rows[i].max,
            rows[i].help);
}

/* Prints the source of manual pages and completion: lines of fields with
 * tabs. */
static int
commands_print_table(void)
{
    char *word = "--help=table";

    printf("name\tulyx_info\tbuild, machine, settings and plans of ulyx\n"
           "option\t-h\t--help\t\tthe options, or those of a command\n"
           "option\t\t--version\t\tthe version\n");
    for (int i = 0; i < COMMANDS; i++) {
        const char *text = commands[i].text;
        struct info_command plain = {.name = commands[i].name,
            .about = text ? text : commands[i].summary};

        if (strcmp(commands[i].name, "plan --nodes") == 0)
            info_predict(1, &word);
        else if (commands[i].options)
            commands[i].run(1, &word);
        else
            info_options_read(&plain, 1, &word);
    }
    settings_print_rows();
    return 0;
}

static int
version_print(void)
{
    printf("ulyx_info %d.%d.%d\n", ULYX_VERSION_MAJOR, ULYX_VERSION_MINOR,
        ULYX_VERSION_PATCH);
    return 0;
}

/* The help of a command without options. */
static int
command_print_page(int at)
{
    printf("usage: ulyx_info %s\n\n%s\n%s", commands[at].name,
        commands[at].summary, commands[at].text ? commands[at].text : "");
    return 0;
}

static int
command_run(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "all";
    bool help = has_word(argc, argv, "-h") || has_word(argc, argv, "--help");

    if (has_word(argc, argv, "--version"))
        return version_print();
    if (strcmp(what, "--help=table") == 0)
        return commands_print_table();
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(what, commands[i].name) != 0)
            continue;
        if (commands[i].options)
            return commands[i].run(argc - 2, argv + 2);
        if (help)
            return command_print_page(i);
        if (argc > 2)
            return info_reject(what, "%s is not understood", argv[2]);
        return commands[i].run(0, NULL);
    }
    if (help)
        return usage_print();
    return info_reject("", "%s is not understood", what);
}

/* Turns the log off unless the user has set it: this program prints errors
 * itself, and the log would repeat them. */
static void
quiet_log(void)
{
    if (getenv("ULYX_DEBUG"))
        return;
    setenv("ULYX_DEBUG", "NONE", 1);
    uli_log_on(ULI_LOG_WARN, ULI_LOG_ALL); /* reads ULYX_DEBUG, once */
    unsetenv("ULYX_DEBUG");
}

/* The exit code is 0 only if all output has been written: a full disk is an
 * error. */
int
main(int argc, char **argv)
{
    int code;

    quiet_log();
    code = command_run(argc, argv);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr, "ulyx_info: standard output cannot be written\n");
    return code == 0 ? 1 : code;
}
