/* SPDX-License-Identifier: Apache-2.0
 *
 * The carrier nccl: the transport of that name, asked for what this rank can
 * know by itself.
 */
#include "comm/carrier.h"

#include <stdio.h>
#include "comm/gpu.h"

static const struct uli_tr_ops *const transport = &uli_tr_nccl_ops;

static bool
usable(const ulyx_comm_t *comm, char *why_p, size_t why_bytes)
{
    const struct uli_identity *me = &comm->peers[comm->rank].identity;
    if (!uli_tr_allowed(&comm->settings, transport->name)) {
        snprintf(why_p, why_bytes, "ULYX_TRANSPORTS=%.99s leaves it out",
            comm->settings.transports);
        return false;
    }
    if (!transport->usable(&comm->settings, why_p, why_bytes))
        return false;
    for (int32_t p = 0; p < comm->nranks; p++)
        if (!transport->reaches(me, &comm->peers[p].identity, why_p, why_bytes))
            return false;
    return true;
}

static ulyx_status_t
make_id(ulyx_comm_t *comm, unsigned char id_p[ULI_BATCH_ID_BYTES])
{
    return transport->batch->make_id(&comm->settings, id_p);
}

static ulyx_status_t
open_batch(ulyx_comm_t *comm, const unsigned char *id, uli_deadline_t deadline,
    struct uli_batch **batch_p)
{
    struct uli_batch_params params = {.rank = comm->rank,
        .nranks = comm->nranks,
        .memory_kind = comm->memory_kind,
        .device = comm->gpu ? comm->gpu->device : 0,
        .settings = &comm->settings,
        .id = id,
        .deadline = deadline};
    return transport->batch->open(&params, batch_p);
}

static const struct uli_batch_ops *
ops(void)
{
    return transport->batch;
}

const struct uli_carrier uli_carrier_nccl = {.name = "nccl",
    .usable = usable,
    .make_id = make_id,
    .open = open_batch,
    .ops = ops};
