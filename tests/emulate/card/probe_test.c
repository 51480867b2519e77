/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures on the present card what no manual says and the emulator cannot
 * know: which calls of the driver wait for a kernel that spins in the same
 * context, how many launches the driver takes, how many streams run at one
 * time, what a word of host memory costs a kernel, and what an event costs the
 * host. The answers are printed, and none of them is wrong. An error of the
 * driver fails the test, and so does a call that does not return even after the
 * kernel has ended.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/status.h"
#include "base/system/clock.h"
#include "device/device.h"
#include "device/pinned.h"
#include "device/share.h"
#include "emulate/card/card.h"
#include "emulate/card/probe_kernels.h"
#include "support/test.h"

#define good(call) assert_int_equal((call), cudaSuccess)

enum { STREAMS = 24, LAUNCHES = 4096, ROUNDS = 2000, LOADS = 1000 };
static const int64_t patience_ns = 2000000000, spin_ns = 20000000000;

static struct {
    const struct uli_device_ops *ops;
    /* pinned; a word that ends the kernels, then a zero */
    uint64_t *stop, *stop_there;
    uint64_t *word_there;
    void *page;                     /* whole pages of pageable memory */
    void *small;                    /* a little pinned memory */
    unsigned char *device;          /* plain memory of the device */
    uint32_t *running;              /* lies on the device */
    void *caller, *library, *third; /* streams */
    _Atomic int launched;
} p;

enum { PAGE_BYTES = 1 << 16 };

/* ---- another process ----------------------------------------------------- */

/* A second process that has plain memory of the device, and the handle of that
 * memory. */
static struct {
    pid_t pid;
    int answers, ends; /* pipes from the process and to it */
    struct uli_share share;
} owner;

static void
own_memory(int answers, int ends)
{
    const struct uli_device_ops *ops = uli_device_ops(ULYX_MEMORY_CUDA);
    struct uli_share share;
    void *memory;
    char end;
    bool good = ops->open() == ULYX_SUCCESS &&
                ops->alloc(0, 1 << 21, &memory) == ULYX_SUCCESS &&
                uli_share_export(memory, &share) == ULYX_SUCCESS &&
                write(answers, &share, sizeof(share)) == sizeof(share) &&
                read(ends, &end, 1) == 0;
    _exit(!good);
}

/* Starts the process before this one opens the driver, because a fork breaks an
 * open driver. */
static void
start_owner(void)
{
    int answers[2], ends[2];
    assert_int_equal(pipe(answers) | pipe(ends), 0);
    owner.pid = fork();
    assert_true(owner.pid >= 0);
    if (owner.pid == 0) {
        close(ends[1]);
        own_memory(answers[1], ends[0]);
    }
    close(answers[1]);
    close(ends[0]);
    owner.answers = answers[0];
    owner.ends = ends[1];
}

static void
end_owner(void)
{
    int status = 0;
    close(owner.ends);
    close(owner.answers);
    assert_int_equal(waitpid(owner.pid, &status, 0), owner.pid);
}

static ulyx_status_t
opens_memory_of_a_process(void)
{
    struct uli_share_import import;
    ULI_TRY(uli_share_map(0, &owner.share, 1, &import));
    return uli_share_unmap(&import);
}

/* ---- the card ------------------------------------------------------------ */

static void
open_card(void)
{
    void *there;
    (void)card_devices(1);
    p.ops = uli_device_ops(ULYX_MEMORY_CUDA);
    assert_status(p.ops->open(), ULYX_SUCCESS);
    good(cudaSetDevice(0));
    good(probe_prepare());
    assert_status(
        p.ops->host_alloc(0, 4096, (void **)&p.stop, &there), ULYX_SUCCESS);
    memset(p.stop, 0, 4096);
    p.stop_there = there;
    p.word_there = p.stop_there + 256;
    p.small = p.stop + 128;
    assert_int_equal(posix_memalign(&p.page, 4096, PAGE_BYTES), 0);
    memset(p.page, 1, PAGE_BYTES);
    assert_status(p.ops->alloc(0, 1 << 20, (void **)&p.device), ULYX_SUCCESS);
    p.running = (uint32_t *)(void *)p.device;
    good(cudaStreamCreateWithFlags(
        (cudaStream_t *)&p.caller, cudaStreamNonBlocking));
    good(cudaStreamCreateWithFlags(
        (cudaStream_t *)&p.third, cudaStreamNonBlocking));
    assert_status(p.ops->stream_create(0, &p.library), ULYX_SUCCESS);
    good(cudaDeviceSynchronize());
}

static void
start_spin(void *stream)
{
    __atomic_store_n(p.stop, 0, __ATOMIC_SEQ_CST);
    good(probe_spin_launch(p.running, p.stop_there, (uint64_t)spin_ns, stream));
}

static void
end_spin(void)
{
    __atomic_store_n(p.stop, 1, __ATOMIC_SEQ_CST);
}

/* ---- what waits for a kernel that spins ---------------------------------- */

static ulyx_status_t
makes_a_stream(void)
{
    void *stream;
    ULI_TRY(p.ops->stream_create(0, &stream));
    return p.ops->stream_destroy(0, stream);
}

static ulyx_status_t
allocates_device_memory(void)
{
    void *memory;
    return p.ops->alloc(0, 1 << 22, &memory);
}

static ulyx_status_t
frees_device_memory(void)
{
    void *memory = p.device;
    p.device = NULL;
    return p.ops->free(0, memory);
}

static ulyx_status_t
allocates_pinned_memory(void)
{
    void *memory, *there;
    return p.ops->host_alloc(0, 1 << 20, &memory, &there);
}

static ulyx_status_t
pins_memory(void)
{
    void *there;
    return uli_pinned_hold(0, p.page, PAGE_BYTES, &there);
}

/* Calls cuMemCreate, cuMemMap, cuMemSetAccess, cuMemExportToShareableHandle and
 * cuMemImportFromShareableHandle, as attach does at an owner and at a peer. */
static ulyx_status_t
maps_shared_memory(void)
{
    struct uli_share_memory memory;
    struct uli_share share;
    struct uli_share_import import;
    ULI_TRY(uli_share_alloc(0, 1 << 21, &memory));
    ULI_TRY(uli_share_export(memory.address, &share));
    return uli_share_map(0, &share, 1, &import);
}

static ulyx_status_t
zeroes_in_a_librarys_stream(void)
{
    ULI_TRY(p.ops->zero(0, p.device + 65536, 65536, p.library));
    return p.ops->stream_wait(0, p.library);
}

static ulyx_status_t
copies_8_bytes_in_a_librarys_stream(void)
{
    ULI_TRY(p.ops->copy(0, p.device + 4096, p.small, 8, p.library));
    return p.ops->stream_wait(0, p.library);
}

static ulyx_status_t
copies_to_pageable_memory(void)
{
    ULI_TRY(p.ops->copy(0, p.page, p.device + 65536, PAGE_BYTES, p.third));
    return p.ops->stream_wait(0, p.third);
}

static ulyx_status_t
records_an_event(void)
{
    void *event;
    ULI_TRY(p.ops->event_create(0, &event));
    return p.ops->event_record(0, event, p.third);
}

/* Launches behind the spinning kernel in its own stream. The driver takes only
 * so many before a launch waits. */
static ulyx_status_t
launches_behind(void)
{
    for (int i = 0; i < LAUNCHES; i++, p.launched++)
        if (probe_nothing_launch(p.caller) != 0)
            return ULYX_ERR_SYSTEM;
    return ULYX_SUCCESS;
}

struct call {
    ulyx_status_t (*make)(void);
    ulyx_status_t status;
    _Atomic bool returned;
};

static void *
call_thread(void *context)
{
    struct call *call = context;
    good(cudaSetDevice(0));
    call->status = call->make();
    call->returned = true;
    return NULL;
}

static bool
returns_in(const struct call *call, int64_t ns)
{
    int64_t end = uli_clock_ns() + ns;
    while (!call->returned && uli_clock_ns() < end)
        uli_clock_sleep_ns(1000000);
    return call->returned;
}

/* Returns whether the call returns while the kernel in p.caller spins. With
 * `behind`, a copy to the device is enqueued behind the kernel. */
static bool
goes_on(ulyx_status_t (*make)(void), bool behind)
{
    struct call call = {.make = make};
    pthread_t thread;
    start_spin(p.caller);
    if (behind)
        good(cudaMemcpyAsync(
            p.device + 8192, p.small, 256, cudaMemcpyHostToDevice, p.caller));
    assert_int_equal(pthread_create(&thread, NULL, call_thread, &call), 0);
    bool went_on = returns_in(&call, patience_ns);
    end_spin();
    if (!returns_in(&call, spin_ns))
        fail_msg("a call has not returned when the kernel had ended");
    pthread_join(thread, NULL);
    assert_status(call.status, ULYX_SUCCESS);
    good(cudaDeviceSynchronize());
    return went_on;
}

static void
calls_beside_a_kernel_that_spins(void **state)
{
    static const struct {
        const char *name;
        ulyx_status_t (*make)(void);
    } calls[] = {
        {"an event is recorded", records_an_event},
        {"zeros in a stream of the library's", zeroes_in_a_librarys_stream},
        {"8 bytes copied in a stream of the library's",
            copies_8_bytes_in_a_librarys_stream},
        {"a stream is made", makes_a_stream},
        {"memory is made, mapped, exported and imported", maps_shared_memory},
        {"memory of a process is opened by IPC", opens_memory_of_a_process},
        {"pinned memory is allocated", allocates_pinned_memory},
        {"memory is pinned", pins_memory},
        {"device memory is allocated", allocates_device_memory},
        {"a copy to pageable memory", copies_to_pageable_memory},
        {"device memory is freed", frees_device_memory},
    };
    (void)state;
    start_owner();
    for (int behind = 0; behind < 2; behind++) {
        open_card();
        if (!behind)
            assert_int_equal(
                read(owner.answers, &owner.share, sizeof(owner.share)),
                sizeof(owner.share));
        for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
            if (behind && calls[i].make == pins_memory)
                continue; /* the copy has pinned it already */
            printf("%-48s %s%s\n", calls[i].name,
                goes_on(calls[i].make, behind) ? "goes on" : "WAITS for it",
                behind ? ", a copy behind the kernel" : "");
        }
    }
    end_owner();
}

static void
launches_ahead_of_a_kernel_that_spins(void **state)
{
    (void)state;
    open_card();
    p.launched = 0;
    bool all = goes_on(launches_behind, false);
    printf("%-48s %s\n", "4096 launches behind a kernel",
        all ? "are all taken" : "WAIT for it");
    struct call ahead = {.make = launches_behind};
    struct call event = {.make = records_an_event};
    pthread_t threads[2];
    p.launched = 0;
    start_spin(p.caller);
    assert_int_equal(pthread_create(&threads[0], NULL, call_thread, &ahead), 0);
    (void)returns_in(&ahead, patience_ns);
    printf("%-48s %d\n", "launches taken", p.launched);
    assert_int_equal(pthread_create(&threads[1], NULL, call_thread, &event), 0);
    printf("%-48s %s\n", "an event of another thread meanwhile",
        returns_in(&event, patience_ns) ? "goes on" : "WAITS for it");
    end_spin();
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    good(cudaDeviceSynchronize());
}

/* ---- streams ------------------------------------------------------------- */

static uint32_t
run_at_once(bool events)
{
    cudaStream_t streams[STREAMS];
    void *event;
    uint32_t running = 0;
    good(cudaMemset(p.running, 0, sizeof(running)));
    good(cudaDeviceSynchronize());
    assert_status(p.ops->event_create(0, &event), ULYX_SUCCESS);
    for (int i = 0; i < STREAMS; i++)
        good(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    for (int i = 0; i < STREAMS; i++) {
        start_spin(streams[i]);
        if (events)
            assert_status(
                p.ops->event_record(0, event, streams[i]), ULYX_SUCCESS);
    }
    uli_clock_sleep_ns(200000000);
    assert_status(p.ops->copy(0, p.small, p.running, 4, p.library), 0);
    struct call wait = {.make = copies_8_bytes_in_a_librarys_stream};
    (void)call_thread(&wait);
    memcpy(&running, p.small, sizeof(running));
    end_spin();
    good(cudaDeviceSynchronize());
    for (int i = 0; i < STREAMS; i++)
        good(cudaStreamDestroy(streams[i]));
    assert_status(p.ops->event_destroy(0, event), ULYX_SUCCESS);
    return running;
}

static void
kernels_of_many_streams_at_once(void **state)
{
    const char *connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    (void)state;
    open_card();
    printf("of %d streams, CUDA_DEVICE_MAX_CONNECTIONS=%s: %u run at once, "
           "%u with an event behind each\n",
        STREAMS, connections ? connections : "", run_at_once(false),
        run_at_once(true));
}

/* ---- times --------------------------------------------------------------- */

static double
microseconds_per_launch(bool events)
{
    void *event;
    assert_status(p.ops->event_create(0, &event), ULYX_SUCCESS);
    good(cudaDeviceSynchronize());
    int64_t start = uli_clock_ns();
    for (int i = 0; i < ROUNDS; i++) {
        good(probe_nothing_launch(p.caller));
        if (events)
            assert_status(
                p.ops->event_record(0, event, p.caller), ULYX_SUCCESS);
    }
    good(cudaDeviceSynchronize());
    double ns = (double)(uli_clock_ns() - start);
    assert_status(p.ops->event_destroy(0, event), ULYX_SUCCESS);
    return ns / ROUNDS / 1000;
}

static double
nanoseconds_each(int error)
{
    uint64_t ns = 0;
    good(error);
    good(cudaDeviceSynchronize());
    good(cudaMemcpy(&ns, p.device + 1024, sizeof(ns), cudaMemcpyDeviceToHost));
    return (double)ns / LOADS;
}

static void
times_of_host_words_and_events(void **state)
{
    (void)state;
    open_card();
    uint64_t *ns_p = (uint64_t *)(void *)(p.device + 1024);
    uint64_t *own = (uint64_t *)(void *)(p.device + 2048);
    (void)microseconds_per_launch(true);
    printf("us per launch: %.2f, with an event %.2f\n",
        microseconds_per_launch(false), microseconds_per_launch(true));
    printf("ns per load of a host word: %.0f\n",
        nanoseconds_each(
            probe_loads_launch(p.word_there, LOADS, ns_p, p.caller)));
    for (int release = 0; release < 2; release++)
        printf("ns per %s of a host word: %.0f\n",
            release ? "release" : "store",
            nanoseconds_each(probe_stores_launch(
                own, p.word_there, LOADS, release, ns_p, p.caller)));
}

static const struct CMUnitTest tests[] = {
    /* first, because it forks */
    cmocka_unit_test(calls_beside_a_kernel_that_spins),
    cmocka_unit_test(times_of_host_words_and_events),
    cmocka_unit_test(kernels_of_many_streams_at_once),
    cmocka_unit_test(launches_ahead_of_a_kernel_that_spins),
};

ULI_TEST_MAIN("CardProbe", tests)
