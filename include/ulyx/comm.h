/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators: the ranks that take part.
 *
 * A communicator is one rank's handle on a group of ranks. Ranks are
 * processes, threads of one process, or handles driven by one thread inside a
 * group; any mixture. All state belongs to communicators: each communicator
 * reads the settings when it is created, and keeps them. Several communicators
 * may exist in a process, and a process may hold several ranks of one
 * communicator.
 *
 * Threads: the caller serialises the calls on one communicator handle. Creation
 * and destruction of plans and of distributed attention count as such calls.
 * Abort, dump, the queries and ulyx_mem_attach/detach are exceptions: any
 * thread may call them at any time until destroy begins. Different handles are
 * independent.
 *
 * Mistakes with handles (of communicators, plans, windows, distributed
 * attention): a call with a handle that was destroyed, or that is of another
 * kind, returns ERR_INVALID_ARGUMENT; destroying a handle while another thread
 * is in a call on it returns ERR_BUSY. A destroyed handle is not always
 * detected: its memory may be reused for the next object of its kind, and the
 * old pointer then names that object.
 *
 * Deadlines: every wait of every call is bounded. timeout_s of a communicator
 * (default: ULYX_TIMEOUT, default 600 s, at most one day) applies to every call
 * that has no timeout of its own.
 *
 * Errors: if one rank passes wrong arguments, the call fails on all ranks.
 * After ERR_MISMATCH or ERR_PEER_REFUSED a communicator is as before the call.
 * After ERR_TIMEOUT, ERR_RANK_LOST or ERR_ABORTED the communicator has failed:
 * every later call returns the same status at once, except abort, shrink,
 * agree, destroy, dump and the queries, which still work.
 *
 * One kind of ERR_MISMATCH fails the communicator as well: that of ranks which
 * wait for each other in different calls (two plans, or a plan and a barrier).
 * ulyx_comm_get_async_error distinguishes the two kinds. All ranks get this
 * error about a second after they have all stopped making progress; its text
 * names two of the calls. Such ranks are found on communicators of host memory,
 * and only if one thread per rank makes all calls of the communicator;
 * otherwise they wait until their deadline.
 *
 * Fork: in a child that was forked while a communicator existed, every call on
 * a communicator, a plan, a window or an id, and every creation of one of them,
 * returns ERR_FORKED. The parent is not affected.
 *
 * Order: all ranks make the collective calls on one communicator (split,
 * shrink, agree, barrier, alltoall(v), reductions, creation of plans and of
 * distributed attention, calls of one plan) in the same order.
 */
#ifndef ULYX_COMM_H
#define ULYX_COMM_H

#include "ulyx/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where ranks meet: the root's addresses and a 128-bit secret. Plain bytes:
 * copy the id to the other ranks by any means, and keep it secret: any process
 * that has the id can join. */
#define ULYX_UNIQUE_ID_BYTES 256
typedef struct {
    unsigned char bytes[ULYX_UNIQUE_ID_BYTES];
} ulyx_unique_id_t;

/* A callback of the caller, for instance around MPI_Allgather: it gathers
 * `bytes` bytes from every rank into all[nranks][bytes], in rank order, on all
 * ranks. The library calls the callback a few times, only from the thread that
 * is in ulyx_comm_create_from_allgather. The callback returns 0 on success; any
 * other value makes the creation fail. */
typedef int (*ulyx_allgather_fn)(
    void *context, const void *mine, void *all, size_t bytes);

typedef struct {
    size_t size;         /* sizeof(ulyx_comm_params_t), set by the macro */
    double timeout_s;    /* deadline of this creation and of the communicator's
                          * calls, seconds, at most 86400; 0 = ULYX_TIMEOUT,
                          * in split and shrink that of comm */
    int32_t memory_kind; /* ULYX_MEMORY_HOST (default) or ULYX_MEMORY_CUDA:
                          * where all ranks' tensors live */
    int32_t device;      /* ordinal of a CUDA device; -1 (by the macro) = the
                          * current one; ignored on the host */
    const char *name;    /* shown in logs and errors, copied; NULL = "comm" */
    uint64_t flags;      /* ULYX_COMM_..., or'ed */
} ulyx_comm_params_t;
#define ULYX_COMM_PARAMS_INIT                                                  \
    {                                                                          \
        sizeof(ulyx_comm_params_t), 0, 0, -1, 0, 0                             \
    }
/* More than one thread of a rank will make calls on the communicator. Without
 * this flag the library notices a second thread only by the first call of that
 * thread. Set the flag if, before this first call, another thread may wait in a
 * call that can end only after it: the library would take such ranks for ranks
 * that wait for each other in different calls. */
#define ULYX_COMM_CONCURRENT UINT64_C(1)

/* Opens a meeting point in this process; the id describes it. A thread of the
 * library serves the meeting, and waits for the ranks until the deadline
 * (ULYX_TIMEOUT from now). An id serves one communicator. A second use of the
 * id is refused (ERR_INVALID_ARGUMENT). In this process the refusal comes at
 * once, until 1024 later ids of this process have ended. In other processes it
 * comes at once while the thread still answers: until the deadline, the end of
 * this process, or the moment when 8 later ids have served; with ULYX_PORT set,
 * only until the ranks have met. ULYX_SOCKET_IFNAME and ULYX_SOCKET_FAMILY
 * choose the interface. The port is ULYX_PORT, or a free port if ULYX_PORT is
 * not set.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT; ERR_SYSTEM when no interface fits or
 * no port is free (the text names them); ERR_NO_MEMORY; ERR_FORKED. */
ULYX_API ulyx_status_t ulyx_unique_id_create(ulyx_unique_id_t *id_p);

/* Ends an id that this process made: its thread and its port are released
 * before this call returns, or at most a second later. Optional: an id ends by
 * itself at its deadline. Any thread may call this at any time, once per id.
 * Ranks that have joined and wait for the others get ERR_ABORTED. Ranks that
 * come later get ERR_INVALID_ARGUMENT at once if they are in this process; in
 * other processes they search for the root until their own deadline. A
 * communicator that was already made is not affected.
 * returns: SUCCESS, also where the id has served or its deadline is over;
 * ERR_INVALID_ARGUMENT (NULL, damaged, destroyed before, not made by this
 * process, or an id that ended by itself so long ago that 1024 later ids of
 * this process have ended too); ERR_VERSION; ERR_FORKED. */
ULYX_API ulyx_status_t ulyx_unique_id_destroy(const ulyx_unique_id_t *id);

/* The id as text for ULYX_COMM_ID or a launcher's argument, and back.
 * text_p has text_bytes bytes; 600 always suffice.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT (too small, or not an id). */
ULYX_API ulyx_status_t ulyx_unique_id_to_string(
    const ulyx_unique_id_t *id, char *text_p, size_t text_bytes);
ULYX_API ulyx_status_t ulyx_unique_id_from_string(
    const char *text, ulyx_unique_id_t *id_p);

/* Collective over nranks ranks that hold the same id. params may be NULL.
 * Blocks until all have joined (inside a group: queues).
 * ownership: *comm_p is the caller's, to destroy; on error nothing is kept.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT (returned at once: rank is outside
 * [0, nranks), or the id has served or was destroyed before; returned after all
 * ranks have joined: params are wrong here or at the rank that the text names);
 * ERR_ABORTED (the id was destroyed during the call);
 * ERR_MISMATCH (two processes that give the same rank, different nranks, or
 * different settings that must agree); ERR_AUTH; ERR_VERSION; ERR_TIMEOUT
 * naming the missing ranks; ERR_RANK_LOST; ERR_UNSUPPORTED (no transport
 * reaches a rank: the text has the reason of each transport; CUDA memory in a
 * build without CUDA kernels, or without a driver); ERR_SYSTEM; ERR_NO_MEMORY;
 * ERR_FORKED. */
ULYX_API ulyx_status_t ulyx_comm_create(const ulyx_unique_id_t *id,
    int32_t nranks, int32_t rank, const ulyx_comm_params_t *params,
    ulyx_comm_t **comm_p);

/* As ulyx_comm_create, but the ranks meet through the caller's allgather
 * instead of an id. returns: as create, and ERR_SYSTEM when the callback
 * fails. */
ULYX_API ulyx_status_t ulyx_comm_create_from_allgather(
    ulyx_allgather_fn allgather, void *context, int32_t nranks, int32_t rank,
    const ulyx_comm_params_t *params, ulyx_comm_t **comm_p);

/* The process's place in the job of its launcher (torchrun, Slurm, ...). */
typedef struct {
    size_t size;    /* sizeof(ulyx_launch_t), set by the macro */
    int32_t rank;   /* 0 without a launcher */
    int32_t nranks; /* 0 without a launcher; also 0 with PMIx, where only the
                     * launcher's library has the number: a communicator reports
                     * it */
    int32_t local_rank;   /* among the ranks of this node; -1 = not given */
    int32_t local_nranks; /* on this node; 0 = not given */
    const char *launcher; /* "torchrun", "Slurm", ...: a static string; NULL =
                           * none is recognised */
} ulyx_launch_t;
#define ULYX_LAUNCH_INIT                                                       \
    {                                                                          \
        sizeof(ulyx_launch_t), 0, 0, -1, 0, 0                                  \
    }

/* Reports whether a launcher has started this process, and as which rank, by
 * the table of launchers that ulyx_comm_create_from_env uses. A program that
 * starts its ranks itself when there is no launcher calls this function instead
 * of reading the launchers' variables. It reads environment variables and
 * setting files only. Not collective; any thread.
 * returns: SUCCESS, also where there is no launcher; ERR_INVALID_ARGUMENT (a
 * launcher's values are not a rank and a number of ranks; a rank above 0
 * without a number of ranks; two launchers contradict each other; launch_p is
 * NULL or its size is wrong; a setting is wrong); ERR_NO_MEMORY; ERR_FORKED.
 * Two launchers contradict each other where this process is alone by one of
 * them, and one of several ranks by the other. Each process might then run the
 * whole job. The text names what to set or unset. */
ULYX_API ulyx_status_t ulyx_launch_query(ulyx_launch_t *launch_p);

/* As ulyx_comm_create, with rank, size and meeting point from the launcher's
 * environment (ULYX_RANK and ULYX_NRANKS, torchrun, Open MPI, PMIx, Flux, PALS,
 * MVAPICH2, PMI-1, Slurm; docs/USING.md has the order). The launcher and the
 * values that were used are logged at INFO. returns: as create;
 * ERR_INVALID_ARGUMENT when no launcher is recognised (the text lists what was
 * looked for), or as ulyx_launch_query; ERR_AUTH when the only meeting point
 * has no secret and ULYX_INSECURE is not 1. */
ULYX_API ulyx_status_t ulyx_comm_create_from_env(
    const ulyx_comm_params_t *params, ulyx_comm_t **comm_p);

/* Creates a communicator whose nranks ranks are all in this process. comms_p[r]
 * is the handle of rank r. Each handle may have a thread of its own, or one
 * thread may use all handles in groups. Not collective: one call creates all
 * ranks. ownership: each handle is destroyed on its own.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT; ERR_NO_MEMORY; ERR_SYSTEM;
 * ERR_FORKED; on error no handle is kept. */
ULYX_API ulyx_status_t ulyx_comm_create_local(
    int32_t nranks, const ulyx_comm_params_t *params, ulyx_comm_t **comms_p);

/* Collective over comm: ranks of one color form a new communicator, ordered
 * by (key, old rank); color < 0 gives *new_p = NULL. comm stays as it is.
 * The new communicator has comm's flags in addition to those of params, and
 * comm's timeout and name where params gives none. params may be NULL: memory
 * kind and device are then comm's too.
 * returns: as create, and comm's own failure; ERR_PEER_REFUSED naming a rank
 * whose arguments are wrong. If the creation of the new communicator fails with
 * ERR_TIMEOUT or ERR_RANK_LOST, here or at the rank that the text names, comm
 * stays as it is. Errors name ranks by their numbers in comm. */
ULYX_API ulyx_status_t ulyx_comm_split(ulyx_comm_t *comm, int32_t color,
    int32_t key, const ulyx_comm_params_t *params, ulyx_comm_t **new_p);

/* Collective over the ranks of a failed (or healthy) communicator that still
 * live: forms a new communicator of these ranks, in old rank order; no window
 * is attached to it yet. timeout_s limits the whole call. Ranks known to be
 * dead are not waited for. Ranks that do not call within half of timeout_s are
 * left out for good: their later calls return ERR_RANK_LOST. All other ranks
 * get the same result: a new communicator of the same ranks, or an error. If a
 * rank dies during the call, the others start over without it. comm must still
 * be destroyed. A rank that hangs is left out if another rank of its node runs.
 * A node is not left out while none of its processes answers and at least one
 * of them is not known to have ended: the ranks of that node may have formed a
 * communicator without the ranks of other nodes. The call then ends with
 * ERR_TIMEOUT, whose text names the ranks of that node, and may be made again.
 * returns: as create; ERR_RANK_LOST if this rank itself was left out;
 * ERR_MISMATCH on all ranks if some of them called agree. */
ULYX_API ulyx_status_t ulyx_comm_shrink(
    ulyx_comm_t *comm, const ulyx_comm_params_t *params, ulyx_comm_t **new_p);

/* How ulyx_comm_agree combines the values of all ranks: bitwise and, smallest,
 * largest. */
typedef int32_t ulyx_agree_t;
enum {
    ULYX_AGREE_AND = 0,
    ULYX_AGREE_MIN = 1,
    ULYX_AGREE_MAX = 2,
};

/* Collective over the ranks of a failed (or healthy) communicator that still
 * live: combines the values `mine` of these ranks. *value_p is the same on each
 * of them, even if ranks die during the call; *nranks_p (may be NULL) is the
 * number of ranks whose values it combines. For example, the smallest of the
 * ranks' last completed steps is a step that all ranks have completed, from
 * which they can continue after a failure. Does not wait for dead ranks. A rank
 * that does not call within half of the communicator's timeout_s is left out,
 * of a later shrink too. Whatever the call returns, the communicator is as
 * before the call.
 * returns: SUCCESS; ERR_RANK_LOST: this rank was left out; ERR_TIMEOUT: as for
 * shrink; the next call of agree continues this one and keeps the value that
 * this rank gave first; ERR_INVALID_ARGUMENT (how is wrong, value_p is NULL;
 * the other ranks get ERR_PEER_REFUSED); ERR_MISMATCH on all ranks (different
 * values of how, or some ranks called shrink); ERR_NO_MEMORY; ERR_UNSUPPORTED
 * (more than 32768 ranks); ERR_FORKED. */
ULYX_API ulyx_status_t ulyx_comm_agree(ulyx_comm_t *comm, uint64_t mine,
    ulyx_agree_t how, uint64_t *value_p, int32_t *nranks_p);

/* Waits for all ranks. returns: SUCCESS; ERR_TIMEOUT naming the missing
 * ranks; ERR_RANK_LOST; ERR_ABORTED; ERR_MISMATCH (a rank is in another
 * call). */
ULYX_API ulyx_status_t ulyx_comm_barrier(ulyx_comm_t *comm);

/* Fails the communicator here and at all peers that can be reached: calls that
 * wait return ERR_ABORTED, whose text names this rank. Takes a bounded time.
 * Any thread may call this, any number of times. A signal handler may call this
 * too, unless it has interrupted destroy of the communicator.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT. */
ULYX_API ulyx_status_t ulyx_comm_abort(ulyx_comm_t *comm);

/* Releases the handle. Local, not collective; NULL is fine. Plans of the
 * communicator must be destroyed and windows detached before. Peers need not
 * have destroyed their handles, but no peer may still be in a call with this
 * rank: that call would end with ERR_RANK_LOST. A barrier before destroy
 * ensures this.
 * When a process exits (it calls exit, or main returns) without destroy, its
 * peers are notified that the rank has left, as by destroy; the rank does not
 * count as lost. The rank does count as lost if a thread is in a call of the
 * communicator, an operation is in flight, a call is queued, a log callback
 * calls exit, or the communicator is of device memory.
 * returns: SUCCESS; ERR_BUSY when a plan, window or operation still exists, or
 * a call is queued in a group or in flight in another thread (the text names
 * the cause; the handle stays valid); ERR_INVALID_ARGUMENT (destroyed before).
 * On a failed communicator windows are released or quarantined and the call
 * succeeds. */
ULYX_API ulyx_status_t ulyx_comm_destroy(ulyx_comm_t *comm);

/* This handle's rank, and how many ranks there are.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT (a NULL pointer); ERR_FORKED. */
ULYX_API ulyx_status_t ulyx_comm_get_rank(
    const ulyx_comm_t *comm, int32_t *rank_p);
ULYX_API ulyx_status_t ulyx_comm_get_nranks(
    const ulyx_comm_t *comm, int32_t *nranks_p);

/* *status_p: SUCCESS while the communicator is healthy, else the status with
 * which it failed; ulyx_last_error of the calling thread is then the cause.
 * Never blocks. */
ULYX_API ulyx_status_t ulyx_comm_get_async_error(
    const ulyx_comm_t *comm, ulyx_status_t *status_p);

/* The ranks known to be dead, ascending: ranks_p[0 .. min(capacity, count)).
 * *count_p is the number of all dead ranks; ranks_p may be NULL if capacity is
 * 0. */
ULYX_API ulyx_status_t ulyx_comm_get_dead_ranks(const ulyx_comm_t *comm,
    int32_t capacity, int32_t *ranks_p, int32_t *count_p);

/* Bytes of host memory that the library holds for this rank of the
 * communicator: its control segment, its arenas and tables, the control
 * segments of peers that it has mapped, and replicas of those of other
 * nodes. */
ULYX_API ulyx_status_t ulyx_comm_get_memory(
    const ulyx_comm_t *comm, int64_t *bytes_p);

/* Releases host memory that the library keeps for later use and does not need
 * at present: rings beyond those that the existing plans share, and arenas of
 * which no block is in use, which the peers are requested to unmap. Not
 * collective: a rank may trim at any time, also while other threads execute
 * plans; the call is never queued in a group. Memory that a peer may still
 * touch is kept, for instance that of a plan which the peer has not destroyed
 * yet; trim again after a barrier. Rings of alltoall and device memory are kept
 * too. Trim is slow (one round trip per rank and arena): use it after many
 * plans were destroyed, not in every step.
 * returns: SUCCESS; ERR_TIMEOUT naming a rank that did not unmap an arena,
 * ERR_RANK_LOST (both fail the communicator); the status of a communicator that
 * has failed before; ERR_INVALID_ARGUMENT; ERR_FORKED. */
ULYX_API ulyx_status_t ulyx_comm_trim(ulyx_comm_t *comm);

/* Writes the flight recorders of all communicators of this process as JSON: the
 * last calls of each rank, how far they are and for which ranks they wait.
 * `ulyx_info report` reads the files of many processes together. path: a file's
 * name, in which %h becomes the host, %p the process and %r its rank in the
 * oldest communicator; NULL: the name of ULYX_DUMP_FILE. The file is replaced
 * as a whole; its folder must exist. Not collective; any thread, but not a
 * signal handler (for signals there is ULYX_DUMP_SIGNAL). Works on a
 * communicator that has failed, too. Takes as long as the file system needs.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT (comm is NULL, path is empty, or path
 * is NULL and ULYX_DUMP_FILE is not set); ERR_SYSTEM (the text has the file and
 * the reason, for instance that path is not a regular file); ERR_NO_MEMORY;
 * ERR_FORKED. */
ULYX_API ulyx_status_t ulyx_comm_dump(ulyx_comm_t *comm, const char *path);

/* Between start and end, the collective calls of this thread (create, split,
 * shrink, agree, barrier, creation and execute of plans, creation, forward and
 * backward of distributed attention, alltoall(v), reductions) are queued: they
 * check their arguments and return, and their outputs are written at the end of
 * the group. Structs and arrays of the caller are copied when a call is queued;
 * tensors are not. The end runs all queued calls together and returns the first
 * error, so one thread can drive many ranks. Groups nest; the outermost end
 * runs the calls. returns: SUCCESS; end without start: ERR_INVALID_ARGUMENT. */
ULYX_API ulyx_status_t ulyx_group_start(void);
ULYX_API ulyx_status_t ulyx_group_end(void);

#ifdef __cplusplus
}
#endif
#endif
