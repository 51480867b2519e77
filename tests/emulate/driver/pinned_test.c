/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages of the host that devices reach, and calls of the host in streams and
 * graphs, over the emulated driver.
 */
#include "device/pinned.h"

#include <cuda_runtime.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include "base/status.h"
#include "device/device.h"
#include "emulate.h"
#include "emulate/driver/driver.h"
#include "support/test.h"

enum { DEVICES = 3, PAGE = 4096, PAGES = 6, THREADS = 4 };

static const struct uli_device_ops *
cuda_ops(void)
{
    return uli_device_ops(ULYX_MEMORY_CUDA);
}

static unsigned char *pages;

static int
set_up_as(int sharing)
{
    const struct emu_config config = {.devices = DEVICES, .quiet = true};
    pages = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
        sharing | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED || emu_open(&config);
}

static int
set_up(void **state)
{
    (void)state;
    return set_up_as(MAP_SHARED);
}

static int
set_up_private(void **state)
{
    (void)state;
    return set_up_as(MAP_PRIVATE);
}

static int
tear_down(void **state)
{
    (void)state;
    emu_driver_fail(NULL, 0, 0);
    bool left = uli_pinned_count() || emu_driver_live() || emu_fault_count();
    emu_close();
    munmap(pages, PAGES * PAGE);
    return left;
}

static void
devices_and_host_read_the_same_bytes(void **state)
{
    unsigned char *there = NULL, *memory[DEVICES];
    (void)state;
    assert_status(uli_pinned_hold(1, pages + PAGE, 2 * PAGE, (void **)&there),
        ULYX_SUCCESS);
    for (int d = 0; d < DEVICES; d++) {
        /* device 0 crosses the end of a page */
        unsigned char *at = there + PAGE - 3 + 2 * d;
        assert_status(
            cuda_ops()->alloc(d, 2, (void **)&memory[d]), ULYX_SUCCESS);
        memset(pages + 2 * PAGE - 3 + 2 * d, 10 + d, 2);
        assert_status(
            cuda_ops()->copy(d, memory[d], at, 2, NULL), ULYX_SUCCESS);
        assert_status(cuda_ops()->zero(d, at, 1, NULL), ULYX_SUCCESS);
        assert_status(
            cuda_ops()->copy(d, at, memory[d], 1, NULL), ULYX_SUCCESS);
        assert_status(cuda_ops()->zero(d, at + 1, 1, NULL), ULYX_SUCCESS);
        assert_status(cuda_ops()->stream_wait(d, NULL), ULYX_SUCCESS);
        assert_int_equal(pages[2 * PAGE - 3 + 2 * d], 10 + d);
        assert_int_equal(pages[2 * PAGE - 2 + 2 * d], 0);
        assert_status(cuda_ops()->free(d, memory[d]), ULYX_SUCCESS);
    }
    assert_int_equal(pages[PAGE - 1] | pages[3 * PAGE], 0);
    assert_status(uli_pinned_drop(1, pages + PAGE), ULYX_SUCCESS);
}

static void
a_range_is_pinned_once_and_until_its_last_drop(void **state)
{
    void *there[2] = {NULL, NULL}, *part = pages;
    (void)state;
    for (int i = 0; i < 2; i++)
        assert_status(
            uli_pinned_hold(i, pages, 2 * PAGE, &there[i]), ULYX_SUCCESS);
    assert_ptr_equal(there[0], there[1]);
    assert_int_equal(emu_driver_live(), 1);
    assert_status(uli_pinned_hold(0, pages + PAGE, 2 * PAGE, &part),
        ULYX_ERR_INVALID_ARGUMENT);
    assert_ptr_equal(part, pages);
    assert_status(
        uli_pinned_hold(0, pages + 2 * PAGE, PAGE, &part), ULYX_SUCCESS);
    assert_int_equal(uli_pinned_count(), 2);
    assert_status(uli_pinned_drop(0, pages), ULYX_SUCCESS);
    assert_int_equal(uli_pinned_count(), 2);
    assert_status(uli_pinned_drop(1, pages), ULYX_SUCCESS);
    assert_status(uli_pinned_drop(0, pages + 2 * PAGE), ULYX_SUCCESS);
    assert_int_equal(emu_driver_live(), 0);
}

static void
what_the_driver_refuses_is_named_and_nothing_stays(void **state)
{
    void *there = &there;
    (void)state;
    emu_driver_fail("cuMemHostRegister", ULI_CU_OUT_OF_MEMORY, 0);
    assert_status(uli_pinned_hold(0, pages, PAGE, &there), ULYX_ERR_NO_MEMORY);
    assert_non_null(strstr(uli_error_text(), "cuMemHostRegister"));
    emu_driver_fail("cuMemHostGetDevicePointer", ULI_CU_NOT_SUPPORTED, 0);
    assert_int_not_equal(uli_pinned_hold(0, pages, PAGE, &there), ULYX_SUCCESS);
    assert_ptr_equal(there, &there);
    assert_int_equal(uli_pinned_count(), 0);
    emu_driver_fail(NULL, 0, 0);
}

static void *
hold_and_drop(void *context)
{
    for (int i = 0; i < 50; i++) {
        void *there;
        if (uli_pinned_hold(0, pages, PAGE, &there) != ULYX_SUCCESS ||
            uli_pinned_drop(0, pages) != ULYX_SUCCESS)
            return context;
    }
    return NULL;
}

static void
many_threads_hold_the_same_range(void **state)
{
    pthread_t threads[THREADS];
    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, hold_and_drop, pages), 0);
    for (int i = 0; i < THREADS; i++) {
        void *bad;
        pthread_join(threads[i], &bad);
        assert_null(bad);
    }
}

static void
count_call(void *data)
{
    ++*(int *)data;
}

static void
a_host_call_keeps_the_streams_order_and_is_replayed(void **state)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t replay;
    int calls = 0;
    (void)state;
    cudaSetDevice(1);
    assert_int_equal(cudaStreamCreate(&stream), 0);
    assert_status(
        cuda_ops()->host_call(1, stream, count_call, &calls), ULYX_SUCCESS);
    assert_status(cuda_ops()->stream_wait(1, stream), ULYX_SUCCESS);
    assert_int_equal(calls, 1);
    assert_int_equal(
        cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), 0);
    assert_status(
        cuda_ops()->host_call(1, stream, count_call, &calls), ULYX_SUCCESS);
    assert_int_equal(cudaStreamEndCapture(stream, &graph), 0);
    assert_int_equal(cudaGraphInstantiate(&replay, graph, 0), 0);
    assert_int_equal(calls, 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(cudaGraphLaunch(replay, stream), 0);
    assert_int_equal(cudaStreamSynchronize(stream), 0);
    assert_int_equal(calls, 4);
    cudaGraphExecDestroy(replay);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
    emu_driver_fail("cuLaunchHostFunc", 719, 0);
    assert_int_not_equal(
        cuda_ops()->host_call(1, NULL, count_call, &calls), ULYX_SUCCESS);
    assert_int_equal(calls, 4);
}

static void
private_pages_keep_their_bytes(void **state)
{
    memset(pages, 0, PAGES * PAGE);
    pages[PAGE] = 77;
    devices_and_host_read_the_same_bytes(state);
    assert_int_equal(pages[PAGE], 77);
}

#define ON_DEVICES(test)                                                       \
    cmocka_unit_test_setup_teardown(test, set_up, tear_down)
static const struct CMUnitTest tests[] = {
    ON_DEVICES(devices_and_host_read_the_same_bytes),
    cmocka_unit_test_setup_teardown(
        private_pages_keep_their_bytes, set_up_private, tear_down),
    ON_DEVICES(a_range_is_pinned_once_and_until_its_last_drop),
    ON_DEVICES(what_the_driver_refuses_is_named_and_nothing_stays),
    ON_DEVICES(many_threads_hold_the_same_range),
    ON_DEVICES(a_host_call_keeps_the_streams_order_and_is_replayed),
};

ULI_TEST_MAIN("EmulatePinned", tests)
