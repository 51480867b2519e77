/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line: nccl-tests' flags and our own, in one table. Unlike
 * nccl-tests an unknown flag or a bad value is an error, with exit 6.
 */
#include "options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { FLAG, COUNT, LONG, BYTES, REAL, TEXT };

struct option {
    const char *brief, *name;
    enum kind kind;
    size_t offset;
    double low, high;
    const char *help;
};

/* What users of nccl-tests may type and cannot have here, with the reason. */
static const struct {
    const char *brief, *name, *why;
} elsewhere[] = {
    {"-r", "--root", "no rank is a root here"},
    {"-y", "--stream_null", "streams need GPU memory"},
    {"-C", "--report_cputime", "a call on the host returns when it is done"},
    {"-S", "--report_timestamps", "-J writes the times of start and end"},
    {"-I", "--per_iter", "min, p99 and cv are always measured: see --wide"},
    {"-K", "--skip", "see -w"},
    {"-x", "--cta_policy", "it needs GPU memory"},
    {"-D", "--device_implementation", "it needs GPU memory"},
    {"-V", "--device_cta_count", "it needs GPU memory"},
    {"-M", "--memory_report", "see ulyx_info plan"},
    {"-u", "--unalign", "tensors lie at multiples of 64 bytes here"},
};
enum { ELSEWHERE = sizeof(elsewhere) / sizeof(elsewhere[0]) };

#define AT(field) offsetof(struct perf_options, field)
static const struct option table[] = {
    {"-b", "--minbytes", BYTES, AT(min_bytes), 1, 1e15,
        "smallest size, bytes of a rank's sequence side; K M G are binary"},
    {"-e", "--maxbytes", BYTES, AT(max_bytes), 1, 1e15, "largest size"},
    {"-i", "--stepbytes", BYTES, AT(step_bytes), 1, 1e15,
        "step between sizes (1M)"},
    {"-f", "--stepfactor", REAL, AT(step_factor), 1.001, 1e6,
        "factor between sizes, instead of -i"},
    {"-n", "--iters", COUNT, AT(iterations), 1, 1e6, "iterations (20)"},
    {"-w", "--warmup_iters", COUNT, AT(warmups), 0, 1e6,
        "warm-ups beside one of each set of tensors (1)"},
    {"-m", "--agg_iters", COUNT, AT(aggregate), 1, 1e6,
        "operations an iteration; times are of one operation (1)"},
    {"-N", "--run_cycles", COUNT, AT(cycles), 0, 1e6,
        "repeats of the table; 0 = for ever (1)"},
    {"-c", "--check", COUNT, AT(check), 0, 1e6,
        "passes of checking every element; 0 = off (1)"},
    {"-t", "--nthreads", COUNT, AT(threads), 1, 4096, "threads a process"},
    {"-g", "--ngpus", COUNT, AT(ranks_per_thread), 1, 4096,
        "ranks a thread, driven by groups"},
    {"-p", "--parallel_init", COUNT, AT(parallel_init), 0, 1,
        "a process's communicators are always made in parallel"},
    {"-z", "--blocking", COUNT, AT(blocking), 0, 2,
        "1: a barrier after each operation; 0, 2: none (0)"},
    {"-T", "--timeout", REAL, AT(timeout_s), 0, 86400,
        "seconds that any wait may take (ULYX_TIMEOUT); exit 4"},
    {"-G", "--cudagraph", COUNT, AT(replays), 0, 1e6,
        "capture a block's operations and launch the graph so many times; of "
        "device memory (0)"},
    {"-J", "--output_file", TEXT, AT(json_file), 0, 0,
        "JSON to this file, anew (perf/schema.json describes it)"},
    {"-a", "--average", COUNT, AT(average), 0, 3,
        "ranks' times: 0 rank 0's, 1 mean, 2 least, 3 first start to "
        "last end (3)"},
    {"-R", "--local_register", COUNT, AT(register_memory), 0, 1,
        "1: windows (default); 0: ordinary memory"},
    {NULL, "--procs", COUNT, AT(procs), 1, 4096,
        "start so many local processes"},
    {NULL, "--model", TEXT, AT(model), 0, 0,
        "geometry by name, a comma list, or all"},
    {NULL, "--batch", LONG, AT(batch), 1, 1e6, "batch items (1)"},
    {NULL, "--seq", LONG, AT(seq), 1, 1e12, "tokens S; instead of -b and -e"},
    {NULL, "--heads", LONG, AT(heads), 1, 1e6, "query heads (32)"},
    {NULL, "--kv-heads", LONG, AT(kv_heads), 1, 1e6,
        "KV heads (as query heads)"},
    {NULL, "--dim", LONG, AT(dim), 1, 1e6, "head dimension (128)"},
    {NULL, "--dim-v", LONG, AT(dim_v), 1, 1e6, "of values (as --dim)"},
    {"-d", "--dtype", TEXT, AT(dtype), 0, 0,
        "bf16 f16 f32 f64 f8e4m3 f8e5m2, or bytes 1 to 4096 (bf16)"},
    {"-o", "--op", TEXT, AT(operation), 0, 0,
        "s2h (q, k, v), h2s (out), both, s2h_adj, h2s_adj, all (both)"},
    {NULL, "--order", TEXT, AT(order), 0, 0,
        "contiguous or zigzag (contiguous)"},
    {NULL, "--split", TEXT, AT(split), 0, 0, "heads or balanced (heads)"},
    {NULL, "--replicated", LONG, AT(replicated), 0, 1e9,
        "replicated tokens joined to the sharded ones (0)"},
    {NULL, "--vs", TEXT, AT(versus), 0, 0,
        "ratio columns, with commas: memcpy, mpi; of device memory copy, "
        "permute, nccl"},
    {NULL, "--memory", TEXT, AT(memory), 0, 0,
        "host, or cuda: the process's current device (host)"},
    {NULL, "--copy-engine", FLAG, AT(copy_engine), 0, 0,
        "device memory is moved by copy engines, not by a kernel"},
    {NULL, "--wide", FLAG, AT(wide), 0, 0, "columns min, p99 and cv"},
    {NULL, "--quick", FLAG, AT(quick), 0, 0,
        "one size (8M) and few iterations (10), where -b -e -n are not given"},
    {NULL, "--csv", FLAG, AT(csv), 0, 0, "CSV on standard output"},
    {NULL, "--dry-run", FLAG, AT(dry_run), 0, 0,
        "print the plans of --procs x -t x -g ranks, move nothing"},
    {NULL, "--no-progress", FLAG, AT(progress), 0, 0,
        "no progress line on a terminal"},
};
enum { OPTIONS = sizeof(table) / sizeof(table[0]) };

static void
usage(FILE *out)
{
    fprintf(out,
        "usage: ulyx_perf [options]\n"
        "Times the exchange of sequence-parallel attention.\n\n"
        "  ulyx_perf --procs 4 --model llama3-8b -b 1M -e 64M -f 2 --vs "
        "memcpy\n"
        "  mpirun -np 4 ulyx_perf --model all --quick\n"
        "  torchrun --nproc-per-node 4 --no-python ulyx_perf --seq 65536\n"
        "Over several hosts (docs/USING.md), with a launcher or by hand:\n"
        "  mpirun -np 16 --hostfile hosts ulyx_perf --model llama3-8b --quick\n"
        "  ULYX_RANK=0 ULYX_NRANKS=2 MASTER_ADDR=head ULYX_PORT=29600 "
        "ULYX_SECRET=... ulyx_perf\n"
        "\n");
    for (int i = 0; i < OPTIONS; i++)
        fprintf(out, "  %s%s %-18s %s\n",
            table[i].brief ? table[i].brief : "  ", table[i].brief ? "," : " ",
            table[i].name, table[i].help);
    fprintf(out,
        "  -h, --help             this text\n"
        "\nTimes are medians of blocks of back-to-back operations, peers\n"
        "interleaved; busbw counts the bytes that the slowest-fed rank must\n"
        "receive from others. Exit: 0 ok, 1 internal, 3 library, 4 timeout,\n"
        "5 not implemented, 6 usage, 77 skipped (no device), 7 wrong data or "
        "below\n"
        "ULYX_PERF_MIN_BW.\nModels:\n");
    int count;
    const struct perf_model *models = perf_models(&count);
    for (int i = 0; i < count; i++)
        fprintf(out, "  %-14s h %3lld  hkv %3lld  dk %3lld  dv %3lld  %s\n",
            models[i].name, (long long)models[i].heads,
            (long long)models[i].kv_heads, (long long)models[i].dim_qk,
            (long long)models[i].dim_v, models[i].note);
}

/* A number with an optional K, M or G; false when anything is left over. */
bool
perf_number(const char *text, bool suffix, double *value_p)
{
    char *end;
    double value = strtod(text, &end), scale = 1;

    if (end == text || !isfinite(value))
        return false;
    if (suffix && *end != 0) {
        if (*end == 'K' || *end == 'k')
            scale = 1024;
        else if (*end == 'M' || *end == 'm')
            scale = 1024.0 * 1024;
        else if (*end == 'G' || *end == 'g')
            scale = 1024.0 * 1024 * 1024;
        else
            return false;
        end++;
        if (*end == 'B' || *end == 'b')
            end++;
    }
    *value_p = value * scale;
    return *end == 0;
}

static bool
store(
    const struct option *option, const char *text, struct perf_options *options)
{
    char *field = (char *)options + option->offset;
    double value;

    if (option->kind == TEXT) {
        *(const char **)(void *)field = text;
        return true;
    }
    if (!perf_number(
            text, option->kind == BYTES || option->kind == LONG, &value) ||
        value < option->low || value > option->high ||
        (option->kind != REAL && value != floor(value))) {
        fprintf(stderr, "ulyx_perf: %s %s: expected a number from %g to %g\n",
            option->name, text, option->low, option->high);
        return false;
    }
    if (option->offset == AT(register_memory))
        options->register_memory = value != 0;
    else if (option->kind == COUNT)
        *(int *)(void *)field = (int)value;
    else if (option->kind == REAL)
        *(double *)(void *)field = value;
    else
        *(int64_t *)(void *)field = (int64_t)value;
    return true;
}

static const struct option *
find(const char *word, size_t length)
{
    for (int i = 0; i < OPTIONS; i++)
        if ((table[i].brief && strlen(table[i].brief) == length &&
                strncmp(table[i].brief, word, length) == 0) ||
            (strlen(table[i].name) == length &&
                strncmp(table[i].name, word, length) == 0))
            return &table[i];
    return NULL;
}

/* An option that is not in the table. One of nccl-tests with the value 0, off,
 * is taken; its other values are refused with the reason. */
static int
take_unknown(const char *word, const char *value, int *at_p)
{
    for (int i = 0; i < ELSEWHERE; i++)
        if (!strcmp(word, elsewhere[i].brief) ||
            !strcmp(word, elsewhere[i].name)) {
            if (value != NULL && strcmp(value, "0") == 0) {
                ++*at_p;
                return PERF_OK;
            }
            fprintf(stderr, "ulyx_perf: %s of nccl-tests is not here: %s\n",
                word, elsewhere[i].why);
            return PERF_NOT_IMPLEMENTED;
        }
    usage(stderr);
    fprintf(stderr, "\nulyx_perf: unknown option %s\n", word);
    return PERF_USAGE;
}

bool
perf_option_given(const struct perf_options *options, const char *name)
{
    const struct option *option = find(name, strlen(name));

    return option != NULL && (options->given >> (option - table) & 1) != 0;
}

/* Takes the word at argv[*at_p], and its value behind it; returns an exit. */
static int
take(int argc, char **argv, int *at_p, struct perf_options *options)
{
    const char *word = argv[*at_p], *value = strchr(word, '=');
    size_t length = value && !strncmp(word, "--", 2) ? (size_t)(value - word)
                                                     : strlen(word);
    const struct option *option = find(word, length);

    if (option == NULL)
        return take_unknown(
            word, *at_p + 1 < argc ? argv[*at_p + 1] : NULL, at_p);
    options->given |= UINT64_C(1) << (option - table);
    if (option->kind == FLAG) {
        if (word[length] == '=') {
            fprintf(stderr, "ulyx_perf: %s takes no value\n", option->name);
            return PERF_USAGE;
        }
        *(bool *)(void *)((char *)options + option->offset) = true;
        return PERF_OK;
    }
    value = word[length] == '=' ? word + length + 1
            : *at_p + 1 < argc  ? argv[++*at_p]
                                : NULL;
    if (value == NULL) {
        fprintf(stderr, "ulyx_perf: %s wants a value\n", option->name);
        return PERF_USAGE;
    }
    return store(option, value, options) ? PERF_OK : PERF_USAGE;
}

bool
perf_options_parse(
    int argc, char **argv, struct perf_options *options, int *exit_p)
{
    *options = (struct perf_options){.min_bytes = 32 << 20,
        .max_bytes = 32 << 20,
        .step_bytes = 1 << 20,
        .iterations = 20,
        .warmups = 1,
        .aggregate = 1,
        .cycles = 1,
        .check = 1,
        .average = 3,
        .threads = 1,
        .ranks_per_thread = 1,
        .register_memory = true,
        .batch = 1,
        .heads = 32,
        .dim = 128,
        .dtype = "bf16",
        .operation = "both",
        .order = "contiguous",
        .split = "heads",
        .memory = "host"};
    *exit_p = PERF_OK;
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help")) {
            usage(stdout);
            return false;
        }
    for (int i = 1; i < argc && *exit_p == PERF_OK; i++)
        *exit_p = take(argc, argv, &i, options);
    if (*exit_p == PERF_OK && !perf_options_complete(options))
        *exit_p = PERF_USAGE;
    if (*exit_p != PERF_OK)
        fprintf(stderr, "usage: ulyx_perf [options]; --help lists them\n");
    return *exit_p == PERF_OK;
}
