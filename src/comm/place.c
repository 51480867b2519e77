/* SPDX-License-Identifier: Apache-2.0
 *
 * See place.h.
 */
#include "comm/place.h"

#include "comm/device/gpu.h"
#include "comm/remote/remote_internal.h"
#include "comm/service/service.h"
#include "device/device.h"

/* The few pages that the segment has so far are moved too. */
static void
place_take(ulyx_comm_t *comm, const struct uli_bind_preference *preference)
{
    uli_binding_make(&comm->settings, preference, &comm->binding);
    uli_bind_memory(&comm->binding, comm->segment.address, comm->segment.bytes);
}

void
uli_place_own(ulyx_comm_t *comm)
{
    const struct uli_bind_preference preference = {NULL, NULL};
    place_take(comm, &preference);
}

void
uli_place_gpu(ulyx_comm_t *comm)
{
    char bus[32] = "";
    struct uli_bind_preference preference = {bus, NULL};
    if (comm->gpu->ops->bus_id(comm->gpu->device, bus))
        preference.gpu = "of unknown address";
    place_take(comm, &preference);
}

void
uli_place_net(ulyx_comm_t *comm)
{
    const struct uli_net_ops *ops = comm->remote->ops;
    struct uli_bind_preference preference = {
        NULL, ops->devices ? ops->devices(comm->net) : NULL};
    struct uli_binding near;
    if (comm->gpu || !preference.nics)
        return;
    uli_binding_make(&comm->settings, &preference, &near);
    if (near.ncores == 0 && near.memory == ULI_TOPO_UNKNOWN)
        return; /* stays bound to the rank's own cores */
    comm->binding = near;
    uli_bind_memory(&comm->binding, comm->segment.address, comm->segment.bytes);
    uli_service_bind(comm);
}
