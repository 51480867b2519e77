/* SPDX-License-Identifier: Apache-2.0
 *
 * Kinds of memory: the host's, and CUDA's over a driver of the test's own.
 * Each case is a process of its own where it opens a driver, for a driver is
 * opened once.
 */
#include "device/device.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/status.h"
#include "device/cuda_context.h"
#include "device/cuda_driver.h"
#include "device/fake_driver.h"
#include "support/test.h"

/* Runs the body in a child and expects it to end well. */
#define check(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, \
                #condition, uli_error_text());                                 \
            _exit(1);                                                          \
        }                                                                      \
    } while (0)

static void
in_child(void (*body)(void))
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        body();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static struct fake_driver *
fake_load(const char *library)
{
    void *handle = dlopen(library, RTLD_NOW);
    check(handle);
    struct fake_driver *driver = dlsym(handle, "fake_driver");
    check(driver);
    return driver;
}

static bool
error_names(const char *text)
{
    return strstr(uli_error_text(), text) != NULL;
}

/* ---- host ---------------------------------------------------------------- */

static void
host_memory_has_no_streams(void **state)
{
    const struct uli_device_ops *host = uli_device_ops(ULYX_MEMORY_HOST);
    struct uli_device_range range;
    char *memory = NULL, text[8] = "abc";
    void *stream = text;
    int32_t count = 0;
    (void)state;
    assert_status(host->open(), ULYX_SUCCESS);
    assert_status(host->count(&count), ULYX_SUCCESS);
    assert_int_equal(count, 1);
    assert_status(host->alloc(0, 100, (void **)&memory), ULYX_SUCCESS);
    assert_int_equal((uintptr_t)memory % 64, 0);
    assert_status(host->range(memory, &range), ULYX_SUCCESS);
    assert_int_equal(range.memory_kind, ULYX_MEMORY_HOST);
    assert_int_equal(range.device, -1);
    assert_status(host->copy(0, memory, text, 4, NULL), ULYX_SUCCESS);
    assert_string_equal(memory, "abc");
    assert_status(host->copy(0, memory, text, 4, text), ULYX_ERR_UNSUPPORTED);
    assert_status(host->stream_create(0, &stream), ULYX_ERR_UNSUPPORTED);
    assert_status(host->timer_create(0, &stream), ULYX_ERR_UNSUPPORTED);
    assert_status(host->graph_begin(0, text), ULYX_ERR_UNSUPPORTED);
    assert_status(host->graph_end(0, text, &stream), ULYX_ERR_UNSUPPORTED);
    assert_ptr_equal(stream, text);
    assert_status(host->zero(0, memory, 2, NULL), ULYX_SUCCESS);
    assert_string_equal(memory + 2, "c");
    assert_int_equal(memory[0] | memory[1], 0);
    assert_status(host->zero(0, memory, 2, text), ULYX_ERR_UNSUPPORTED);
    assert_status(host->free(0, memory), ULYX_SUCCESS);
    assert_null(uli_device_ops(77));
}

/* ---- rows ---------------------------------------------------------------- */

static void
rects_are_what_a_strided_copy_can_express(void **state)
{
    struct uli_device_rect rect = {8, 3, 2, 8, 24, 16, 64};
    (void)state;
    assert_true(uli_device_rect_fits(&rect));
    rect.src_slice = 40; /* not a whole number of rows */
    assert_false(uli_device_rect_fits(&rect));
    rect.src_slice = 32; /* fewer rows than there are */
    assert_false(uli_device_rect_fits(&rect));
    rect.depth = 1; /* with one slice its pitch has no effect */
    assert_true(uli_device_rect_fits(&rect));
    rect.dst_pitch = 7; /* rows run into one another */
    assert_false(uli_device_rect_fits(&rect));
    rect.dst_pitch = INT64_C(1) << 31; /* beyond the limit */
    assert_false(uli_device_rect_fits(&rect));
    rect.height = 1;
    assert_true(uli_device_rect_fits(&rect));
}

/* Copies 2 x 3 rows of 4 bytes; false: some byte of dst is wrong. */
static bool
copies_rows(const struct uli_device_ops *ops, void *stream)
{
    const struct uli_device_rect rect = {4, 3, 2, 5, 20, 7, 28};
    char src[80], dst[60], expected[60];
    for (int i = 0; i < (int)sizeof(src); i++)
        src[i] = (char)i;
    memset(dst, -1, sizeof(dst));
    memset(expected, -1, sizeof(expected));
    for (int z = 0; z < 2; z++)
        for (int y = 0; y < 3; y++)
            memcpy(expected + 20 * z + 5 * y, src + 28 * z + 7 * y, 4);
    return uli_device_rect_fits(&rect) &&
           ops->copy_rect(1, dst, src, &rect, stream) == ULYX_SUCCESS &&
           memcmp(dst, expected, sizeof(dst)) == 0;
}

static void
rows_are_copied_on_the_host(void **state)
{
    const struct uli_device_ops *host = uli_device_ops(ULYX_MEMORY_HOST);
    const struct uli_device_rect rect = {1, 1, 1, 0, 0, 0, 0};
    char text[2] = "a";
    (void)state;
    assert_true(copies_rows(host, NULL));
    assert_status(
        host->copy_rect(0, text, text + 1, &rect, text), ULYX_ERR_UNSUPPORTED);
}

/* ---- opening ------------------------------------------------------------- */

static void
without_a_driver(void)
{
    const struct uli_device_ops *cuda = uli_device_ops(ULYX_MEMORY_CUDA);
    struct uli_device_range range = {.device = 5};
    void *memory = &range;
    int32_t count = 7;
    check(uli_cuda_open("/nowhere/libcuda.so.1") == ULYX_ERR_UNSUPPORTED);
    check(error_names("CUDA driver: /nowhere/libcuda.so.1: cannot open"));
    if (cuda->open() == ULYX_SUCCESS)
        return; /* this machine has a card */
    check(error_names("CUDA driver"));
    check(cuda->count(&count) == ULYX_ERR_UNSUPPORTED && count == 7);
    check(cuda->alloc(0, 8, &memory) == ULYX_ERR_UNSUPPORTED);
    check(memory == &range);
    check(cuda->range(&range, &range) == ULYX_ERR_UNSUPPORTED);
    check(range.device == 5);
}

static void
no_driver_is_unsupported_with_the_reason(void **state)
{
    (void)state;
    in_child(without_a_driver);
}

static void
refusals_check(void)
{
    struct fake_driver *driver = fake_load(FAKE_12);
    check(uli_cuda_open(FAKE_NONE) == ULYX_ERR_UNSUPPORTED);
    check(error_names("older than 11.3"));
    driver->missing = "cuStreamIsCapturing";
    check(uli_cuda_open(FAKE_12) == ULYX_ERR_UNSUPPORTED);
    check(error_names("it has no cuStreamIsCapturing of version 10000"));
    driver->missing = NULL;
    driver->failing = "cuInit";
    driver->result = ULI_CU_SYSTEM_DRIVER_MISMATCH;
    check(uli_cuda_open(FAKE_12) == ULYX_ERR_UNSUPPORTED);
    check(error_names("cuInit: CUDA_ERROR_FAKE (803): words of the driver"));
    driver->failing = NULL;
    driver->devices = 0;
    check(uli_cuda_open(FAKE_12) == ULYX_ERR_UNSUPPORTED);
    check(error_names("of version 12.4: no device"));
    driver->devices = 1;
    check(uli_cuda_open(FAKE_12) == ULYX_SUCCESS);
    /* the driver is open, so no library is looked for */
    check(uli_cuda_open("/nowhere") == ULYX_SUCCESS);
}

static void
a_refused_driver_may_be_tried_again(void **state)
{
    (void)state;
    in_child(refusals_check);
}

static void
older_lookup(void)
{
    int32_t count = 0;
    fake_load(FAKE_11);
    check(uli_cuda_open(FAKE_11) == ULYX_SUCCESS);
    check(uli_device_cuda.count(&count) == ULYX_SUCCESS && count == 2);
}

static void
the_lookup_of_11_3_is_enough(void **state)
{
    (void)state;
    in_child(older_lookup);
}

/* ---- errors -------------------------------------------------------------- */

static void
errors_check(void)
{
    static const struct {
        int result;
        ulyx_status_t status;
    } rows[] = {{1, ULYX_ERR_INVALID_ARGUMENT}, {2, ULYX_ERR_NO_MEMORY},
        {34, ULYX_ERR_UNSUPPORTED}, {35, ULYX_ERR_UNSUPPORTED},
        {100, ULYX_ERR_UNSUPPORTED}, {101, ULYX_ERR_INVALID_ARGUMENT},
        {400, ULYX_ERR_INVALID_ARGUMENT}, {719, ULYX_ERR_SYSTEM},
        {801, ULYX_ERR_UNSUPPORTED}, {12345, ULYX_ERR_SYSTEM}};
    struct fake_driver *driver = fake_load(FAKE_12);
    void *memory = &driver;
    check(uli_cuda_open(FAKE_12) == ULYX_SUCCESS);
    driver->failing = "cuMemAlloc";
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        driver->result = rows[i].result;
        check(uli_device_cuda.alloc(0, 64, &memory) == rows[i].status);
        check(memory == &driver && driver->depth == 0);
        check(error_names("cuMemAlloc: CUDA_ERROR_"));
    }
    check(error_names("CUDA_ERROR_FAKE (12345): no text"));
    driver->result = 719;
    check(uli_device_cuda.alloc(0, 64, &memory) == ULYX_ERR_SYSTEM);
    check(error_names("cuMemAlloc: CUDA_ERROR_LAUNCH_FAILED (719): words of"));
    check(uli_device_cuda.alloc(9, 64, &memory) == ULYX_ERR_INVALID_ARGUMENT);
    check(error_names("cuDeviceGet: "));
    check(uli_device_cuda.alloc(-1, 64, &memory) == ULYX_ERR_INVALID_ARGUMENT);
    check(error_names("CUDA device -1 does not exist"));
    check(driver->depth == 0 && driver->retained == 1);
}

static void
driver_errors_are_named_and_translated(void **state)
{
    (void)state;
    in_child(errors_check);
}

/* ---- memory, streams, events --------------------------------------------- */

static void
ranges_check(void)
{
    static char memory[64], managed, plain;
    struct fake_driver *driver = fake_load(FAKE_12);
    struct uli_device_range range;
    check(uli_cuda_open(FAKE_12) == ULYX_SUCCESS);
    driver->device_at = memory;
    driver->device_bytes = sizeof(memory);
    driver->managed_at = &managed;
    check(uli_device_cuda.range(memory + 20, &range) == ULYX_SUCCESS);
    check(range.memory_kind == ULYX_MEMORY_CUDA && range.device == 1);
    check(range.base == memory && range.bytes == sizeof(memory));
    check(!range.managed && range.legacy_ipc);
    check(uli_device_cuda.range(&managed, &range) == ULYX_SUCCESS);
    check(range.memory_kind == ULYX_MEMORY_CUDA && range.managed);
    check(uli_device_cuda.range(&plain, &range) == ULYX_SUCCESS);
    check(range.memory_kind == ULYX_MEMORY_HOST && range.device == -1);
    driver->failing = "cuPointerGetAttribute";
    driver->result = 719;
    check(uli_device_cuda.range(memory, &range) == ULYX_ERR_SYSTEM);
}

static void
a_pointer_has_its_kind_and_range(void **state)
{
    (void)state;
    in_child(ranges_check);
}

static void
devices_check(void)
{
    const struct uli_device_ops *cuda = uli_device_ops(ULYX_MEMORY_CUDA);
    struct fake_driver *driver = fake_load(FAKE_12);
    unsigned char uuid[2][16];
    int32_t device = 7;
    check(uli_cuda_open(FAKE_12) == ULYX_SUCCESS);
    driver->current = 1;
    check(cuda->current(&device) == ULYX_SUCCESS && device == 1);
    driver->current = -1;
    check(cuda->current(&device) == ULYX_SUCCESS && device == 0);
    for (int32_t d = 0; d < 2; d++)
        check(cuda->uuid(d, uuid[d]) == ULYX_SUCCESS);
    check(memcmp(uuid[0], uuid[1], sizeof(uuid[0])) != 0);
    check(cuda->uuid(5, uuid[0]) == ULYX_ERR_INVALID_ARGUMENT);
    check(cuda->peer_enable(0, 0) == ULYX_SUCCESS && driver->peers == 0);
    check(cuda->peer_enable(0, 1) == ULYX_SUCCESS && driver->peers == 1);
    check(cuda->peer_enable(0, 1) == ULYX_SUCCESS && driver->peers == 2);
    driver->no_peers = 1;
    check(cuda->peer_enable(1, 0) == ULYX_ERR_UNSUPPORTED);
    check(error_names("CUDA device 1 cannot reach the memory of device 0"));
    check(driver->depth == 0 && driver->relaxed == 0);
}

static void
devices_are_distinguished_and_grant_peer_access(void **state)
{
    (void)state;
    in_child(devices_check);
}

/* The thread is in the caller's mode of capture again once it has left the
 * outermost context, after any nesting and any failure. */
static void
nesting_check(void)
{
    struct fake_driver *driver = fake_load(FAKE_12);
    check(uli_cuda_open(FAKE_12) == ULYX_SUCCESS);
    for (int inner_fails = 0; inner_fails <= 1; inner_fails++) {
        check(uli_cuda_enter(0) == ULYX_SUCCESS && driver->relaxed == 1);
        driver->failing = inner_fails ? "cuCtxPushCurrent" : NULL;
        driver->result = 719;
        ulyx_status_t inner = uli_cuda_enter(1);
        driver->failing = NULL;
        driver->result = 0;
        check((inner != ULYX_SUCCESS) == inner_fails);
        if (inner == ULYX_SUCCESS)
            check(uli_cuda_leave(ULYX_SUCCESS) == ULYX_SUCCESS);
        check(driver->depth == 1 && driver->relaxed == 1);
        check(uli_cuda_leave(ULYX_SUCCESS) == ULYX_SUCCESS);
        check(driver->depth == 0 && driver->relaxed == 0);
    }
}

/* Entering a context from within it makes no driver call, on every way out. */
static void
same_context_check(void)
{
    struct fake_driver *driver = fake_load(FAKE_12);
    check(uli_cuda_open(FAKE_12) == ULYX_SUCCESS);
    check(uli_cuda_enter(0) == ULYX_SUCCESS && driver->depth == 1);
    check(uli_cuda_enter(0) == ULYX_SUCCESS && driver->depth == 1);
    check(uli_cuda_enter(1) == ULYX_SUCCESS && driver->depth == 2);
    check(uli_cuda_enter(0) == ULYX_SUCCESS && driver->depth == 3);
    check(uli_cuda_leave(ULYX_SUCCESS) == ULYX_SUCCESS && driver->depth == 2);
    check(uli_cuda_leave(ULYX_IN_PROGRESS) == ULYX_IN_PROGRESS);
    check(driver->depth == 1 && driver->relaxed == 1);
    check(uli_cuda_leave(ULYX_ERR_BUSY) == ULYX_ERR_BUSY && driver->depth == 1);
    check(uli_cuda_leave(ULYX_SUCCESS) == ULYX_SUCCESS && driver->depth == 0);
    check(driver->relaxed == 0);
    check(uli_cuda_enter(7) == ULYX_ERR_INVALID_ARGUMENT);
    check(driver->depth == 0 && driver->relaxed == 0);
}

static void
a_context_within_itself_is_entered_once(void **state)
{
    (void)state;
    in_child(same_context_check);
}

static void
nested_contexts_keep_the_callers_capture_mode(void **state)
{
    (void)state;
    in_child(nesting_check);
}

static void
pinned_check(void)
{
    const struct uli_device_ops *cuda = uli_device_ops(ULYX_MEMORY_CUDA);
    struct fake_driver *driver = fake_load(FAKE_12);
    void *memory = NULL, *there = NULL;
    check(uli_cuda_open(FAKE_12) == ULYX_SUCCESS);
    check(cuda->host_alloc(1, 64, &memory, &there) == ULYX_SUCCESS);
    memset(memory, 7, 64);
    check(cuda->zero(1, there, 64, NULL) == ULYX_SUCCESS);
    check(((char *)memory)[63] == 0);
    check(cuda->host_free(1, memory) == ULYX_SUCCESS);
    memory = driver;
    driver->failing = "cuMemHostGetDevicePointer";
    driver->result = 719;
    check(cuda->host_alloc(1, 64, &memory, &there) == ULYX_ERR_SYSTEM);
    check(memory == driver && driver->count() == 0 && driver->depth == 0);
}

static void
pinned_memory_is_reached_from_both_sides(void **state)
{
    (void)state;
    in_child(pinned_check);
}

static void
work_check(void)
{
    const struct uli_device_ops *cuda = uli_device_ops(ULYX_MEMORY_CUDA);
    struct fake_driver *driver = fake_load(FAKE_12);
    void *stream = NULL, *event = NULL, *memory = NULL;
    bool capturing = true;
    char text[4] = "xyz", back[4] = "";
    check(uli_cuda_open(FAKE_12) == ULYX_SUCCESS);
    check(cuda->alloc(1, 64, &memory) == ULYX_SUCCESS);
    check(cuda->stream_create(1, &stream) == ULYX_SUCCESS);
    check(cuda->event_create(1, &event) == ULYX_SUCCESS);
    check(cuda->copy(1, memory, text, 4, stream) == ULYX_SUCCESS);
    check(cuda->copy(1, back, memory, 4, stream) == ULYX_SUCCESS);
    check(strcmp(back, text) == 0);
    check(copies_rows(cuda, stream));
    check(cuda->event_record(1, event, stream) == ULYX_SUCCESS);
    check(cuda->event_order(1, event, stream) == ULYX_SUCCESS);
    driver->pending = 1;
    check(cuda->event_test(1, event) == ULYX_IN_PROGRESS);
    driver->pending = 0;
    check(cuda->event_test(1, event) == ULYX_SUCCESS);
    check(cuda->stream_capturing(1, stream, &capturing) == ULYX_SUCCESS);
    check(!capturing);
    driver->capturing = 1;
    check(cuda->stream_capturing(1, stream, &capturing) == ULYX_SUCCESS);
    check(capturing);
    check(cuda->stream_wait(1, stream) == ULYX_SUCCESS);
    driver->failing = "cuStreamSynchronize";
    driver->result = 719;
    check(cuda->stream_wait(1, stream) == ULYX_ERR_SYSTEM);
    check(cuda->event_destroy(1, event) == ULYX_SUCCESS);
    check(cuda->stream_destroy(1, stream) == ULYX_SUCCESS);
    check(cuda->free(1, memory) == ULYX_SUCCESS);
    check(driver->depth == 0 && driver->retained == 1);
    driver->failing = "cuCtxPushCurrent";
    check(cuda->stream_create(0, &stream) == ULYX_ERR_SYSTEM);
}

static void
copies_measure(void)
{
    const struct uli_device_ops *cuda = uli_device_ops(ULYX_MEMORY_CUDA);
    struct fake_driver *driver = fake_load(FAKE_12);
    void *stream = NULL, *from = NULL, *to = NULL, *graph = NULL;
    double seconds = 0;
    check(uli_cuda_open(FAKE_12) == ULYX_SUCCESS);
    check(cuda->stream_create(1, &stream) == ULYX_SUCCESS);
    check(cuda->timer_create(1, &from) == ULYX_SUCCESS);
    check(cuda->timer_create(1, &to) == ULYX_SUCCESS);
    driver->pending = 1;
    check(cuda->timer_elapsed(1, from, to, &seconds) == ULYX_IN_PROGRESS);
    check(seconds == 0);
    driver->pending = 0;
    check(cuda->timer_elapsed(1, from, to, &seconds) == ULYX_SUCCESS);
    check(seconds == 1.5e-3);
    check(cuda->graph_begin(1, stream) == ULYX_SUCCESS);
    check(driver->capturing == 1);
    check(cuda->graph_end(1, stream, &graph) == ULYX_SUCCESS);
    check(driver->graphs == 1 && graph);
    check(cuda->graph_launch(1, graph, stream) == ULYX_SUCCESS);
    check(cuda->graph_destroy(1, graph) == ULYX_SUCCESS);
    check(cuda->graph_begin(1, stream) == ULYX_SUCCESS);
    driver->failing = "cuGraphInstantiate";
    driver->result = 2;
    check(cuda->graph_end(1, stream, &graph) == ULYX_ERR_NO_MEMORY);
    check(driver->graphs == 0 && driver->depth == 0);
    check(cuda->event_destroy(1, from) == ULYX_SUCCESS);
    check(cuda->event_destroy(1, to) == ULYX_SUCCESS);
    check(cuda->stream_destroy(1, stream) == ULYX_SUCCESS);
}

static void
timers_and_graphs(void **state)
{
    (void)state;
    in_child(copies_measure);
}

static void
streams_events_and_copies(void **state)
{
    (void)state;
    in_child(work_check);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(host_memory_has_no_streams),
    cmocka_unit_test(rects_are_what_a_strided_copy_can_express),
    cmocka_unit_test(rows_are_copied_on_the_host),
    cmocka_unit_test(no_driver_is_unsupported_with_the_reason),
    cmocka_unit_test(a_refused_driver_may_be_tried_again),
    cmocka_unit_test(the_lookup_of_11_3_is_enough),
    cmocka_unit_test(driver_errors_are_named_and_translated),
    cmocka_unit_test(a_pointer_has_its_kind_and_range),
    cmocka_unit_test(devices_are_distinguished_and_grant_peer_access),
    cmocka_unit_test(nested_contexts_keep_the_callers_capture_mode),
    cmocka_unit_test(a_context_within_itself_is_entered_once),
    cmocka_unit_test(pinned_memory_is_reached_from_both_sides),
    cmocka_unit_test(streams_events_and_copies),
    cmocka_unit_test(timers_and_graphs),
};

ULI_TEST_MAIN("Device", tests)
