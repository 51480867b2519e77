/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulator's core: fibres, blocks, streams, events, graphs, several
 * devices, the virtual clock, and the report of a deadlock.
 */
#include "support/test.h"
#include "emulate/self/fixture.h"
#include "emulate.h"
#include "core_kernels.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>

#define good(call) assert_int_equal((call), cudaSuccess)

static void
indices_reach_every_thread(void **state)
{
    enum { BLOCKS = 37, THREADS = 96, N = BLOCKS * THREADS };
    static int host[N];
    int *out;
    (void)state;
    good(cudaMalloc((void **)&out, sizeof host));
    good(core_index_launch(out, 5, BLOCKS, THREADS, NULL));
    good(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < N; i++)
        assert_int_equal(host[i], i + 5);
    assert_int_equal(emu_fault_count(), 0);
}

static void
sums_use_shared_memory_and_shuffles(void **state)
{
    enum { BLOCKS = 9 };
    static int in[BLOCKS * 256], out[BLOCKS];
    int *d_in, *d_out;
    (void)state;
    for (int i = 0; i < BLOCKS * 256; i++)
        in[i] = i * 7 % 1001;
    good(cudaMalloc((void **)&d_in, sizeof in));
    good(cudaMalloc((void **)&d_out, sizeof out));
    good(cudaMemcpy(d_in, in, sizeof in, cudaMemcpyHostToDevice));
    good(core_sum_launch(d_in, d_out, BLOCKS, NULL));
    good(cudaMemcpy(out, d_out, sizeof out, cudaMemcpyDeviceToHost));
    for (int b = 0; b < BLOCKS; b++) {
        int sum = 0;
        for (int i = 0; i < 256; i++)
            sum += in[b * 256 + i];
        assert_int_equal(out[b], sum);
    }
}

static void
atomics_count_every_thread(void **state)
{
    unsigned *counter, host = 1;
    (void)state;
    good(cudaMalloc((void **)&counter, sizeof host));
    good(cudaMemset(counter, 0, sizeof host));
    good(core_count_launch(counter, 40, NULL));
    good(cudaMemcpy(&host, counter, sizeof host, cudaMemcpyDeviceToHost));
    assert_int_equal(host, 40 * 64);
}

static void
event_orders_two_streams(void **state)
{
    cudaStream_t a, b;
    cudaEvent_t event;
    int *data, host[256];
    (void)state;
    good(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    good(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    good(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    good(cudaMalloc((void **)&data, sizeof host));
    for (int round = 0; round < 10; round++) {
        good(core_index_launch(data, round, 2, 128, a));
        good(cudaEventRecord(event, a));
        good(cudaStreamWaitEvent(b, event, 0));
        good(cudaMemcpyAsync(
            host, data, sizeof host, cudaMemcpyDeviceToHost, b));
        good(cudaStreamSynchronize(b));
        assert_int_equal(host[255], 255 + round);
    }
    good(cudaEventDestroy(event));
    good(cudaStreamDestroy(a));
    good(cudaStreamDestroy(b));
}

static void
streams_without_event_race(void **state)
{
    cudaStream_t a, b;
    int *data;
    (void)state;
    const struct emu_config config = {.quiet = true};
    assert_int_equal(emu_open(&config), 0);
    good(cudaStreamCreate(&a));
    good(cudaStreamCreate(&b));
    good(cudaMalloc((void **)&data, 1024));
    good(core_index_launch(data, 0, 1, 64, a));
    good(core_index_launch(data, 1, 1, 64, b));
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    assert_true(emu_fault_count_of(EMU_FAULT_RACE) > 0);
}

static void
graph_replays_a_fork_and_join(void **state)
{
    cudaStream_t a, b;
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    unsigned *counter, host;
    (void)state;
    good(cudaStreamCreate(&a));
    good(cudaStreamCreate(&b));
    good(cudaEventCreate(&fork));
    good(cudaEventCreate(&join));
    good(cudaMalloc((void **)&counter, sizeof host));
    good(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    good(cudaMemsetAsync(counter, 0, sizeof host, a));
    good(cudaEventRecord(fork, a));
    good(cudaStreamWaitEvent(b, fork, 0));
    good(core_count_launch(counter, 3, a));
    good(core_count_launch(counter, 4, b));
    good(cudaEventRecord(join, b));
    good(cudaStreamWaitEvent(a, join, 0));
    good(core_count_launch(counter, 5, a));
    assert_int_equal(
        cudaStreamSynchronize(a), cudaErrorStreamCaptureUnsupported);
    good(cudaStreamEndCapture(a, &graph));
    good(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++)
        good(cudaGraphLaunch(exec, a));
    good(cudaMemcpyAsync(
        &host, counter, sizeof host, cudaMemcpyDeviceToHost, a));
    good(cudaStreamSynchronize(a));
    assert_int_equal(host, 12 * 64);
    good(cudaGraphExecDestroy(exec));
    good(cudaGraphDestroy(graph));
}

static void
capture_with_a_loose_branch_is_refused(void **state)
{
    cudaStream_t a, b;
    cudaEvent_t fork;
    cudaGraph_t graph;
    unsigned *counter;
    (void)state;
    good(cudaStreamCreate(&a));
    good(cudaStreamCreate(&b));
    good(cudaEventCreate(&fork));
    good(cudaMalloc((void **)&counter, sizeof *counter));
    good(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    good(cudaEventRecord(fork, a));
    good(cudaStreamWaitEvent(b, fork, 0));
    good(core_count_launch(counter, 1, b));
    assert_int_equal(
        cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureUnjoined);
}

static void
deadline_passes_in_virtual_time(void **state)
{
    unsigned *words, host = 0;
    uint64_t hour_ns = 3600ull * 1000000000;
    (void)state;
    good(cudaMalloc((void **)&words, 64));
    good(cudaMemset(words, 0, 64));
    good(core_wait_launch(words, 1, hour_ns, words + 8, NULL));
    good(cudaMemcpy(&host, words + 8, sizeof host, cudaMemcpyDeviceToHost));
    assert_int_equal(host, 2);
    assert_true(emu_clock_ns() > hour_ns);
}

/* Some of the lanes are always awake, but time passes. */
static void
many_lanes_sleep_in_turn(void **state)
{
    enum { LANES = 256 };
    unsigned *words, host[4 + LANES];
    uint64_t hour_ns = 3600ull * 1000000000;
    (void)state;
    good(cudaMalloc((void **)&words, sizeof host));
    for (unsigned goes = 0; goes < 2; goes++) {
        good(cudaMemset(words, 0, sizeof host));
        good(cudaMemcpy(words, &goes, sizeof goes, cudaMemcpyHostToDevice));
        good(core_crowd_launch(words, LANES, hour_ns, NULL));
        good(cudaMemcpy(host, words, sizeof host, cudaMemcpyDeviceToHost));
        for (int i = 0; i < LANES; i++)
            assert_int_equal(host[4 + i], goes ? 1 : 2);
    }
}

/* The emulator must wait for a host thread that has not made its first call. */
static void *
raise_flag(void *words)
{
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    core_put_launch((int *)words + 8, 4, 0, words, 1, stream);
    cudaStreamSynchronize(stream);
    return NULL;
}

static void
launch_by_another_host_thread_ends_a_wait(void **state)
{
    const struct emu_config config = {.host_threads = 2};
    unsigned *words, host = 0;
    pthread_t thread;
    cudaStream_t stream;
    (void)state;
    assert_int_equal(emu_open(&config), 0);
    good(cudaStreamCreate(&stream));
    good(cudaMalloc((void **)&words, 64));
    good(cudaMemset(words, 0, 64));
    good(core_wait_launch(words, 1, 1000000000, words + 4, stream));
    assert_int_equal(pthread_create(&thread, NULL, raise_flag, words), 0);
    good(cudaMemcpyAsync(
        &host, words + 4, sizeof host, cudaMemcpyDeviceToHost, stream));
    good(cudaStreamSynchronize(stream));
    pthread_join(thread, NULL);
    assert_int_equal(host, 1);
}

/* A host that only queries counts as waiting, so deadlines of the kernel
 * pass. */
static void
host_that_polls_lets_time_pass(void **state)
{
    unsigned *words, host = 0;
    cudaError_t error;
    (void)state;
    good(cudaMalloc((void **)&words, 64));
    good(cudaMemset(words, 0, 64));
    good(core_wait_launch(words, 1, 3600ull * 1000000000, words + 8, NULL));
    while ((error = cudaStreamQuery(NULL)) == cudaErrorNotReady)
        sched_yield();
    good(error);
    good(cudaMemcpy(&host, words + 8, sizeof host, cudaMemcpyDeviceToHost));
    assert_int_equal(host, 2);
}

static void
peers_exchange_through_flags(void **state)
{
    enum { P = 4, N = 300 };
    const struct emu_config config = {.devices = P};
    int *data[P], *out[P], host[N];
    unsigned *flag[P];
    cudaStream_t stream[P], wait[P];
    (void)state;
    assert_int_equal(emu_open(&config), 0);
    for (int r = 0; r < P; r++) {
        good(cudaSetDevice(r));
        for (int p = 0; p < P; p++)
            if (p != r)
                good(cudaDeviceEnablePeerAccess(p, 0));
        good(cudaStreamCreate(&stream[r]));
        good(cudaStreamCreate(&wait[r]));
        good(cudaMalloc((void **)&data[r], N * sizeof(int)));
        good(cudaMalloc((void **)&out[r], N * sizeof(int)));
        good(cudaMalloc((void **)&flag[r], sizeof(unsigned)));
        good(cudaMemset(flag[r], 0, sizeof(unsigned)));
        assert_int_equal(emu_track(data[r], N * sizeof(int)), 0);
    }
    for (int r = 0; r < P; r++) {
        int to = (r + 1) % P;
        good(cudaSetDevice(r));
        good(core_take_launch(data[r], N, flag[r], 1, out[r], wait[r]));
        good(core_put_launch(data[to], N, 1000 * r, flag[to], 1, stream[r]));
    }
    for (int r = 0; r < P; r++) {
        good(cudaMemcpyAsync(
            host, out[r], sizeof host, cudaMemcpyDeviceToHost, wait[r]));
        good(cudaStreamSynchronize(wait[r]));
        assert_int_equal(host[N - 1], 1000 * ((r + P - 1) % P) + N - 1);
        assert_int_equal(emu_track_check(data[r], N * sizeof(int)), 0);
    }
    assert_int_equal(emu_fault_count(), 0);
}

/* Ranks are threads. Each drives a device, puts to its right neighbour and
 * takes from its left, round after round over the same buffers. */
enum { RANKS = 4, ROUNDS = 5, WORDS = 200 };

struct rank {
    int number, failures;
    int *data, *out;
    unsigned *flag;
    struct rank *all;
    pthread_barrier_t *barrier;
};

static void *
run_rank(void *argument)
{
    struct rank *rank = argument, *to = &rank->all[(rank->number + 1) % RANKS];
    int from = (rank->number + RANKS - 1) % RANKS, host[WORDS];
    cudaStream_t put, take;
    rank->failures += cudaSetDevice(rank->number) || cudaStreamCreate(&put) ||
                      cudaStreamCreate(&take);
    for (unsigned round = 1; round <= ROUNDS; round++) {
        int value = 1000 * rank->number + 7 * (int)round;
        rank->failures +=
            core_take_launch(
                rank->data, WORDS, rank->flag, round, rank->out, take) ||
            core_put_launch(to->data, WORDS, value, to->flag, round, put) ||
            cudaMemcpyAsync(
                host, rank->out, sizeof host, cudaMemcpyDeviceToHost, take) ||
            cudaStreamSynchronize(take) || cudaStreamSynchronize(put);
        for (int i = 0; i < WORDS; i++)
            rank->failures += host[i] != 1000 * from + 7 * (int)round + i;
        pthread_barrier_wait(rank->barrier);
    }
    return NULL;
}

static void
ranks_as_threads_exchange(void **state)
{
    const struct emu_config config = {.devices = RANKS, .host_threads = RANKS};
    struct rank ranks[RANKS];
    pthread_t threads[RANKS];
    pthread_barrier_t barrier;
    (void)state;
    assert_int_equal(emu_open(&config), 0);
    pthread_barrier_init(&barrier, NULL, RANKS);
    for (int r = 0; r < RANKS; r++) {
        ranks[r] =
            (struct rank){.number = r, .all = ranks, .barrier = &barrier};
        good(cudaSetDevice(r));
        for (int p = 0; p < RANKS; p++)
            if (p != r)
                good(cudaDeviceEnablePeerAccess(p, 0));
        good(cudaMalloc((void **)&ranks[r].data, WORDS * sizeof(int)));
        good(cudaMalloc((void **)&ranks[r].out, WORDS * sizeof(int)));
        good(cudaMalloc((void **)&ranks[r].flag, sizeof(unsigned)));
        good(cudaMemset(ranks[r].flag, 0, sizeof(unsigned)));
    }
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(
            pthread_create(&threads[r], NULL, run_rank, &ranks[r]), 0);
    for (int r = 0; r < RANKS; r++) {
        pthread_join(threads[r], NULL);
        assert_int_equal(ranks[r].failures, 0);
    }
    pthread_barrier_destroy(&barrier);
    assert_int_equal(emu_fault_count(), 0);
}

static void
peer_memory_without_access_is_a_fault(void **state)
{
    const struct emu_config config = {.devices = 2, .quiet = true};
    int *data;
    (void)state;
    assert_int_equal(emu_open(&config), 0);
    good(cudaSetDevice(1));
    good(cudaMalloc((void **)&data, 1024));
    good(cudaSetDevice(0));
    good(core_index_launch(data, 0, 1, 32, NULL));
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    assert_int_equal(emu_fault_kind(0), EMU_FAULT_PEER);
}

static void
deadlock_names_each_wait(void **state)
{
    const struct emu_config config = {.quiet = true};
    (void)state;
    assert_int_equal(emu_open(&config), 0);
    good(core_hang_launch(NULL));
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    assert_int_equal(emu_fault_kind(0), EMU_FAULT_DEADLOCK);
    assert_non_null(strstr(emu_fault_text(0), "hang_kernel"));
    assert_non_null(strstr(emu_fault_text(0), "warp 0 lanes ffffffff"));
    assert_non_null(strstr(emu_fault_text(0), "barrier 1 of 64 threads"));
}

static void
freed_memory_is_not_used(void **state)
{
    const struct emu_config config = {.quiet = true};
    int *data;
    (void)state;
    assert_int_equal(emu_open(&config), 0);
    good(cudaMalloc((void **)&data, 1024));
    good(cudaFree(data));
    good(core_index_launch(data, 0, 1, 32, NULL));
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    assert_int_equal(emu_fault_kind(0), EMU_FAULT_BOUNDS);
}

static void
recurse_in_child(int depth, int error_fd)
{
    int *out;
    dup2(error_fd, STDERR_FILENO);
    if (emu_open(NULL) || cudaMalloc((void **)&out, sizeof *out) ||
        core_recurse_launch(depth, out, NULL))
        _exit(1);
    _exit(cudaDeviceSynchronize() != cudaSuccess);
}

/* Returns how the child ended, and what it wrote to standard error. */
static int
run_child(int depth, char *text, size_t room)
{
    int ends[2], status = -1;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        recurse_in_child(depth, ends[1]);
    close(ends[1]);
    ssize_t n = read(ends[0], text, room - 1);
    text[n > 0 ? n : 0] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void
stack_overflow_ends_the_program_with_a_message(void **state)
{
    char text[512];
    (void)state;
    emu_close();
    int status = run_child(20, text, sizeof text);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    status = run_child(200, text, sizeof text);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    assert_non_null(strstr(text, "stack overflows (recurse_kernel"));
}

static void
same_seed_gives_the_same_run(void **state)
{
    uint64_t ends[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        const struct emu_config config = {.seed = 42};
        unsigned *counter;
        assert_int_equal(emu_open(&config), 0);
        good(cudaMalloc((void **)&counter, 64));
        good(cudaMemset(counter, 0, 64));
        good(core_count_launch(counter, 40, NULL));
        good(cudaDeviceSynchronize());
        ends[i] = emu_clock_ns();
    }
    assert_int_equal(ends[0], ends[1]);
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, open_default, close_all)

static const struct CMUnitTest tests[] = {
    CASE(indices_reach_every_thread),
    CASE(sums_use_shared_memory_and_shuffles),
    CASE(atomics_count_every_thread),
    CASE(event_orders_two_streams),
    CASE(streams_without_event_race),
    CASE(graph_replays_a_fork_and_join),
    CASE(capture_with_a_loose_branch_is_refused),
    CASE(deadline_passes_in_virtual_time),
    CASE(many_lanes_sleep_in_turn),
    CASE(launch_by_another_host_thread_ends_a_wait),
    CASE(host_that_polls_lets_time_pass),
    CASE(peers_exchange_through_flags),
    CASE(ranks_as_threads_exchange),
    CASE(peer_memory_without_access_is_a_fault),
    CASE(deadlock_names_each_wait),
    CASE(freed_memory_is_not_used),
    CASE(stack_overflow_ends_the_program_with_a_message),
    CASE(same_seed_gives_the_same_run),
};

ULI_TEST_MAIN("EmulateCore", tests)
