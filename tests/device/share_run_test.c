/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs: ranges of device memory that lie in several allocations side by side. A
 * run is shared as one and mapped side by side by a second process. Also fabric
 * handles, and shares of a peer that make no run, none of which may be
 * mapped.
 */
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/status.h"
#include "device/cuda_driver.h"
#include "device/device.h"
#include "device/fake_driver.h"
#include "device/fake_memory.h"
#include "device/fake_open.h"
#include "device/share.h"
#include "support/random.h"
#include "support/test.h"

enum { PIECES = 6, PIECE = FAKE_GRANULARITY };

static struct fake_driver *driver;
static struct uli_share shares[ULI_SHARE_RUN + 1];

static int
open_fake(void **state)
{
    (void)state;
    driver = fake_driver_open();
    memset(shares, 0, sizeof(shares));
    return driver ? 0 : -1;
}

static int
nothing_left(void **state)
{
    (void)state;
    driver->failing = NULL;
    driver->no_fabric = 0;
    return driver->count() == 0 && driver->depth == 0 ? 0 : -1;
}

/* Allocations side by side that are exported as `types`. */
static char *
make_segment(int npieces, int types)
{
    const struct uli_cu_calls *cu = uli_cuda_calls();
    const struct uli_cu_memory_props props = {.type = ULI_CU_PINNED,
        .handle_types = types,
        .location_type = ULI_CU_ON_DEVICE};
    const struct uli_cu_access access = {
        ULI_CU_ON_DEVICE, 0, ULI_CU_READ_WRITE};
    size_t bytes = (size_t)npieces * PIECE;
    uli_cu_memory memory;
    uli_cu_ptr at = 0;
    assert_int_equal(cu->cuMemAddressReserve(&at, bytes, 0, 0, 0), 0);
    for (size_t i = 0; i < (size_t)npieces; i++) {
        uli_cu_ptr piece = at + i * PIECE;
        assert_int_equal(cu->cuMemCreate(&memory, PIECE, &props, 0), 0);
        assert_int_equal(cu->cuMemMap(piece, PIECE, 0, memory, 0), 0);
        assert_int_equal(cu->cuMemSetAccess(piece, PIECE, &access, 1), 0);
        assert_int_equal(cu->cuMemRelease(memory), 0);
    }
    return (char *)(uintptr_t)at;
}

static void
free_segment(char *base, int npieces)
{
    const struct uli_cu_calls *cu = uli_cuda_calls();
    uli_cu_ptr at = (uli_cu_ptr)(uintptr_t)base;
    for (size_t i = 0; i < (size_t)npieces; i++)
        assert_int_equal(cu->cuMemUnmap(at + i * PIECE, PIECE), 0);
    assert_int_equal(cu->cuMemAddressFree(at, (size_t)npieces * PIECE), 0);
}

static unsigned char
byte_at(int64_t i)
{
    return (unsigned char)(i * 31 + i / PIECE);
}

/* A second process reads [offset, offset + bytes) of the run and inverts it. */
static bool
run_invert(int32_t count, int64_t offset, int64_t bytes)
{
    struct uli_share_import import;
    if (uli_share_map(1, shares, count, &import) != ULYX_SUCCESS)
        return false;
    unsigned char *there = (unsigned char *)import.address + offset;
    bool well = offset + bytes <= import.bytes;
    for (int64_t i = 0; well && i < bytes; i++) {
        well = there[i] == byte_at(i);
        there[i] = (unsigned char)~there[i];
    }
    return uli_share_unmap(&import) == ULYX_SUCCESS && well;
}

static void
share_range(char *base, int64_t bytes)
{
    int32_t count = 0;
    int status = -1;
    for (int64_t i = 0; i < bytes; i++)
        base[i] = (char)byte_at(i);
    assert_status(
        uli_share_export_run(base, bytes, shares, &count), ULYX_SUCCESS);
    int64_t offset = (int64_t)((uint64_t)(uintptr_t)base - shares[0].base);
    assert_int_equal(count, (offset + bytes + PIECE - 1) / PIECE);
    pid_t pid = fork();
    if (pid == 0)
        _exit(run_invert(count, offset, bytes) ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    for (int64_t i = 0; i < bytes; i++)
        assert_int_equal((unsigned char)base[i], (unsigned char)~byte_at(i));
    uli_share_close_run(shares, count);
}

static void
ranges_over_allocations_are_mapped_side_by_side(void **state)
{
    struct test_random random = {test_seed(17)};
    char *base = make_segment(PIECES, ULI_CU_DESCRIPTOR);
    (void)state;
    share_range(base, PIECES * PIECE);
    share_range(base + PIECE, PIECE);
    for (int64_t i = 0; i < test_draws(12); i++) {
        int64_t from = test_random_in(&random, 0, PIECES * PIECE - 1);
        share_range(
            base + from, test_random_in(&random, 1, PIECES * PIECE - from));
    }
    free_segment(base, PIECES);
}

static void
fabric_handles_serve_where_there_is_nothing_else(void **state)
{
    char *base = make_segment(2, ULI_CU_FABRIC);
    struct uli_share share;
    (void)state;
    share_range(base + 100, PIECE);
    assert_status(uli_share_export(base, &share), ULYX_SUCCESS);
    assert_int_equal(share.form, ULI_SHARE_FABRIC);
    assert_int_equal(share.fd, -1);
    free_segment(base, 2);
}

/* Memory that ulyx allocates can be shared both ways where the process may use
 * fabric handles; it is shared as a descriptor. */
static void
our_memory_needs_no_fabric(void **state)
{
    struct uli_share_memory memory;
    struct uli_share share;
    (void)state;
    for (int i = 0; i < 3; i++) {
        driver->no_fabric = i == 1;
        driver->lacks = i == 2 ? 128 : 0;
        assert_status(uli_share_alloc(0, 100, &memory), ULYX_SUCCESS);
        assert_status(uli_share_export(memory.address, &share), ULYX_SUCCESS);
        assert_int_equal(share.form, ULI_SHARE_DESCRIPTOR);
        uli_share_close(&share);
        assert_status(uli_share_free(&memory), ULYX_SUCCESS);
    }
    driver->lacks = 0;
}

static void
ranges_that_cannot_be_shared_leave_nothing_open(void **state)
{
    void *plain = NULL;
    int32_t count = -7;
    int lowest = dup(0);
    (void)state;
    close(lowest);
    char *base = make_segment(2, ULI_CU_DESCRIPTOR);
    assert_status(uli_share_export_run(base, 2 * PIECE + 1, shares, &count),
        ULYX_ERR_UNSUPPORTED); /* past the end there is no device memory */
    expect_text("is not device memory");
    assert_status(uli_device_cuda.alloc(0, 4096, &plain), ULYX_SUCCESS);
    assert_status(uli_share_export_run(plain, 3 * PIECE, shares, &count),
        ULYX_ERR_UNSUPPORTED);
    assert_status(uli_device_cuda.free(0, plain), ULYX_SUCCESS);
    driver->failing = "cuMemExportToShareableHandle";
    driver->result = 719;
    assert_status(
        uli_share_export_run(base, PIECE, shares, &count), ULYX_ERR_SYSTEM);
    driver->failing = NULL;
    free_segment(base, 2);
    base = make_segment(ULI_SHARE_RUN + 1, ULI_CU_DESCRIPTOR);
    assert_status(uli_share_export_run(base,
                      (int64_t)(ULI_SHARE_RUN + 1) * PIECE, shares, &count),
        ULYX_ERR_UNSUPPORTED);
    expect_text("lie in more than 240 allocations");
    free_segment(base, ULI_SHARE_RUN + 1);
    assert_int_equal(count, -7);
    int again = dup(0);
    assert_int_equal(again, lowest); /* every descriptor was closed */
    close(again);
}

static void
shares_that_make_no_run_are_not_mapped(void **state)
{
    char *base = make_segment(3, ULI_CU_DESCRIPTOR);
    struct uli_share_import import = {.device = -7};
    int32_t count = 0;
    (void)state;
    assert_status(uli_share_export_run(base, 3 * PIECE, shares, &count), 0);
    int before = driver->count();
    struct uli_share good = shares[1];
    for (int bad = 0; bad < 7; bad++) {
        shares[1] = good;
        if (bad == 0)
            shares[1].base += 1;
        else if (bad == 1)
            shares[1].bytes = 0;
        else if (bad == 2)
            shares[1].bytes = -PIECE;
        else if (bad == 3)
            shares[1].bytes = INT64_MAX;
        else if (bad == 4)
            shares[1].form = ULI_SHARE_IPC;
        else if (bad == 5)
            shares[1].form = 0;
        else
            shares[1].fd = -1; /* the driver must find this */
        assert_int_not_equal(
            uli_share_map(0, shares, 3, &import), ULYX_SUCCESS);
        assert_int_equal(driver->count(), before);
    }
    shares[1] = good;
    assert_status(uli_share_map(0, shares, 0, &import), ULYX_ERR_SYSTEM);
    assert_status(
        uli_share_map(0, shares, ULI_SHARE_RUN + 1, &import), ULYX_ERR_SYSTEM);
    assert_int_equal(import.device, -7);
    uli_share_close_run(shares, count);
    free_segment(base, 3);
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, open_fake, nothing_left)
static const struct CMUnitTest tests[] = {
    CASE(ranges_over_allocations_are_mapped_side_by_side),
    CASE(fabric_handles_serve_where_there_is_nothing_else),
    CASE(our_memory_needs_no_fabric),
    CASE(ranges_that_cannot_be_shared_leave_nothing_open),
    CASE(shares_that_make_no_run_are_not_mapped),
};

ULI_TEST_MAIN("ShareRun", tests)
