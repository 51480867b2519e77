/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of a transport for capabilities that it does not have.
 */
#include "transport/transport.h"

#include <stdio.h>
#include "base/status.h"

static bool
stub_usable(const struct uli_settings *settings, char *why_p, size_t why_bytes)
{
    (void)settings;
    snprintf(why_p, why_bytes, "it moves nothing");
    return false;
}

static bool
stub_reaches(const struct uli_identity *me, const struct uli_identity *peer,
    char *why_p, size_t why_bytes)
{
    (void)me, (void)peer;
    snprintf(why_p, why_bytes, "it reaches nobody");
    return false;
}

ulyx_status_t
uli_tr_no_map(const struct uli_tr_handle *handle, void **address_p)
{
    (void)handle, (void)address_p;
    return uli_error(
        ULYX_ERR_UNSUPPORTED, "this transport does not map windows");
}

void
uli_tr_no_unmap(void *address, int64_t bytes)
{
    (void)address, (void)bytes;
}

ulyx_status_t
uli_tr_no_device_map(int32_t device, const struct uli_tr_device_handle *handle,
    void **address_p, void **mapping_p)
{
    (void)device, (void)handle, (void)address_p, (void)mapping_p;
    return uli_error(
        ULYX_ERR_UNSUPPORTED, "this transport does not map device memory");
}

void
uli_tr_no_device_unmap(void *mapping)
{
    (void)mapping;
}

ulyx_status_t
uli_tr_no_probe(pid_t pid, const void *remote)
{
    (void)pid, (void)remote;
    return uli_error(
        ULYX_ERR_UNSUPPORTED, "this transport does not read peers' memory");
}

void
uli_tr_no_permit(const struct uli_settings *settings)
{
    (void)settings;
}

ulyx_status_t
uli_tr_no_read(pid_t pid, const struct iovec *local, size_t local_count,
    const struct iovec *remote, size_t remote_count)
{
    (void)local, (void)local_count, (void)remote_count;
    return uli_tr_no_probe(pid, remote);
}

const struct uli_tr_ops uli_tr_stubs = {
    .name = "none",
    .caps = 0,
    .usable = stub_usable,
    .reaches = stub_reaches,
    ULI_TR_NO_MAP,
    ULI_TR_NO_MAP_DEVICE,
    ULI_TR_NO_READ,
};
