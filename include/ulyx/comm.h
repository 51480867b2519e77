/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators: the ranks that take part.
 *
 * A communicator is one rank's handle on a group of ranks. Ranks are
 * processes, threads of one process, or handles driven by one thread inside a
 * group; any mixture. All state belongs to communicators: settings are read
 * when one is created and kept in it, several may exist in a process, and a
 * process may hold several ranks of one.
 *
 * Threads: calls on one communicator handle are serialised by the caller,
 * but for abort, the queries and ulyx_mem_attach/detach, which any thread may
 * call at any time until destroy begins. Different handles are independent.
 *
 * Mistakes with handles (of communicators, plans, windows, distributed
 * attention): a handle that was destroyed, or that is of another kind, is
 * refused with ERR_INVALID_ARGUMENT; destroying a handle while another thread
 * is in a call on it is refused with ERR_BUSY. The first is no promise: the
 * memory of a destroyed object may serve the next object of its kind, and the
 * old pointer then names that object.
 *
 * Deadlines: every wait of every call is bounded. timeout_s of a communicator
 * (default: ULYX_TIMEOUT, default 600 s, at most one day) holds for every call
 * that is not given a timeout of its own.
 *
 * After ERR_MISMATCH or ERR_PEER_REFUSED a communicator is as before the call;
 * arguments that one rank alone gets wrong end the call on all ranks. After
 * ERR_TIMEOUT, ERR_RANK_LOST or ERR_ABORTED it has failed: every later call
 * returns the same status at once; only abort, shrink, agree, destroy and the
 * queries remain. A communicator has also failed after the ERR_MISMATCH of
 * ranks that wait for each other in different calls (two plans, or a plan and a
 * barrier); ulyx_comm_get_async_error distinguishes the two kinds of
 * ERR_MISMATCH. All ranks get this error about a second after they stand
 * still, and its text has two of the calls. It needs host memory, and one
 * thread per rank that makes all calls of the communicator; otherwise such
 * ranks wait until their deadline. In a child forked while a communicator
 * exists every call returns ERR_FORKED and the parent is unharmed.
 *
 * Order: the collective calls on one communicator (create, split, shrink,
 * agree, plan create, execute of one plan, reductions, barrier) come in the
 * same order on all its ranks.
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

/* A function of the caller's, for instance around MPI_Allgather: gathers
 * `bytes` bytes from every rank into all[nranks][bytes], in rank order, on all
 * ranks. It is called a few times per creation, only from the thread that
 * creates, splits or shrinks. Returns 0 on success; anything else fails the
 * creation. */
typedef int (*ulyx_allgather_fn)(
    void *context, const void *mine, void *all, size_t bytes);

typedef struct {
    size_t size;         /* sizeof(ulyx_comm_params_t), set by the macro */
    double timeout_s;    /* deadline of this creation and of the communicator's
                          * calls, seconds; 0 = ULYX_TIMEOUT; at most 86400 */
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
/* A second thread will make calls on the communicator. Needed where the first
 * thread may stand in a call that ends only after the second thread has made
 * its first call: without the flag the ranks would be taken for ranks in
 * different calls. */
#define ULYX_COMM_CONCURRENT UINT64_C(1)

/* Opens a meeting point in this process and describes it. A helper thread
 * serves one communicator, and waits for its ranks until the deadline
 * (ULYX_TIMEOUT from now). An id serves one communicator. A second use is
 * refused at once (ERR_INVALID_ARGUMENT): in this process always; in other
 * processes while this process lives, until the deadline, provided that
 * ULYX_PORT is not set and at most 7 later ids of this process have served. The
 * interface is chosen by ULYX_SOCKET_IFNAME and ULYX_SOCKET_FAMILY, the port is
 * free unless ULYX_PORT is set.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT; ERR_SYSTEM when no interface fits
 * or no port can be had (the text has them); ERR_NO_MEMORY; ERR_FORKED. */
ULYX_API ulyx_status_t ulyx_unique_id_create(ulyx_unique_id_t *id_p);

/* Ends an id that this process made: its thread and its port are given back
 * before this returns, or within a second. Optional: an id ends by itself at
 * its deadline. Any thread may call this at any time, once per id. Ranks that
 * have joined and are still meeting get ERR_ABORTED; those that come later
 * find no root until their own deadline, in this process they get
 * ERR_INVALID_ARGUMENT at once. A communicator that was already made is not
 * affected.
 * returns: SUCCESS, also where the id has served or its deadline is over;
 * ERR_INVALID_ARGUMENT (NULL, damaged, destroyed before, not made by this
 * process, or one that ended by itself before 1024 others of it did);
 * ERR_VERSION; ERR_FORKED. */
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
 * returns: SUCCESS; ERR_INVALID_ARGUMENT (rank outside [0, nranks), or an id
 * that has served or was destroyed, at once; bad params, here or at the rank
 * named, once all have joined); ERR_ABORTED (the id was destroyed);
 * ERR_MISMATCH (two ranks of one number, different nranks or settings that
 * must agree); ERR_AUTH; ERR_VERSION; ERR_TIMEOUT naming the missing ranks;
 * ERR_RANK_LOST; ERR_UNSUPPORTED (no transport reaches a rank: the text says
 * why each does not; CUDA memory without its kernels in this build, or without
 * a driver); ERR_SYSTEM; ERR_NO_MEMORY; ERR_FORKED. */
ULYX_API ulyx_status_t ulyx_comm_create(const ulyx_unique_id_t *id,
    int32_t nranks, int32_t rank, const ulyx_comm_params_t *params,
    ulyx_comm_t **comm_p);

/* The same, meeting through the caller's allgather. returns: as create, and
 * ERR_SYSTEM when the callback fails. */
ULYX_API ulyx_status_t ulyx_comm_create_from_allgather(
    ulyx_allgather_fn allgather, void *context, int32_t nranks, int32_t rank,
    const ulyx_comm_params_t *params, ulyx_comm_t **comm_p);

/* How a launcher has started this process. */
typedef struct {
    size_t size;    /* sizeof(ulyx_launch_t), set by the macro */
    int32_t rank;   /* 0 without a launcher */
    int32_t nranks; /* 0 without a launcher; 0 also where only the launcher's
                     * library has it (PMIx): make a communicator to get it */
    int32_t local_rank;   /* among the ranks of this node; -1 = not given */
    int32_t local_nranks; /* on this node; 0 = not given */
    const char *launcher; /* "torchrun", "Slurm", ...: a static string; NULL =
                           * none is recognised */
} ulyx_launch_t;
#define ULYX_LAUNCH_INIT                                                       \
    {                                                                          \
        sizeof(ulyx_launch_t), 0, 0, -1, 0, 0                                  \
    }

/* Says whether, and as which rank, a launcher has started this process, by the
 * table that ulyx_comm_create_from_env uses. Programs that start ranks
 * themselves, unless a launcher has, call this instead of reading the
 * launchers' variables. Looks at variables and setting files only; not
 * collective, any thread.
 * returns: SUCCESS, also where there is no launcher; ERR_INVALID_ARGUMENT (a
 * launcher's values are not a rank and a number of ranks; a rank above 0
 * without a number of ranks; two launchers of which one says that this process
 * is alone and the other that there are several ranks, so that each process
 * would run the whole job: the text names what to set or unset; launch_p is
 * NULL or its size is wrong; a setting is wrong); ERR_NO_MEMORY;
 * ERR_FORKED. */
ULYX_API ulyx_status_t ulyx_launch_query(ulyx_launch_t *launch_p);

/* As ulyx_comm_create, with rank, size and meeting point from the launcher's
 * environment (ULYX_RANK and ULYX_NRANKS, torchrun, Open MPI, PMIx, Flux, PALS,
 * MVAPICH2, PMI-1, Slurm; docs/USING.md has the order). What was taken is
 * logged at INFO. returns: as create; ERR_INVALID_ARGUMENT when no launcher is
 * recognised (the text lists what was looked for), or as ulyx_launch_query;
 * ERR_AUTH when the only meeting point has no secret and ULYX_INSECURE is not
 * 1. */
ULYX_API ulyx_status_t ulyx_comm_create_from_env(
    const ulyx_comm_params_t *params, ulyx_comm_t **comm_p);

/* All nranks ranks of a new communicator within this process, at once:
 * comms_p[r] is rank r's handle, for a thread each or for one thread with
 * groups. Not collective. ownership: each handle is destroyed on its own.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT; ERR_NO_MEMORY; ERR_SYSTEM;
 * ERR_FORKED; on error no handle is kept. */
ULYX_API ulyx_status_t ulyx_comm_create_local(
    int32_t nranks, const ulyx_comm_params_t *params, ulyx_comm_t **comms_p);

/* Collective over comm: ranks of one color form a new communicator, ordered
 * by (key, old rank); color < 0 gives *new_p = NULL. comm stays as it is.
 * params may be NULL: timeout, memory kind and device are then inherited.
 * returns: as create, and comm's own failure; ERR_PEER_REFUSED naming a rank
 * whose arguments are wrong. ERR_TIMEOUT and ERR_RANK_LOST also come from the
 * creation of the new communicator, here or at the rank that is named; comm
 * then stays as it is. Errors name ranks by their numbers in comm. */
ULYX_API ulyx_status_t ulyx_comm_split(ulyx_comm_t *comm, int32_t color,
    int32_t key, const ulyx_comm_params_t *params, ulyx_comm_t **new_p);

/* Collective over the ranks of a failed (or healthy) communicator that still
 * live: forms a new one of them, in old rank order, with fresh windows.
 * timeout_s is one deadline for all of it. Ranks known to be dead are not
 * waited for. Ranks that do not call within half of timeout_s are left out for
 * good: their calls, however late, give ERR_RANK_LOST. All others get the same:
 * the new communicator of the same ranks, or an error. Where a rank dies
 * meanwhile they start over without it. comm remains to be destroyed. A rank
 * that hangs is left out as long as one rank of its node runs. A node on which
 * no process answers and none is known to have ended cannot be left out,
 * because its ranks might have gone on without the others. The call then ends
 * with ERR_TIMEOUT, which names these ranks, and may be made again.
 * returns: as create; ERR_RANK_LOST if this rank itself was left out;
 * ERR_MISMATCH on all when some called agree. */
ULYX_API ulyx_status_t ulyx_comm_shrink(
    ulyx_comm_t *comm, const ulyx_comm_params_t *params, ulyx_comm_t **new_p);

/* How agree makes one value of all: bitwise and, smallest, largest. */
typedef int32_t ulyx_agree_t;
enum {
    ULYX_AGREE_AND = 0,
    ULYX_AGREE_MIN = 1,
    ULYX_AGREE_MAX = 2,
};

/* Collective over the ranks of a failed (or healthy) communicator that still
 * live: *value_p <- the value of all ranks' `mine`, the same on each of them,
 * also if ranks die meanwhile; *nranks_p (may be NULL) <- of how many ranks.
 * For instance: how far all ranks have come, before they go on after a failure.
 * Does not wait for dead ranks. A rank that does not call within half of the
 * communicator's timeout_s is left out, of a later shrink too. The communicator
 * is as before the call, whatever it returns.
 * returns: SUCCESS; ERR_RANK_LOST: this rank was left out; ERR_TIMEOUT: as of
 * shrink; a second call gives what was decided, from the value that the first
 * call gave; ERR_INVALID_ARGUMENT, and ERR_PEER_REFUSED on the others;
 * ERR_MISMATCH on all (another how, or shrink there); ERR_NO_MEMORY;
 * ERR_UNSUPPORTED (more than 32768 ranks); ERR_FORKED. */
ULYX_API ulyx_status_t ulyx_comm_agree(ulyx_comm_t *comm, uint64_t mine,
    ulyx_agree_t how, uint64_t *value_p, int32_t *nranks_p);

/* Waits for all ranks. returns: SUCCESS; ERR_TIMEOUT naming the missing
 * ranks; ERR_RANK_LOST; ERR_ABORTED; ERR_MISMATCH (another call there). */
ULYX_API ulyx_status_t ulyx_comm_barrier(ulyx_comm_t *comm);

/* Fails the communicator here and at all peers that can be reached: waits in
 * flight return ERR_ABORTED naming this rank. Bounded in time, any thread,
 * any number of times; also from a signal handler, whatever call on the
 * communicator it has interrupted but destroy.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT. */
ULYX_API ulyx_status_t ulyx_comm_abort(ulyx_comm_t *comm);

/* Releases the handle. Local, not collective; NULL is fine. Plans of the
 * communicator must be destroyed and windows detached before. Peers need not
 * have destroyed their handles, but no peer may still be in a call with this
 * rank: that call would end with ERR_RANK_LOST. A barrier before destroy makes
 * sure.
 * When a process exits (it calls exit, or main returns) without destroy, its
 * peers are notified that the rank has left, as by destroy; it does not count
 * as a lost rank. It does count as lost where a thread is in a call of the
 * communicator, an operation is in flight, a call is queued, a log callback
 * exits, or the communicator is of device memory.
 * returns: SUCCESS; ERR_BUSY when a plan, window or operation is left, or a
 * call is queued in a group or in flight in another thread (the text names it;
 * the handle stays valid); ERR_INVALID_ARGUMENT (destroyed before). On a failed
 * communicator windows are released or quarantined and the call succeeds. */
ULYX_API ulyx_status_t ulyx_comm_destroy(ulyx_comm_t *comm);

/* This handle's rank, and how many ranks there are.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT (a NULL pointer); ERR_FORKED. */
ULYX_API ulyx_status_t ulyx_comm_get_rank(
    const ulyx_comm_t *comm, int32_t *rank_p);
ULYX_API ulyx_status_t ulyx_comm_get_nranks(
    const ulyx_comm_t *comm, int32_t *nranks_p);

/* *status_p: SUCCESS while healthy, else what failed it (with the cause as
 * the thread's last error). Never blocks. */
ULYX_API ulyx_status_t ulyx_comm_get_async_error(
    const ulyx_comm_t *comm, ulyx_status_t *status_p);

/* The ranks known to be dead, ascending: ranks_p[0 .. min(capacity, count)).
 * *count_p is the full number; ranks_p may be NULL when capacity is 0. */
ULYX_API ulyx_status_t ulyx_comm_get_dead_ranks(const ulyx_comm_t *comm,
    int32_t capacity, int32_t *ranks_p, int32_t *count_p);

/* Bytes that the library holds for this communicator on the host: control
 * words, arenas, tables, mapped peers' arenas (mapped once, counted here). */
ULYX_API ulyx_status_t ulyx_comm_get_memory(
    const ulyx_comm_t *comm, int64_t *bytes_p);

/* Gives back host memory that the library keeps for later and does not need at
 * present: rings beyond those that the existing plans share, and arenas in
 * which nothing is in use, which the peers are requested to unmap. Local: not
 * collective, in no order with other calls, never queued in a group; calls of
 * plans may be in flight on any thread. Memory that a peer may still touch
 * stays, for instance that of a plan which the peer has not destroyed yet; so
 * trim again after a barrier. Rings of alltoall and memory of devices stay
 * too. Slow (one round trip per rank and arena): for the moment after many
 * plans were destroyed, not for every step.
 * returns: SUCCESS; ERR_TIMEOUT naming a rank that did not let go,
 * ERR_RANK_LOST (both fail the communicator); the communicator's own failure;
 * ERR_INVALID_ARGUMENT; ERR_FORKED. */
ULYX_API ulyx_status_t ulyx_comm_trim(ulyx_comm_t *comm);

/* Writes the flight recorders of this process, those of all its communicators,
 * as JSON: the last calls of each rank, how far they are and whom they wait
 * for. `ulyx_info report` reads such files of many processes. path: a file's
 * name, in which %h becomes the host, %p the process and %r its rank in the
 * oldest communicator; NULL: that of ULYX_DUMP_FILE. The file is replaced as a
 * whole, and its folder must be there. Not collective, any thread, not from a
 * signal handler (ULYX_DUMP_SIGNAL is for that); also of a communicator that
 * has failed. Takes as long as the file system does.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT (comm is NULL, path is empty, or it is
 * NULL and there is no setting); ERR_SYSTEM (the text has the file and the
 * reason, also where the name is that of anything but a regular file);
 * ERR_NO_MEMORY; ERR_FORKED. */
ULYX_API ulyx_status_t ulyx_comm_dump(ulyx_comm_t *comm, const char *path);

/* Between start and end, the collective calls of this thread (create, split,
 * shrink, agree, barrier, plan create, execute, alltoall(v), reductions) only
 * queue: they check their arguments, return, and write their outputs at the
 * end. Structs and arrays given to them are copied; tensors, of course, are
 * not. End runs all queued calls together - so one thread can drive many ranks
 * - and returns the first error. Nests; the outermost end runs. returns:
 * SUCCESS; end without start: ERR_INVALID_ARGUMENT. */
ULYX_API ulyx_status_t ulyx_group_start(void);
ULYX_API ulyx_status_t ulyx_group_end(void);

#ifdef __cplusplus
}
#endif
#endif
