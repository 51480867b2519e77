/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory shared between processes, over a driver of the test's own
 * whose memory is memfds: the peer of each case is a second process, and what
 * it writes is read here. Every driver call is made to fail once, and nothing
 * may be left.
 */
#include "device/share.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/status.h"
#include "device/cuda_driver.h"
#include "device/device.h"
#include "device/fake_driver.h"
#include "device/fake_memory.h"
#include "device/fake_open.h"
#include "support/test.h"
#ifdef HAVE_CUDA_H
#include <cuda.h>
#endif

static struct fake_driver *driver;

static int
open_fake(void **state)
{
    (void)state;
    driver = fake_driver_open();
    return driver ? 0 : -1;
}

static int
nothing_left(void **state)
{
    (void)state;
    driver->failing = NULL;
    return driver->count() == 0 && driver->depth == 0 ? 0 : -1;
}

/* A second process maps the share, reads its bytes, and overwrites them. */
static bool
peer_turns(const struct uli_share *share, int64_t offset)
{
    struct uli_share_import import;
    bool well = uli_share_map(1, share, 1, &import) == ULYX_SUCCESS;
    if (!well)
        return false;
    char *there = (char *)import.address + offset;
    well = strcmp(there, "from the owner") == 0;
    strcpy(there, "from the peer");
    return uli_share_unmap(&import) == ULYX_SUCCESS && well;
}

static void
share_with_a_process(char *memory, const struct uli_share *share)
{
    int status = -1;
    int64_t offset = (int64_t)((uint64_t)(uintptr_t)memory - share->base);
    strcpy(memory, "from the owner");
    pid_t pid = fork();
    if (pid == 0)
        _exit(peer_turns(share, offset) ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_string_equal(memory, "from the peer");
}

/* ---- the three origins --------------------------------------------------- */

static void
our_memory_is_a_descriptor(void **state)
{
    struct uli_share_memory memory;
    struct uli_share share;
    (void)state;
    assert_status(uli_share_alloc(1, FAKE_GRANULARITY + 1, &memory), 0);
    assert_int_equal(memory.bytes, 2 * FAKE_GRANULARITY);
    char *inside = (char *)memory.address + 1000;
    assert_status(uli_share_export(inside, &share), ULYX_SUCCESS);
    assert_int_equal(share.form, ULI_SHARE_DESCRIPTOR);
    assert_int_equal(share.device, 1);
    assert_int_equal(share.base, (uintptr_t)memory.address);
    assert_int_equal(share.bytes, memory.bytes);
    assert_int_equal(fcntl(share.fd, F_GETFD), FD_CLOEXEC);
    share_with_a_process(inside, &share);
    /* the peer's mapping holds the memory when the owner has freed it */
    struct uli_share_import import;
    assert_status(uli_share_map(0, &share, 1, &import), ULYX_SUCCESS);
    assert_status(uli_share_free(&memory), ULYX_SUCCESS);
    assert_string_equal((char *)import.address + 1000, "from the peer");
    assert_status(uli_share_unmap(&import), ULYX_SUCCESS);
    uli_share_close(&share);
    uli_share_close(&share);
    assert_int_equal(share.fd, -1);
}

static void
callers_memory_goes_by_its_base(void **state)
{
    void *memory = NULL;
    struct uli_share share;
    (void)state;
    assert_status(uli_device_cuda.alloc(0, 5000, &memory), ULYX_SUCCESS);
    assert_status(uli_share_export((char *)memory + 4000, &share), 0);
    assert_int_equal(share.form, ULI_SHARE_IPC);
    assert_int_equal(share.base, (uintptr_t)memory);
    assert_int_equal(share.bytes, 5000);
    assert_int_equal(share.fd, -1);
    share_with_a_process((char *)memory + 4000, &share);
    assert_status(uli_device_cuda.free(0, memory), ULYX_SUCCESS);
}

/* Two allocations side by side in one reservation, as an expandable segment
 * grows. */
static void
a_segment_is_shared_piece_by_piece(void **state)
{
    const struct uli_cu_calls *cu = uli_cuda_calls();
    const struct uli_cu_memory_props props = {.type = ULI_CU_PINNED,
        .handle_types = ULI_CU_DESCRIPTOR,
        .location_type = ULI_CU_ON_DEVICE};
    const struct uli_cu_access access = {ULI_CU_ON_DEVICE, 0, 3};
    const size_t piece = FAKE_GRANULARITY;
    struct uli_share shares[2];
    uli_cu_memory memory;
    uli_cu_ptr at = 0;
    (void)state;
    assert_int_equal(cu->cuMemAddressReserve(&at, 4 * piece, 0, 0, 0), 0);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(cu->cuMemCreate(&memory, piece, &props, 0), 0);
        assert_int_equal(cu->cuMemMap(at + i * piece, piece, 0, memory, 0), 0);
        assert_int_equal(
            cu->cuMemSetAccess(at + i * piece, piece, &access, 1), 0);
        assert_int_equal(cu->cuMemRelease(memory), 0);
    }
    for (size_t i = 0; i < 2; i++) {
        char *inside = (char *)(uintptr_t)at + i * piece + 77;
        assert_status(uli_share_export(inside, &shares[i]), ULYX_SUCCESS);
        assert_int_equal(shares[i].base, at + i * piece);
        assert_int_equal(shares[i].bytes, piece);
        share_with_a_process(inside, &shares[i]);
        uli_share_close(&shares[i]);
    }
    assert_int_not_equal(shares[0].buffer_id, shares[1].buffer_id);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(cu->cuMemUnmap(at + i * piece, piece), 0);
    assert_int_equal(cu->cuMemAddressFree(at, 4 * piece), 0);
}

static void
memory_made_anew_has_another_id(void **state)
{
    struct uli_share first, second;
    void *memory = NULL;
    (void)state;
    assert_status(uli_device_cuda.alloc(0, 4096, &memory), ULYX_SUCCESS);
    assert_status(uli_share_export(memory, &first), ULYX_SUCCESS);
    assert_status(uli_device_cuda.free(0, memory), ULYX_SUCCESS);
    assert_status(uli_device_cuda.alloc(0, 4096, &memory), ULYX_SUCCESS);
    assert_status(uli_share_export(memory, &second), ULYX_SUCCESS);
    assert_int_not_equal(first.buffer_id, second.buffer_id);
    assert_status(uli_device_cuda.free(0, memory), ULYX_SUCCESS);
}

/* ---- refusals ------------------------------------------------------------ */

static void
unshareable_memory_is_refused_with_the_reason(void **state)
{
    static char managed, plain;
    const struct uli_cu_memory_props props = {
        .type = ULI_CU_PINNED, .location_type = ULI_CU_ON_DEVICE};
    const struct uli_cu_calls *cu = uli_cuda_calls();
    struct uli_share share = {.fd = -7};
    void *memory = NULL;
    uli_cu_memory handle;
    uli_cu_ptr at = 0;
    (void)state;
    assert_status(uli_share_export(&plain, &share), ULYX_ERR_UNSUPPORTED);
    expect_text("is not device memory");
    driver->managed_at = &managed;
    assert_status(uli_share_export(&managed, &share), ULYX_ERR_UNSUPPORTED);
    expect_text("is managed");
    driver->managed_at = NULL;

    assert_status(uli_device_cuda.alloc(0, 64, &memory), ULYX_SUCCESS);
    driver->no_ipc = 1;
    assert_status(uli_share_export(memory, &share), ULYX_ERR_UNSUPPORTED);
    expect_text("neither legacy IPC nor a virtual-memory handle");
    driver->no_ipc = 0;
    assert_status(uli_device_cuda.free(0, memory), ULYX_SUCCESS);

    assert_int_equal(cu->cuMemCreate(&handle, FAKE_GRANULARITY, &props, 0), 0);
    assert_int_equal(
        cu->cuMemAddressReserve(&at, FAKE_GRANULARITY, 0, 0, 0), 0);
    assert_int_equal(cu->cuMemMap(at, FAKE_GRANULARITY, 0, handle, 0), 0);
    memory = (void *)(uintptr_t)at;
    assert_status(uli_share_export(memory, &share), ULYX_ERR_UNSUPPORTED);
    expect_text("made without CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR");
    assert_int_equal(cu->cuMemUnmap(at, FAKE_GRANULARITY), 0);
    assert_int_equal(cu->cuMemAddressFree(at, FAKE_GRANULARITY), 0);
    assert_int_equal(cu->cuMemRelease(handle), 0);
    assert_int_equal(share.fd, -7); /* written on success only */
}

static void
bad_sizes_and_devices_are_refused(void **state)
{
    struct uli_share_memory memory = {.device = -7};
    struct uli_share_import import = {.device = -7};
    struct uli_share share = {.form = ULI_SHARE_DESCRIPTOR, .fd = -1};
    (void)state;
    assert_status(uli_share_alloc(0, 0, &memory), ULYX_ERR_INVALID_ARGUMENT);
    assert_status(
        uli_share_alloc(0, INT64_MAX, &memory), ULYX_ERR_INVALID_ARGUMENT);
    assert_status(uli_share_alloc(5, 64, &memory), ULYX_ERR_INVALID_ARGUMENT);
    assert_status(uli_share_map(0, &share, 1, &import), ULYX_ERR_SYSTEM);
    expect_text("0 bytes, make no run");
    share = (struct uli_share){.form = 9, .bytes = 64};
    assert_status(uli_share_map(0, &share, 1, &import), ULYX_ERR_SYSTEM);
    for (int lacks = 102; lacks <= 103; lacks++) {
        driver->lacks = lacks;
        assert_status(uli_share_alloc(0, 64, &memory), ULYX_ERR_UNSUPPORTED);
        expect_text(lacks == 102 ? "no virtual memory management"
                                 : "no export of memory");
    }
    driver->lacks = 0;
    assert_int_equal(memory.device, -7);
    assert_int_equal(import.device, -7);
}

/* A peer that announces more bytes than its memory has. */
static void
a_share_larger_than_its_memory_is_not_mapped(void **state)
{
    struct uli_share_memory memory;
    struct uli_share_import import;
    struct uli_share share;
    (void)state;
    assert_status(uli_share_alloc(0, 1, &memory), ULYX_SUCCESS);
    assert_status(uli_share_export(memory.address, &share), ULYX_SUCCESS);
    int before = driver->count();
    share.bytes *= 2;
    assert_int_not_equal(uli_share_map(0, &share, 1, &import), ULYX_SUCCESS);
    assert_int_equal(driver->count(), before);
    uli_share_close(&share);
    assert_status(uli_share_free(&memory), ULYX_SUCCESS);
}

/* ---- failures ------------------------------------------------------------ */

static int
open_descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* Makes, shares and frees memory once. Returns false if a step failed; then
 * what was made is undone. */
static bool
device_is_live(void)
{
    struct uli_share_memory memory;
    struct uli_share_import import;
    struct uli_share share;
    bool well = false;
    if (uli_share_alloc(0, 64, &memory) != ULYX_SUCCESS)
        return false;
    if (uli_share_export(memory.address, &share) == ULYX_SUCCESS) {
        well = uli_share_map(1, &share, 1, &import) == ULYX_SUCCESS &&
               uli_share_unmap(&import) == ULYX_SUCCESS;
        uli_share_close(&share);
    }
    return uli_share_free(&memory) == ULYX_SUCCESS && well;
}

static void
a_failing_call_is_named_and_leaves_nothing(void **state)
{
    static const char *const calls[] = {"cuDeviceGetAttribute",
        "cuMemGetAllocationGranularity", "cuMemCreate", "cuMemAddressReserve",
        "cuMemMap", "cuMemSetAccess", "cuMemRetainAllocationHandle",
        "cuMemGetAllocationPropertiesFromHandle",
        "cuMemExportToShareableHandle", "cuMemImportFromShareableHandle",
        "cuPointerGetAttribute"};
    int before = open_descriptors();
    (void)state;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        driver->failing = calls[i];
        driver->result = 719;
        assert_false(device_is_live());
        expect_text(calls[i]);
        driver->failing = NULL;
        assert_int_equal(driver->count(), 0);
        assert_int_equal(driver->depth, 0);
        assert_int_equal(open_descriptors(), before);
    }
    assert_true(device_is_live());
    assert_int_equal(open_descriptors(), before);
}

/* ---- the structures ------------------------------------------------------ */

static void
structures_are_those_of_the_drivers_header(void **state)
{
    (void)state;
#ifdef HAVE_CUDA_H
#define SAME(ours, member, theirs, their_member)                               \
    assert_int_equal(offsetof(ours, member), offsetof(theirs, their_member))
    typedef struct uli_cu_memory_props props;
    assert_int_equal(sizeof(props), sizeof(CUmemAllocationProp));
    SAME(props, handle_types, CUmemAllocationProp, requestedHandleTypes);
    SAME(props, location_type, CUmemAllocationProp, location.type);
    SAME(props, location, CUmemAllocationProp, location.id);
    SAME(props, win32, CUmemAllocationProp, win32HandleMetaData);
    SAME(props, rdma, CUmemAllocationProp, allocFlags.gpuDirectRDMACapable);
    SAME(props, usage, CUmemAllocationProp, allocFlags.usage);
    assert_int_equal(sizeof(struct uli_cu_access), sizeof(CUmemAccessDesc));
    SAME(struct uli_cu_access, flags, CUmemAccessDesc, flags);
    assert_int_equal(sizeof(struct uli_cu_ipc), sizeof(CUipcMemHandle));
    assert_int_equal(ULI_CU_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
    assert_int_equal(ULI_CU_ON_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
    assert_int_equal(
        ULI_CU_DESCRIPTOR, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    assert_int_equal(ULI_CU_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
#define SAME_COPY(ours, theirs)                                                \
    assert_int_equal(sizeof(ours), sizeof(theirs));                            \
    SAME(ours, src.memory_type, theirs, srcMemoryType);                        \
    SAME(ours, src.device, theirs, srcDevice);                                 \
    SAME(ours, src.pitch, theirs, srcPitch);                                   \
    SAME(ours, dst.memory_type, theirs, dstMemoryType);                        \
    SAME(ours, dst.device, theirs, dstDevice);                                 \
    SAME(ours, dst.pitch, theirs, dstPitch);                                   \
    SAME(ours, width_bytes, theirs, WidthInBytes);                             \
    SAME(ours, height, theirs, Height)
    typedef struct uli_cu_copy2d plane;
    typedef struct uli_cu_copy3d space;
    SAME_COPY(plane, CUDA_MEMCPY2D);
    SAME_COPY(space, CUDA_MEMCPY3D);
    SAME(space, src.height, CUDA_MEMCPY3D, srcHeight);
    SAME(space, dst.height, CUDA_MEMCPY3D, dstHeight);
    SAME(space, depth, CUDA_MEMCPY3D, Depth);
    assert_int_equal(ULI_CU_UNIFIED, CU_MEMORYTYPE_UNIFIED);
#else
    test_skip("built without the toolkit's cuda.h");
#endif
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, open_fake, nothing_left)
static const struct CMUnitTest tests[] = {
    CASE(our_memory_is_a_descriptor),
    CASE(callers_memory_goes_by_its_base),
    CASE(a_segment_is_shared_piece_by_piece),
    CASE(memory_made_anew_has_another_id),
    CASE(unshareable_memory_is_refused_with_the_reason),
    CASE(bad_sizes_and_devices_are_refused),
    CASE(a_share_larger_than_its_memory_is_not_mapped),
    CASE(a_failing_call_is_named_and_leaves_nothing),
    CASE(structures_are_those_of_the_drivers_header),
};

ULI_TEST_MAIN("Share", tests)
