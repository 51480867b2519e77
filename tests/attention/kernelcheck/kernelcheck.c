/* SPDX-License-Identifier: Apache-2.0
 *
 * Every attention kernel that the machine runs, against the reference and
 * against truths that need none. See docs/ATTENTION.md.
 *
 *   kernelcheck [--kernel NAME] [--family NAME] [--draws PERCENT] [--seed N]
 *               [--full] [--mutate] [--bench [--cpu-time]] [--list]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

bool
kc_takes(const char *kernel, ulyx_dtype_t dtype)
{
    struct uli_attn_problem problem = {
        .dtype = dtype, .dim_qk = 64, .dim_v = 64};
    const struct uli_attn_kernel *row;
    for (int n = 0; (row = uli_attn_kernel_at(n)) != NULL; n++)
        if (strcmp(row->name, kernel) == 0)
            return row->usable() && !row->refuses(&problem);
    return false;
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

int
main(int argc, char **argv)
{
    struct kc_options options = {.draws = 100};
    const char *family = NULL;
    enum { CHECK, MUTATE, BENCH, LIST } mode = CHECK;
    options.seed = test_seed(20261127);
    options.draws = test_draws(100);
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--mutate") == 0)
            mode = MUTATE;
        else if (strcmp(argv[i], "--bench") == 0)
            mode = BENCH;
        else if (strcmp(argv[i], "--list") == 0)
            mode = LIST;
        else if (strcmp(argv[i], "--full") == 0)
            options.full = true;
        else if (strcmp(argv[i], "--cpu-time") == 0)
            options.cpu_time = true;
        else if (strcmp(argv[i], "--kernel") == 0)
            options.kernel = next, i++;
        else if (strcmp(argv[i], "--family") == 0)
            family = next, i++;
        else if (strcmp(argv[i], "--draws") == 0)
            options.draws = atoll(next), i++;
        else if (strcmp(argv[i], "--seed") == 0)
            options.seed = strtoull(next, NULL, 0), i++;
        else {
            fprintf(stderr, "kernelcheck: unknown option %s\n", argv[i]);
            return 2;
        }
    }
    if (mode == LIST) {
        list();
        return 0;
    }
    if (mode == MUTATE)
        return kc_mutate(&options);
    if (mode == BENCH)
        return kc_bench(&options);
    return run_families(&options, family);
}
