/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain attention in the precision of the inputs and outputs. The tolerance
 * rule measures errors by it.
 */
#ifndef TESTS_ATTENTION_BASELINE_H
#define TESTS_ATTENTION_BASELINE_H

#include "attention/kernelcheck/kc.h"

#define KC_VARIANTS 8

/* Computes out and lse in one of KC_VARIANTS orders of summation; with
 * backward, dq, dk and dv. Backward takes the true lse, and the true delta or,
 * with from_out, delta of the true out, each rounded to its dtype, as the
 * backward under test does. delta of a 16-bit out has an error that all keys of
 * a row share; in a block of one row it is up to 18 times all other errors. The
 * arrays of values_p are allocated. Products accumulate in fp32, and every
 * stored intermediate is rounded to the case's dtype, as in a framework's
 * unfused attention. */
void kc_baseline(const struct kc_case *kc, int variant, bool backward,
    bool from_out, struct kc_values values_p[KC_TENSORS]);

#endif
