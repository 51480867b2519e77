/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler: one thread that runs, in an order drawn from the seed, the
 * fibres that are ready, the asynchronous operations in flight and the
 * stream operations that may go. A fibre runs until it waits or yields.
 *
 * With one driving host thread a run is a function of the seed: work starts
 * only once that thread waits (or has been silent for a while).
 */
#include "emulate/core/emu.h"
#include <time.h>

struct emu emu = {.lock = PTHREAD_MUTEX_INITIALIZER,
    .work = PTHREAD_COND_INITIALIZER,
    .done = PTHREAD_COND_INITIALIZER};

_Thread_local bool emu_on_scheduler;

enum {
    POLL_QUEUES = 256,
    SILENCE_NS = 2000000,
    STEP_NS = 5,
    SLEEP_MOST_NS = 1000000,
    QUERIES = 64
};

static struct emu_queue poll_queues[POLL_QUEUES];

void
emu_progress(void)
{
    emu.progress++;
}

void
emu_ready_add(struct emu_thread *thread)
{
    emu_grow(
        &emu.ready, &emu.ready_room, emu.ready_count + 1, sizeof *emu.ready);
    thread->state = EMU_READY;
    thread->ready_slot = emu.ready_count;
    emu.ready[emu.ready_count++] = thread;
}

static void
ready_remove(struct emu_thread *thread)
{
    struct emu_thread *last = emu.ready[--emu.ready_count];
    emu.ready[thread->ready_slot] = last;
    last->ready_slot = thread->ready_slot;
}

void
emu_wake(struct emu_thread *thread)
{
    if (thread->state != EMU_PARKED)
        return;
    if (thread->queue) {
        *thread->link = thread->next;
        if (thread->next)
            thread->next->link = thread->link;
        thread->queue = NULL;
    }
    thread->wake_ns = 0;
    emu_ready_add(thread);
}

void
emu_wake_all(struct emu_queue *queue)
{
    while (queue->first)
        emu_wake(queue->first);
}

static void
thread_leave(struct emu_thread *self)
{
    emu_fibre_switch(&self->sp, emu.scheduler_sp);
}

void
emu_park(struct emu_queue *queue, const char *what, uint64_t a, uint64_t b,
    bool poll)
{
    struct emu_thread *self = emu.self;
    ready_remove(self);
    self->state = EMU_PARKED;
    self->what = what;
    self->what_a = a;
    self->what_b = b;
    self->poll = poll;
    self->queue = queue;
    if (queue) {
        self->next = queue->first;
        self->link = &queue->first;
        if (self->next)
            self->next->link = &self->next;
        queue->first = self;
    }
    thread_leave(self);
}

void
emu_park_asleep(uint64_t ns)
{
    struct emu_thread *self = emu.self;
    uint64_t wake_ns;
    if (self->sleep_progress != emu.progress || self->sleep_ns < ns)
        self->sleep_ns = ns ? ns : 1;
    else if (self->sleep_ns < SLEEP_MOST_NS)
        self->sleep_ns *= 2;
    self->sleep_progress = emu.progress;
    self->wake_ns = wake_ns = emu.now_ns + self->sleep_ns;
    if (!emu.alarm_ns || wake_ns < emu.alarm_ns)
        emu.alarm_ns = wake_ns;
    emu_park(NULL, "nanosleep until %llu ns", wake_ns, 0, false);
}

void
emu_yield(void)
{
    thread_leave(emu.self);
}

struct emu_queue *
emu_pollers(const void *address)
{
    return &poll_queues[((uintptr_t)address >> 3) * 0x9e3779b1u >> 7 &
                        (POLL_QUEUES - 1)];
}

void
emu_wake_pollers(const void *address)
{
    emu_wake_all(emu_pollers(address));
}

void
emu_async_add(struct emu_async *async, struct emu_block *block)
{
    emu_grow(
        &emu.async, &emu.async_room, emu.async_count + 1, sizeof *emu.async);
    async->block = block;
    async->slot = emu.async_count;
    emu.async[emu.async_count++] = async;
    block->async_count++;
}

void
emu_async_remove(struct emu_async *async)
{
    struct emu_async *last = emu.async[--emu.async_count];
    emu.async[async->slot] = last;
    last->slot = async->slot;
    async->block->async_count--;
}

static void
run_thread(void)
{
    struct emu_thread *thread =
        emu.ready[emu_random((uint32_t)emu.ready_count)];
    emu.now_ns += STEP_NS;
    emu.self = thread;
    emu_fibre_switch(&emu.scheduler_sp, thread->sp);
    emu.self = NULL;
    if (thread->state == EMU_DEAD && !emu.failed) {
        ready_remove(thread);
        emu_thread_ended(thread);
    }
}

static void
run_async(void)
{
    struct emu_async *async = emu.async[emu_random((uint32_t)emu.async_count)];
    struct emu_block *block = async->block;
    emu_progress();
    async->step(async);
    if (!emu.failed)
        emu_block_try_end(block);
}

static void
run_op(void)
{
    uint32_t i = emu_random((uint32_t)emu.op_count);
    struct emu_op *op = emu.ops[i];
    emu.ops[i] = emu.ops[--emu.op_count];
    emu_progress();
    emu_op_perform(op);
}

/* Lets one fibre, engine operation or stream operation act. Returns false when
 * none can. */
static bool
device_turn(void)
{
    bool fibres = emu.ready_count > 0;
    if (emu.op_count && (!(fibres || emu.async_count) || !emu_random(8)))
        run_op();
    else if (emu.async_count && (!fibres || !emu_random(emu.eagerness)))
        run_async();
    else if (fibres)
        run_thread();
    else
        return false;
    return true;
}

/* Wakes the fibres whose alarms are due, and finds the next alarm. */
static void
ring_alarms(void)
{
    emu.alarm_ns = 0;
    for (size_t b = 0; b < emu.block_count; b++) {
        struct emu_block *block = emu.blocks[b];
        for (uint32_t i = 0; i < block->thread_count; i++) {
            struct emu_thread *t = &block->threads[i];
            if (t->state != EMU_PARKED || !t->wake_ns)
                continue;
            if (t->wake_ns <= emu.now_ns)
                emu_wake(t);
            else if (!emu.alarm_ns || t->wake_ns < emu.alarm_ns)
                emu.alarm_ns = t->wake_ns;
        }
    }
}

static struct timespec
deadline_after(long ns)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += ns;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

static bool
hosts_wait(void)
{
    uint32_t hosts = (uint32_t)emu.config.host_threads;
    return emu.hosts_waiting >= hosts ||
           (!emu.config.wall_time && emu.queries >= hosts * QUERIES);
}

/* Waits until the hosts have enqueued all that they are about to enqueue,
 * before new work starts. The lock is held. */
static void
await_hosts(void)
{
    uint64_t calls = emu.calls - 1;
    while (!emu.config.wall_time && !hosts_wait() && !emu.quit &&
           calls != emu.calls) {
        struct timespec until = deadline_after(SILENCE_NS);
        calls = emu.calls;
        pthread_cond_timedwait(&emu.work, &emu.lock, &until);
    }
}

static void
take_queued(void)
{
    for (size_t i = 0; i < emu.queued_count; i++) {
        struct emu_op *op = emu.queued[i];
        if (op->kind == EMU_OP_KERNEL && !emu.failed) {
            emu_grow(&emu.launches, &emu.launch_room, emu.launch_count + 1,
                sizeof *emu.launches);
            emu.launches[emu.launch_count++] = &op->launch;
            emu.admit = true;
            continue;
        }
        emu_grow(&emu.ops, &emu.op_room, emu.op_count + 1, sizeof *emu.ops);
        emu.ops[emu.op_count++] = op;
    }
    emu.queued_count = 0;
    atomic_store(&emu.incoming, false);
}

/* Takes over work that has become ready; waits for work when there is none.
 * Returns false when the emulator is closed. */
static bool
grids_collect(void)
{
    bool go = true;
    pthread_mutex_lock(&emu.lock);
    if (!emu.unfinished || (!emu.launch_count && !emu.op_count)) {
        while (!emu.queued_count && !emu.quit)
            pthread_cond_wait(&emu.work, &emu.lock);
        await_hosts();
    }
    take_queued();
    go = !emu.quit || emu.unfinished;
    pthread_mutex_unlock(&emu.lock);
    return go;
}

/* Called when nothing can act: hosts may still enqueue work; if they do not,
 * time passes. */
static void
threads_stalled(void)
{
    pthread_mutex_lock(&emu.lock);
    bool hosts = hosts_wait() || emu.quit;
    if (!hosts && !emu.queued_count) {
        struct timespec until = deadline_after(SILENCE_NS / 10);
        pthread_cond_timedwait(&emu.work, &emu.lock, &until);
    }
    bool fresh = emu.queued_count > 0;
    pthread_mutex_unlock(&emu.lock);
    if (!fresh)
        emu_stalled(hosts);
    ring_alarms();
}

void *
emu_scheduler(void *unused)
{
    (void)unused;
    emu_on_scheduler = true;
    emu_crash_stack();
    while (1) {
        bool idle = !emu.launch_count && !emu.op_count;
        if ((idle || atomic_load(&emu.incoming)) && !grids_collect())
            break;
        if (emu.failed)
            emu_abort_all();
        emu_admit_blocks();
        if (emu.alarm_ns && emu.now_ns >= emu.alarm_ns)
            ring_alarms();
        if (!device_turn() && emu.launch_count)
            threads_stalled();
    }
    emu_crash_stack_back();
    return NULL;
}
