/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ranks say on their addresses: who could not open its end of the net
 * and why, as the same error everywhere.
 */
#include <string.h>
#include "comm/remote/remote.h"

/* The first rank whose address has no address although others have one. */
static ulyx_status_t
check_addresses(
    const ulyx_comm_t *comm, const struct uli_peer_address *addresses)
{
    int32_t with = -1, without = -1;
    for (int32_t p = comm->nranks - 1; p >= 0; p--)
        *(addresses[p].address_bytes ? &with : &without) = p;
    if (with < 0 || without < 0)
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_UNSUPPORTED,
        "rank %d has remote peers and rank %d can map all of them: nodes with "
        "different transports cannot form one communicator",
        with, without);
}

ulyx_status_t
uli_remote_check(ulyx_comm_t *comm, const struct uli_peer_address *addresses)
{
    for (int32_t p = 0; p < comm->nranks; p++) {
        int text_bytes = (int)sizeof(addresses[p].content) - 1;
        if (addresses[p].address_bytes > sizeof(addresses[p].content))
            return uli_error(ULYX_ERR_VERSION,
                "rank %d: a network address of %u bytes", p,
                addresses[p].address_bytes);
        if (addresses[p].status == ULYX_SUCCESS)
            continue;
        if (p == comm->rank)
            return uli_error_pass(addresses[p].status, addresses[p].content);
        return uli_error(addresses[p].status, "rank %d: %.*s", p, text_bytes,
            addresses[p].content);
    }
    return check_addresses(comm, addresses);
}
