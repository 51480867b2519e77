/* SPDX-License-Identifier: Apache-2.0
 *
 * Every attention kernel that the machine runs, against the reference and
 * against truths that need none. See docs/ATTENTION.md.
 *
 *   kernelcheck [--kernel NAME] [--family NAME] [--draws PERCENT] [--seed N]
 *               [--forward] [--full] [--mutate]
 *               [--bench [--cpu-time | --vs torch]] [--list] [--help]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attention/kernelcheck/bench/bench_card.h"
#include "attention/kernelcheck/kc.h"
#include "attention/kernels/kernels.h"
#include "base/clock.h"

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

int kc_passes = 2;

bool
kc_takes_dims(
    const char *kernel, ulyx_dtype_t dtype, int64_t dim_qk, int64_t dim_v)
{
    struct uli_attn_problem problem = {
        .dtype = dtype, .dim_qk = dim_qk, .dim_v = dim_v};
    const struct uli_attn_kernel *row;
    for (int n = 0; (row = uli_attn_kernel_at(n)) != NULL; n++)
        if (strcmp(row->name, kernel) == 0)
            return row->usable() && !row->refuses(&problem);
    return false;
}

bool
kc_takes(const char *kernel, ulyx_dtype_t dtype)
{
    return kc_takes_dims(kernel, dtype, 64, 64);
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
list(void)
{
    const struct uli_attn_kernel *kernel;
    for (int n = 0; (kernel = uli_attn_kernel_at(n)) != NULL; n++)
        printf("kernel %s: %s%s\n", kernel->name, kernel->what,
            kernel->usable() ? "" : " (not on this CPU)");
    for (int f = 0; f < FAMILIES; f++)
        printf("family %s\n", families[f].name);
}

static bool
known(const char *kernel, const char *family)
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

enum mode { CHECK, MUTATE, BENCH, LIST, HELP };

static void
help(void)
{
    printf("kernelcheck [options]: checks every attention kernel that this "
           "machine runs.\n"
           "  --kernel NAME   only this kernel (--list names them)\n"
           "  --family NAME   only this family of cases\n"
           "  --draws PERCENT of the usual number of random cases, from 1\n"
           "  --seed N        of the random cases\n"
           "  --forward       this pass only\n"
           "  --full          lengths to 1,048,576 and the reported lengths\n"
           "  --mutate        planted faults, which must all be caught\n"
           "  --bench         speed against the machine's peak and PyTorch\n"
           "  --cpu-time      with --bench: CPU time, for a shared machine\n"
           "  --vs torch      with --bench: forward on a CUDA device, beside\n"
           "                  FlashAttention-2 and cuDNN through PyTorch\n"
           "  --list          kernels and families\n"
           "Exit status: 0 all hold (--bench: its last line says what holds), "
           "1 a case\nfailed, a fault was missed or nothing was run, 2 wrong "
           "options, 77 no device.\n");
}

/* Takes a flag; false where the word is none. */
static bool
take_flag(const char *word, struct kc_options *options, enum mode *mode)
{
    if (strcmp(word, "--mutate") == 0)
        *mode = MUTATE;
    else if (strcmp(word, "--bench") == 0)
        *mode = BENCH;
    else if (strcmp(word, "--list") == 0)
        *mode = LIST;
    else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        *mode = HELP;
    else if (strcmp(word, "--forward") == 0)
        kc_passes = 1;
    else if (strcmp(word, "--full") == 0)
        options->full = true;
    else if (strcmp(word, "--cpu-time") == 0)
        options->cpu_time = true;
    else
        return false;
    return true;
}

/* Takes an option with its value; false, and said why, where it is wrong. */
static bool
take_value(const char *word, const char *value, struct kc_options *options,
    const char **family)
{
    char *end = "";
    bool draws = strcmp(word, "--draws") == 0;
    bool vs = strcmp(word, "--vs") == 0;
    bool seed = strcmp(word, "--seed") == 0;
    if (strcmp(word, "--kernel") != 0 && strcmp(word, "--family") != 0 &&
        !draws && !seed && !vs) {
        fprintf(stderr, "kernelcheck: unknown option %s, see --help\n", word);
        return false;
    }
    if (!value || !*value) {
        fprintf(stderr, "kernelcheck: %s needs a value\n", word);
        return false;
    }
    if (vs && strcmp(value, "torch") != 0) {
        fprintf(stderr, "kernelcheck: --vs %s, see --help\n", value);
        return false;
    }
    if (vs)
        options->vs_torch = true;
    else if (draws)
        options->draws = strtoll(value, &end, 10);
    else if (seed)
        options->seed = strtoull(value, &end, 0);
    else if (strcmp(word, "--kernel") == 0)
        options->kernel = value;
    else
        *family = value;
    if (*end || (draws && (options->draws < 1 || options->draws > 1000000))) {
        fprintf(
            stderr, "kernelcheck: %s %s is no number in range\n", word, value);
        return false;
    }
    return true;
}

int
main(int argc, char **argv)
{
    struct kc_options options = {.draws = 100};
    const char *family = NULL;
    enum mode mode = CHECK;
    options.draws = test_draws(100);
    for (int i = 1; i < argc; i++) {
        if (take_flag(argv[i], &options, &mode))
            continue;
        if (!take_value(argv[i], argv[i + 1], &options, &family))
            return 2;
        i++;
    }
    bool card = mode == BENCH && options.vs_torch; /* of another table */
    if (!known(card ? NULL : options.kernel, family))
        return 2;
    if (options.seed == 0 && mode != LIST && mode != HELP)
        options.seed = test_seed(20261127);
    if (mode == LIST)
        list();
    else if (mode == HELP)
        help();
    else if (mode == MUTATE)
        return kc_mutate(&options);
    else if (mode == BENCH)
        return card ? kc_bench_card(&options) : kc_bench(&options);
    else
        return run_families(&options, family);
    return 0;
}
