/* SPDX-License-Identifier: Apache-2.0
 *
 * The names of variants: `auto` is what a call would select; a row of the
 * device table; or Hopper kernels that differ from the library's in one choice,
 * which only a card can settle (variants.cu).
 */
#include <stdio.h>
#include <string.h>
#include "attention/cuda/hopper/forward_sm90.h"
#include "attention/kernelcheck/bench/bench_card.h"
#include "attention/kernels/kernels.h"

#ifdef ULYX_CUDA_FULL
extern const struct uli_sm90_family kc_waits_first_d64, kc_waits_first_d128,
    kc_no_turns_d64, kc_no_turns_d128, kc_hints_d128, kc_hints_d256,
    kc_three_d64;
static const struct uli_sm90_family *const waits_first[] = {
    &kc_waits_first_d64, &kc_waits_first_d128, NULL};
static const struct uli_sm90_family *const no_turns[] = {
    &kc_no_turns_d64, &kc_no_turns_d128, NULL};
static const struct uli_sm90_family *const hints[] = {
    &kc_hints_d128, &kc_hints_d256, NULL};
static const struct uli_sm90_family *const three[] = {&kc_three_d64, NULL};
#endif

static const struct kc_card_variant variants[] = {
    {"auto", NULL, NULL},
#ifdef ULYX_CUDA_FULL
    {"waits-first", "sm90", waits_first},
    {"no-turns", "sm90", no_turns},
    {"hints", "sm90", hints},
    {"three", "sm90", three},
#endif
};
enum { KNOWN = sizeof(variants) / sizeof(variants[0]) };

void
kc_variants_print(void)
{
    const struct uli_attn_kernel *kernel;
    for (int n = 0; n < KNOWN; n++)
        fprintf(stderr, "%s%s", n ? " " : "", variants[n].name);
    for (int n = 0; (kernel = uli_attn_device_kernel_at(n)) != NULL; n++)
        fprintf(stderr, " %s", kernel->name);
    fprintf(stderr, "\n");
}

/* Finds the variant whose name is the first `length` characters. */
static bool
variant_find(const char *name, size_t length, struct kc_card_variant *variant_p)
{
    const struct uli_attn_kernel *kernel;
    for (int n = 0; n < KNOWN; n++)
        if (strlen(variants[n].name) == length &&
            strncmp(variants[n].name, name, length) == 0) {
            *variant_p = variants[n];
            return true;
        }
    for (int n = 0; (kernel = uli_attn_device_kernel_at(n)) != NULL; n++)
        if (strlen(kernel->name) == length &&
            strncmp(kernel->name, name, length) == 0) {
            *variant_p = (struct kc_card_variant){.row = kernel->name};
            snprintf(
                variant_p->name, sizeof(variant_p->name), "%s", kernel->name);
            return true;
        }
    return false;
}

int
kc_variants_parse(const char *names, struct kc_card_variant *variants_p)
{
    int count = 0;
    for (const char *at = names; *at;) {
        size_t length = strcspn(at, ",");
        if (count == KC_VARIANTS ||
            !variant_find(at, length, &variants_p[count])) {
            fprintf(stderr,
                "kernelcheck: --variants %s, see --help: at most "
                "%d of ",
                names, KC_VARIANTS);
            kc_variants_print();
            return 0;
        }
        count++;
        at += length + (at[length] == ',');
    }
    return count;
}
