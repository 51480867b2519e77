/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport ucx in builds without UCX's headers.
 */
#include <stdio.h>
#include <string.h>
#include "base/status.h"
#include "transport/transport.h"

static const char why_not[] =
    "ulyx was built without UCX (-DULYX_UCX=ON needs libucx-dev)";

static bool
absent_usable(
    const struct uli_settings *settings, char *why_p, size_t why_bytes)
{
    (void)settings;
    snprintf(why_p, why_bytes, "%s", why_not);
    return false;
}

static bool
absent_reaches(const struct uli_identity *me, const struct uli_identity *peer,
    char *why_p, size_t why_bytes)
{
    if (memcmp(me->node_hash, peer->node_hash, sizeof(me->node_hash)) == 0) {
        snprintf(why_p, why_bytes, "rank %d is on the same node", peer->rank);
        return false;
    }
    return true;
}

static ulyx_status_t
open_net(const struct uli_net_params *params, struct uli_net **net_p)
{
    (void)params, (void)net_p;
    return uli_error(ULYX_ERR_UNSUPPORTED, "ucx: %s", why_not);
}

static const struct uli_net_ops net_ops = {.open = open_net};

const struct uli_tr_ops uli_tr_ucx_ops = {
    .name = "ucx",
    .caps = ULI_TR_PUT,
    .usable = absent_usable,
    .reaches = absent_reaches,
    ULI_TR_NO_MAP,
    ULI_TR_NO_MAP_DEVICE,
    ULI_TR_NO_READ,
    .net = &net_ops,
};
