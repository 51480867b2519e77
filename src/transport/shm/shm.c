/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes of one node and user: windows are sealed memfds that arrive as
 * descriptors and are mapped; other memory is read by process_vm_readv.
 *
 * A peer's descriptor is used only after its seals and size were checked: a
 * segment that could shrink would turn the next load of this process into
 * SIGBUS.
 */
#include "transport/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
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
check_handle(const struct uli_tr_handle *handle)
{
    struct stat status;
    int seals = fcntl(handle->fd, F_GET_SEALS);
    if (seals < 0)
        return uli_error_errno("window: not a memfd");
    if ((seals & ULI_SEGMENT_SEALS) != ULI_SEGMENT_SEALS)
        return uli_error(
            ULYX_ERR_SYSTEM, "window: not sealed (seals 0x%x)", seals);
    if (fstat(handle->fd, &status))
        return uli_error_errno("window: fstat");
    if (handle->bytes <= 0 || status.st_size < handle->bytes)
        return uli_error(ULYX_ERR_SYSTEM,
            "window: %" PRId64 " bytes announced, the segment has %" PRId64,
            handle->bytes, (int64_t)status.st_size);
    return ULYX_SUCCESS;
}

static ulyx_status_t
window_map(const struct uli_tr_handle *handle, void **address_p)
{
    ULI_TRY(check_handle(handle));
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
