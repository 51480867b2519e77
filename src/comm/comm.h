/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicator as the layers above see it: peers, windows, arenas,
 * agreement, failure. Fields marked (owner) are touched by the thread that
 * owns the handle only; _Atomic ones and what windows.h says by any thread.
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

/* One slot: id = index in the table of its rank. base = NULL when free; bytes
 * is written before base (release), and read between two equal reads of base:
 * slots are used again. bytes < 0 with base = NULL: reserved by its owner. */
struct uli_window {
    _Atomic(void *) base; /* as mapped in this process */
    _Atomic int64_t bytes;
    _Atomic bool mapped; /* by the peer's transport: unmapped when withdrawn */
    _Atomic bool on_device;         /* an address of this rank's device */
    _Atomic(void *) device_mapping; /* an import: unmapped when withdrawn */
};
/* Slots in chunks that are published once and live until destroy. */
struct uli_window_table {
    _Atomic(struct uli_window *) chunks[ULI_WINDOW_CHUNKS];
    _Atomic uint32_t high; /* no slot at or above it was ever used */
};

/* ---- peers --------------------------------------------------------------- */

struct uli_peer {
    struct uli_identity identity;
    int32_t node; /* dense: order of the first rank of each node */
    bool same_process;
    const struct uli_tr_ops *map;        /* MAP transport, NULL if none reaches:
                                          * the peer is remote, see remote.h */
    const struct uli_tr_ops *map_device; /* MAP_DEVICE transport, or NULL */
    /* Mapped here, the own block for rank itself; stored by the service. Of a
     * remote peer: a replica in this process, kept by its messages. */
    _Atomic(struct uli_control *) control;
    struct uli_window_table windows; /* slot 0 = control segment and arena */
    _Atomic int32_t dead;            /* proved dead */
    bool named;                      /* scratch of agreements (rounds.c) */
    _Atomic int32_t number;          /* see uli_comm_number */
};

/* ---- arenas: counters, slots and rings of plans -------------------------- */

/* A block of a window of mine: what peers need to find it is (window,
 * offset). */
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
    struct uli_planner *planner; /* what plans choose their schedule by */
    double timeout_s;
    int32_t memory_kind;
    int32_t device;   /* CUDA ordinal; host: as it was given */
    int32_t cores;    /* this rank's part of those that it shares with others */
    int64_t spin_ns;  /* 0 where more ranks share this one's cores than there
                       * are cores */
    bool one_process; /* all ranks are threads of this process */
    bool by_address;  /* peers need no descriptor to map this rank's memory */
    _Atomic bool connected; /* peers' transports are chosen */
    _Atomic bool made;      /* by a meeting: the caller has it */
    _Atomic int32_t leaves; /* enum uli_left: so this rank does */
    int32_t nnodes;
    struct uli_binding binding; /* of own threads and memory; see place.h */
    bool one_machine; /* some nodes share a machine: they are made up */

    struct uli_peer *peers;      /* [nranks], own rank included */
    struct uli_segment segment;  /* control block, then arena */
    struct uli_control *control; /* == segment.address */

    struct uli_team *team;     /* ranks of this process; see team.h */
    struct uli_net *net;       /* NULL unless peers are remote; see remote.h */
    struct uli_remote *remote; /* private to remote*.c and nodes.c */
    struct uli_gpu *gpu;       /* of CUDA memory; NULL on the host */
    struct uli_comm_batch *batch; /* NULL until a plan needs it; see batch.h */

    _Atomic int32_t failed;      /* status of the first failure, or 0 */
    _Atomic int32_t failed_rank; /* its cause, or -1 */
    atomic_bool failing;         /* claimed: failure_text is being written */
    char failure_text[ULI_FAILURE_BYTES]; /* complete once failed is set */
    char abort_text[32];                  /* of an abort at this rank */
    atomic_bool abort_unsaid;             /* no log line about it yet */
    pthread_mutex_t failure_lock;         /* control->late */

    _Atomic(const void *) caller;       /* private to board.c, as the next: */
    _Atomic(const void *) board_holder; /* a call, or NULL */
    _Atomic int32_t queued;             /* calls in groups */
    struct uli_suspicion *suspicion;    /* private to differ.c */
    uint64_t flags;                     /* ULYX_COMM_... */

    bool dump_held; /* private to dump.c, as the next three: */
    atomic_bool dump_wanted;
    _Atomic uint64_t dump_number; /* of the failure's request */
    _Atomic int64_t dump_until_ns;

    uint64_t agree_round;    /* (owner) last round posted */
    uint64_t agree_recorded; /* (owner) call that agrees, in the recorder */
    uint64_t sequence;       /* (owner) of collective calls */
    /* (owner) of the call that it is in, INT64_MAX outside of any: what the
     * call makes on its way (arenas, plans) has no more time than the call. */
    uli_deadline_t call_deadline;

    pthread_mutex_t lock;        /* windows (attach, detach), arenas */
    struct uli_list arenas;      /* under lock, private to arena.c */
    struct uli_list attachments; /* under lock, private to windows.c */
    int32_t nattached;           /* under lock, by the caller */
    _Atomic int32_t nplans;      /* plans alive: destroy is refused */
    _Atomic int32_t nops; /* operations in flight, kept by the request engine */
    struct uli_list retired_plans; /* (owner) private to collectives */
    void *alltoall;                /* (owner) private to collectives */
    void (*alltoall_destroy)(struct ulyx_comm *comm);
    _Atomic(struct uli_copy_choice *) copies; /* private to collectives */
    struct uli_ring_pool *ring_pool;          /* private to collectives */
    void (*ring_pool_destroy)(struct ulyx_comm *comm);
    /* Refuses the alltoall that other ranks have called. */
    void (*alltoall_skip)(struct ulyx_comm *comm, uli_deadline_t deadline);
    void (*retired_destroy)(struct ulyx_comm *comm);
    struct uli_bootstrap *meeting; /* while it is created between two gathers */
    int32_t meeting_awaits; /* (owner) a rank, or -1: nobody, or said already */
    int64_t meeting_still_ns; /* (owner) when it is to be said */
    bool served; /* known to the service: ranks of other processes exist */
    struct uli_list registry; /* private to service.c */
};

/* ---- life (comm.c) ------------------------------------------------------- */

/* Builds a communicator over an open bootstrap, which stays the caller's.
 * Collective. On error nothing is kept and all ranks fail. */
ulyx_status_t uli_comm_create(struct uli_bootstrap *bootstrap, int32_t nranks,
    int32_t rank, const ulyx_comm_params_t *params, uli_deadline_t deadline,
    ulyx_comm_t **comm_p);
/* Instead of create, at a rank whose arguments are wrong: the others learn of
 * it and do not wait. outcome has its text set and is returned. */
ulyx_status_t uli_comm_refuse(struct uli_bootstrap *bootstrap,
    ulyx_status_t outcome, uli_deadline_t deadline);
/* All ranks in this process, no bootstrap. */
ulyx_status_t uli_comm_create_local(
    int32_t nranks, const ulyx_comm_params_t *params, ulyx_comm_t **comms_p);
ulyx_status_t uli_comm_destroy(ulyx_comm_t *comm);
/* The process ends: may peers in other processes be told that this rank leaves,
 * as if it had destroyed the communicator? Not where an operation is in flight,
 * nor of a failed one, nor in a forked child, and never of device memory: there
 * peers' kernels may wait for words that nobody writes, which only a failure
 * ends. No call is in the communicator. */
bool uli_comm_may_exit(const ulyx_comm_t *comm);
/* Then, in two steps: tells the peers of this node; and, after its plans have
 * left, the others, and ends the network. It can still be destroyed. */
void uli_comm_exit_node(ulyx_comm_t *comm);
void uli_comm_exit_net(ulyx_comm_t *comm);
/* "has destroyed its communicator", of one that does not stay. */
const char *uli_left_text(enum uli_left how);
/* outcome: as uli_plan_create's; a rank that refuses takes part with it, and
 * params is not looked at. */
ulyx_status_t uli_comm_split(ulyx_comm_t *comm, int32_t color, int32_t key,
    ulyx_status_t outcome, const ulyx_comm_params_t *params,
    ulyx_comm_t **new_p);
ulyx_status_t uli_comm_shrink(
    ulyx_comm_t *comm, const ulyx_comm_params_t *params, ulyx_comm_t **new_p);
ulyx_status_t uli_comm_barrier(ulyx_comm_t *comm);
/* Async-signal-safe. */
void uli_comm_abort(ulyx_comm_t *comm);
/* Host bytes held: struct, tables, segment, arenas, mapped peers' ones. */
int64_t uli_comm_bytes(ulyx_comm_t *comm);

/* By which errors name a rank: its rank, but while the communicator is being
 * made by a split or a shrink its rank in the parent, for the caller does not
 * know the ranks of the child yet. Any thread. */
static inline int32_t
uli_comm_number(const ulyx_comm_t *comm, int32_t rank)
{
    return atomic_load_explicit(
        &comm->peers[rank].number, memory_order_relaxed);
}

/* ---- failure (failure.c) ------------------------------------------------- */

/* SUCCESS, or the status of the failure with its text as last error. Reads
 * the poison that peers posted. Cheap: call in every wait loop. Any thread. */
ulyx_status_t uli_comm_check(ulyx_comm_t *comm);
/* The same after a look at what the device has noted. Takes a lock: not for
 * wait loops. Any thread. */
ulyx_status_t uli_comm_look(ulyx_comm_t *comm);

/* The status of the failure that the communicator has, with its text as last
 * error; SUCCESS: it has none. Looks for no new one. Any thread. */
ulyx_status_t uli_comm_failure(ulyx_comm_t *comm);
/* In words, once it has one; *text_p may hold them. Any thread. */
const char *uli_comm_failure_text(
    ulyx_comm_t *comm, char text_p[ULI_FAILURE_BYTES]);

/* Fails the communicator: the first call wins, its text is kept; posts poison
 * to all peers, but for TIMEOUT (rank = who is the cause, or -1). By MISMATCH:
 * uli_differ_fail alone.
 * Any thread. Returns the status of the first failure, text set. */
ulyx_status_t uli_comm_fail(ulyx_comm_t *comm, ulyx_status_t status,
    int32_t rank, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The log line of an abort, unless it has been written. Any thread. */
void uli_comm_say_abort(ulyx_comm_t *comm);

/* Fails it by TIMEOUT: "reshuffle, call 7: timed out waiting for ranks 3, 5 to
 * reach it, by the deadline of rank 0" (late.h). The format is of what waited.
 * What late names is kept for ranks that wait for this one in turn. Any thread.
 * Returns as uli_comm_fail. */
ulyx_status_t uli_comm_fail_late(ulyx_comm_t *comm, const struct uli_late *late,
    const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same as an error of the call alone: the communicator does not fail. */
ulyx_status_t uli_comm_late_error(
    const ulyx_comm_t *comm, const struct uli_late *late, const char *what);
/* Whom a rank of this node waited for when its deadline was over and it failed;
 * NULL: it has not said. It may lie in memory that the rank writes: to be taken
 * by uli_late_take. Any thread. */
const struct uli_late *uli_comm_noted_late(
    const ulyx_comm_t *comm, int32_t rank);
/* Whom a rank of this node waits for, or did when its deadline was over, by
 * what it has noted or its flight recorder; -1: nobody, or not known. Any
 * thread. */
int32_t uli_comm_awaits(const ulyx_comm_t *comm, int32_t rank);

/* Of poison (control.h). */
static inline ulyx_status_t
uli_poison_status(uint64_t poison)
{
    return (ulyx_status_t)(uint32_t)(poison >> 32);
}
/* Posts poison to all peers, without failing by it here. */
void uli_comm_spread_poison(ulyx_comm_t *comm, uint64_t poison);
/* The same with what another node's rank has told with it: of an abort whom the
 * rank waited for, of calls that differ which. */
void uli_comm_hear_poison(
    ulyx_comm_t *comm, uint64_t poison, const void *told, size_t bytes);

/* Fails it by the poison that a peer has posted, if one has. For one that looks
 * at it for others: no wait, no meeting. Any thread. */
void uli_comm_take_poison(ulyx_comm_t *comm);

/* Marks a rank dead and fails the communicator with RANK_LOST. */
void uli_comm_rank_died(ulyx_comm_t *comm, int32_t rank, const char *how);

/* Tells peers that this rank has left all operations of a failed communicator
 * (control->abort_seen), once nops is 0. The request engine calls it whenever
 * an operation has ended in failure; abort, shrink and destroy call it too. */
void uli_comm_acknowledge(ulyx_comm_t *comm);

/* During a creation: it begins to wait for a rank. Those that wait for this one
 * are told so, by uli_comm_check, once it has stood still. (owner) */
void uli_comm_tell_meeting(ulyx_comm_t *comm, int32_t rank);

/* ---- waiting (wait.c) ---------------------------------------------------- */

/* Waits until ready(context): spins spin_ns, then sleeps on the doorbell in
 * slices of at most 50 ms, checking failure and deadline.
 * returns SUCCESS; ERR_TIMEOUT without a text (the caller names who is
 * missing and calls uli_comm_fail); or the communicator's failure. */
ulyx_status_t uli_comm_wait(ulyx_comm_t *comm, bool (*ready)(void *context),
    void *context, uli_deadline_t deadline);

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
    ULI_CALL_ALLTOALL, /* which takes no round: see uli_agree_astray */
    /* In the flight recorder only: */
    ULI_CALL_RESHUFFLE,
    ULI_CALL_ATTACH, /* of a window, or of an arena that grows */
    ULI_CALL_AGREE,  /* of survivors */
    ULI_CALL_DETACH,
    ULI_CALLS
};
const char *uli_call_name(enum uli_call call);

/* What a rank gives to a gather, and where it wants what all give. */
struct uli_gather {
    enum uli_call call;
    ulyx_status_t status; /* its own outcome so far */
    const void *mine;
    int64_t bytes, max_bytes; /* of mine; of any rank's */
    /* [nranks], or NULL: rank p's bytes at p * max_bytes (not NULL where that
     * is more than 0), their number, its outcome. */
    void *all_p;
    int64_t *bytes_p;
    ulyx_status_t *status_p;
    uli_deadline_t deadline;
};
/* Every rank gives its bytes and gets those of all. One that refuses its
 * arguments takes part with its status and 0 bytes, so that a local failure
 * becomes everybody's; its text, which is the thread's last error, goes along.
 * Allocates nothing.
 * returns SUCCESS; ERR_MISMATCH (other call or sequence somewhere, same text
 * on all ranks, communicator usable); ERR_TIMEOUT naming the missing ranks
 * (fails the communicator); the communicator's failure. */
ulyx_status_t uli_agree_gather(
    ulyx_comm_t *comm, const struct uli_gather *gather);
/* Takes part in a gather to refuse it, for the outcome whose text is the
 * thread's last error.
 * returns the outcome with that text, also where ranks made different calls;
 * where the gather itself fails that failure, with this rank's own cause at the
 * end of its text. */
ulyx_status_t uli_agree_refuse(ulyx_comm_t *comm, enum uli_call call,
    ulyx_status_t outcome, uli_deadline_t deadline);
/* What rank p, whose status in the last gather was no SUCCESS, refused for: its
 * status in words and its text. Before the next collective call of comm.
 * returns text_p. */
const char *uli_agree_reason(
    ulyx_comm_t *comm, int32_t p, char text_p[ULI_REFUSAL_TEXT_BYTES]);

/* For a call that takes no round: its number among the collective calls. */
uint64_t uli_agree_number(ulyx_comm_t *comm);
/* Whether a rank is in a round and has not made the call of this number: it
 * will not come to it. */
bool uli_agree_astray(ulyx_comm_t *comm, uint64_t number);
/* Then: takes part in that round under the call's own name, so that all ranks
 * get the same error. Those that made another call refuse this one afterwards
 * (comm->alltoall_skip), so all ranks count it alike.
 * returns ERR_MISMATCH, or as uli_agree_gather. */
ulyx_status_t uli_agree_join(ulyx_comm_t *comm, enum uli_call call,
    uint64_t number, uli_deadline_t deadline);

/* ---- windows (windows.c) ------------------------------------------------- */

/* Where byte `offset` of a peer's window lies in this process; NULL when the
 * window is unknown or [offset, offset + bytes) leaves it. Lock-free. */
void *uli_window_address(const ulyx_comm_t *comm, int32_t rank, uint32_t window,
    int64_t offset, int64_t bytes);
/* My window that holds [address, address + bytes): false if none.
 * Lock-free. */
bool uli_window_find(const ulyx_comm_t *comm, const void *address,
    int64_t bytes, uint32_t *window_p, int64_t *offset_p);
/* Puts memory that is at an address of this process into the table of (comm,
 * rank): window 0 of the own rank, which also sets peers[rank].control, before
 * it can be found. What peers give is mapped, see windows.h.
 * Errors: NO_MEMORY (table full: ULI_WINDOW_CHUNK * ULI_WINDOW_CHUNKS). */
ulyx_status_t uli_window_publish(ulyx_comm_t *comm, int32_t rank,
    uint32_t window, void *base, int64_t bytes);
void uli_window_withdraw(ulyx_comm_t *comm, int32_t rank, uint32_t window);
/* Of a remote peer: a window of so many bytes; or none, returning how many it
 * had. Errors: NO_MEMORY. */
ulyx_status_t uli_window_note(
    ulyx_comm_t *comm, int32_t rank, uint32_t window, int64_t bytes);
int64_t uli_window_unnote(ulyx_comm_t *comm, int32_t rank, uint32_t window);

/* The control segments of all mapped peers: delivers mine to each (directly
 * within the process, by descriptor to others). Used once, by creation. */
ulyx_status_t uli_windows_deliver_control(
    ulyx_comm_t *comm, uli_deadline_t deadline);
/* Unmaps everything of peers and frees the tables and arenas; windows of the
 * caller that are still attached (to a failed communicator) are released, or
 * quarantined for the ranks that may still store into them. Takes the
 * communicator from the registry first. At any stage of creation. Own
 * segments that arenas grew by are retired with comm->team (team.h): a peer of
 * this process may still touch them. */
void uli_windows_close(ulyx_comm_t *comm);

/* ---- deadlines ----------------------------------------------------------- */

/* A collective call of the owner begins: it has timeout_s (0: the
 * communicator's), and no more than the call around it. *outer_p is for end.
 * returns its deadline. */
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

/* Of a step of the owner's call: the communicator's, and no more than the call
 * has. */
static inline uli_deadline_t
uli_comm_step_deadline(const ulyx_comm_t *comm)
{
    uli_deadline_t own = uli_deadline_in(comm->timeout_s);
    return own < comm->call_deadline ? own : comm->call_deadline;
}

/* ---- arenas (arena.c) ---------------------------------------------------- */

/* A zeroed block of at least `bytes`, aligned to ULI_LINE, that every peer
 * can address; grows by one attach when full. Any thread.
 * Errors: NO_MEMORY, and those of attach. */
ulyx_status_t uli_arena_alloc(
    ulyx_comm_t *comm, int64_t bytes, struct uli_arena_block *block_p);
/* The same for the ranks of this node alone: other nodes may not know it. */
ulyx_status_t uli_arena_alloc_node(
    ulyx_comm_t *comm, int64_t bytes, struct uli_arena_block *block_p);
void uli_arena_free(ulyx_comm_t *comm, const struct uli_arena_block *block);
/* Takes back from all peers and frees the arenas of which no block is taken,
 * but the first. Waits for the peers, without a lock. Any thread. Errors: as
 * detach's; what is left can be tried again. */
ulyx_status_t uli_arena_trim(ulyx_comm_t *comm);
/* Bytes of own segments beyond the control segment. Any thread. */
int64_t uli_arena_bytes(ulyx_comm_t *comm);

#endif
