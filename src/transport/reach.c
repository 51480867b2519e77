/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks that a transport reaches, for transports within a process, within a
 * node, or for device memory only.
 */
#include <stdio.h>
#include <string.h>
#include "base/status.h"
#include "device/cuda_driver.h"
#include "device/device.h"
#include "transport/transport.h"

bool
uli_tr_within_process(const struct uli_identity *me,
    const struct uli_identity *peer, char *why_p, size_t why_bytes)
{
    if (memcmp(me->process, peer->process, sizeof(me->process))) {
        snprintf(why_p, why_bytes, "rank %d is another process", peer->rank);
        return false;
    }
    /* Nodes that a setting makes are separate like real nodes. */
    if (memcmp(me->node_hash, peer->node_hash, sizeof(me->node_hash))) {
        snprintf(why_p, why_bytes, "rank %d is on another node", peer->rank);
        return false;
    }
    return true;
}

bool
uli_tr_within_node(const struct uli_identity *me,
    const struct uli_identity *peer, char *why_p, size_t why_bytes)
{
    if (memcmp(me->node_hash, peer->node_hash, sizeof(me->node_hash))) {
        snprintf(why_p, why_bytes,
            "rank %d (%.63s) is on another node, or in another network "
            "namespace",
            peer->rank, peer->host);
        return false;
    }
    if (me->uid != peer->uid) {
        snprintf(why_p, why_bytes, "rank %d is of user %u, rank %d of user %u",
            me->rank, me->uid, peer->rank, peer->uid);
        return false;
    }
    return true;
}

bool
uli_tr_between_devices(const struct uli_identity *me,
    const struct uli_identity *peer, char *why_p, size_t why_bytes)
{
    if (me->memory_kind == ULYX_MEMORY_CUDA &&
        peer->memory_kind == ULYX_MEMORY_CUDA)
        return true;
    snprintf(why_p, why_bytes, "rank %d has host memory",
        me->memory_kind == ULYX_MEMORY_CUDA ? peer->rank : me->rank);
    return false;
}

bool
uli_tr_devices_usable(
    const struct uli_settings *settings, char *why_p, size_t why_bytes)
{
    (void)settings;
    if (!uli_cuda_present(why_p, why_bytes))
        return false;
    if (uli_device_cuda.open() == ULYX_SUCCESS)
        return true;
    snprintf(why_p, why_bytes, "%s", uli_error_text());
    return false;
}
