/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport of device memory: the ranks that it reaches, and the reasons
 * where it does not, over the tests' driver of two devices.
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

/* The identity of a rank; process 0 is the process of rank 0. */
static struct uli_identity
identity_of(int rank, int node, int process, int device)
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
peer_choose(const struct uli_identity *peer)
{
    struct uli_identity me = identity_of(0, 1, 0, 0);
    const struct uli_tr_ops *ops = uli_tr_select(
        &settings, &me, peer, ULI_TR_MAP_DEVICE, why, sizeof(why));
    return ops ? ops->name : why;
}

static void
reaches_devices_of_this_node(void **state)
{
    (void)state;
    for (int process = 0; process < 2; process++)
        /* device 2 is not visible here */
        for (int device = 0; device < 3; device++) {
            struct uli_identity peer = identity_of(1, 1, process, device);
            assert_string_equal(peer_choose(&peer), "nvlink");
        }
}

static void
unreachable_device_is_reported_with_the_reason(void **state)
{
    struct uli_identity peer = identity_of(1, 2, 1, 1);
    (void)state;
    assert_non_null(
        strstr(peer_choose(&peer), "nvlink: rank 1 (elsewhere) is on"));
    peer = identity_of(1, 2, 0, 1); /* a node made by a setting */
    assert_non_null(
        strstr(peer_choose(&peer), "nvlink: rank 1 is on another node"));
    peer = identity_of(1, 1, 1, 1);
    peer.uid = 42;
    assert_non_null(strstr(peer_choose(&peer), "of user 42"));
    peer = identity_of(1, 1, 1, 1);
    peer.memory_kind = ULYX_MEMORY_HOST;
    assert_non_null(strstr(peer_choose(&peer), "rank 1 has host memory"));
    peer = identity_of(1, 1, 1, 1);
    driver->no_peers = 1;
    assert_non_null(strstr(peer_choose(&peer),
        "no peer-to-peer access between CUDA devices 0 (rank 0) and 1"));
    peer = identity_of(1, 1, 1, 0); /* on one device no peer access is needed */
    assert_string_equal(peer_choose(&peer), "nvlink");
    strcpy(settings.transports, "^nvlink");
    assert_non_null(strstr(peer_choose(&peer), "ULYX_TRANSPORTS=^nvlink"));
}

/* Both ends of a pair get the same answer. */
static void
is_symmetric(void **state)
{
    char other[512];
    (void)state;
    for (int code = 0; code < 32; code++) {
        struct uli_identity a = identity_of(0, 1, 0, code & 1);
        struct uli_identity b =
            identity_of(1, code & 2 ? 1 : 2, code & 4 ? 0 : 1, code >> 3 & 1);
        driver->no_peers = code >> 4;
        bool there = uli_tr_nvlink_ops.reaches(&a, &b, why, sizeof(why));
        bool back = uli_tr_nvlink_ops.reaches(&b, &a, other, sizeof(other));
        assert_int_equal(there, back);
    }
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, open_fake, nothing_left)
static const struct CMUnitTest tests[] = {
    CASE(reaches_devices_of_this_node),
    CASE(unreachable_device_is_reported_with_the_reason),
    CASE(is_symmetric),
};

ULI_TEST_MAIN("NvlinkReach", tests)
