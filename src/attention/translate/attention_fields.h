/* SPDX-License-Identifier: Apache-2.0
 *
 * The fields of attention.h's structs that can be checked alone. Those of a
 * tensor depend on the problem: view_check.c.
 */
#ifndef ULI_ATTENTION_TRANSLATE_ATTENTION_FIELDS_H
#define ULI_ATTENTION_TRANSLATE_ATTENTION_FIELDS_H

#include "base/params/fields.h"

extern const struct uli_fields uli_attention_fields;          /* the problem */
extern const struct uli_fields uli_attention_exec_fields;     /* how to run */
extern const struct uli_fields uli_attention_backward_fields; /* its tensors */

#endif
