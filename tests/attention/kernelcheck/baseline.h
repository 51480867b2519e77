/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain attention in the precision of the inputs and outputs: the yardstick of
 * the tolerance rule.
 */
#ifndef TESTS_ATTENTION_BASELINE_H
#define TESTS_ATTENTION_BASELINE_H

#include "attention/kernelcheck/kc.h"

#define KC_VARIANTS 8

/* Computes out, lse (backward: dq, dk, dv, from the true lse, and from the true
 * delta or, with from_out, from delta of the true out, each rounded to its
 * dtype: what the judged backward was given. delta of an out of 16 bits is off
 * by an amount that all keys of a row share, up to 18 times all else in a block
 * of one row) in one of KC_VARIANTS orders of summation. values_p: arrays
 * are allocated. Products accumulate in fp32 and every stored intermediate is
 * rounded to the case's dtype, as a framework's unfused attention does. */
void kc_baseline(const struct kc_case *kc, int variant, bool backward,
    bool from_out, struct kc_values values_p[KC_TENSORS]);

#endif
