/* SPDX-License-Identifier: Apache-2.0
 *
 * Every attention kernel that the machine runs, against the reference and
 * against truths that need none. See docs/ATTENTION.md.
 *
 * The command line is one table, which --help shows and manual pages are made
 * from.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attention/kernelcheck/bench/bench_card.h"
#include "attention/kernelcheck/kc.h"
#include "attention/kernels/kernels.h"
#include "attention/translate/translate.h"
#include "base/system/clock.h"

static const struct {
    const char *name;
    kc_family run;
} families[] = {
    {"random", kc_family_random},
    {"large-logits", kc_family_large_logits},
    {"gradient", kc_family_gradient},
    {"counting", kc_family_counting},
    {"counting-long", kc_family_counting_long},
    {"retrieval", kc_family_retrieval},
    {"metamorphic", kc_family_metamorphic},
    {"reported", kc_family_reported},
    {"long", kc_family_long},
};
#define FAMILIES (int)(sizeof(families) / sizeof(families[0]))

int kc_first_pass, kc_passes = 2;

bool
kc_takes_problem(const char *kernel, const ulyx_attention_t *problem)
{
    struct uli_attn_call call;
    const struct uli_attn_kernel *row;
    memset(&call, 0, sizeof(call));
    for (int n = 0; (row = uli_attn_kernel_at(n)) != NULL; n++)
        if (strcmp(row->name, kernel) == 0)
            break;
    if (!row || !row->usable())
        return false;
    /* A problem that is refused for every kernel is a fault of the case, which
     * runs and fails. */
    return uli_attn_translate(problem, ULYX_ATTENTION_PASS_FORWARD, NULL, false,
               &call) != ULYX_SUCCESS ||
           !row->refuses(&call.problem);
}

bool
kc_takes(const char *kernel, ulyx_dtype_t dtype)
{
    ulyx_attention_t problem = ULYX_ATTENTION_INIT;
    problem.dtype = dtype;
    problem.dim_qk = problem.dim_v = 64;
    return kc_takes_problem(kernel, &problem);
}

static int
run_families(const struct kc_options *options, const char *only)
{
    const struct uli_attn_kernel *kernel;
    struct kc_tally total = {0, 0};
    for (int n = 0; (kernel = uli_attn_kernel_at(n)) != NULL; n++) {
        if (options->kernel && strcmp(options->kernel, kernel->name) != 0)
            continue;
        if (!kernel->usable()) {
            printf("%-12s skipped: this CPU lacks its instructions\n",
                kernel->name);
            continue;
        }
        for (int f = 0; f < FAMILIES; f++) {
            struct kc_tally t = {0, 0};
            if (only && strcmp(only, families[f].name) != 0)
                continue;
            int64_t begin = uli_clock_ns();
            families[f].run(options, kernel->name, &t);
            printf("%-12s %-16s %6lld cases %4lld failed  %.1f s\n",
                kernel->name, families[f].name, (long long)t.cases,
                (long long)t.failed, (double)(uli_clock_ns() - begin) * 1e-9);
            fflush(stdout);
            total.cases += t.cases;
            total.failed += t.failed;
        }
    }
    printf("kernelcheck: %lld cases, %lld failed\n", (long long)total.cases,
        (long long)total.failed);
    return total.failed != 0 || total.cases == 0;
}

static void
kernels_list(void)
{
    const struct uli_attn_kernel *kernel;
    for (int n = 0; (kernel = uli_attn_kernel_at(n)) != NULL; n++)
        printf("kernel %s: %s%s\n", kernel->name, kernel->what,
            kernel->usable() ? "" : " (not on this CPU)");
    for (int f = 0; f < FAMILIES; f++)
        printf("family %s\n", families[f].name);
}

static bool
names_known(const char *kernel, const char *family)
{
    const struct uli_attn_kernel *row;
    bool found = !kernel;
    for (int n = 0; !found && (row = uli_attn_kernel_at(n)) != NULL; n++)
        found = strcmp(row->name, kernel) == 0;
    if (!found) {
        fprintf(stderr, "kernelcheck: no kernel %s, see --list\n", kernel);
        return false;
    }
    found = !family;
    for (int f = 0; !found && f < FAMILIES; f++)
        found = strcmp(families[f].name, family) == 0;
    if (!found)
        fprintf(stderr, "kernelcheck: no family %s, see --list\n", family);
    return found;
}

enum mode { CHECK, MUTATE, BENCH, LIST, HELP, TABLE, VERSION };

struct command_line {
    struct kc_options options;
    enum mode mode;
    const char *family;
    bool forward, backward; /* both set is the same as none set */
};

/* What an option does: FLAG sets a bool, MODE a mode, and the others store a
 * value. */
enum kind { FLAG, MODE, NAME, PERCENT, SEED, DIMS };

#define AT(field) offsetof(struct command_line, field)
static const struct {
    const char *name, *value; /* value: how the help names the option's value */
    enum kind kind;
    size_t offset; /* offset of the field; for MODE, the mode */
    const char *help;
} table[] = {
    {"--kernel", "NAME", NAME, AT(options.kernel),
        "only this kernel (--list names them)"},
    {"--family", "NAME", NAME, AT(family), "only this family of cases"},
    {"--draws", "PERCENT", PERCENT, AT(options.draws),
        "of the usual number of random cases, from 1"},
    {"--seed", "N", SEED, AT(options.seed), "of the random cases"},
    {"--dims", "QK/V", DIMS, AT(options.dim_qk),
        "head dimensions, to 512, of random and metamorphic cases"},
    {"--forward", NULL, FLAG, AT(forward), "this pass only"},
    {"--backward", NULL, FLAG, AT(backward),
        "this pass only, where a family has both"},
    {"--full", NULL, FLAG, AT(options.full),
        "lengths to 1,048,576 and the reported lengths"},
    {"--mutate", NULL, MODE, MUTATE,
        "planted faults, which must all be caught"},
    {"--bench", NULL, MODE, BENCH,
        "speed against the machine's peak and PyTorch"},
    {"--cpu-time", NULL, FLAG, AT(options.cpu_time),
        "with --bench: CPU time, for a shared machine"},
    {"--vs", "torch|cudnn|fa2|fa3|fa4", NAME, AT(options.vs),
        "with --bench, on a CUDA device: torch is all of them, commas join"},
    {"--rows", "A-B", NAME, AT(options.rows),
        "of that bench, these of its list; A- to the end"},
    {"--variants", "NAMES", NAME, AT(options.variants),
        "of that bench, ours side by side: auto, rows of the device table, "
        "waits-first, no-turns, hints, three"},
    {"--list", NULL, MODE, LIST, "kernels and families"},
    {"--version", NULL, MODE, VERSION, "the version"},
    {"--help", NULL, MODE, HELP, "this text"},
};
#undef AT
enum { OPTIONS = sizeof(table) / sizeof(table[0]) };

static void
usage_print(void)
{
    printf("usage: kernelcheck [options]\n"
           "Checks every attention kernel that this machine runs.\n\n");
    for (int i = 0; i < OPTIONS; i++)
        printf("  %-10s %-8s %s\n", table[i].name,
            table[i].value ? table[i].value : "", table[i].help);
    printf(
        "\nExit status: 0 all hold (--bench: its last line says what holds), "
        "1 a case\nfailed, a fault was missed or nothing was run, 2 wrong "
        "options, 77 no device.\n");
}

/* Prints the table from which manual pages and completion are made: lines of
 * fields separated by tabs. */
static void
print_table(void)
{
    printf("name\tkernelcheck\tchecks the attention kernels of ulyx\n");
    for (int i = 0; i < OPTIONS; i++)
        printf("option\t\t%s\t%s\t%s\n", table[i].name,
            table[i].value ? table[i].value : "", table[i].help);
}

/* Returns the row of an option, or OPTIONS if there is no such option. */
static int
find_option(const char *word)
{
    int at = 0;
    if (strcmp(word, "-h") == 0)
        word = "--help";
    while (at < OPTIONS && strcmp(table[at].name, word) != 0)
        at++;
    return at;
}

/* Parses two numbers with a slash between them. Returns the text from the first
 * error on, or the empty end. */
static char *
take_dims(const char *text, int64_t dims[2])
{
    char *end;
    dims[0] = strtoll(text, &end, 10);
    if (*end != '/')
        return "no slash";
    dims[1] = strtoll(end + 1, &end, 10);
    bool sound = dims[0] > 0 && dims[0] <= 512 && dims[1] > 0 && dims[1] <= 512;
    return sound ? end : "out of range";
}

/* Parses a value. If it is wrong, prints the reason and returns false. */
static bool
take_value(int row, const char *value, void *field)
{
    const char *name = table[row].name;
    char *end = "";
    if (!value || !*value) {
        fprintf(stderr, "kernelcheck: %s needs a value\n", name);
        return false;
    }
    if (strcmp(name, "--vs") == 0 && !kc_peers_known(value)) {
        fprintf(stderr, "kernelcheck: --vs %s, see --help\n", value);
        return false;
    }
    if (table[row].kind == NAME)
        *(const char **)field = value;
    else if (table[row].kind == SEED)
        *(uint64_t *)field = strtoull(value, &end, 0);
    else if (table[row].kind == DIMS)
        end = take_dims(value, field);
    else {
        int64_t percent = strtoll(value, &end, 10);
        *(int64_t *)field = percent;
        if (percent < 1 || percent > 1000000)
            end = "out of range";
    }
    if (*end)
        fprintf(
            stderr, "kernelcheck: %s %s is no number in range\n", name, value);
    return !*end;
}

/* Parses all words. If one is wrong, prints the reason and returns false. */
static bool
take_words(int argc, char **argv, struct command_line *line)
{
    for (int i = 1; i < argc; i++) {
        int row = find_option(argv[i]);
        void *field;
        if (strcmp(argv[i], "--help=table") == 0) {
            line->mode = TABLE;
            continue;
        }
        if (row == OPTIONS) {
            fprintf(stderr, "kernelcheck: unknown option %s, see --help\n",
                argv[i]);
            return false;
        }
        field = (char *)line + table[row].offset;
        if (table[row].kind == MODE)
            line->mode = (enum mode)table[row].offset;
        else if (table[row].kind == FLAG)
            *(bool *)field = true;
        else if (!take_value(row, argv[++i], field))
            return false;
    }
    return true;
}

int
main(int argc, char **argv)
{
    struct command_line line = {.options = {.draws = test_draws(100)}};
    struct kc_options *options = &line.options;
    if (!take_words(argc, argv, &line))
        return 2;
    kc_first_pass = line.backward && !line.forward;
    kc_passes = line.forward && !line.backward ? 1 : 2;
    /* the names are then those of another table */
    bool card = line.mode == BENCH && options->vs;
    if (!names_known(card ? NULL : options->kernel, line.family))
        return 2;
    if (options->seed == 0 && line.mode <= BENCH)
        options->seed = test_seed(20261127);
    switch (line.mode) {
    case LIST:
        kernels_list();
        return 0;
    case HELP:
        usage_print();
        return 0;
    case TABLE:
        print_table();
        return 0;
    case VERSION:
        printf("kernelcheck %d.%d.%d\n", ULYX_VERSION_MAJOR, ULYX_VERSION_MINOR,
            ULYX_VERSION_PATCH);
        return 0;
    case MUTATE:
        return kc_mutate(options);
    case BENCH:
        return card ? kc_bench_card(options) : kc_bench(options);
    default:
        return run_families(options, line.family);
    }
}
