/* SPDX-License-Identifier: Apache-2.0
 *
 * What public calls check in addition to the fields of plans
 * (collectives/plan/plan_fields.c) and of distributed attention
 * (attention/dist_attention/dist_fields.c).
 */
#ifndef ULI_API_PARAMS_H
#define ULI_API_PARAMS_H

#include <stddef.h>
#include "base/handle.h"
#include "base/params/fields.h"
#include "ulyx/comm.h"

/* The fields of ulyx_comm_params_t. */
extern const struct uli_fields uli_comm_fields;

/* ERR_FORKED in a child that was forked while a communicator existed. */
ulyx_status_t uli_api_enter(void);

/* ERR_INVALID_ARGUMENT for a stream of a communicator of host memory. */
ulyx_status_t uli_api_stream(const ulyx_comm_t *comm, const void *stream);

#define ULI_CHECK_POINTER(pointer)                                             \
    do {                                                                       \
        if (!(pointer))                                                        \
            return uli_error(                                                  \
                ULYX_ERR_INVALID_ARGUMENT, "%s is NULL", #pointer);            \
    } while (0)

#endif
