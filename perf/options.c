/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line: nccl-tests' flags and those of ulyx_perf, in one table.
 * Unlike in nccl-tests, an unknown flag or a bad value is an error, with exit 6
 * and the reason as the last line.
 */
#include "options.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/schedules.h"

/* ELSEWHERE: a flag of nccl-tests that is not supported here; only 0 (off) is
 * accepted. */
enum kind { FLAG, COUNT, LONG, BYTES, REAL, TEXT, ELSEWHERE };

struct option {
    const char *brief, *name;
    enum kind kind;
    size_t offset;
    double low, high;
    const char *help; /* NULL: another name of a row above; ELSEWHERE: why */
};

#define AT(field) offsetof(struct perf_options, field)
static const struct option table[] = {
    {"-b", "--minbytes", BYTES, AT(min_bytes), 1, 1e15,
        "smallest size, bytes of a rank's sequence side; K M G are binary "
        "(32M; the size of -e if that is smaller)"},
    {"-e", "--maxbytes", BYTES, AT(max_bytes), 1, 1e15,
        "largest size (32M; the size of -b if that is larger)"},
    {"-i", "--stepbytes", BYTES, AT(step_bytes), 1, 1e15,
        "step between sizes (1M)"},
    {"-f", "--stepfactor", REAL, AT(step_factor), 1.001, 1e6,
        "factor between sizes, instead of -i"},
    {"-n", "--iters", COUNT, AT(iterations), 1, 1e6, "iterations (20)"},
    {"-w", "--warmup_iters", COUNT, AT(warmups), 0, 1e6,
        "warm-ups in addition to one per set of tensors (1)"},
    {"-m", "--agg_iters", COUNT, AT(aggregate), 1, 1e6,
        "operations per iteration; times are of one operation (1)"},
    {"-N", "--run_cycles", COUNT, AT(cycles), 0, 1e6,
        "repeats of the table; 0 = for ever (1)"},
    {"-c", "--check", COUNT, AT(check), 0, 1e6,
        "passes of checking every element; 0 = off (1)"},
    {"-t", "--nthreads", COUNT, AT(threads), 1, 4096,
        "threads per process (1)"},
    {"-g", "--ngpus", COUNT, AT(ranks_per_thread), 1, 4096,
        "ranks per thread, whose calls are made in groups (1)"},
    {"-p", "--parallel_init", COUNT, AT(parallel_init), 0, 1,
        "ignored: a process always makes its communicators in parallel"},
    {"-z", "--blocking", COUNT, AT(blocking), 0, 2,
        "1: a barrier after each operation; 0, 2: none (0)"},
    {"-T", "--timeout", REAL, AT(timeout_s), 0, 86400,
        "seconds that a wait may take; a longer wait ends with exit code 4 "
        "(ULYX_TIMEOUT)"},
    {"-G", "--cudagraph", COUNT, AT(replays), 0, 1e6,
        "device memory only: capture the operations of a block, and launch the "
        "graph N times (0: no graph)"},
    {"-J", "--output_file", TEXT, AT(json_file), 0, 0,
        "write JSON to this file, replacing it (perf/schema.json describes the "
        "form)"},
    {"-a", "--average", COUNT, AT(average), 0, 3,
        "time of a block: 0 rank 0's time, 1 the mean of the ranks, 2 the "
        "least, 3 from the first start to the last end (3)"},
    {"-R", "--local_register", COUNT, AT(register_memory), 0, 1,
        "1: windows (default); 0: ordinary memory"},
    {"-I", "--per_iter", COUNT, AT(per_iteration), 0, 1,
        "1: time each iteration by itself, after a barrier; with the columns "
        "of --wide"},
    {"-u", "--unalign", COUNT, AT(unalign), 0, 4096,
        "elements by which tensors are shifted from multiples of 64 bytes (0)"},
    {NULL, "--procs", COUNT, AT(procs), 1, 4096, "start N local processes"},
    {NULL, "--model", TEXT, AT(model), 0, 0,
        "geometry by name, several with commas, or all"},
    {NULL, "--batch", LONG, AT(batch), 1, 1e6, "batch items (1)"},
    {NULL, "--seq", LONG, AT(seq), 1, 1e12, "tokens S; instead of -b and -e"},
    {NULL, "--heads", LONG, AT(heads), 1, 1e6, "query heads (32)"},
    {NULL, "--kv-heads", LONG, AT(kv_heads), 1, 1e6,
        "KV heads (as many as query heads)"},
    {NULL, "--dim", LONG, AT(dim), 1, 1e6, "head dimension (128)"},
    {NULL, "--dim-v", LONG, AT(dim_v), 1, 1e6,
        "head dimension of v (that of --dim)"},
    {"-d", "--dtype", TEXT, AT(dtype), 0, 0,
        "types, with commas, or all: bf16 f16 f32 f64 f8e4m3 f8e5m2, or the "
        "bytes of an element, 1 to 4096 (bf16)"},
    {NULL, "--datatype", TEXT, AT(dtype), 0, 0, NULL},
    {"-o", "--op", TEXT, AT(direction), 0, 0,
        "s2h (q, k, v), h2s (out), both, s2h_adj, h2s_adj, all (both)"},
    {NULL, "--order", TEXT, AT(order), 0, 0,
        "contiguous or zigzag (contiguous)"},
    {NULL, "--work", TEXT, AT(work), 0, 0,
        "how work is divided: heads or balanced (heads)"},
    {NULL, "--split", TEXT, AT(work), 0, 0, NULL},
    {NULL, "--algo", TEXT, AT(algo), 0, 0,
        "schedules to time in turn, with commas: " ULI_SCHEDULE_WORDS
        "and for device memory nccl, staged; auto is the library's choice "
        "(auto)"},
    {NULL, "--replicated", LONG, AT(replicated), 0, 1e9,
        "replicated tokens joined to the sharded ones (0)"},
    {NULL, "--vs", TEXT, AT(versus), 0, 0,
        "what to compare with, with commas: memcpy, best, flag, mpi; for "
        "device memory copy, permute, nccl; each adds a ratio column"},
    {NULL, "--memory", TEXT, AT(memory), 0, 0,
        "host; or cuda: memory of the process's current device (host)"},
    {NULL, "--copy-engine", FLAG, AT(copy_engine), 0, 0,
        "move device memory by copy engines, not by a kernel"},
    {NULL, "--wide", FLAG, AT(wide), 0, 0, "columns min, max, p99 and cv"},
    {NULL, "--percentiles", TEXT, AT(percentiles), 0, 0,
        "columns with these percentiles of the times of blocks (with -I 1, of "
        "iterations), as 50,90,99.9"},
    {NULL, "--quick", FLAG, AT(quick), 0, 0,
        "one size (8M) and few iterations (10), where -b -e -n are not given"},
    {NULL, "--csv", FLAG, AT(csv), 0, 0, "CSV on standard output"},
    {NULL, "--nccl-format", FLAG, AT(nccl_format), 0, 0,
        "only the columns of nccl-tests, and its names of types; h2s and float "
        "unless -o and -d are given"},
    {NULL, "--tune", TEXT, AT(tune), 0, 0,
        "only measure the links between these ranks, and write a tuning file"},
    {NULL, "--dry-run", FLAG, AT(dry_run), 0, 0,
        "print the plans of --procs x -t x -g ranks, and move nothing"},
    {NULL, "--no-progress", FLAG, AT(progress), 0, 0,
        "no progress line on a terminal"},
    {"-r", "--root", ELSEWHERE, 0, 0, 0, "no rank is a root here"},
    {"-y", "--stream_null", ELSEWHERE, 0, 0, 0, "streams need GPU memory"},
    {"-C", "--report_cputime", ELSEWHERE, 0, 0, 0,
        "a call on the host returns when it is done"},
    {"-S", "--report_timestamps", ELSEWHERE, 0, 0, 0,
        "-J writes the times of start and end"},
    {"-K", "--skip", ELSEWHERE, 0, 0, 0, "see -w"},
    {"-x", "--cta_policy", ELSEWHERE, 0, 0, 0, "it is for GPU memory"},
    {"-D", "--device_implementation", ELSEWHERE, 0, 0, 0,
        "it is for GPU memory"},
    {"-V", "--device_cta_count", ELSEWHERE, 0, 0, 0, "it is for GPU memory"},
    {"-M", "--memory_report", ELSEWHERE, 0, 0, 0, "see ulyx_info plan"},
};
enum { OPTIONS = sizeof(table) / sizeof(table[0]) };
_Static_assert(OPTIONS <= 64, "a bit each in given");

static void
usage_print(FILE *out)
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
        if (table[i].help && table[i].kind != ELSEWHERE)
            fprintf(out, "  %s%s %-18s %s\n",
                table[i].brief ? table[i].brief : "  ",
                table[i].brief ? "," : " ", table[i].name, table[i].help);
    fprintf(out,
        "  -h, --help             this text\n"
        "      --version          the version\n"
        "\nAs with getopt, -b8 is -b 8, and a long name may be shortened as "
        "long as no\nother name begins in the same way.\n"
        "\nTimes are medians over blocks of back-to-back operations, and "
        "blocks of what\n--vs names run in between. busbw is the most bytes "
        "that a rank must receive\nfrom others, divided by the time. Exit "
        "code: 0 ok, 1 internal error, 3 error\nof the library, 4 timeout, "
        "5 not implemented, 6 bad arguments, 7 wrong data\nor below "
        "ULYX_PERF_MIN_BW, 77 skipped (no device); by SIGPIPE where nobody\n"
        "reads the output any more.\nModels:\n");
    int count;
    const struct perf_model *models = perf_models(&count);
    for (int i = 0; i < count; i++)
        fprintf(out, "  %-14s h %3lld  hkv %3lld  dk %3lld  dv %3lld  %s\n",
            models[i].name, (long long)models[i].heads,
            (long long)models[i].kv_heads, (long long)models[i].dim_qk,
            (long long)models[i].dim_v, models[i].note);
}

/* Prints the source of manual pages and completion: lines of fields with
 * tabs. */
static void
options_print_table(void)
{
    static const char *const values[ELSEWHERE] = {[COUNT] = "N",
        [LONG] = "N",
        [BYTES] = "SIZE",
        [REAL] = "X",
        [TEXT] = "WORD"};

    printf("name\tulyx_perf\ttimes the exchange of sequence-parallel "
           "attention\n");
    for (int i = 0; i < OPTIONS; i++)
        if (table[i].help && table[i].kind != ELSEWHERE)
            printf("option\t%s\t%s\t%s\t%s\n",
                table[i].brief ? table[i].brief : "", table[i].name,
                table[i].offset == AT(json_file) ? "FILE"
                : table[i].kind == FLAG          ? ""
                                                 : values[table[i].kind],
                table[i].help);
    printf("option\t-h\t--help\t\tthe options\n"
           "option\t\t--version\t\tthe version\n");
}

/* Prints the answer to an option about the program itself; false: the word is
 * no such option. */
static bool
options_answer(const char *word)
{
    if (!strcmp(word, "-h") || !strcmp(word, "--help"))
        usage_print(stdout);
    else if (!strcmp(word, "--help=table"))
        options_print_table();
    else if (!strcmp(word, "--version"))
        printf("ulyx_perf %d.%d.%d\n", ULYX_VERSION_MAJOR, ULYX_VERSION_MINOR,
            ULYX_VERSION_PATCH);
    else
        return false;
    return true;
}

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
option_store(
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
        (option->kind != REAL && value != floor(value)))
        return perf_reject("%s %s: expected a number from %g to %g",
            option->name, text, option->low, option->high);
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

/* ---- words --------------------------------------------------------------- */

bool
perf_reject(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fprintf(
        stderr, "usage: ulyx_perf [options]; --help lists them\nulyx_perf: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    return false;
}

void
perf_note(struct perf_options *options, const char *format, ...)
{
    size_t length = strlen(options->notes);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(options->notes + length, sizeof(options->notes) - length, format,
        arguments);
    va_end(arguments);
}

/* The option whose long name is, or begins with, these `length` characters.
 * NULL: there is none, or several begin so; the error has been printed. */
static const struct option *
find_long(const char *word, size_t length)
{
    const struct option *found = NULL, *other = NULL;

    for (int i = 0; i < OPTIONS; i++) {
        if (length <= 2 || strncmp(table[i].name, word, length) != 0)
            continue;
        if (table[i].name[length] == 0)
            return &table[i];
        other = found;
        found = &table[i];
        if (other)
            break;
    }
    if (other)
        perf_reject("%.*s may be %s or %s", (int)length, word, other->name,
            found->name);
    else if (!found)
        perf_reject("unknown option %.*s", (int)length, word);
    return other ? NULL : found;
}

static const struct option *
find_short(const char *word)
{
    for (int i = 0; i < OPTIONS; i++)
        if (table[i].brief && strncmp(table[i].brief, word, 2) == 0)
            return &table[i];
    perf_reject("unknown option %s", word);
    return NULL;
}

bool
perf_option_given(const struct perf_options *options, const char *name)
{
    for (int i = 0; i < OPTIONS; i++)
        if (strcmp(table[i].name, name) == 0)
            return (options->given >> i & 1) != 0;
    return false;
}

/* The option of a word. *value_p: its value where the word contains it, after
 * "=" or after a short name; else NULL. */
static const struct option *
option_find(const char *word, const char **value_p)
{
    const char *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) : strlen(word);

    *value_p = NULL;
    if (strncmp(word, "--", 2) == 0) {
        *value_p = equals ? equals + 1 : NULL;
        return find_long(word, length);
    }
    if (word[0] == '-' && word[1] != 0 && word[2] != 0)
        *value_p = word + 2;
    return find_short(word);
}

static int
store_elsewhere(const struct option *option, const char *value)
{
    if (strcmp(value, "0") == 0)
        return PERF_OK;
    perf_reject(
        "%s of nccl-tests is not supported: %s", option->brief, option->help);
    return PERF_NOT_IMPLEMENTED;
}

/* Reads the option at argv[*at_p], and its value if that is the next word, to
 * which *at_p is then set; returns an exit code. */
static int
option_take(int argc, char **argv, int *at_p, struct perf_options *options)
{
    const char *value;
    const struct option *option = option_find(argv[*at_p], &value);

    if (!option)
        return PERF_USAGE;
    options->given |= UINT64_C(1) << (option - table);
    if (option->kind == FLAG) {
        if (value) {
            perf_reject("%s takes no value", option->name);
            return PERF_USAGE;
        }
        *(bool *)(void *)((char *)options + option->offset) = true;
        return PERF_OK;
    }
    if (!value && *at_p + 1 < argc)
        value = argv[++*at_p];
    if (!value) {
        perf_reject("%s needs a value", option->name);
        return PERF_USAGE;
    }
    if (option->kind == ELSEWHERE)
        return store_elsewhere(option, value);
    return option_store(option, value, options) ? PERF_OK : PERF_USAGE;
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
        .direction = "both",
        .order = "contiguous",
        .work = "heads",
        .algo = "auto",
        .memory = "host"};
    *exit_p = PERF_OK;
    for (int i = 1; i < argc; i++)
        if (options_answer(argv[i]))
            return false;
    for (int i = 1; i < argc && *exit_p == PERF_OK; i++)
        *exit_p = option_take(argc, argv, &i, options);
    if (*exit_p == PERF_OK && !perf_options_complete(options))
        *exit_p = PERF_USAGE;
    return *exit_p == PERF_OK;
}
