/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables of an attention call's fields.
 */
#include "attention/translate/attention_fields.h"
#include "base/mask.h"

/* ---- the problem --------------------------------------------------------- */

#define PROBLEM(member)                                                        \
    ULI_FIELD(ulyx_attention_t, member, ulyx_attention_t, member)
static const struct uli_field problem_rows[] = {
    {PROBLEM(mask), 0, ULI_MASKS - 1, .rule = "a ULYX_MASK code"},
    {PROBLEM(align), ULYX_ALIGN_BOTTOM_RIGHT, ULYX_ALIGN_TOP_LEFT,
        .rule = "a ULYX_ALIGN code"},
    {PROBLEM(batch), ULI_AT_LEAST(0)},
    {PROBLEM(len_q), ULI_AT_LEAST(0)},
    {PROBLEM(len_k), ULI_AT_LEAST(0)},
    {PROBLEM(heads_q), ULI_AT_LEAST(0)},
    {PROBLEM(heads_kv), ULI_AT_LEAST(0)},
    {PROBLEM(scale), ULI_AT_LEAST(0)},
    {PROBLEM(softcap), ULI_AT_LEAST(0)},
    {PROBLEM(heads_global), ULI_AT_LEAST(0)},
    {PROBLEM(max_docs), ULI_AT_LEAST(0)},
    {PROBLEM(reserved), 0, 0, .rule = "0"},
    {PROBLEM(q_segment_count), ULI_AT_LEAST(0)},
    {PROBLEM(k_segment_count), ULI_AT_LEAST(0)},
    {PROBLEM(max_rows), ULI_AT_LEAST(0)},
};
const struct uli_fields uli_attention_fields = ULI_FIELDS(problem_rows);

/* ---- how to run ---------------------------------------------------------- */

#define EXEC(member)                                                           \
    ULI_FIELD(ulyx_attention_exec_t, member, ulyx_attention_exec_t, member)
static const struct uli_field exec_rows[] = {
    {EXEC(key_order), ULYX_KEYS_FIXED, ULYX_KEYS_ARRIVAL,
        .rule = "a ULYX_KEYS code"},
    {EXEC(max_sms), ULI_AT_LEAST(0)},
    {EXEC(threads), ULI_AT_LEAST(0)},
    {EXEC(reserved), 0, 0, .rule = "0"},
};
const struct uli_fields uli_attention_exec_fields = ULI_FIELDS(exec_rows);

/* ---- backward's tensors -------------------------------------------------- */

static const struct uli_field backward_rows[] = {
    {ULI_FIELD(
         ulyx_attention_backward_t, flags, ulyx_attention_backward_t, flags),
        0, ULYX_ATTENTION_ACCUMULATE},
};
const struct uli_fields uli_attention_backward_fields =
    ULI_FIELDS(backward_rows);
