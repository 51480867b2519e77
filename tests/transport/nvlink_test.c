/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport of device memory: whom it reaches and why not, and windows
 * that a peer describes wrongly, over the tests' driver of two devices.
 */
#include <stdio.h>
#include <string.h>
#include "base/status.h"
#include "device/device.h"
#include "device/fake_driver.h"
#include "device/fake_open.h"
#include "support/test.h"
#include "transport/nvlink/imports.h"
#include "transport/transport.h"

static struct fake_driver *driver;
static struct uli_settings settings;
static char why[512];

static int
open_fake(void **state)
{
    (void)state;
    driver = fake_driver_open();
    return driver ? (int)uli_settings_load(&settings) : -1;
}

static int
nothing_left(void **state)
{
    (void)state;
    driver->no_peers = 0;
    settings.transports[0] = 0;
    return driver->count() == 0 && uli_import_count() == 0 ? 0 : -1;
}

/* Process 0 is this one's rank 0. */
static struct uli_identity
identity(int rank, int node, int process, int device)
{
    struct uli_identity made;
    memset(&made, 0, sizeof(made));
    made.rank = rank;
    made.node_hash[1] = (uint64_t)node;
    made.process[15] = (unsigned char)process;
    made.memory_kind = ULYX_MEMORY_CUDA;
    made.device = device;
    strcpy(made.host, "elsewhere");
    if (device < 2)
        assert_status(uli_device_cuda.uuid(device, made.gpu), ULYX_SUCCESS);
    else
        memset(made.gpu, 77, sizeof(made.gpu));
    return made;
}

static const char *
choose(const struct uli_identity *peer)
{
    struct uli_identity me = identity(0, 1, 0, 0);
    const struct uli_tr_ops *ops = uli_tr_select(
        &settings, &me, peer, ULI_TR_MAP_DEVICE, why, sizeof(why));
    return ops ? ops->name : why;
}

static void
reaches_devices_of_this_node(void **state)
{
    (void)state;
    for (int process = 0; process < 2; process++)
        for (int device = 0; device < 3; device++) { /* 2: hidden from here */
            struct uli_identity peer = identity(1, 1, process, device);
            assert_string_equal(choose(&peer), "nvlink");
        }
}

static void
says_why_it_does_not_reach(void **state)
{
    struct uli_identity peer = identity(1, 2, 1, 1);
    (void)state;
    assert_non_null(strstr(choose(&peer), "nvlink: rank 1 (elsewhere) is on"));
    peer = identity(1, 2, 0, 1); /* a node that a test makes up */
    assert_non_null(strstr(choose(&peer), "nvlink: rank 1 is on another node"));
    peer = identity(1, 1, 1, 1);
    peer.uid = 42;
    assert_non_null(strstr(choose(&peer), "of user 42"));
    peer = identity(1, 1, 1, 1);
    peer.memory_kind = ULYX_MEMORY_HOST;
    assert_non_null(strstr(choose(&peer), "rank 1 has host memory"));
    peer = identity(1, 1, 1, 1);
    driver->no_peers = 1;
    assert_non_null(strstr(choose(&peer),
        "no peer-to-peer access between CUDA devices 0 (rank 0) and 1"));
    peer = identity(1, 1, 1, 0); /* the same device needs none */
    assert_string_equal(choose(&peer), "nvlink");
    strcpy(settings.transports, "^nvlink");
    assert_non_null(strstr(choose(&peer), "ULYX_TRANSPORTS=^nvlink"));
}

/* Both ends of a pair answer alike. */
static void
is_symmetric(void **state)
{
    char other[512];
    (void)state;
    for (int code = 0; code < 32; code++) {
        struct uli_identity a = identity(0, 1, 0, code & 1);
        struct uli_identity b =
            identity(1, code & 2 ? 1 : 2, code & 4 ? 0 : 1, code >> 3 & 1);
        driver->no_peers = code >> 4;
        bool there = uli_tr_nvlink_ops.reaches(&a, &b, why, sizeof(why));
        bool back = uli_tr_nvlink_ops.reaches(&b, &a, other, sizeof(other));
        assert_int_equal(there, back);
    }
}

static void
windows_are_mapped_at_their_offset(void **state)
{
    static const unsigned char process[16] = "somebody";
    struct uli_share_memory memory;
    struct uli_share share;
    void *address = NULL, *mapping = NULL;
    (void)state;
    assert_status(uli_share_alloc(0, 5000, &memory), ULYX_SUCCESS);
    assert_status(uli_share_export(memory.address, &share), ULYX_SUCCESS);
    struct uli_tr_device_handle handle = {.process = process,
        .address = share.base + 100,
        .bytes = 3000,
        .shares = &share,
        .nshares = 1};
    strcpy((char *)memory.address + 100, "the window");
    assert_status(uli_tr_nvlink_ops.device_map(1, &handle, &address, &mapping),
        ULYX_SUCCESS);
    assert_string_equal(address, "the window");
    uli_tr_nvlink_ops.device_unmap(mapping);

    const struct {
        uint64_t address;
        int64_t bytes;
        int32_t nshares;
    } bad[] = {{share.base - 1, 10, 1}, {share.base, share.bytes + 1, 1},
        {share.base + 1, share.bytes, 1}, {share.base, 0, 1},
        {share.base, -1, 1}, {share.base, INT64_MAX, 1}, {UINT64_MAX, 10, 1},
        {0, 10, 1}, {share.base, 10, 0},
        {share.base + (uint64_t)share.bytes, 1, 1}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        mapping = &share;
        handle.address = bad[i].address;
        handle.bytes = bad[i].bytes;
        handle.nshares = bad[i].nshares;
        assert_status(
            uli_tr_nvlink_ops.device_map(1, &handle, &address, &mapping),
            ULYX_ERR_SYSTEM);
        assert_ptr_equal(mapping, &share);
        assert_int_equal(uli_import_count(), 0);
    }
    uli_share_close(&share);
    assert_status(uli_share_free(&memory), ULYX_SUCCESS);
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, open_fake, nothing_left)
static const struct CMUnitTest tests[] = {
    CASE(reaches_devices_of_this_node),
    CASE(says_why_it_does_not_reach),
    CASE(is_symmetric),
    CASE(windows_are_mapped_at_their_offset),
};

ULI_TEST_MAIN("Nvlink", tests)
