/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading ulyx_plan_params_t into the library's own terms.
 */
#ifndef ULI_API_RESHUFFLE_PARAMS_H
#define ULI_API_RESHUFFLE_PARAMS_H

#include <stdbool.h>
#include "base/params/held.h"
#include "collectives/plan/plan.h"
#include "ulyx/reshuffle.h"

struct uli_reshuffle_params {
    struct uli_plan_params plan;
    struct uli_held held; /* what it points to that is not the caller's */
};

/* hold: copies what the struct points to, for a call that runs later.
 * ownership: *params_p by uli_reshuffle_params_free, also after an error
 * (then it may be NULL).
 * returns SUCCESS; ERR_INVALID_ARGUMENT naming field and value;
 * ERR_UNSUPPORTED; ERR_NO_MEMORY. */
ulyx_status_t uli_reshuffle_params_read(const ulyx_plan_params_t *given,
    int32_t nranks, bool hold, struct uli_reshuffle_params **params_p);
void uli_reshuffle_params_free(struct uli_reshuffle_params *params);

#endif
