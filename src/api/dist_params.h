/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading distributed attention's structs into the library's own terms.
 */
#ifndef ULI_API_DIST_PARAMS_H
#define ULI_API_DIST_PARAMS_H

#include "attention/dist_attention/dist_attention.h"

/* Copies everything that the struct points to.
 * ownership: *params_p by uli_dist_params_free, also after an error (then
 * it may be NULL).
 * returns SUCCESS; ERR_INVALID_ARGUMENT naming field and value;
 * ERR_UNSUPPORTED; ERR_NO_MEMORY. */
ulyx_status_t uli_dist_params_read(const ulyx_dist_attention_params_t *given,
    int32_t nranks, struct uli_dist_params **params_p);

/* The pointers of a call, and what was wrong with them. */
ulyx_status_t uli_dist_forward_read(const ulyx_dist_attention_t *dist,
    const ulyx_dist_attention_forward_t *given, struct uli_dist_call *call_p);
ulyx_status_t uli_dist_backward_read(const ulyx_dist_attention_t *dist,
    const ulyx_dist_attention_backward_t *given, struct uli_dist_call *call_p);

#endif
