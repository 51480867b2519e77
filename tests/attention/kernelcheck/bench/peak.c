/* SPDX-License-Identifier: Apache-2.0
 *
 * The peak loop has 24 independent chains, which cover any latency times width,
 * and no memory access. The peak is the best of several short runs of all
 * threads together.
 */
#include "attention/kernelcheck/bench/bench.h"
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>
#include "attention/kernelcheck/bench/peak_loops.h"
#include "attention/pool.h"
#include "base/system/clock.h"

/* A run takes a few milliseconds, because the CPU-time clock of some machines
 * is coarse. */
#define ROUNDS 1000000
#define RUNS   9

struct task {
    kc_peak_loop loop;
    int threads;
    _Atomic int ready;
    _Atomic int64_t rounds;
};

/* Every thread starts its loop only when all threads are ready. */
static void
peak_thread(void *context, int thread)
{
    struct task *task = context;
    (void)thread;
    atomic_fetch_add(&task->ready, 1);
    while (atomic_load(&task->ready) < task->threads)
        sched_yield();
    task->loop(ROUNDS);
    atomic_fetch_add(&task->rounds, ROUNDS);
}

int64_t
kc_clock_ns(bool cpu_time, int threads)
{
    struct timespec time;
    if (!cpu_time)
        return uli_clock_ns();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (time.tv_sec * 1000000000LL + time.tv_nsec) / threads;
}

double
kc_peak(enum kc_arithmetic kind, int threads, bool cpu_time)
{
    double flops_per_round, rates[RUNS];
    kc_peak_loop loop = kc_peak_loop_of(kind, &flops_per_round);
    for (int n = 0; loop && n < RUNS; n++) {
        struct task task = {.loop = loop, .threads = threads};
        int64_t begin = kc_clock_ns(cpu_time, threads);
        uli_pool_run(threads, peak_thread, &task);
        double seconds =
            (double)(kc_clock_ns(cpu_time, threads) - begin) * 1e-9;
        double rate =
            flops_per_round * (double)atomic_load(&task.rounds) / seconds;
        int at = n;
        for (; at > 0 && rates[at - 1] < rate; at--)
            rates[at] = rates[at - 1];
        rates[at] = rate;
    }
    return loop ? rates[RUNS / 4] : 0;
}
