/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulated driver below src/device: memory kinds, streams, events,
 * captures, shared memory, and how time passes when host threads wait for each
 * other outside of the emulator. The library opens the driver as libcuda by
 * itself.
 */
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/status.h"
#include "collectives/device/mapped/exchange_gpu.h"
#include "device/cuda_context.h"
#include "device/device.h"
#include "device/share.h"
#include "emulate/driver/driver.h"
#include "support/random.h"
#include "support/test.h"

enum { DEVICES = 3 };

static const struct uli_device_ops *
cuda_ops(void)
{
    return uli_device_ops(ULYX_MEMORY_CUDA);
}

static int
open_devices(void **state)
{
    const struct emu_config config = {
        .devices = DEVICES, .host_threads = 2, .wall_time = true};
    (void)state;
    return emu_open(&config);
}

static int
close_devices(void **state)
{
    (void)state;
    emu_driver_fail(NULL, 0, 0);
    emu_driver_no_peers(false);
    emu_close();
    return emu_driver_live();
}

static void
the_library_finds_the_driver_and_its_devices(void **state)
{
    unsigned char uuid[2][16];
    int32_t count = 0, device = 7;
    (void)state;
    assert_status(cuda_ops()->open(), ULYX_SUCCESS);
    assert_status(cuda_ops()->count(&count), ULYX_SUCCESS);
    assert_int_equal(count, DEVICES);
    cudaSetDevice(2);
    assert_status(cuda_ops()->current(&device), ULYX_SUCCESS);
    assert_int_equal(device, 2);
    assert_status(cuda_ops()->uuid(0, uuid[0]), ULYX_SUCCESS);
    assert_status(cuda_ops()->uuid(1, uuid[1]), ULYX_SUCCESS);
    assert_memory_not_equal(uuid[0], uuid[1], 16);
    assert_status(
        cuda_ops()->uuid(DEVICES, uuid[1]), ULYX_ERR_INVALID_ARGUMENT);
    assert_status(cuda_ops()->peer_enable(0, 1), ULYX_SUCCESS);
    assert_status(cuda_ops()->peer_enable(0, 1), ULYX_SUCCESS);
    emu_driver_no_peers(true);
    assert_status(cuda_ops()->peer_enable(0, 2), ULYX_ERR_UNSUPPORTED);
    assert_status(cuda_ops()->current(&device), ULYX_SUCCESS);
    assert_int_equal(device, 2); /* unchanged by all these calls */
}

static void
a_pointer_has_its_kind_and_range(void **state)
{
    struct uli_device_range range;
    unsigned char *memory = NULL, *pinned = NULL, *there = NULL, plain;
    (void)state;
    assert_status(cuda_ops()->alloc(1, 1000, (void **)&memory), ULYX_SUCCESS);
    assert_status(cuda_ops()->range(memory + 999, &range), ULYX_SUCCESS);
    assert_int_equal(range.memory_kind, ULYX_MEMORY_CUDA);
    assert_int_equal(range.device, 1);
    assert_ptr_equal(range.base, memory);
    assert_int_equal(range.bytes, 1000);
    assert_false(range.managed);
    assert_status(
        cuda_ops()->host_alloc(2, 64, (void **)&pinned, (void **)&there),
        ULYX_SUCCESS);
    assert_status(cuda_ops()->range(pinned, &range), ULYX_SUCCESS);
    assert_int_equal(range.memory_kind, ULYX_MEMORY_HOST);
    assert_status(cuda_ops()->range(&plain, &range), ULYX_SUCCESS);
    assert_int_equal(range.memory_kind, ULYX_MEMORY_HOST);
    assert_int_equal(emu_driver_live(), 2);
    assert_status(cuda_ops()->host_free(2, pinned), ULYX_SUCCESS);
    assert_status(cuda_ops()->free(1, memory), ULYX_SUCCESS);
    assert_status(cuda_ops()->free(1, memory), ULYX_ERR_INVALID_ARGUMENT);
}

static void
streams_and_events_order_work(void **state)
{
    unsigned char *memory = NULL, back[64];
    void *stream[2] = {NULL, NULL}, *event = NULL;
    bool capturing = true;
    (void)state;
    assert_status(cuda_ops()->alloc(1, 64, (void **)&memory), ULYX_SUCCESS);
    for (int i = 0; i < 2; i++)
        assert_status(cuda_ops()->stream_create(1, &stream[i]), ULYX_SUCCESS);
    assert_status(cuda_ops()->event_create(1, &event), ULYX_SUCCESS);
    assert_status(cuda_ops()->zero(1, memory, 64, stream[0]), ULYX_SUCCESS);
    assert_status(cuda_ops()->event_record(1, event, stream[0]), ULYX_SUCCESS);
    assert_status(cuda_ops()->event_order(1, event, stream[1]), ULYX_SUCCESS);
    assert_status(
        cuda_ops()->copy(1, back, memory, 64, stream[1]), ULYX_SUCCESS);
    assert_status(
        cuda_ops()->stream_capturing(1, stream[1], &capturing), ULYX_SUCCESS);
    assert_false(capturing);
    assert_status(cuda_ops()->stream_wait(1, stream[1]), ULYX_SUCCESS);
    assert_status(cuda_ops()->event_test(1, event), ULYX_SUCCESS);
    for (int i = 0; i < 64; i++)
        assert_int_equal(back[i], 0);
    for (int i = 0; i < 2; i++)
        assert_status(cuda_ops()->stream_destroy(1, stream[i]), ULYX_SUCCESS);
    assert_status(cuda_ops()->event_destroy(1, event), ULYX_SUCCESS);
    assert_status(cuda_ops()->free(1, memory), ULYX_SUCCESS);
    assert_int_equal(emu_fault_count(), 0);
}

static void
an_event_belongs_to_its_device(void **state)
{
    void *stream = NULL, *event = NULL;
    (void)state;
    assert_status(cuda_ops()->stream_create(1, &stream), ULYX_SUCCESS);
    assert_status(cuda_ops()->event_create(0, &event), ULYX_SUCCESS);
    assert_status(
        cuda_ops()->event_record(1, event, stream), ULYX_ERR_INVALID_ARGUMENT);
    assert_status(cuda_ops()->stream_destroy(1, stream), ULYX_SUCCESS);
    assert_status(cuda_ops()->event_destroy(0, event), ULYX_SUCCESS);
}

/* The library makes its calls in the relaxed capture mode, so they are accepted
 * during a capture; a plain call of the caller is refused. */
static void
a_capture_is_detected_and_not_disturbed(void **state)
{
    unsigned char *memory = NULL, *other = NULL, back[64];
    uli_cu_ptr refused;
    cudaStream_t stream;
    cudaGraph_t graph;
    bool capturing = false;
    (void)state;
    cudaSetDevice(0);
    assert_status(cuda_ops()->alloc(0, 64, (void **)&memory), ULYX_SUCCESS);
    assert_int_equal(cudaStreamCreate(&stream), 0);
    assert_int_equal(
        cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), 0);
    assert_status(
        cuda_ops()->stream_capturing(0, stream, &capturing), ULYX_SUCCESS);
    assert_true(capturing);
    assert_int_equal(do_cuMemAlloc(&refused, 64), 900);
    assert_status(cuda_ops()->alloc(0, 64, (void **)&other), ULYX_SUCCESS);
    assert_status(cuda_ops()->free(0, other), ULYX_SUCCESS);
    assert_int_equal(cudaMemsetAsync(memory, 5, 64, stream), 0);
    assert_status(cuda_ops()->copy(0, back, memory, 64, stream), ULYX_SUCCESS);
    assert_int_equal(cudaStreamEndCapture(stream, &graph), 0);
    for (int i = 0; i < 2; i++) {
        memset(back, 0, sizeof(back));
        assert_int_equal(cudaGraphLaunch(graph, stream), 0);
        assert_status(cuda_ops()->stream_wait(0, stream), ULYX_SUCCESS);
        assert_int_equal(back[63], 5);
    }
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
    assert_status(cuda_ops()->free(0, memory), ULYX_SUCCESS);
}

/* A thread enters several contexts, as where one call makes another. After it
 * has left the last one, the caller's own calls are refused in a capture as
 * before. */
static void
nested_contexts_keep_the_capture_mode(void **state)
{
    uli_cu_ptr inside = 0, refused;
    cudaStream_t stream;
    cudaGraph_t graph;
    (void)state;
    cudaSetDevice(0);
    assert_int_equal(cudaStreamCreate(&stream), 0);
    assert_int_equal(
        cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), 0);
    assert_status(uli_cuda_enter(0), ULYX_SUCCESS);
    assert_status(uli_cuda_enter(1), ULYX_SUCCESS);
    assert_status(uli_cuda_leave(ULYX_SUCCESS), ULYX_SUCCESS);
    assert_int_equal(do_cuMemAlloc(&inside, 64), 0);
    assert_int_equal(do_cuMemFree(inside), 0);
    assert_status(uli_cuda_leave(ULYX_SUCCESS), ULYX_SUCCESS);
    assert_int_equal(do_cuMemAlloc(&refused, 64), 900);
    assert_int_equal(cudaStreamEndCapture(stream, &graph), 0);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
}

static void
errors_are_named(void **state)
{
    void *memory = &memory;
    (void)state;
    emu_driver_fail("cuMemAlloc", 2, 1);
    assert_status(cuda_ops()->alloc(0, 64, &memory), ULYX_SUCCESS);
    assert_status(cuda_ops()->free(0, memory), ULYX_SUCCESS);
    assert_status(cuda_ops()->alloc(0, 64, &memory), ULYX_ERR_NO_MEMORY);
    assert_non_null(strstr(uli_error_text(), "cuMemAlloc"));
    emu_driver_fail("cuMemAlloc", 209, 0);
    assert_status(cuda_ops()->alloc(0, 64, &memory), ULYX_ERR_UNSUPPORTED);
    assert_non_null(strstr(uli_error_text(), "no code for the device"));
    emu_driver_fail(NULL, 0, 0);
    assert_status(
        cuda_ops()->alloc(DEVICES, 64, &memory), ULYX_ERR_INVALID_ARGUMENT);
}

/* A second device reads the same memory without peer access, because its own
 * mapping grants the access. */
static void
shared_memory_is_the_same_at_each_device(void **state)
{
    struct uli_share_memory memory;
    struct uli_share share;
    struct uli_share_import import;
    unsigned char back[64] = {0};
    (void)state;
    assert_status(uli_share_alloc(0, 1000, &memory), ULYX_SUCCESS);
    assert_status(
        uli_share_export((char *)memory.address + 5, &share), ULYX_SUCCESS);
    assert_int_equal(share.form, ULI_SHARE_DESCRIPTOR);
    assert_status(uli_share_map(1, &share, 1, &import), ULYX_SUCCESS);
    uli_share_close(&share);
    assert_ptr_not_equal(import.address, memory.address);
    assert_status(cuda_ops()->zero(0, memory.address, 64, NULL), ULYX_SUCCESS);
    assert_status(cuda_ops()->stream_wait(0, NULL), ULYX_SUCCESS);
    memset(back, 1, sizeof(back));
    assert_status(
        cuda_ops()->copy(1, back, import.address, 64, NULL), ULYX_SUCCESS);
    assert_status(cuda_ops()->stream_wait(1, NULL), ULYX_SUCCESS);
    assert_int_equal(back[63], 0);
    assert_status(uli_share_unmap(&import), ULYX_SUCCESS);
    assert_status(uli_share_free(&memory), ULYX_SUCCESS);
    assert_int_equal(emu_fault_count(), 0);
}

/* ---- strided copies ------------------------------------------------------ */

enum { FIELD_BYTES = 4096 };

/* Draws a rect of one, two or three dimensions that lies within the field on
 * both sides. */
static struct uli_device_rect
draw_rect(struct test_random *random)
{
    struct uli_device_rect rect = {.width = test_random_in(random, 1, 40),
        .height = test_random_in(random, 1, 6),
        .depth = test_random_in(random, 1, 4)};
    rect.dst_pitch = rect.width + test_random_in(random, 0, 30);
    rect.src_pitch = rect.width + test_random_in(random, 0, 30);
    rect.dst_slice =
        rect.dst_pitch * (rect.height + test_random_in(random, 0, 2));
    rect.src_slice =
        rect.src_pitch * (rect.height + test_random_in(random, 0, 2));
    return rect;
}

/* Computes the expected bytes of the field. Byte i of src is i mod 251, and dst
 * was 255 before. */
static void
expect_rect(const struct uli_device_rect *rect, unsigned char *field)
{
    memset(field, 255, FIELD_BYTES);
    for (int64_t z = 0; z < rect->depth; z++)
        for (int64_t y = 0; y < rect->height; y++)
            for (int64_t x = 0; x < rect->width; x++)
                field[z * rect->dst_slice + y * rect->dst_pitch + x] =
                    (unsigned char)((z * rect->src_slice + y * rect->src_pitch +
                                        x) %
                                    251);
}

/* Copies from device 0 to device 1, on streams that events order. */
static void
rects_travel_in_stream_order(void **state)
{
    struct test_random random = {test_seed(70)};
    unsigned char *src = NULL, *dst = NULL;
    unsigned char numbers[FIELD_BYTES], back[FIELD_BYTES],
        expected[FIELD_BYTES];
    void *stream = NULL;
    (void)state;
    for (int i = 0; i < FIELD_BYTES; i++)
        numbers[i] = (unsigned char)(i % 251);
    assert_status(cuda_ops()->peer_enable(0, 1), ULYX_SUCCESS);
    assert_status(
        cuda_ops()->alloc(0, FIELD_BYTES, (void **)&src), ULYX_SUCCESS);
    assert_status(
        cuda_ops()->alloc(1, FIELD_BYTES, (void **)&dst), ULYX_SUCCESS);
    assert_status(cuda_ops()->stream_create(0, &stream), ULYX_SUCCESS);
    for (int i = 0; i < 50; i++) {
        struct uli_device_rect rect = draw_rect(&random);
        assert_true(uli_device_rect_fits(&rect));
        memset(back, 255, sizeof(back));
        assert_status(cuda_ops()->copy(0, src, numbers, FIELD_BYTES, stream),
            ULYX_SUCCESS);
        assert_status(
            cuda_ops()->copy(0, dst, back, FIELD_BYTES, stream), ULYX_SUCCESS);
        assert_status(
            cuda_ops()->copy_rect(0, dst, src, &rect, stream), ULYX_SUCCESS);
        assert_status(
            cuda_ops()->copy(0, back, dst, FIELD_BYTES, stream), ULYX_SUCCESS);
        assert_status(cuda_ops()->stream_wait(0, stream), ULYX_SUCCESS);
        expect_rect(&rect, expected);
        assert_memory_equal(back, expected, FIELD_BYTES);
    }
    assert_int_equal(emu_fault_count(), 0);
    assert_status(cuda_ops()->stream_destroy(0, stream), ULYX_SUCCESS);
    assert_status(cuda_ops()->free(0, src), ULYX_SUCCESS);
    assert_status(cuda_ops()->free(1, dst), ULYX_SUCCESS);
}

static void
captured_rects_are_replayed(void **state)
{
    const struct uli_device_rect rect = {16, 3, 2, 20, 80, 16, 48};
    unsigned char *memory = NULL, back[64];
    cudaStream_t stream;
    cudaGraph_t graph;
    (void)state;
    cudaSetDevice(0);
    assert_status(cuda_ops()->alloc(0, 512, (void **)&memory), ULYX_SUCCESS);
    assert_int_equal(cudaStreamCreate(&stream), 0);
    assert_int_equal(
        cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), 0);
    assert_status(cuda_ops()->copy_rect(0, memory, memory + 256, &rect, stream),
        ULYX_SUCCESS);
    assert_int_equal(cudaStreamEndCapture(stream, &graph), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(cudaMemsetAsync(memory, 9, 256, stream), 0);
        assert_int_equal(cudaMemsetAsync(memory + 256, i, 256, stream), 0);
        assert_int_equal(cudaGraphLaunch(graph, stream), 0);
        assert_status(
            cuda_ops()->copy(0, back, memory + 80, 64, stream), ULYX_SUCCESS);
        assert_status(cuda_ops()->stream_wait(0, stream), ULYX_SUCCESS);
        for (int b = 0; b < 60; b++) /* the rows of the second slice */
            assert_int_equal(back[b], b % 20 < 16 ? i : 9);
    }
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
    assert_status(cuda_ops()->free(0, memory), ULYX_SUCCESS);
    assert_int_equal(emu_fault_count(), 0);
}

static void
a_copy_that_a_driver_refuses_is_refused(void **state)
{
    unsigned char *memory = NULL;
    (void)state;
    cudaSetDevice(0);
    assert_status(cuda_ops()->alloc(0, 512, (void **)&memory), ULYX_SUCCESS);
    struct uli_cu_plane plane = {.memory_type = ULI_CU_UNIFIED,
        .device = (uintptr_t)memory,
        .pitch = 16};
    struct uli_cu_copy2d copy = {plane, plane, 16, 2};
    copy.dst.device += 256;
    assert_int_equal(do_cuMemcpy2DAsync(&copy, NULL), 0);
    copy.width_bytes = 17; /* wider than the pitch */
    assert_int_equal(do_cuMemcpy2DAsync(&copy, NULL), ULI_CU_INVALID_VALUE);
    struct uli_cu_space space = {.memory_type = ULI_CU_UNIFIED,
        .device = (uintptr_t)memory,
        .pitch = 16,
        .height = 3};
    struct uli_cu_copy3d slices = {space, space, 16, 2, 2};
    slices.dst.device += 256;
    assert_int_equal(do_cuMemcpy3DAsync(&slices, NULL), 0);
    slices.height = 4; /* more rows than a slice has */
    assert_int_equal(do_cuMemcpy3DAsync(&slices, NULL), ULI_CU_INVALID_VALUE);
    assert_status(cuda_ops()->stream_wait(0, NULL), ULYX_SUCCESS);
    assert_status(cuda_ops()->free(0, memory), ULYX_SUCCESS);
}

/* Only the last row of the last slice leaves its allocation. */
static void
a_row_outside_of_its_allocation_is_a_fault(void **state)
{
    const struct uli_device_rect rect = {16, 4, 2, 16, 64, 16, 64};
    const struct emu_config quiet = {
        .devices = 1, .host_threads = 1, .quiet = true};
    unsigned char *memory = NULL;
    (void)state;
    for (int over = 0; over < 2; over++) {
        assert_int_equal(emu_open(&quiet), 0);
        assert_status(
            cuda_ops()->alloc(0, 256, (void **)&memory), ULYX_SUCCESS);
        assert_status(
            cuda_ops()->copy_rect(0, memory + 128 + over, memory, &rect, NULL),
            ULYX_SUCCESS);
        (void)cuda_ops()->stream_wait(0, NULL);
        assert_int_equal(emu_fault_count_of(EMU_FAULT_BOUNDS), over);
        (void)cuda_ops()->free(0, memory);
        emu_close();
    }
}

/* ---- time ---------------------------------------------------------------- */

/* One of two ranks in a call that both refuse; the launch is OPEN | CLOSE. */
struct rank {
    struct uli_gpu_args args;
    int nap_ms, result;
};

static void *
launch_and_wait(void *context)
{
    struct rank *rank = context;
    const struct timespec nap = {.tv_nsec = rank->nap_ms * 1000000L};
    cudaStream_t stream;
    nanosleep(&nap, NULL);
    cudaSetDevice(0);
    rank->result = cudaStreamCreate(&stream) ||
                   uli_gpu_exchange_launch(&rank->args, 1, 32, stream) ||
                   cudaStreamSynchronize(stream) || cudaStreamDestroy(stream);
    return NULL;
}

/* The deadline is a minute. Virtual time alone would pass it at once. */
static void
a_kernel_waits_for_a_host_that_is_elsewhere(void **state)
{
    struct rank ranks[2] = {{.nap_ms = 0}, {.nap_ms = 100}};
    struct uli_gpu_flags *words = NULL;
    struct uli_gpu_peer peers[2][2] = {0}, *there = NULL;
    struct uli_gpu_state *at = NULL, now[2];
    pthread_t thread;
    (void)state;
    cudaSetDevice(0);
    assert_int_equal(cudaMalloc((void **)&words, 2 * sizeof(*words)), 0);
    assert_int_equal(cudaMalloc((void **)&there, sizeof(peers)), 0);
    assert_int_equal(cudaMalloc((void **)&at, sizeof(now)), 0);
    assert_int_equal(cudaMemset(words, 0, 2 * sizeof(*words)), 0);
    assert_int_equal(cudaMemset(at, 0, sizeof(now)), 0);
    for (int r = 0; r < 2; r++) {
        peers[r][!r] = (struct uli_gpu_peer){
            .mine = words + r, .yours = words + !r, .shares = 1};
        ranks[r].args = (struct uli_gpu_args){.rank = r,
            .nranks = 2,
            .peers = there + 2 * r,
            .state = at + r,
            .timeout_ns = UINT64_C(60000000000),
            .steps = ULI_GPU_OPEN | ULI_GPU_CLOSE,
            .record = {-ULYX_ERR_NO_MEMORY}};
    }
    assert_int_equal(
        cudaMemcpy(there, peers, sizeof(peers), cudaMemcpyDefault), 0);
    assert_int_equal(
        pthread_create(&thread, NULL, launch_and_wait, &ranks[1]), 0);
    launch_and_wait(&ranks[0]);
    pthread_join(thread, NULL);
    assert_int_equal(cudaMemcpy(now, at, sizeof(now), cudaMemcpyDefault), 0);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(ranks[r].result, 0);
        assert_int_equal(now[r].call, 1);
        assert_int_equal(now[r].failed, 0);
    }
    cudaFree(words);
    cudaFree(there);
    cudaFree(at);
}

#define ON_DEVICES(test)                                                       \
    cmocka_unit_test_setup_teardown(test, open_devices, close_devices)

static const struct CMUnitTest tests[] = {
    ON_DEVICES(the_library_finds_the_driver_and_its_devices),
    ON_DEVICES(a_pointer_has_its_kind_and_range),
    ON_DEVICES(streams_and_events_order_work),
    ON_DEVICES(an_event_belongs_to_its_device),
    ON_DEVICES(a_capture_is_detected_and_not_disturbed),
    ON_DEVICES(nested_contexts_keep_the_capture_mode),
    ON_DEVICES(errors_are_named),
    ON_DEVICES(shared_memory_is_the_same_at_each_device),
    ON_DEVICES(rects_travel_in_stream_order),
    ON_DEVICES(captured_rects_are_replayed),
    ON_DEVICES(a_copy_that_a_driver_refuses_is_refused),
    cmocka_unit_test(a_row_outside_of_its_allocation_is_a_fault),
    ON_DEVICES(a_kernel_waits_for_a_host_that_is_elsewhere),
};

ULI_TEST_MAIN("EmulateDriver", tests)
