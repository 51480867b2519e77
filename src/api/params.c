/* SPDX-License-Identifier: Apache-2.0
 *
 * What public calls check in addition to the fields of plans
 * (collectives/plan/plan_fields.c) and of distributed attention
 * (attention/dist_attention/dist_fields.c).
 */
#include "api/params.h"

#include "base/status.h"
#include "base/system/clock.h"
#include "comm/comm.h"

#define COMM(member)                                                           \
    ULI_FIELD(ulyx_comm_params_t, member, ulyx_comm_params_t, member)
static const struct uli_field comm_rows[] = {
    {COMM(timeout_s), 0, ULI_TIMEOUT_MAX_S},
    {COMM(memory_kind), ULYX_MEMORY_HOST, ULYX_MEMORY_CUDA,
        .rule = "a ULYX_MEMORY code"},
    {COMM(device), ULI_AT_LEAST(-1), .rule = "an ordinal, or -1"},
    {COMM(name), ULI_ANY},
    {COMM(flags), 0, ULYX_COMM_CONCURRENT, .rule = "ULYX_COMM_ flags"},
};
const struct uli_fields uli_comm_fields = ULI_FIELDS(comm_rows);

ulyx_status_t
uli_api_stream(const ulyx_comm_t *comm, const void *stream)
{
    if (!stream || comm->memory_kind != ULYX_MEMORY_HOST)
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_INVALID_ARGUMENT,
        "stream is %p, must be NULL on the host", stream);
}
