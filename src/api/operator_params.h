/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the operator's structs into the library's own terms.
 */
#ifndef ULI_API_OPERATOR_PARAMS_H
#define ULI_API_OPERATOR_PARAMS_H

#include "attention/operator/operator.h"

/* Copies everything that the struct points to.
 * ownership: *params_p by uli_operator_params_free, also after an error (then
 * it may be NULL).
 * returns SUCCESS; ERR_INVALID_ARGUMENT naming field and value;
 * ERR_UNSUPPORTED; ERR_NO_MEMORY. */
ulyx_status_t uli_operator_params_read(const ulyx_operator_params_t *given,
    int32_t nranks, struct uli_operator_params **params_p);

/* The pointers of a call, and what was wrong with them. */
ulyx_status_t uli_operator_forward_read(const ulyx_operator_t *op,
    const ulyx_operator_forward_t *given, struct uli_operator_call *call_p);
ulyx_status_t uli_operator_backward_read(const ulyx_operator_t *op,
    const ulyx_operator_backward_t *given, struct uli_operator_call *call_p);

#endif
