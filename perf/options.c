/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line: nccl-tests' flags and our own, in one table. Unlike
 * nccl-tests an unknown flag or a bad value is an error, with exit 6.
 */
#include "perf.h"

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

#define AT(field) offsetof(struct perf_options, field)
static const struct option table[] = {
    {"-b", "--minbytes", BYTES, AT(min_bytes), 1, 1e15,
        "smallest size, bytes of a rank's sequence side; K M G are binary"},
    {"-e", "--maxbytes", BYTES, AT(max_bytes), 1, 1e15, "largest size"},
    {"-i", "--stepbytes", BYTES, AT(step_bytes), 1, 1e15,
        "step between sizes (default 1M)"},
    {"-f", "--stepfactor", REAL, AT(step_factor), 1.001, 1e6,
        "factor between sizes"},
    {"-n", "--iters", COUNT, AT(iterations), 1, 1e6, "iterations (20)"},
    {"-w", "--warmup_iters", COUNT, AT(warmups), 0, 1e6, "warm-ups (1)"},
    {"-m", "--agg_iters", COUNT, AT(aggregate), 1, 1e6,
        "operations counted as one iteration (1)"},
    {"-N", "--run_cycles", COUNT, AT(cycles), 0, 1e6,
        "repeats of the table; 0 = for ever (1)"},
    {"-c", "--check", COUNT, AT(check), 0, 100,
        "check passes; the timed result is checked too; 0 = off (1)"},
    {"-t", "--nthreads", COUNT, AT(threads), 1, 4096, "threads a process"},
    {"-g", "--ngpus", COUNT, AT(ranks_per_thread), 1, 4096,
        "ranks a thread, driven by groups"},
    {"-z", "--blocking", COUNT, AT(blocking), 0, 3,
        "1: a barrier after each operation (0)"},
    {"-T", "--timeout", REAL, AT(timeout_s), 0, 86400,
        "seconds that any wait may take (ULYX_TIMEOUT); exit 4"},
    {"-G", "--cudagraph", COUNT, AT(graph), 0, 1e6,
        "graph replays (GPU memory only)"},
    {"-J", "--output_file", TEXT, AT(json_file), 0, 0,
        "write JSON to this file (perf/schema.json describes it)"},
    {"-a", "--average", COUNT, AT(average), 0, 3,
        "over ranks: 0 rank 0, 1 mean, 2 min, 3 max (3: the slowest)"},
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
        "bf16, f16, f32, f64, or a byte count 1 to 4096 (bf16)"},
    {"-o", "--op", TEXT, AT(operation), 0, 0,
        "s2h (q, k, v), h2s (out), both, s2h_adj, h2s_adj, all (both)"},
    {NULL, "--order", TEXT, AT(order), 0, 0,
        "contiguous or zigzag (contiguous)"},
    {NULL, "--split", TEXT, AT(split), 0, 0, "heads or balanced (heads)"},
    {NULL, "--replicated", LONG, AT(replicated), 0, 1e9,
        "replicated tokens joined to the sharded ones (0)"},
    {NULL, "--vs", TEXT, AT(versus), 0, 0,
        "ratio columns: memcpy, mpi, or both with a comma"},
    {NULL, "--quick", FLAG, AT(quick), 0, 0,
        "one size a model and few iterations"},
    {NULL, "--csv", FLAG, AT(csv), 0, 0, "CSV on standard output"},
    {NULL, "--dry-run", FLAG, AT(dry_run), 0, 0,
        "print the plans and move nothing"},
    {NULL, "--no-progress", FLAG, AT(progress), 0, 0,
        "no progress line on a terminal"},
};
enum { OPTIONS = sizeof(table) / sizeof(table[0]) };

static void
usage(FILE *out)
{
    fprintf(out,
        "ulyx_perf: times the exchange of sequence-parallel attention.\n"
        "\n"
        "  ulyx_perf --procs 4 --model llama3-8b -b 1M -e 64M -f 2 --vs "
        "memcpy\n"
        "  mpirun -np 4 ulyx_perf --model all --quick\n"
        "  torchrun --nproc-per-node 4 --no-python ulyx_perf --seq 65536\n"
        "\n");
    for (int i = 0; i < OPTIONS; i++)
        fprintf(out, "  %-3s%s %-18s %s\n",
            table[i].brief ? table[i].brief : "", table[i].brief ? "," : " ",
            table[i].name, table[i].help);
    fprintf(out,
        "  -h, --help             this text\n"
        "\nTimes are medians of blocks of back-to-back operations, peers\n"
        "interleaved; busbw counts the bytes that the slowest-fed rank must\n"
        "receive from others. Exit: 0 ok, 1 internal, 3 library, 4 timeout,\n"
        "5 not implemented, 6 usage, 7 wrong data or below\n"
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
static bool
number(const char *text, bool suffix, double *value_p)
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
    if (!number(text, option->kind == BYTES || option->kind == LONG, &value) ||
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

static bool
refuse(const char *name, const char *value, const char *known)
{
    fprintf(
        stderr, "ulyx_perf: %s %s is unknown; known: %s\n", name, value, known);
    return false;
}

static bool
check_dtype(struct perf_options *o)
{
    static const struct {
        const char *name;
        ulyx_dtype_t code;
    } names[] = {{"bf16", ULYX_DTYPE_BF16}, {"bfloat16", ULYX_DTYPE_BF16},
        {"f16", ULYX_DTYPE_F16}, {"half", ULYX_DTYPE_F16},
        {"f32", ULYX_DTYPE_F32}, {"float", ULYX_DTYPE_F32},
        {"f64", ULYX_DTYPE_F64}, {"double", ULYX_DTYPE_F64}};
    double bytes;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(o->dtype, names[i].name) == 0) {
            o->dtype_code = names[i].code;
            return true;
        }
    o->dtype_code = ULYX_DTYPE_BYTES;
    if (number(o->dtype, false, &bytes) && bytes >= 1 && bytes <= 4096)
        return true;
    return refuse("--dtype", o->dtype, "bf16 f16 f32 f64, or 1 to 4096");
}

static bool
check_operation(struct perf_options *o)
{
    static const char *const names[] = {"s2h", "h2s", "s2h_adj", "h2s_adj"};

    if (strcmp(o->operation, "both") == 0)
        o->operations = 3;
    else if (strcmp(o->operation, "all") == 0)
        o->operations = 15;
    for (int i = 0; i < ULYX_OPERATIONS; i++)
        if (strcmp(o->operation, names[i]) == 0)
            o->operations = UINT64_C(1) << i;
    if (o->operations == 0)
        return refuse("--op", o->operation, "s2h h2s both s2h_adj h2s_adj all");
    if (o->dtype_code == ULYX_DTYPE_BYTES && o->operations > 3)
        return refuse("--dtype", o->dtype, "a float type, for adjoints");
    return true;
}

static bool
check_versus(struct perf_options *o)
{
    static const char *const names[] = {"memcpy", "mpi"};
    const char *at = o->versus;

    while (at != NULL && *at != 0) {
        size_t length = strcspn(at, ",");
        int i = 0;

        while (i < PERF_VERSUS && (strlen(names[i]) != length ||
                                      strncmp(at, names[i], length) != 0))
            i++;
        if (i == PERF_VERSUS)
            return refuse("--vs", o->versus, "memcpy mpi");
        o->vs[i] = true;
        at += length + (at[length] == ',');
    }
    return true;
}

static bool
check_words(struct perf_options *o)
{
    if (!check_dtype(o) || !check_operation(o) || !check_versus(o))
        return false;
    if (strcmp(o->order, "contiguous") && strcmp(o->order, "zigzag"))
        return refuse("--order", o->order, "contiguous zigzag");
    if (strcmp(o->split, "heads") && strcmp(o->split, "balanced"))
        return refuse("--split", o->split, "heads balanced");
    if (o->graph > 0) {
        fprintf(stderr, "ulyx_perf: -G: graphs need GPU memory\n");
        return false;
    }
    if (o->vs[PERF_VS_MPI] && o->threads * o->ranks_per_thread > 1) {
        fprintf(stderr, "ulyx_perf: --vs mpi wants one rank a process\n");
        return false;
    }
    return true;
}

/* What the words left open. */
static bool
complete(struct perf_options *o)
{
    if (o->kv_heads == 0)
        o->kv_heads = o->heads;
    if (o->dim_v == 0)
        o->dim_v = o->dim;
    if (o->max_bytes < o->min_bytes) {
        fprintf(stderr, "ulyx_perf: -e %lld is below -b %lld\n",
            (long long)o->max_bytes, (long long)o->min_bytes);
        return false;
    }
    if (o->quick) {
        o->min_bytes = o->max_bytes = 8 << 20;
        o->iterations = 10;
    }
    o->progress = !o->progress; /* the flag says no */
    return check_words(o);
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
        .split = "heads"};
    *exit_p = PERF_USAGE;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *value = strchr(word, '=');
        size_t length = value && !strncmp(word, "--", 2)
                            ? (size_t)(value - word)
                            : strlen(word);
        const struct option *option = find(word, length);

        if (!strcmp(word, "-h") || !strcmp(word, "--help")) {
            usage(stdout);
            *exit_p = PERF_OK;
            return false;
        }
        if (option == NULL) {
            fprintf(stderr, "ulyx_perf: unknown option %s\n\n", word);
            usage(stderr);
            return false;
        }
        if (option->kind == FLAG) {
            *(bool *)(void *)((char *)options + option->offset) = true;
            continue;
        }
        value = word[length] == '=' ? value + 1
                : i + 1 < argc      ? argv[++i]
                                    : NULL;
        if (value == NULL) {
            fprintf(stderr, "ulyx_perf: %s wants a value\n", option->name);
            return false;
        }
        if (!store(option, value, options))
            return false;
    }
    return complete(options);
}
