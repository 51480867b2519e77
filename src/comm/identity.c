/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's identity; see identity.h.
 */
#include "comm/identity.h"

#include <string.h>
#include <unistd.h>
#include "base/status.h"
#include "base/system/random.h"
#include "topology/node.h"
#include "transport/transport.h"

ulyx_status_t
uli_identity_fill(const struct uli_settings *settings, int32_t rank,
    int32_t memory_kind, int32_t device, struct uli_identity *identity_p)
{
    struct uli_identity identity;
    memset(&identity, 0, sizeof(identity)); /* padding travels too */
    identity.protocol = ULI_PROTOCOL;
    identity.rank = rank;
    ULI_TRY(uli_node_hash(settings, identity.node_hash));
    if (settings->ranks_per_node > 0)
        identity.node_hash[0] +=
            1 + (uint64_t)(rank / settings->ranks_per_node);
    ULI_TRY(uli_node_machine_hash(&identity.machine_hash));
    ULI_TRY(uli_random_bytes(identity.endpoint, sizeof(identity.endpoint)));
    identity.pid = (int32_t)getpid();
    identity.uid = (uint32_t)geteuid();
    ULI_TRY(uli_node_pid_namespace(&identity.pid_namespace));
    identity.cores_hash = uli_node_cores_hash();
    identity.memory_kind = memory_kind;
    identity.device = device;
    if (gethostname(identity.host, sizeof(identity.host) - 1))
        strcpy(identity.host, "unknown");
    uli_tr_permit_reads(settings);
    *identity_p = identity;
    return ULYX_SUCCESS;
}
