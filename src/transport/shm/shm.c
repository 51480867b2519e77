/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes of one node and user: windows are sealed memfds that arrive as
 * descriptors and are mapped; other memory is read by process_vm_readv.
 */
#include "transport/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/status.h"
#include "transport/segment.h"

static bool
shm_usable(const struct uli_settings *settings, char *why_p, size_t why_bytes)
{
    (void)settings;
    int fd = uli_segment_file("ulyx-test");
    bool sealed = fd >= 0 && fcntl(fd, F_ADD_SEALS, ULI_SEGMENT_SEALS) == 0;
    int number = errno;
    if (fd >= 0)
        close(fd);
    if (!sealed)
        snprintf(
            why_p, why_bytes, "no sealed memfd here: %s", strerror(number));
    return sealed;
}

static ulyx_status_t
window_map(const struct uli_tr_handle *handle, void **address_p)
{
    ULI_TRY(uli_segment_check(handle->fd, handle->bytes));
    void *address = mmap(NULL, (size_t)handle->bytes, PROT_READ | PROT_WRITE,
        MAP_SHARED, handle->fd, 0);
    if (address == MAP_FAILED)
        return uli_error_errno(
            "window: mapping %" PRId64 " bytes of a peer", handle->bytes);
    *address_p = address;
    return ULYX_SUCCESS;
}

static void
window_unmap(void *address, int64_t bytes)
{
    munmap(address, (size_t)bytes);
}

const struct uli_tr_ops uli_tr_shm_ops = {
    .name = "shm",
    .caps = ULI_TR_MAP | ULI_TR_READ,
    .usable = shm_usable,
    .reaches = uli_tr_within_node,
    .window_map = window_map,
    .window_unmap = window_unmap,
    ULI_TR_NO_MAP_DEVICE,
    .read_probe = uli_cma_probe,
    .read_permit = uli_cma_permit,
    .read = uli_cma_read,
};
