/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport nccl in builds with -DULYX_NCCL=OFF.
 */
#include <stdio.h>
#include "base/status.h"
#include "transport/transport.h"

static const char why_not[] = "ulyx was built without it (-DULYX_NCCL=OFF)";

static bool
absent_usable(
    const struct uli_settings *settings, char *why_p, size_t why_bytes)
{
    (void)settings;
    snprintf(why_p, why_bytes, "%s", why_not);
    return false;
}

static ulyx_status_t
make_id(
    const struct uli_settings *settings, unsigned char id_p[ULI_BATCH_ID_BYTES])
{
    (void)settings, (void)id_p;
    return uli_error(ULYX_ERR_UNSUPPORTED, "nccl: %s", why_not);
}

static ulyx_status_t
open_batch(const struct uli_batch_params *params, struct uli_batch **batch_p)
{
    (void)params, (void)batch_p;
    return uli_error(ULYX_ERR_UNSUPPORTED, "nccl: %s", why_not);
}

/* The other slots stay NULL: they need a batch, and open makes none. */
static const struct uli_batch_ops batch_ops = {
    .make_id = make_id, .open = open_batch};

const struct uli_tr_ops uli_tr_nccl_ops = {
    .name = "nccl",
    .caps = ULI_TR_BATCH,
    .usable = absent_usable,
    .reaches = uli_tr_between_devices,
    ULI_TR_NO_MAP,
    ULI_TR_NO_MAP_DEVICE,
    ULI_TR_NO_READ,
    .batch = &batch_ops,
};
