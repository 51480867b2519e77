/* SPDX-License-Identifier: Apache-2.0
 *
 * Creation of communicators of CUDA memory: devices, the reasons why their
 * memory cannot be mapped, a driver that fails, and the public calls.
 */
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "comm/device/gpu_scene.h"
#include "device/device.h"
#include "device/fake_open.h"
#include "support/test.h"
#include "ulyx/ulyx.h"

enum { RANKS = 3 };
static const int32_t devices[RANKS] = {0, 1, 0};

/* ---- creation ------------------------------------------------------------ */

static void
one_call_makes_all_ranks_on_one_device(void **state)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    struct uli_arena_block block;
    ulyx_comm_t *comms[4];
    (void)state;
    params.memory_kind = ULYX_MEMORY_CUDA;
    gpu_driver->current = 1;
    assert_status(uli_comm_create_local(4, &params, comms), ULYX_SUCCESS);
    gpu_driver->current = 0;
    for (int r = 0; r < 4; r++) {
        assert_int_equal(comms[r]->gpu->device, 1);
        assert_int_equal(uli_gpu_sharers(comms[r]), 4);
        assert_null(uli_gpu_unmapped(comms[r]));
    }
    assert_status(uli_gpu_arena_alloc(comms[3], 1000, &block), ULYX_SUCCESS);
    assert_ptr_equal(gpu_entry(comms[0], 3, block.window),
        (char *)block.address - block.offset);
    uli_comm_abort(comms[2]);
    assert_true(gpu_poison_comes(comms[0]));
    for (int r = 0; r < 4; r++)
        assert_status(uli_comm_destroy(comms[r]), ULYX_SUCCESS);
}

static void
unreachable_devices_have_one_reason_on_all_ranks(void **state)
{
    struct uli_arena_block block;
    ulyx_comm_t *comms[RANKS];
    char *base = NULL;
    (void)state;
    gpu_driver->no_peers = 1;
    assert_status(gpu_threads(RANKS, devices, 20, comms), ULYX_SUCCESS);
    ulyx_mem_t *mem = gpu_alloc(0, 64, &base);
    for (int r = 0; r < RANKS; r++) {
        assert_non_null(uli_gpu_unmapped(comms[r]));
        assert_string_equal(
            uli_gpu_unmapped(comms[r]), uli_gpu_unmapped(comms[0]));
        assert_status(
            uli_gpu_arena_alloc(comms[r], 64, &block), ULYX_ERR_UNSUPPORTED);
        expect_text("no peer-to-peer access between CUDA devices 0 (rank 0) "
                    "and 1 (rank 1)");
        assert_status(uli_mem_attach(comms[r], mem),
            devices[r] ? ULYX_ERR_INVALID_ARGUMENT : ULYX_ERR_UNSUPPORTED);
    }
    assert_status(uli_mem_free(mem), ULYX_SUCCESS);
    for (int r = 0; r < RANKS; r++)
        assert_status(uli_comm_destroy(comms[r]), ULYX_SUCCESS);
    const int32_t same[2] = {1, 1};
    assert_status(gpu_threads(2, same, 20, comms), ULYX_SUCCESS);
    for (int r = 0; r < 2; r++) {
        assert_null(uli_gpu_unmapped(comms[r]));
        assert_status(uli_comm_destroy(comms[r]), ULYX_SUCCESS);
    }
}

/* Control goes over the network; device memory stays unmapped. Not under
 * ThreadSanitizer: UCX, when it is unloaded, unlocks a lock that it has
 * destroyed. */
static void
other_nodes_are_reported_as_the_reason(void **state)
{
    struct uli_arena_block block;
    ulyx_comm_t *comms[RANKS];
    (void)state;
#ifdef __SANITIZE_THREAD__
    test_skip("UCX is loaded and unloaded in this process");
#endif
    setenv("ULYX_RANKS_PER_NODE", "2", 1);
    ulyx_status_t status = gpu_threads(RANKS, devices, 20, comms);
    unsetenv("ULYX_RANKS_PER_NODE");
    if (status == ULYX_ERR_UNSUPPORTED)
        test_skip(uli_error_text());
    assert_status(status, ULYX_SUCCESS);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(comms[r]->nnodes, 2);
        assert_non_null(uli_gpu_unmapped(comms[r]));
        assert_status(
            uli_gpu_arena_alloc(comms[r], 64, &block), ULYX_ERR_UNSUPPORTED);
        expect_text("rank 0: no way to map rank 2's: nvlink: rank 2 is on "
                    "another node");
    }
    uli_comm_abort(comms[2]);
    for (int r = 0; r < RANKS; r++)
        assert_true(gpu_poison_comes(comms[r]));
    for (int r = 0; r < RANKS; r++)
        assert_status(uli_comm_destroy(comms[r]), ULYX_SUCCESS);
}

static void
creation_without_a_device_fails_everywhere(void **state)
{
    static const char *const calls[] = {"cuDeviceGetUuid", "cuMemHostAlloc",
        "cuMemHostGetDevicePointer", "cuMemAlloc", "cuMemsetD8Async",
        "cuCtxEnablePeerAccess"};
    const int32_t wrong[RANKS] = {0, 5, 0};
    ulyx_comm_t *comms[RANKS];
    (void)state;
    assert_status(
        gpu_threads(RANKS, wrong, 20, comms), ULYX_ERR_INVALID_ARGUMENT);
    expect_text("CUDA device 5 does not exist: there are 2");
    gpu_driver->result = 719;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        gpu_driver->failing = calls[i];
        assert_status(gpu_threads(RANKS, devices, 20, comms), ULYX_ERR_SYSTEM);
        expect_text(calls[i]);
        gpu_driver->failing = NULL;
        assert_true(gpu_nothing_left());
    }
}

/* ---- threads that share a device ----------------------------------------- */

static void
count_warnings(void *context, int32_t level, int32_t rank, const char *text)
{
    (void)rank;
    *(_Atomic int *)context +=
        level == ULI_LOG_WARN && strstr(text, "CUDA_DEVICE_MAX_CONNECTIONS");
}

static int
warnings_of(int nranks, const char *connections)
{
    static const int32_t one_device[GPU_RANKS];
    ulyx_comm_t *comms[GPU_RANKS] = {NULL};
    _Atomic int warnings = 0;
    if (connections)
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", connections, 1);
    else
        unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    assert_true(uli_log_redirect(count_warnings, &warnings, ULI_LOG_WARN));
    assert_status(gpu_threads(nranks, one_device, 20, comms), ULYX_SUCCESS);
    assert_true(uli_log_redirect(NULL, NULL, ULI_LOG_NONE));
    for (int r = 0; r < nranks; r++)
        assert_status(uli_comm_destroy(comms[r]), ULYX_SUCCESS);
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    return warnings;
}

static void
more_streams_than_queues_are_warned_of(void **state)
{
    (void)state;
    assert_int_equal(warnings_of(2, NULL), 0);
    assert_int_equal(warnings_of(3, NULL), 3);
    assert_int_equal(warnings_of(3, "9"), 0);
    assert_int_equal(warnings_of(4, "9"), 4);
    assert_int_equal(warnings_of(3, "none"), 3);
}

/* ---- the public edge ----------------------------------------------------- */

static void
public_calls_make_windows_and_refuse_by_name(void **state)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    ulyx_mem_params_t of_device = ULYX_MEM_PARAMS_INIT;
    ulyx_comm_t *comms[2];
    ulyx_mem_t *mem;
    void *address;
    (void)state;
    params.memory_kind = ULYX_MEMORY_CUDA;
    of_device.memory_kind = ULYX_MEMORY_CUDA;
    if (!uli_device_kernels_built()) {
        assert_status(
            ulyx_comm_create_local(2, &params, comms), ULYX_ERR_UNSUPPORTED);
        expect_text("this build was made without CUDA");
        return;
    }
    params.device = -2;
    assert_status(
        ulyx_comm_create_local(2, &params, comms), ULYX_ERR_INVALID_ARGUMENT);
    expect_text("device is -2, must be an ordinal, or -1");
    params.device = -1;
    assert_status(ulyx_comm_create_local(2, &params, comms), ULYX_SUCCESS);
    assert_status(ulyx_mem_alloc(1000, &of_device, &mem, &address), 0);
    assert_status(ulyx_mem_attach(comms[0], mem), ULYX_SUCCESS);
    assert_status(ulyx_mem_detach(comms[0], mem), ULYX_SUCCESS);
    assert_status(ulyx_mem_free(mem), ULYX_SUCCESS);
    for (int r = 0; r < 2; r++)
        assert_status(ulyx_comm_destroy(comms[r]), ULYX_SUCCESS);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, gpu_open, gpu_close)
static const struct CMUnitTest tests[] = {
    CASE(one_call_makes_all_ranks_on_one_device),
    CASE(unreachable_devices_have_one_reason_on_all_ranks),
    CASE(other_nodes_are_reported_as_the_reason),
    CASE(creation_without_a_device_fails_everywhere),
    CASE(more_streams_than_queues_are_warned_of),
    CASE(public_calls_make_windows_and_refuse_by_name),
};

ULI_TEST_MAIN("GpuCreate", tests)
