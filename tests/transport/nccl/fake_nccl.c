/* SPDX-License-Identifier: Apache-2.0
 *
 * See fake_nccl.h. Built three times: complete, without one of the calls, and
 * as an old version that lacks the newer calls.
 */
#include "transport/nccl/fake_nccl.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "transport/nccl/library.h"

#define EXPORT __attribute__((visibility("default")))

#ifndef FAKE_VERSION
#define FAKE_VERSION 22809
#endif

extern struct fake_nccl fake_nccl;
EXPORT struct fake_nccl fake_nccl = {.version = FAKE_VERSION};

enum { MAX_RANKS = 16, MAX_PIECES = 64, MAX_WORLDS = 64 };
enum { SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4 };

struct world {
    _Atomic int joined, left;
    _Atomic int wanted[MAX_RANKS][MAX_RANKS]; /* requested connections */
    struct fake_nccl_words words[MAX_RANKS];
    struct fake_nccl_channel channels[]; /* [from * nranks + to] */
};

struct piece {
    struct fake_comm *comm;
    unsigned char *data;
    uint64_t bytes, moved;
    int peer, send;
    void *stream;
};

struct group {
    struct group *next;
    int count;
    struct piece pieces[MAX_PIECES];
};

struct fake_comm {
    int rank, nranks;
    struct world *world;
    size_t world_bytes;
    char name[64]; /* of the shared file, or of the entry in worlds */
    struct fake_nccl_words *words;
    uint32_t launched;
    _Atomic bool initialised; /* read by threads that send, unlocked */
    bool finalising;
    pthread_t mover;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct group *waiting; /* waiting for their connections */
    /* groups for the mover; the current one is the first */
    struct group *queue;
    bool stop;
};

static _Thread_local struct group *open_group;
static _Thread_local int depth;

static int
call_outcome(const char *call)
{
    const char *failing = fake_nccl.failing;
    return failing && strcmp(failing, call) == 0 ? fake_nccl.result : 0;
}

/* ---- worlds -------------------------------------------------------------- */

/* Worlds of one process, for kernels. */
static struct {
    char name[64];
    struct world *world;
    int users;
} worlds[MAX_WORLDS];
static pthread_mutex_t worlds_lock = PTHREAD_MUTEX_INITIALIZER;

static struct world *
join_local(struct fake_comm *comm)
{
    struct world *found = NULL;
    int place = -1;
    pthread_mutex_lock(&worlds_lock);
    for (int i = 0; i < MAX_WORLDS; i++)
        if (worlds[i].users && !strcmp(worlds[i].name, comm->name))
            place = i;
    for (int i = 0; i < MAX_WORLDS && place < 0; i++)
        if (!worlds[i].users)
            place = i;
    if (place >= 0 && !worlds[place].users) {
        worlds[place].world = fake_nccl.alloc(comm->world_bytes);
        memset(worlds[place].world, 0, comm->world_bytes);
        memcpy(worlds[place].name, comm->name, sizeof(comm->name));
    }
    if (place >= 0) {
        worlds[place].users++;
        found = worlds[place].world;
    }
    pthread_mutex_unlock(&worlds_lock);
    return found;
}

static void
leave_local(struct fake_comm *comm)
{
    pthread_mutex_lock(&worlds_lock);
    for (int i = 0; i < MAX_WORLDS; i++)
        if (worlds[i].world == comm->world && worlds[i].users &&
            --worlds[i].users == 0) {
            fake_nccl.release(worlds[i].world);
            worlds[i].world = NULL;
        }
    pthread_mutex_unlock(&worlds_lock);
}

static struct world *
join_shared(struct fake_comm *comm)
{
    int fd = shm_open(comm->name, O_RDWR | O_CREAT, 0600);
    void *map = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, (off_t)comm->world_bytes) == 0)
        map = mmap(
            NULL, comm->world_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return map == MAP_FAILED ? NULL : map;
}

static void
leave_world(struct fake_comm *comm)
{
    if (fake_nccl.alloc) {
        leave_local(comm);
        return;
    }
    if (atomic_fetch_add(&comm->world->left, 1) + 1 ==
        atomic_load(&comm->world->joined))
        shm_unlink(comm->name);
    munmap(comm->world, comm->world_bytes);
}

static struct fake_nccl_channel *
channel_of(const struct fake_comm *comm, const struct piece *piece)
{
    int from = piece->send ? comm->rank : piece->peer;
    int to = piece->send ? piece->peer : comm->rank;
    return &comm->world->channels[from * comm->nranks + to];
}

/* ---- the mover ----------------------------------------------------------- */

static uint64_t
word_load(uint64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

/* Moves the bytes of a piece that can move now. */
static bool
move_some(const struct fake_comm *comm, struct piece *piece)
{
    struct fake_nccl_channel *channel = channel_of(comm, piece);
    uint64_t written = word_load(&channel->written),
             read = word_load(&channel->read);
    uint64_t at = piece->send ? written : read;
    uint64_t room =
        piece->send ? FAKE_NCCL_RING - (written - read) : written - read;
    uint64_t step = piece->bytes - piece->moved;
    uint64_t to_end = FAKE_NCCL_RING - at % FAKE_NCCL_RING;
    step = step < room ? step : room;
    step = step < to_end ? step : to_end;
    if (!step)
        return false;
    unsigned char *ring = channel->ring + at % FAKE_NCCL_RING;
    unsigned char *data = piece->data + piece->moved;
    memcpy(piece->send ? ring : data, piece->send ? data : ring, step);
    piece->moved += step;
    __atomic_store_n(piece->send ? &channel->written : &channel->read,
        at + step, __ATOMIC_RELEASE);
    return true;
}

/* Pieces of one pair and direction move one after another. */
static bool
is_first(const struct group *group, int i)
{
    for (int j = 0; j < i; j++)
        if (group->pieces[j].peer == group->pieces[i].peer &&
            group->pieces[j].send == group->pieces[i].send &&
            group->pieces[j].moved < group->pieces[j].bytes)
            return false;
    return true;
}

static void
thread_sleep(int ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000L + 20000};
    nanosleep(&time, NULL);
}

static void
move_group(struct fake_comm *comm, struct group *group)
{
    bool left = true;
    if (fake_nccl.slow_ms)
        thread_sleep(fake_nccl.slow_ms);
    while (left && !__atomic_load_n(&comm->words->aborted, __ATOMIC_ACQUIRE)) {
        bool moved = false;
        left = false;
        for (int i = 0; i < group->count; i++) {
            struct piece *piece = &group->pieces[i];
            if (piece->moved < piece->bytes && is_first(group, i))
                moved = move_some(comm, piece) || moved;
            left = left || piece->moved < piece->bytes;
        }
        if (left && !moved)
            thread_sleep(0);
    }
}

static void *
mover_main(void *context)
{
    struct fake_comm *comm = context;
    pthread_mutex_lock(&comm->lock);
    for (;;) {
        while (!comm->queue && !comm->stop)
            pthread_cond_wait(&comm->changed, &comm->lock);
        if (!comm->queue)
            break;
        struct group *group = comm->queue;
        pthread_mutex_unlock(&comm->lock);
        move_group(comm, group);
        pthread_mutex_lock(&comm->lock);
        comm->queue = group->next;
        free(group);
        __atomic_fetch_add(&comm->words->ended, 1, __ATOMIC_ACQ_REL);
        __atomic_fetch_add(&fake_nccl.ended, 1, __ATOMIC_ACQ_REL);
    }
    pthread_mutex_unlock(&comm->lock);
    return NULL;
}

/* ---- enqueueing ---------------------------------------------------------- */

static bool
is_connected(const struct fake_comm *comm, const struct group *group)
{
    for (int i = 0; i < group->count; i++)
        if (!atomic_load(
                &comm->world->wanted[group->pieces[i].peer][comm->rank]))
            return false;
    return true;
}

static int
group_launch(struct fake_comm *comm, struct group *group)
{
    struct fake_nccl_op ops[MAX_PIECES];
    for (int i = 0; i < group->count; i++) {
        struct piece *piece = &group->pieces[i];
        ops[i] = (struct fake_nccl_op){.data = piece->data,
            .bytes = piece->bytes,
            .channel = channel_of(comm, piece),
            .send = piece->send};
        if (!is_first(group, i))
            return INVALID_ARGUMENT;
    }
    return fake_nccl.launch(
        ops, group->count, comm->words, group->pieces[0].stream);
}

/* Enqueues the waiting groups whose connections exist, in order. Under lock. */
static int
comm_push(struct fake_comm *comm)
{
    int result = 0;
    while (comm->waiting && result == 0 && is_connected(comm, comm->waiting)) {
        struct group *group = comm->waiting, **end = &comm->queue;
        comm->waiting = group->next;
        group->next = NULL;
        comm->launched++;
        __atomic_fetch_add(&fake_nccl.groups, 1, __ATOMIC_RELAXED);
        if (fake_nccl.launch) {
            result = group_launch(comm, group);
            free(group);
            continue;
        }
        while (*end)
            end = &(*end)->next;
        *end = group;
        pthread_cond_signal(&comm->changed);
    }
    return result;
}

static int
group_submit(struct group *group)
{
    struct fake_comm *comm = group->count ? group->pieces[0].comm : NULL;
    struct group **end;
    if (!comm) {
        free(group);
        return 0;
    }
    for (int i = 0; i < group->count; i++)
        atomic_store(
            &comm->world->wanted[comm->rank][group->pieces[i].peer], 1);
    pthread_mutex_lock(&comm->lock);
    for (end = &comm->waiting; *end; end = &(*end)->next)
        ;
    *end = group;
    int result = comm_push(comm);
    if (result == 0 && comm->waiting)
        result = ULI_NCCL_IN_PROGRESS;
    pthread_mutex_unlock(&comm->lock);
    return result;
}

static int
operation_add(void *data, size_t count, int type, int peer,
    struct fake_comm *comm, void *stream, int send)
{
    if (fake_nccl.failing)
        return 0; /* the call does not add a piece */
    if (type != ULI_NCCL_INT8 || peer < 0 || peer >= comm->nranks ||
        peer == comm->rank || !open_group || open_group->count == MAX_PIECES ||
        !comm->initialised)
        return INVALID_ARGUMENT;
    open_group->pieces[open_group->count++] = (struct piece){.comm = comm,
        .data = data,
        .bytes = count,
        .peer = peer,
        .send = send,
        .stream = stream};
    return 0;
}

/* ---- calls --------------------------------------------------------------- */

EXPORT int ncclGetVersion(int *version);
EXPORT int ncclGetUniqueId(struct uli_nccl_id *id);
EXPORT int ncclCommInitRankConfig(uli_nccl_comm *comm, int nranks,
    struct uli_nccl_id id, int rank, struct uli_nccl_config *config);
EXPORT int ncclCommFinalize(uli_nccl_comm comm);
EXPORT int ncclCommDestroy(uli_nccl_comm comm);
EXPORT int ncclCommAbort(uli_nccl_comm comm);
EXPORT int ncclCommGetAsyncError(uli_nccl_comm comm, int *result);
EXPORT int ncclGroupStart(void);
EXPORT int ncclGroupEnd(void);
EXPORT int ncclSend(const void *data, size_t count, int type, int peer,
    uli_nccl_comm comm, void *stream);
EXPORT int ncclRecv(void *data, size_t count, int type, int peer,
    uli_nccl_comm comm, void *stream);
EXPORT const char *ncclGetErrorString(int result);
EXPORT const char *ncclGetLastError(uli_nccl_comm comm);

int
ncclGetVersion(int *version)
{
    *version = fake_nccl.version;
    return call_outcome("GetVersion");
}

int
ncclGetUniqueId(struct uli_nccl_id *id)
{
    static _Atomic int drawn;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    memset(id, 0, sizeof(*id));
    snprintf(id->bytes, sizeof(id->bytes), "/ulyx-fake-nccl-%d-%lld-%d",
        (int)getpid(), (long long)now.tv_nsec, drawn++);
    return call_outcome("GetUniqueId");
}

int
ncclCommInitRankConfig(uli_nccl_comm *comm_p, int nranks, struct uli_nccl_id id,
    int rank, struct uli_nccl_config *config)
{
    struct fake_comm *comm;
    size_t channels = (size_t)nranks * (size_t)nranks;
    if (nranks > MAX_RANKS || config->magic != ULI_NCCL_MAGIC ||
        config->blocking != 0 || config->size < sizeof(*config))
        return INVALID_ARGUMENT;
    if (call_outcome("CommInitRankConfig"))
        return call_outcome("CommInitRankConfig");
    comm = calloc(1, sizeof(*comm));
    comm->rank = rank;
    comm->nranks = nranks;
    snprintf(comm->name, sizeof(comm->name), "%.60s", id.bytes);
    comm->world_bytes =
        sizeof(struct world) + channels * sizeof(struct fake_nccl_channel);
    comm->world = fake_nccl.alloc ? join_local(comm) : join_shared(comm);
    if (!comm->world) {
        free(comm);
        return SYSTEM_ERROR;
    }
    comm->words = &comm->world->words[rank];
    pthread_mutex_init(&comm->lock, NULL);
    pthread_cond_init(&comm->changed, NULL);
    pthread_create(&comm->mover, NULL, mover_main, comm);
    atomic_fetch_add(&comm->world->joined, 1);
    __atomic_fetch_add(&fake_nccl.alive, 1, __ATOMIC_RELAXED);
    *comm_p = comm;
    return ULI_NCCL_IN_PROGRESS;
}

static void
comm_end(struct fake_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    comm->stop = true;
    pthread_cond_signal(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
    pthread_join(comm->mover, NULL);
    /* Launches that have not ended yet still read the words. */
    for (int i = 0; i < 1000 && __atomic_load_n(&comm->words->ended,
                                    __ATOMIC_ACQUIRE) < comm->launched;
         i++)
        thread_sleep(10);
    while (comm->waiting) {
        struct group *group = comm->waiting;
        comm->waiting = group->next;
        free(group);
    }
    leave_world(comm);
    pthread_cond_destroy(&comm->changed);
    pthread_mutex_destroy(&comm->lock);
    free(comm);
    __atomic_fetch_sub(&fake_nccl.alive, 1, __ATOMIC_RELAXED);
}

int
ncclCommFinalize(uli_nccl_comm handle)
{
    struct fake_comm *comm = handle;
    comm->finalising = true;
    return call_outcome("CommFinalize") ? call_outcome("CommFinalize")
                                        : ULI_NCCL_IN_PROGRESS;
}

int
ncclCommDestroy(uli_nccl_comm comm)
{
    if (call_outcome("CommDestroy"))
        return call_outcome("CommDestroy");
    comm_end(comm);
    return 0;
}

int
ncclCommAbort(uli_nccl_comm handle)
{
    struct fake_comm *comm = handle;
    __atomic_store_n(&comm->words->aborted, 1, __ATOMIC_RELEASE);
    __atomic_fetch_add(&fake_nccl.aborting, 1, __ATOMIC_RELAXED);
    while (__atomic_load_n(&fake_nccl.hold_aborts, __ATOMIC_RELAXED))
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    __atomic_fetch_sub(&fake_nccl.aborting, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&fake_nccl.aborts, 1, __ATOMIC_RELAXED);
    comm_end(comm);
    return 0;
}

int
ncclCommGetAsyncError(uli_nccl_comm handle, int *result)
{
    struct fake_comm *comm = handle;
    int pushed;
    *result = ULI_NCCL_IN_PROGRESS;
    if (call_outcome("CommGetAsyncError") || fake_nccl.stuck)
        return call_outcome("CommGetAsyncError");
    pthread_mutex_lock(&comm->lock);
    pushed = comm_push(comm);
    int async = __atomic_load_n(&fake_nccl.async, __ATOMIC_RELAXED);
    if (async)
        *result = async;
    else if (pushed)
        *result = pushed;
    else if (atomic_load(&comm->world->joined) == comm->nranks &&
             !comm->waiting &&
             (!comm->finalising || __atomic_load_n(&comm->words->ended,
                                       __ATOMIC_ACQUIRE) >= comm->launched))
        *result = 0;
    comm->initialised = comm->initialised || *result == 0;
    pthread_mutex_unlock(&comm->lock);
    return 0;
}

int
ncclGroupStart(void)
{
    if (call_outcome("GroupStart"))
        return call_outcome("GroupStart");
    if (depth++ == 0)
        open_group = calloc(1, sizeof(*open_group));
    return 0;
}

int
ncclGroupEnd(void)
{
    struct group *group = open_group;
    if (--depth > 0)
        return 0;
    open_group = NULL;
    if (call_outcome("GroupEnd") || call_outcome("Send") ||
        call_outcome("Recv")) {
        free(group);
        return call_outcome("GroupEnd");
    }
    return group_submit(group);
}

int
ncclSend(const void *data, size_t count, int type, int peer, uli_nccl_comm comm,
    void *stream)
{
    if (call_outcome("Send"))
        return call_outcome("Send");
    return operation_add(
        (void *)(uintptr_t)data, count, type, peer, comm, stream, 1);
}

int
ncclRecv(void *data, size_t count, int type, int peer, uli_nccl_comm comm,
    void *stream)
{
    if (call_outcome("Recv"))
        return call_outcome("Recv");
    return operation_add(data, count, type, peer, comm, stream, 0);
}

#ifndef FAKE_OLD
const char *
ncclGetErrorString(int result)
{
    return result == SYSTEM_ERROR ? "unhandled system error" : "an error";
}
#endif

#ifndef FAKE_LACKS
const char *
ncclGetLastError(uli_nccl_comm comm)
{
    (void)comm;
    return "words of the library";
}
#endif
