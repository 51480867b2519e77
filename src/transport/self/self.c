/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of one process: a window is mapped by its address, a read is a copy.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/size.h"
#include "base/status.h"
#include "transport/transport.h"

static bool
self_usable(const struct uli_settings *settings, char *why_p, size_t why_bytes)
{
    (void)settings, (void)why_p, (void)why_bytes;
    return true;
}

/* Without an address the window belongs to another process. */
static ulyx_status_t
window_map(const struct uli_tr_handle *handle, void **address_p)
{
    if (!handle->address || handle->bytes <= 0)
        return uli_error(ULYX_ERR_SYSTEM,
            "window: no address in this process (%" PRId64 " bytes)",
            handle->bytes);
    *address_p = handle->address;
    return ULYX_SUCCESS;
}

static void
window_unmap(void *address, int64_t bytes)
{
    (void)address, (void)bytes;
}

static ulyx_status_t
read_probe(pid_t pid, const void *remote)
{
    if (pid != getpid())
        return uli_error(
            ULYX_ERR_UNSUPPORTED, "self: process %d is another one", (int)pid);
    if (memcmp(remote, &uli_tr_probe_word, sizeof(uli_tr_probe_word)))
        return uli_error(
            ULYX_ERR_UNSUPPORTED, "self: the probe word reads otherwise");
    return ULYX_SUCCESS;
}

/* Steps through both lists together; each step copies until one of the two
 * current ranges ends. */
static ulyx_status_t
read_ranges(pid_t pid, const struct iovec *local, size_t local_count,
    const struct iovec *remote, size_t remote_count)
{
    size_t l = 0, r = 0, l_at = 0, r_at = 0;
    (void)pid;
    while (l < local_count && r < remote_count) {
        size_t l_left = local[l].iov_len - l_at;
        size_t r_left = remote[r].iov_len - r_at;
        size_t step = l_left < r_left ? l_left : r_left;
        if (step)
            memcpy((char *)local[l].iov_base + l_at,
                (const char *)remote[r].iov_base + r_at, step);
        l_at = step == l_left ? (l++, 0) : l_at + step;
        r_at = step == r_left ? (r++, 0) : r_at + step;
    }
    return ULYX_SUCCESS;
}

const struct uli_tr_ops uli_tr_self_ops = {
    .name = "self",
    .caps = ULI_TR_MAP | ULI_TR_READ,
    .usable = self_usable,
    .reaches = uli_tr_within_process,
    .window_map = window_map,
    .window_unmap = window_unmap,
    .maps_addresses = true,
    ULI_TR_NO_MAP_DEVICE,
    .read_probe = read_probe,
    .read_permit = uli_tr_no_permit,
    .read = read_ranges,
};
