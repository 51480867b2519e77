/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulator's objects: threads in warps in blocks in launches, scheduled by
 * one thread; operations in streams; asynchronous operations of the engines.
 * Everything below the API (api/) is touched by the scheduler's thread only,
 * except what emu.lock guards: operations, streams, events, and the counts of
 * waiting hosts.
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
    EMU_SHARED_BYTES = 232448, /* what a block may have: 227 KiB */
    EMU_SHARED_START = 1024,   /* the 32-bit address of the first byte */
    EMU_BARRIERS = 16,
    EMU_SCOPES = 3
};

enum emu_state { EMU_READY, EMU_PARKED, EMU_DEAD };

/* Threads that wait for one thing. */
struct emu_queue {
    struct emu_thread *first;
};

struct emu_thread {
    void *sp;
    unsigned char *stack;
    struct emu_block *block;
    struct emu_warp *warp;
    uint32_t lane, index; /* in its warp, in its block */
    struct emu_dim3 at;   /* threadIdx */
    enum emu_state state;
    size_t ready_slot;
    struct emu_queue *queue;
    struct emu_thread *next, **link;
    /* while parked: what for, with two numbers for the report; a poll may be
     * resumed at any time and looks again */
    const char *what;
    uint64_t what_a, what_b;
    bool poll;
    uint64_t wake_ns; /* 0 = no alarm */
    /* the last value that a polling load saw, and the order of that load */
    const void *poll_at;
    uint64_t poll_value;
    int poll_order;
    /* the last nanosleep: how long, and emu.progress then */
    uint64_t sleep_ns, sleep_progress;
    struct emu_bulk *bulk;     /* engine/bulk.c */
    struct emu_copies *copies; /* engine/cp_async.c */
    /* registers (stack words) that plain code touched since wgmma.fence */
    uint64_t *touched;  /* a bit for 4 bytes; NULL before the first fence */
    uint32_t in_flight; /* accumulators that wgmma owns */
};

struct emu_warp {
    struct emu_block *block;
    uint32_t index, live; /* live lanes, a mask */
    uint32_t agent;
    struct emu_clocks *now;
    /* state at the last fence of each scope, published by relaxed stores; and
     * the state that relaxed loads have read, joined by the next fence */
    struct emu_clocks *fence[EMU_SCOPES], *seen[EMU_SCOPES];
    uint32_t copy_agent;          /* cp.async; EMU_AGENTS = none yet */
    struct emu_meeting *meetings; /* core/warp.c */
    uint32_t registers;           /* setmaxnreg */
};

struct emu_barrier {
    uint32_t expected, arrived;
    int votes, result; /* __syncthreads_count and its kin */
    bool unanimous; /* all threads that arrived had voted, when it completed */
    /* of each warp: lanes that have come and are not published yet */
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
    unsigned char *shared; /* its first byte */
    struct emu_cell *shared_cells;
    struct emu_barrier barriers[EMU_BARRIERS];
    struct emu_mbarrier *mbarriers; /* engine/mbarrier.c */
    struct emu_wgmma *wgmma[EMU_BLOCK_THREADS / 128];
    struct emu_meeting *group_meetings[EMU_BLOCK_THREADS / 128];
    struct emu_queue register_queue; /* setmaxnreg.inc */
    uint32_t async_count;            /* operations in flight */
    size_t slot;                     /* in emu.blocks */
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

/* An operation of an engine. step acts (reads, writes, completes) and returns
 * true when there is nothing left of it; it then has freed itself. */
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

/* depth x height rows of a copy; zeros mean one row. */
struct emu_rect {
    size_t height, depth;
    size_t dst_pitch, dst_slice, src_pitch, src_slice;
};

/* One thing in a stream or graph, ready when all that it follows is done. */
struct emu_op {
    enum emu_op_kind kind;
    int device, references;
    uint32_t waits; /* operations that it still follows */
    uint32_t hosts; /* host threads that wait for it */
    struct emu_op **followers;
    uint32_t follower_count;
    bool done;
    struct emu_clocks *clocks; /* what it is ordered after; its end, if done */
    struct emu_launch launch;
    void *dst;
    const void *src;
    size_t bytes;         /* of a row */
    struct emu_rect rows; /* of a copy */
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
    uint64_t random, now_ns, alarm_ns; /* earliest alarm, 0 = none */
    uint64_t progress, progress_seen, stall_start_ns, stall_step_ns;
    uint64_t wall_ns, wall_start_ns; /* of the last look, of the stall */
    uint64_t serial;
    uint32_t eagerness; /* asynchronous operations act one turn in so many */
    struct emu_device devices[EMU_DEVICES];
    /* the scheduler's */
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
    struct emu_launch **launches; /* with blocks to start or running */
    size_t launch_count, launch_room;
    bool admit; /* a block might fit that did not */
    /* shared with hosts */
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    pthread_t scheduler;
    atomic_bool incoming;
    bool quit;
    struct emu_op **queued; /* became ready */
    size_t queued_count, queued_room;
    uint32_t unfinished;     /* operations enqueued and not done */
    uint32_t hosts_waiting;  /* for something that has not happened */
    uint32_t hosts_draining; /* those of them that wait for all work */
    uint64_t drains;         /* times that all work was done */
    uint64_t calls;          /* API calls, to see whether hosts are active */
    struct emu_clocks *host; /* what hosts are ordered after */
    uint32_t queries;        /* in a row: hosts that only look are waiting */
};
extern struct emu emu;
/* True on the scheduler's thread. */
extern _Thread_local bool emu_on_scheduler;

/* ---- core/random.c, core/fault.c ---- */
uint64_t emu_random_next(void);
/* Uniform below the bound; 0 for a bound of 0. */
uint32_t emu_random(uint32_t bound);
_Noreturn void emu_out_of_memory(const char *what);
void emu_grow(void *array, size_t *room, size_t needed, size_t item_bytes);
/* Records and prints a fault, once per kind and key (a code address, or 0 for
 * every time); the run continues. */
void emu_fault(enum emu_fault kind, uint64_t key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Records it and ends all running work. From a fibre it does not return. */
void emu_fault_fatal(enum emu_fault kind, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* " at block 0 warp 1 lane 2 of kernel k", of the running fibre. */
const char *emu_here(void);
void emu_faults_reset(void);

/* ---- core/scheduler.c ---- */
void *emu_scheduler(void *unused);
/* Parks the running fibre until the queue is woken, or, for a poll, earlier. */
void emu_park(struct emu_queue *queue, const char *what, uint64_t a, uint64_t b,
    bool poll);
/* nanosleep. A lane that sleeps again while nothing has moved sleeps twice as
 * long, up to a millisecond: otherwise, where many lanes sleep in turn, one of
 * them is always awake, and the run never counts as stalled. */
void emu_park_asleep(uint64_t ns);
/* Lets others run. */
void emu_yield(void);
void emu_wake(struct emu_thread *thread);
void emu_wake_all(struct emu_queue *queue);
void emu_ready_add(struct emu_thread *thread);
/* Threads that poll memory near the address look again. */
void emu_wake_pollers(const void *address);
struct emu_queue *emu_pollers(const void *address);
void emu_async_add(struct emu_async *async, struct emu_block *block);
void emu_async_remove(struct emu_async *async);
/* Something happened that a waiting thread may have waited for. */
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
/* Nothing can run: moves the clock, or reports a deadlock. */
void emu_stalled(bool hosts_wait);

/* ---- core/warp.c ---- */
enum { EMU_MEET_OPERANDS = 4, EMU_MEET_BYTES = 64 };
/* All lanes of the mask meet at the same instruction with equal operands; the
 * last lane runs act with every lane's data (in and out), then all continue. */
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
/* Publishes the warp's clocks into `to` and starts a new interval. */
void emu_publish(struct emu_warp *warp, struct emu_clocks *to);
/* A block's shared memory goes to another one. */
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
/* The scheduler's: performs a copy, fill, mark or host call. */
void emu_op_perform(struct emu_op *op);

/* ---- engines: what a block leaves behind ---- */
void emu_mbarriers_end(struct emu_block *block);
void emu_bulk_end(struct emu_thread *thread);
void emu_copies_end(struct emu_thread *thread);
void emu_wgmma_end(struct emu_block *block, uint32_t group);
/* A plain access to a fibre's own stack, that is, to its registers. */
void emu_register_access(
    struct emu_thread *self, uintptr_t address, size_t bytes, bool write);
/* A plain access to shared memory that overlaps an mbarrier. */
void emu_mbarrier_plain_access(
    struct emu_block *block, uint32_t address, size_t bytes, bool write);

#endif
