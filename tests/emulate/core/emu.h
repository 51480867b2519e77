/* SPDX-License-Identifier: Apache-2.0
 *
 * The objects of the emulator: threads in warps in blocks in launches, which
 * one thread schedules; operations in streams; asynchronous operations of the
 * engines. Everything below the API (api/) is used by the scheduler's thread
 * only, except what emu.lock protects: operations, streams, events, and the
 * counts of waiting hosts.
 */
#ifndef EMULATE_CORE_EMU_H
#define EMULATE_CORE_EMU_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulate/include/emulate.h"
#include "emulate/include/emulate_calls.h"
#include "emulate/core/clocks.h"
#include "emulate/core/fibre.h"

enum {
    EMU_WARP = 32,
    EMU_BLOCK_THREADS = 1024,
    EMU_DEVICES = 16,
    EMU_SM_THREADS = 2048,
    EMU_SM_BLOCKS = 32,
    EMU_SM_REGISTERS = 65536,
    EMU_SHARED_BYTES = 232448, /* shared memory of a block: at most 227 KiB */
    EMU_SHARED_START = 1024,   /* the 32-bit address of the first byte */
    EMU_BARRIERS = 16,
    EMU_SCOPES = 3
};

enum emu_state { EMU_READY, EMU_PARKED, EMU_DEAD };

/* Threads that wait for the same condition. */
struct emu_queue {
    struct emu_thread *first;
};

struct emu_thread {
    void *sp;
    unsigned char *stack;
    struct emu_block *block;
    struct emu_warp *warp;
    uint32_t lane, index; /* index in the warp, index in the block */
    struct emu_dim3 at;   /* threadIdx */
    enum emu_state state;
    size_t ready_slot;
    struct emu_queue *queue;
    struct emu_thread *next, **link;
    /* While parked: what the thread waits for, with two numbers for the report.
     * A poll may be resumed at any time; it then looks again. */
    const char *what;
    uint64_t what_a, what_b;
    bool poll;
    uint64_t wake_ns; /* 0 = no alarm */
    /* the address, value and order of the last load of a thread that polls */
    const void *poll_at;
    uint64_t poll_value;
    int poll_order;
    /* the length of the last nanosleep, and emu.progress at that time */
    uint64_t sleep_ns, sleep_progress;
    struct emu_bulk *bulk;     /* engine/bulk.c */
    struct emu_copies *copies; /* engine/cp_async.c */
    /* the registers (words of the stack) that plain code has touched since the
     * last wgmma.fence */
    uint64_t *touched;  /* one bit per 4 bytes; NULL before the first fence */
    uint32_t in_flight; /* accumulators that wgmma owns */
};

struct emu_warp {
    struct emu_block *block;
    uint32_t index, live; /* live: a mask of the lanes that have not ended */
    uint32_t agent;
    struct emu_clocks *now;
    /* fence: the state at the last fence of each scope, which relaxed stores
     * publish. seen: the state that relaxed loads have read, which the next
     * fence joins. */
    struct emu_clocks *fence[EMU_SCOPES], *seen[EMU_SCOPES];
    /* the agent of cp.async; EMU_AGENTS = none yet */
    uint32_t copy_agent;
    struct emu_meeting *meetings; /* core/warp.c */
    uint32_t registers;           /* setmaxnreg */
};

struct emu_barrier {
    uint32_t expected, arrived;
    int votes, result; /* for __syncthreads_count and the like */
    /* at completion: whether all threads that arrived had voted */
    bool unanimous;
    /* of each warp: lanes that have arrived and are not published yet */
    uint32_t pending[EMU_BLOCK_THREADS / EMU_WARP];
    struct emu_clocks *clocks;
    struct emu_queue queue;
};

struct emu_block {
    struct emu_launch *launch;
    uint32_t number, sm;
    uint64_t serial;    /* never used twice */
    struct emu_dim3 at; /* blockIdx */
    struct emu_thread *threads;
    struct emu_warp *warps;
    uint32_t thread_count, warp_count, live;
    unsigned char *shared; /* the first byte of its shared memory */
    struct emu_cell *shared_cells;
    struct emu_barrier barriers[EMU_BARRIERS];
    struct emu_mbarrier *mbarriers; /* engine/mbarrier.c */
    struct emu_wgmma *wgmma[EMU_BLOCK_THREADS / 128];
    struct emu_meeting *group_meetings[EMU_BLOCK_THREADS / 128];
    struct emu_queue register_queue; /* setmaxnreg.inc */
    uint32_t async_count;            /* operations in flight */
    size_t slot;                     /* index in emu.blocks */
};

struct emu_launch {
    struct emu_op *op;
    const char *name;
    int device;
    struct emu_dim3 grid, block;
    size_t shared_bytes;
    void (*invoke)(const void *args);
    void *args;
    size_t args_bytes;
    uint32_t *order; /* blocks not started, the last one next */
    uint32_t waiting, live;
};

/* An operation of an engine. A call of step acts once (reads, writes or
 * completes). When nothing is left to do, step frees the operation and returns
 * true. */
struct emu_async {
    bool (*step)(struct emu_async *async);
    struct emu_block *block;
    size_t slot;
};

enum emu_op_kind {
    EMU_OP_MARK,
    EMU_OP_KERNEL,
    EMU_OP_COPY,
    EMU_OP_FILL,
    EMU_OP_HOST
};

/* depth x height rows of a copy; all zeros mean one row. */
struct emu_rect {
    size_t height, depth;
    size_t dst_pitch, dst_slice, src_pitch, src_slice;
};

/* An operation of a stream or graph. It is ready when all operations that it
 * follows are done. */
struct emu_op {
    enum emu_op_kind kind;
    int device, references;
    uint32_t waits; /* operations that it follows and that are not done */
    uint32_t hosts; /* host threads that wait for it */
    struct emu_op **followers;
    uint32_t follower_count;
    bool done;
    /* what the operation is ordered after; once done, its end */
    struct emu_clocks *clocks;
    struct emu_launch launch;
    void *dst;
    const void *src;
    size_t bytes;         /* bytes of a row */
    struct emu_rect rows; /* rows of a copy */
    int value;
    void (*call)(void *);
    void *data;
    uint64_t end_ns;
};

struct emu_device {
    struct {
        uint32_t threads, blocks;
        size_t shared;
    } * sms;
    bool peers[EMU_DEVICES];
};

struct emu {
    struct emu_config config;
    bool open, failed;
    /* alarm_ns: the earliest alarm, 0 = none */
    uint64_t random, now_ns, alarm_ns;
    uint64_t progress, progress_seen, stall_start_ns, stall_step_ns;
    /* wall clock at the last look and at the start of the stall */
    uint64_t wall_ns, wall_start_ns;
    uint64_t serial;
    /* asynchronous operations act in one of so many turns */
    uint32_t eagerness;
    struct emu_device devices[EMU_DEVICES];
    /* used by the scheduler's thread only */
    struct emu_thread *self; /* the running fibre, or NULL */
    void *scheduler_sp;
    struct emu_thread **ready;
    size_t ready_count, ready_room;
    struct emu_block **blocks;
    size_t block_count, block_room;
    struct emu_async **async;
    size_t async_count, async_room;
    struct emu_op **ops; /* ready, not kernels */
    size_t op_count, op_room;
    /* launches with blocks that run or have yet to start */
    struct emu_launch **launches;
    size_t launch_count, launch_room;
    bool admit; /* whether a block that did not fit might fit now */
    /* shared with host threads, under the lock */
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    pthread_t scheduler;
    atomic_bool incoming;
    bool quit;
    struct emu_op **queued; /* operations that have become ready */
    size_t queued_count, queued_room;
    uint32_t unfinished; /* operations enqueued and not done */
    /* host threads that wait for work that is not done */
    uint32_t hosts_waiting;
    uint32_t hosts_draining; /* those of them that wait for all work */
    uint64_t drains;         /* how many times all work was done */
    /* API calls; the scheduler sees by them whether hosts are active */
    uint64_t calls;
    struct emu_clocks *host; /* what hosts are ordered after */
    /* queries in a row: a host that only queries counts as waiting */
    uint32_t queries;
};
extern struct emu emu;
/* true on the scheduler's thread */
extern _Thread_local bool emu_on_scheduler;

/* ---- core/random.c, core/fault.c ---- */
uint64_t emu_random_next(void);
/* Returns a uniform number below the bound; 0 for a bound of 0. */
uint32_t emu_random(uint32_t bound);
_Noreturn void emu_out_of_memory(const char *what);
void emu_grow(void *array, size_t *room, size_t needed, size_t item_bytes);
/* Records and prints a fault, and the run continues. A fault of the same kind
 * and key is recorded once; the key is a code address, or 0 to record every
 * fault. */
void emu_fault(enum emu_fault kind, uint64_t key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Records a fault and ends all running work. Called from a fibre, does not
 * return. */
void emu_fault_fatal(enum emu_fault kind, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Returns the position of the running fibre, for example " at block 0 warp 1
 * lane 2 of kernel k". */
const char *emu_here(void);
void emu_faults_reset(void);

/* ---- core/scheduler.c ---- */
void *emu_scheduler(void *unused);
/* Parks the running fibre until the queue is woken. With `poll`, the fibre may
 * be resumed earlier. */
void emu_park(struct emu_queue *queue, const char *what, uint64_t a, uint64_t b,
    bool poll);
/* Implements nanosleep. A lane that sleeps again while nothing has moved sleeps
 * twice as long, up to a millisecond. Otherwise, where many lanes sleep in
 * turn, one of them would always be awake, and the run would never count as
 * stalled. */
void emu_park_asleep(uint64_t ns);
/* Lets other fibres run. */
void emu_yield(void);
void emu_wake(struct emu_thread *thread);
void emu_wake_all(struct emu_queue *queue);
void emu_ready_add(struct emu_thread *thread);
/* Makes threads that poll memory near the address look again. */
void emu_wake_pollers(const void *address);
struct emu_queue *emu_pollers(const void *address);
void emu_async_add(struct emu_async *async, struct emu_block *block);
void emu_async_remove(struct emu_async *async);
/* Records that something has happened for which a thread may be waiting. */
void emu_progress(void);

/* ---- core/crash.c ---- */
void emu_crash_open(void);
void emu_crash_stack(void);
void emu_crash_stack_back(void);
void emu_crash_close(void);

/* ---- core/block.c, core/stall.c ---- */
void emu_admit_blocks(void);
void emu_thread_ended(struct emu_thread *thread);
void emu_block_try_end(struct emu_block *block);
void emu_abort_all(void);
/* Called when nothing can run: moves the clock forward, or reports a
 * deadlock. */
void emu_stalled(bool hosts_wait);

/* ---- core/warp.c ---- */
enum { EMU_MEET_OPERANDS = 4, EMU_MEET_BYTES = 64 };
/* All lanes of the mask meet at the same instruction with equal operands. The
 * last lane runs act on the data of every lane (in and out); then all lanes
 * continue. */
struct emu_meet {
    const char *name;
    uint32_t mask;
    uint64_t operands[EMU_MEET_OPERANDS];
    void (*act)(
        const struct emu_meet *meet, struct emu_warp *warp, void **lane_data);
};
void emu_meet_warp(const struct emu_meet *meet, void *lane_data);
/* As above, for the 128 lanes of a warpgroup. */
void emu_meet_group(const struct emu_meet *meet, void *lane_data);
void emu_meetings_check_exit(struct emu_thread *thread);
void emu_meetings_free(struct emu_block *block);

/* ---- core/order.c: release, acquire, fences ---- */
/* Publishes the clocks of the warp into `to` and starts a new interval. */
void emu_publish(struct emu_warp *warp, struct emu_clocks *to);
/* Drops the flags in the shared memory of a block that has ended, before
 * another block gets it. */
void emu_order_forget(const unsigned char *base, size_t bytes);
void emu_order_reset(void);

/* ---- core/barrier.c ---- */
void emu_barrier_thread_ended(struct emu_block *block);

/* ---- core/op.c; the lock is held ---- */
struct emu_op *emu_op_new(enum emu_op_kind kind, int device);
void emu_op_follow(struct emu_op *op, struct emu_op *earlier);
void emu_op_start(struct emu_op *op);
void emu_op_finish(struct emu_op *op);
struct emu_op *emu_op_hold(struct emu_op *op);
void emu_op_drop(struct emu_op *op);
/* Performs a copy, fill, mark or host call. The scheduler's thread calls
 * this. */
void emu_op_perform(struct emu_op *op);

/* ---- engines: what a block leaves behind ---- */
void emu_mbarriers_end(struct emu_block *block);
void emu_bulk_end(struct emu_thread *thread);
void emu_copies_end(struct emu_thread *thread);
void emu_wgmma_end(struct emu_block *block, uint32_t group);
/* Called for a plain access of a fibre to its own stack, where its registers
 * are. */
void emu_register_access(
    struct emu_thread *self, uintptr_t address, size_t bytes, bool write);
/* Called for a plain access to shared memory that overlaps an mbarrier. */
void emu_mbarrier_plain_access(
    struct emu_block *block, uint32_t address, size_t bytes, bool write);

#endif
