/* SPDX-License-Identifier: Apache-2.0
 *
 * The fields of ulyx_plan_params_t, ulyx_part_t and ulyx_tensor_t. To add a
 * field: the public header, a member of the struct below that holds it, a row
 * here, its use.
 */
#ifndef ULI_COLLECTIVES_PLAN_PLAN_FIELDS_H
#define ULI_COLLECTIVES_PLAN_PLAN_FIELDS_H

#include "base/params/fields.h"

/* ulyx_part_t into struct uli_shape_part. */
extern const struct uli_fields uli_part_fields;
/* ulyx_plan_params_t into struct uli_shape: what all ranks agree on. The code
 * that reads the parameters sets strides, and elem_bytes of dtypes that have a
 * size. */
extern const struct uli_fields uli_shape_fields;
/* ulyx_plan_params_t into struct uli_plan_params: fields in which ranks may
 * differ, and fields from which the plan computes values that are then compared
 * (plan_agree.c). */
extern const struct uli_fields uli_plan_fields;

#endif
