/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicator as the layers above use it: peers, windows, arenas,
 * agreement, failure. Fields marked (owner) are for the thread that owns the
 * handle alone. Any thread may use _Atomic fields, and the tables that
 * windows.h names.
 */
#ifndef ULI_COMM_COMM_H
#define ULI_COMM_COMM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/list.h"
#include "base/settings.h"
#include "base/status.h"
#include "base/system/clock.h"
#include "comm/agreement/control.h"
#include "topology/bind.h"
#include "transport/segment.h"
#include "transport/transport.h"
#include "ulyx/comm.h"

struct uli_bootstrap;
struct uli_net;
struct uli_remote;
struct uli_gpu; /* gpu.h */
struct uli_comm_batch;
struct uli_ring_pool;
struct uli_copy_choice;
struct uli_planner; /* topology/choose/choose.h */

/* ---- windows: tables read without locks by execute ----------------------- */

enum { ULI_WINDOW_CHUNK = 64, ULI_WINDOW_CHUNKS = 256 };

/* One slot: its id is its index in the table of its rank. base = NULL when
 * free. Slots are used again, so bytes is written before base (release), and a
 * reader takes bytes between two equal reads of base. bytes < 0 with base =
 * NULL: reserved by the owner. */
struct uli_window {
    _Atomic(void *) base; /* as mapped in this process */
    _Atomic int64_t bytes;
    _Atomic bool mapped; /* by the peer's transport: unmapped when withdrawn */
    _Atomic bool on_device;         /* an address of this rank's device */
    _Atomic(void *) device_mapping; /* an import: unmapped when withdrawn */
};
/* Slots in chunks. A chunk is published once and lives until destroy. */
struct uli_window_table {
    _Atomic(struct uli_window *) chunks[ULI_WINDOW_CHUNKS];
    _Atomic uint32_t high; /* no slot at or above this was ever used */
};

/* ---- peers --------------------------------------------------------------- */

struct uli_peer {
    struct uli_identity identity;
    int32_t node; /* nodes counted by their first ranks, without gaps */
    bool same_process;
    const struct uli_tr_ops *map;        /* MAP transport, NULL if none reaches:
                                          * the peer is remote, see remote.h */
    const struct uli_tr_ops *map_device; /* MAP_DEVICE transport, or NULL */
    /* The peer's control block as mapped here; this rank's own block for the
     * own rank. The service stores it. Of a remote peer: a replica in this
     * process, which the peer's messages keep up to date. */
    _Atomic(struct uli_control *) control;
    struct uli_window_table windows; /* slot 0 = control segment and arena */
    _Atomic int32_t dead;            /* its process is known to have ended */
    bool named;                      /* scratch of agreements (rounds.c) */
    _Atomic int32_t number;          /* see uli_comm_number */
};

/* ---- arenas: counters, slots and rings of plans -------------------------- */

/* A block of a window of this rank. Peers find it by (window, offset). */
struct uli_arena_block {
    uint32_t window;
    int64_t offset, bytes;
    void *address;
};

/* ---- the communicator ---------------------------------------------------- */

enum { ULI_FAILURE_BYTES = 256 };

struct ulyx_comm {
    int32_t rank, nranks;
    char name[64];
    unsigned char id[16]; /* equal on all ranks, random */
    struct uli_settings settings;
    struct uli_planner *planner; /* for the choice of a plan's schedule */
    double timeout_s;
    int32_t memory_kind;
    int32_t device;    /* CUDA ordinal; of host memory: as given */
    int32_t cores;     /* this rank's share of the cores of its mask */
    bool shares_cores; /* more ranks share this rank's cores than there are
                        * cores: a spin yields between two looks */
    int64_t spin_ns;   /* 0 also where nodes' ranks share cores */
    bool one_process;  /* all ranks are threads of this process */
    bool by_address;   /* peers need no descriptor to map this rank's memory */
    _Atomic bool connected; /* peers' transports are chosen */
    _Atomic bool made;      /* created over a bootstrap; the caller has it */
    _Atomic int32_t leaves; /* enum uli_left: how this rank leaves */
    int32_t nnodes;
    struct uli_binding binding; /* of own threads and memory; see place.h */
    bool one_machine; /* some nodes share a machine: a setting makes nodes */

    struct uli_peer *peers;      /* [nranks], own rank included */
    struct uli_segment segment;  /* control block, then arena */
    struct uli_control *control; /* == segment.address */

    struct uli_team *team;     /* ranks of this process; see team.h */
    struct uli_net *net;       /* NULL unless peers are remote; see remote.h */
    struct uli_remote *remote; /* see remote_internal.h */
    struct uli_gpu *gpu;       /* NULL for host memory */
    struct uli_comm_batch *batch; /* NULL until a plan needs it; see batch.h */

    _Atomic int32_t failed;      /* status of the first failure, or 0 */
    _Atomic int32_t failed_rank; /* the rank that caused it, or -1 */
    atomic_bool failing;         /* claimed: a thread writes failure_text */
    char failure_text[ULI_FAILURE_BYTES]; /* complete once failed is set */
    char abort_text[32];                  /* "rank 3 aborted", for an abort at
                                           * this rank */
    atomic_bool abort_unlogged;           /* no log line about the abort yet */
    pthread_mutex_t failure_lock;         /* guards control->late */

    _Atomic(const void *) caller;       /* private to board.c, as the next */
    _Atomic(const void *) board_holder; /* a call, or NULL */
    _Atomic int32_t queued;             /* calls in groups */
    struct uli_suspicion *suspicion;    /* private to differ.c */
    uint64_t flags;                     /* ULYX_COMM_... */

    bool dump_held; /* private to dump.c, as the next three */
    atomic_bool dump_requested;
    _Atomic uint64_t dump_number; /* of the failure's request */
    _Atomic int64_t dump_until_ns;

    uint64_t agree_round;    /* (owner) last round posted */
    uint64_t agree_recorded; /* (owner) the agreeing call's number in the
                              * recorder */
    uint64_t sequence;       /* (owner) counts collective calls */
    /* (owner) The deadline of the call that runs, INT64_MAX outside any call.
     * Whatever the call makes on its way (arenas, plans) has no more time than
     * the call. */
    uli_deadline_t call_deadline;

    pthread_mutex_t lock;        /* windows (attach, detach), arenas */
    struct uli_list arenas;      /* under lock, private to arena.c */
    struct uli_list attachments; /* under lock, private to mem.c */
    int32_t nattached;           /* under lock: windows that the caller
                                  * attached */
    _Atomic int32_t nplans;      /* plans alive: destroy is refused */
    _Atomic int32_t nops; /* operations in flight (counted by requests) */
    struct uli_list retired_plans; /* (owner) private to collectives */
    void *alltoall;                /* (owner) private to collectives */
    void (*alltoall_destroy)(struct ulyx_comm *comm);
    _Atomic(struct uli_copy_choice *) copies; /* private to collectives */
    struct uli_ring_pool *ring_pool;          /* private to collectives */
    void (*ring_pool_destroy)(struct ulyx_comm *comm);
    /* Refuses the alltoall that other ranks have called. */
    void (*alltoall_skip)(struct ulyx_comm *comm, uli_deadline_t deadline);
    void (*retired_destroy)(struct ulyx_comm *comm);
    struct uli_bootstrap *meeting; /* during creation, between two gathers */
    int32_t meeting_awaits;   /* (owner) the awaited rank; -1: none, or reported
                               * already */
    int64_t meeting_still_ns; /* (owner) when to report that rank */
    bool served; /* registered with the service by uli_comm_serve */
    struct uli_list registry; /* private to service/ */
};

/* ---- life (comm.c) ------------------------------------------------------- */

/* Builds a communicator over an open bootstrap, which stays the caller's.
 * Collective. On error nothing is kept and all ranks fail. */
ulyx_status_t uli_comm_create(struct uli_bootstrap *bootstrap, int32_t nranks,
    int32_t rank, const ulyx_comm_params_t *params, uli_deadline_t deadline,
    ulyx_comm_t **comm_p);
/* Takes the place of create at a rank whose arguments are wrong: the other
 * ranks receive its error and do not wait. outcome is an error whose text is
 * the thread's last error. Returns outcome. */
ulyx_status_t uli_comm_refuse(struct uli_bootstrap *bootstrap,
    ulyx_status_t outcome, uli_deadline_t deadline);
/* All ranks in this process, no bootstrap. */
ulyx_status_t uli_comm_create_local(
    int32_t nranks, const ulyx_comm_params_t *params, ulyx_comm_t **comms_p);
ulyx_status_t uli_comm_destroy(ulyx_comm_t *comm);
/* Called when the process ends: whether this rank may announce to peers in
 * other processes that it leaves, as if it had destroyed the communicator.
 * False where an operation is in flight, for a failed communicator, in a forked
 * child, and for device memory: there kernels of peers may wait for flags that
 * are never written, and only a failure ends them. No call is in the
 * communicator. */
bool uli_comm_may_exit(const ulyx_comm_t *comm);
/* Where uli_comm_may_exit is true, in two steps: exit_node announces the exit
 * to the peers of this node; exit_net, after the plans have left, announces it
 * to the other peers and ends the network. The communicator can still be
 * destroyed. */
void uli_comm_exit_node(ulyx_comm_t *comm);
void uli_comm_exit_net(ulyx_comm_t *comm);
/* The text for a rank that leaves, for example "has destroyed its
 * communicator". how is not ULI_STAYS. */
const char *uli_left_text(enum uli_left how);
/* Collective. outcome: as in uli_plan_create. A rank that refuses its arguments
 * takes part with an error as outcome; its params are not read. */
ulyx_status_t uli_comm_split(ulyx_comm_t *comm, int32_t color, int32_t key,
    ulyx_status_t outcome, const ulyx_comm_params_t *params,
    ulyx_comm_t **new_p);
ulyx_status_t uli_comm_shrink(
    ulyx_comm_t *comm, const ulyx_comm_params_t *params, ulyx_comm_t **new_p);
ulyx_status_t uli_comm_barrier(ulyx_comm_t *comm);
/* Async-signal-safe. */
void uli_comm_abort(ulyx_comm_t *comm);
/* Host bytes held: struct, tables, segment, arenas, and mapped segments of
 * peers. */
int64_t uli_comm_bytes(ulyx_comm_t *comm);

/* The number by which errors name a rank: its rank; while a split or a shrink
 * makes the communicator, its rank in the parent, because the caller does not
 * have the ranks of the child yet. Any thread. */
static inline int32_t
uli_comm_number(const ulyx_comm_t *comm, int32_t rank)
{
    return atomic_load_explicit(
        &comm->peers[rank].number, memory_order_relaxed);
}

/* ---- failure (failure.c) ------------------------------------------------- */

/* SUCCESS, or the status of the failure, with its text as last error. Reads the
 * poison that peers posted. Cheap: every wait loop calls it. Any thread. */
ulyx_status_t uli_comm_check(ulyx_comm_t *comm);
/* As uli_comm_check, after reading the errors that the device has recorded.
 * Takes a lock: not for wait loops. Any thread. */
ulyx_status_t uli_comm_look(ulyx_comm_t *comm);

/* The status of the communicator's failure, with its text as last error;
 * SUCCESS where it has none. Reads no poison. Any thread. */
ulyx_status_t uli_comm_failure(ulyx_comm_t *comm);
/* The text of the failure, once there is one. The result may point into text_p.
 * Any thread. */
const char *uli_comm_failure_text(
    ulyx_comm_t *comm, char text_p[ULI_FAILURE_BYTES]);

/* Fails the communicator. The first call wins, and its text is kept. Posts
 * poison to all peers, except for TIMEOUT. rank: the cause, or -1. For MISMATCH
 * use uli_differ_fail. Any thread. Returns the status of the first failure,
 * with its text set. */
ulyx_status_t uli_comm_fail(ulyx_comm_t *comm, ulyx_status_t status,
    int32_t rank, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The log line of an abort, unless it has been written. Any thread. */
void uli_comm_log_abort(ulyx_comm_t *comm);

/* Fails the communicator by TIMEOUT: "reshuffle, call 7: timed out waiting for
 * ranks 3, 5 to reach it, by the deadline of rank 0" (late.h). The format gives
 * the text for the call that waited. A copy of late is kept for ranks that wait
 * for this rank in turn. Any thread. Returns as uli_comm_fail. */
ulyx_status_t uli_comm_fail_late(ulyx_comm_t *comm, const struct uli_late *late,
    const char *format, ...) __attribute__((format(printf, 3, 4)));
/* As uli_comm_fail_late, but as an error of the call alone: the communicator
 * does not fail. */
ulyx_status_t uli_comm_late_error(
    const ulyx_comm_t *comm, const struct uli_late *late, const char *what);
/* The ranks for which a rank of this node waited when its deadline was over and
 * it failed; NULL: none recorded. The result may lie in memory that the rank
 * writes: read it by uli_late_take. Any thread. */
const struct uli_late *uli_comm_noted_late(
    const ulyx_comm_t *comm, int32_t rank);
/* The rank for which a rank of this node waits, or waited when its deadline was
 * over, as recorded in its control block or its flight recorder; -1: none, or
 * not known. Any thread. */
int32_t uli_comm_awaits(const ulyx_comm_t *comm, int32_t rank);

/* The status in a word of poison (control.h). */
static inline ulyx_status_t
uli_poison_status(uint64_t poison)
{
    return (ulyx_status_t)(uint32_t)(poison >> 32);
}
/* Posts poison to all peers; this communicator does not fail by it. */
void uli_comm_spread_poison(ulyx_comm_t *comm, uint64_t poison);
/* As uli_comm_spread_poison, for poison from a rank of another node, with the
 * record that came with it: of an abort, the rank for which the aborting rank
 * waited; of calls that differ, the calls. */
void uli_comm_receive_poison(
    ulyx_comm_t *comm, uint64_t poison, const void *cause, size_t bytes);

/* Fails the communicator by the poison that a peer has posted, if any. For
 * threads that check on behalf of others: no wait, no meeting. Any thread. */
void uli_comm_take_poison(ulyx_comm_t *comm);

/* Marks a rank dead and fails the communicator with RANK_LOST. */
void uli_comm_rank_died(ulyx_comm_t *comm, int32_t rank, const char *how);

/* Once nops is 0, posts to peers that this rank has left all operations of a
 * failed communicator (control->abort_seen). The request engine calls it
 * whenever an operation has ended in failure; abort, shrink and destroy call it
 * too. */
void uli_comm_acknowledge(ulyx_comm_t *comm);

/* During a creation: this rank begins to wait for a rank. Once it has waited
 * for some time, uli_comm_check reports that to the ranks that wait for this
 * one. (owner) */
void uli_comm_notify_meeting(ulyx_comm_t *comm, int32_t rank);

/* ---- waiting (wait.c) ---------------------------------------------------- */

/* Waits until ready(context): spins spin_ns, then sleeps on the doorbell in
 * slices of at most 50 ms, checking failure and deadline. Returns SUCCESS;
 * ERR_TIMEOUT without a text (the caller names who is missing and calls
 * uli_comm_fail); or the communicator's failure. */
ulyx_status_t uli_comm_wait(ulyx_comm_t *comm, bool (*ready)(void *context),
    void *context, uli_deadline_t deadline);
/* True when ready(context) within budget_ns, in which the time does not count
 * that a yield leaves to others. Looks at the deadline, not for failure. */
bool uli_comm_spin(ulyx_comm_t *comm, bool (*ready)(void *context),
    void *context, int64_t budget_ns, uli_deadline_t deadline);

/* ---- agreement (agree.c) ------------------------------------------------- */

/* Names of collective calls, for "rank 2 called split, rank 0 plan create". */
enum uli_call {
    ULI_CALL_BARRIER = 1,
    ULI_CALL_SPLIT,
    ULI_CALL_SHRINK,
    ULI_CALL_PLAN_CREATE,
    ULI_CALL_ALLTOALL_SETUP,
    ULI_CALL_REDUCE_SETUP,
    ULI_CALL_DIST_ATTENTION,
    ULI_CALL_BATCH,
    ULI_CALL_ALLTOALL, /* takes no round: see uli_agree_passed */
    /* In the flight recorder only: */
    ULI_CALL_RESHUFFLE,
    ULI_CALL_ATTACH, /* of a window, or of an arena that grows */
    ULI_CALL_AGREE,  /* of survivors */
    ULI_CALL_DETACH,
    ULI_CALLS
};
const char *uli_call_name(enum uli_call call);

/* What a rank gives to a gather, and where the records of all ranks are
 * stored. */
struct uli_gather {
    enum uli_call call;
    ulyx_status_t status; /* this rank's outcome so far */
    const void *mine;
    int64_t bytes, max_bytes; /* of this rank; of any rank */
    /* [nranks] each, or NULL: rank p's bytes at all_p + p * max_bytes (all_p is
     * not NULL where max_bytes > 0), their number, the outcome of rank p. */
    void *all_p;
    int64_t *bytes_p;
    ulyx_status_t *status_p;
    uli_deadline_t deadline;
};
/* Every rank gives its bytes and gets the bytes of all ranks. A rank that
 * refuses its arguments takes part with its status and 0 bytes, so that a local
 * failure becomes an error of all; the refusal's text, which is the thread's
 * last error, is sent along. Allocates nothing. Returns SUCCESS; ERR_MISMATCH
 * (another call or sequence at some rank; one text on all ranks, communicator
 * usable); ERR_TIMEOUT naming the missing ranks (fails the communicator); the
 * communicator's failure. */
ulyx_status_t uli_agree_gather(
    ulyx_comm_t *comm, const struct uli_gather *gather);
/* Takes part in a gather to refuse it. outcome is the reason; its text is the
 * thread's last error. Returns outcome with that text, also where ranks made
 * different calls. Where the gather itself fails, returns that failure, with
 * this rank's own reason at the end of its text. */
ulyx_status_t uli_agree_refuse(ulyx_comm_t *comm, enum uli_call call,
    ulyx_status_t outcome, uli_deadline_t deadline);
/* Why rank p, whose status in the last gather was not SUCCESS, refused: its
 * status in words and its text. Valid until the next collective call of comm.
 * Returns text_p. */
const char *uli_agree_reason(
    ulyx_comm_t *comm, int32_t p, char text_p[ULI_REFUSAL_TEXT_BYTES]);

/* The next number among the collective calls, for a call that takes no
 * round. */
uint64_t uli_agree_number(ulyx_comm_t *comm);
/* Whether some rank is in a round without having made the call of this number:
 * that rank has passed the call and will not make it. */
bool uli_agree_passed(ulyx_comm_t *comm, uint64_t number);
/* Where uli_agree_passed is true: takes part in that round under the call's own
 * name, so that all ranks get the same error. Ranks that made another call
 * refuse this call afterwards (comm->alltoall_skip), so all ranks count it
 * alike. Returns ERR_MISMATCH, or as uli_agree_gather. */
ulyx_status_t uli_agree_join(ulyx_comm_t *comm, enum uli_call call,
    uint64_t number, uli_deadline_t deadline);

/* ---- windows (windows.c) ------------------------------------------------- */

/* Where byte `offset` of a peer's window lies in this process; NULL when the
 * window is unknown or [offset, offset + bytes) leaves it. Lock-free. */
void *uli_window_address(const ulyx_comm_t *comm, int32_t rank, uint32_t window,
    int64_t offset, int64_t bytes);
/* This rank's window that holds [address, address + bytes); false if none.
 * Lock-free. */
bool uli_window_find(const ulyx_comm_t *comm, const void *address,
    int64_t bytes, uint32_t *window_p, int64_t *offset_p);
/* The offset of [address, address + bytes) in one window of this rank; false if
 * it is not there. Lock-free. */
bool uli_window_at(const ulyx_comm_t *comm, const void *address, int64_t bytes,
    uint32_t window, int64_t *offset_p);
/* Puts memory at an address of this process into the table of (comm, rank).
 * Window 0 of this rank also sets peers[rank].control, before the window can be
 * found. Memory that peers give is mapped first, see windows.h. Errors:
 * NO_MEMORY (table full: ULI_WINDOW_CHUNK * ULI_WINDOW_CHUNKS). */
ulyx_status_t uli_window_publish(ulyx_comm_t *comm, int32_t rank,
    uint32_t window, void *base, int64_t bytes);
void uli_window_withdraw(ulyx_comm_t *comm, int32_t rank, uint32_t window);
/* note: a remote peer has a window of `bytes` bytes. Errors: NO_MEMORY. unnote:
 * the peer no longer has the window; returns the bytes that the window had. */
ulyx_status_t uli_window_note(
    ulyx_comm_t *comm, int32_t rank, uint32_t window, int64_t bytes);
int64_t uli_window_unnote(ulyx_comm_t *comm, int32_t rank, uint32_t window);

/* Delivers this rank's control segment to each mapped peer (directly within the
 * process, by descriptor to others). Used once, by creation. */
ulyx_status_t uli_windows_deliver_control(
    ulyx_comm_t *comm, uli_deadline_t deadline);
/* Unmaps all memory of peers and frees the tables and arenas. Windows of the
 * caller that are still attached (to a failed communicator) are released, or
 * quarantined for the ranks that may still store into them. Takes the
 * communicator from the registry first. At any stage of creation. Own segments
 * that arenas grew by are retired to comm->team (team.h): a peer of this
 * process may still touch them. */
void uli_windows_close(ulyx_comm_t *comm);

/* ---- deadlines ----------------------------------------------------------- */

/* A collective call of the owner begins. It has timeout_s (0: the
 * communicator's timeout), but no more time than the call around it. *outer_p
 * is for uli_comm_call_end. Returns the call's deadline. */
static inline uli_deadline_t
uli_comm_call_begin(
    ulyx_comm_t *comm, double timeout_s, uli_deadline_t *outer_p)
{
    uli_deadline_t own =
        uli_deadline_in(uli_timeout_or(timeout_s, comm->timeout_s));
    *outer_p = comm->call_deadline;
    comm->call_deadline = own < *outer_p ? own : *outer_p;
    return comm->call_deadline;
}

static inline void
uli_comm_call_end(ulyx_comm_t *comm, uli_deadline_t outer)
{
    comm->call_deadline = outer;
}

/* The deadline of a step of the owner's call: the communicator's timeout, but
 * no more than the call has left. */
static inline uli_deadline_t
uli_comm_step_deadline(const ulyx_comm_t *comm)
{
    uli_deadline_t own = uli_deadline_in(comm->timeout_s);
    return own < comm->call_deadline ? own : comm->call_deadline;
}

/* ---- arenas (arena.c) ---------------------------------------------------- */

/* A zeroed block of at least `bytes`, aligned to ULI_LINE, that every peer can
 * address. When the arenas are full, they grow by one attach. Any thread.
 * Errors: NO_MEMORY, and the errors of attach. */
ulyx_status_t uli_arena_alloc(
    ulyx_comm_t *comm, int64_t bytes, struct uli_arena_block *block_p);
/* As uli_arena_alloc, for the ranks of this node alone: other nodes may not
 * know the block. */
ulyx_status_t uli_arena_alloc_node(
    ulyx_comm_t *comm, int64_t bytes, struct uli_arena_block *block_p);
void uli_arena_free(ulyx_comm_t *comm, const struct uli_arena_block *block);
/* Withdraws from all peers and frees each arena of which no block is in use,
 * except the first. Waits for the peers, without a lock. Any thread. Errors: as
 * of detach; what was not freed can be tried again. */
ulyx_status_t uli_arena_trim(ulyx_comm_t *comm);
/* Bytes of own segments beyond the control segment. Any thread. */
int64_t uli_arena_bytes(ulyx_comm_t *comm);

#endif
