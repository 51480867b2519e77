/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain attention in the precision of the inputs and outputs: the yardstick of
 * the tolerance rule.
 */
#ifndef TESTS_ATTENTION_BASELINE_H
#define TESTS_ATTENTION_BASELINE_H

#include "attention/kernelcheck/kc.h"

#define KC_VARIANTS 8

/* Computes out, lse (backward: dq, dk, dv, from the true lse and delta rounded
 * to their dtype) in one of KC_VARIANTS orders of summation. values_p: arrays
 * are allocated. Products accumulate in fp32 and every stored intermediate is
 * rounded to the case's dtype, as a framework's unfused attention does. */
void kc_baseline(const struct kc_case *kc, int variant, bool backward,
    struct kc_values values_p[KC_TENSORS]);

#endif
