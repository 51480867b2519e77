/* SPDX-License-Identifier: Apache-2.0
 *
 * Segments: memory that can be handed to other processes. A memfd has no name,
 * needs no /dev/shm, and is freed with its last user, however that user ends.
 *
 * Every page is reserved here, so that lack of memory is an error of this call
 * and never a signal in a later store. The kernel would answer a reservation
 * beyond its memory by killing some process, so the available memory is queried
 * first.
 */
#include "transport/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/size.h"
#include "base/status.h"
#include "topology/node.h"

#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

#ifndef MFD_NOEXEC_SEAL /* Linux 6.3 */
#define MFD_NOEXEC_SEAL 0x0008U
#endif

/* fallocate fails and is undone when a signal arrives: in steps of this size a
 * timer that fires every millisecond cannot stop a large reservation. */
enum { RESERVE_STEP = 4 << 20 };

/* Available memory is a multiple of a page, so bytes that fit also fit when
 * rounded up to pages. */
static ulyx_status_t
check_room(int64_t bytes)
{
    int64_t available = uli_node_memory_available();
    if (bytes > available)
        return uli_error(ULYX_ERR_NO_MEMORY,
            "a window needs %" PRId64 " bytes, %" PRId64 " are available",
            bytes, available);
    return ULYX_SUCCESS;
}

/* A file larger than this limit would end in SIGXFSZ. */
static ulyx_status_t
check_file_limit(int64_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
        limit.rlim_cur != RLIM_INFINITY && (uint64_t)bytes > limit.rlim_cur)
        return uli_error(ULYX_ERR_NO_MEMORY,
            "a window needs %" PRId64
            " bytes, the file size limit (ulimit -f) leaves %" PRIu64,
            bytes, (uint64_t)limit.rlim_cur);
    return ULYX_SUCCESS;
}

static ulyx_status_t
segment_reserve(int fd, int64_t bytes)
{
    for (int64_t at = 0; at < bytes;) {
        int64_t step = uli_min(bytes - at, RESERVE_STEP);
        int failed = posix_fallocate(fd, at, step);
        if (failed == EINTR)
            continue;
        if (failed == ENOSPC || failed == ENOMEM)
            return uli_error(ULYX_ERR_NO_MEMORY,
                "a window needs %" PRId64 " bytes, memory ended after %" PRId64
                "; %" PRId64 " are available",
                bytes, at, uli_node_memory_available());
        if (failed) {
            errno = failed;
            return uli_error_errno("reserving %" PRId64 " bytes", bytes);
        }
        at += step;
    }
    return ULYX_SUCCESS;
}

/* The kernel uses huge pages only when a page is first touched through a
 * mapping with MADV_HUGEPAGE. Where it has no huge pages, segment_reserve()
 * reserves the rest.
 */
static void
take_huge_pages(void *address, int64_t bytes)
{
    if (madvise(address, (size_t)bytes, MADV_HUGEPAGE) == 0)
        (void)madvise(address, (size_t)bytes, MADV_POPULATE_WRITE);
}

/* Newer kernels may refuse memory files that could be executed
 * (vm.memfd_noexec); older kernels lack the flag. */
int
uli_segment_file(const char *name)
{
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(name, flags);
    return fd;
}

static ulyx_status_t
create_shared(int64_t bytes, bool hugepages, struct uli_segment *segment_p)
{
    ulyx_status_t status;
    ULI_TRY(check_file_limit(bytes));
    int fd = uli_segment_file("ulyx");
    if (fd < 0)
        return uli_error_errno("memfd_create");
    if (ftruncate(fd, bytes)) {
        status = uli_error_errno("memfd of %" PRId64 " bytes", bytes);
        goto err_close;
    }
    void *address =
        mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) {
        status = uli_error_errno("mapping %" PRId64 " bytes", bytes);
        goto err_close;
    }
    if (hugepages)
        take_huge_pages(address, bytes);
    status = segment_reserve(fd, bytes);
    if (status)
        goto err_unmap;
    if (fcntl(fd, F_ADD_SEALS, ULI_SEGMENT_SEALS)) {
        status = uli_error_errno("sealing a memfd");
        goto err_unmap;
    }
    *segment_p = (struct uli_segment){fd, address, bytes};
    return ULYX_SUCCESS;

err_unmap:
    munmap(address, (size_t)bytes);
err_close:
    close(fd);
    return status;
}

static ulyx_status_t
create_private(int64_t bytes, bool hugepages, struct uli_segment *segment_p)
{
    void *address = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED)
        return uli_error_errno("mapping %" PRId64 " bytes", bytes);
    if (hugepages)
        (void)madvise(address, (size_t)bytes, MADV_HUGEPAGE);
    /* An old kernel refuses; then the first touch allocates each page. */
    (void)madvise(address, (size_t)bytes, MADV_POPULATE_WRITE);
    *segment_p = (struct uli_segment){-1, address, bytes};
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_segment_create(
    int64_t bytes, bool shared, bool hugepages, struct uli_segment *segment_p)
{
    if (bytes <= 0)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "a window's bytes is %" PRId64 ", must be at least 1", bytes);
    ULI_TRY(check_room(bytes));
    bytes = uli_round_up(bytes, sysconf(_SC_PAGESIZE));
    return shared ? create_shared(bytes, hugepages, segment_p)
                  : create_private(bytes, hugepages, segment_p);
}

ulyx_status_t
uli_segment_check(int fd, int64_t bytes)
{
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0)
        return uli_error_errno("window: not a memfd");
    if ((seals & ULI_SEGMENT_SEALS) != ULI_SEGMENT_SEALS)
        return uli_error(
            ULYX_ERR_SYSTEM, "window: not sealed (seals 0x%x)", seals);
    if (fstat(fd, &status))
        return uli_error_errno("window: fstat");
    if (bytes <= 0 || status.st_size < bytes)
        return uli_error(ULYX_ERR_SYSTEM,
            "window: %" PRId64 " bytes announced, the segment has %" PRId64,
            bytes, (int64_t)status.st_size);
    return ULYX_SUCCESS;
}

void
uli_segment_destroy(struct uli_segment *segment)
{
    if (segment->address)
        munmap(segment->address, (size_t)segment->bytes);
    if (segment->address && segment->fd >= 0)
        close(segment->fd);
    *segment = (struct uli_segment){-1, NULL, 0};
}
