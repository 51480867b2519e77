/* SPDX-License-Identifier: Apache-2.0
 *
 * See staged.h: puts the kernel's flags and chunks to the peers on other nodes.
 * A put carries a chunk together with its flag, so nothing depends on the order
 * of puts. A slot is filled again only when the peer has emptied it, so nothing
 * waits for the end of a put.
 *
 * When the thread sleeps. A run is counted in `runs` before its kernel begins,
 * and in report->ended after the kernel has written its last flag. Once the two
 * are equal, one more pass finds all flags; then the thread sleeps until a run
 * begins.
 */
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include "base/size.h"
#include "base/status.h"
#include "base/system/thread.h"
#include "topology/bind.h"
#include "transport/staged/staged.h"

enum {
    YIELDS = 50, /* passes in vain before pauses begin */
    SHORT_NS = 20 * 1000,
    SHORT_PAUSES = 500,
    LONG_NS = 500 * 1000,
};

/* ---- hooks of the communicator ------------------------------------------- */

static ulyx_status_t
staged_relay_put(const struct uli_staged_relay *relay, int32_t peer,
    const struct uli_net_put *what)
{
    const struct uli_batch_hooks *hooks = &relay->params->hooks;
    return hooks->put(hooks->context, peer, what);
}

static bool
has_failed(const struct uli_staged_relay *relay)
{
    const struct uli_batch_hooks *hooks = &relay->params->hooks;
    return hooks->has_failed(hooks->context);
}

static bool
staged_relay_progress(const struct uli_staged_relay *relay)
{
    const struct uli_batch_hooks *hooks = &relay->params->hooks;
    return hooks->progress(hooks->context);
}

/* ---- one peer and queue -------------------------------------------------- */

struct queue {
    const struct uli_staged_peer *peer;
    int32_t self, queue; /* self: this rank's index at the peer */
    const struct uli_staged_flags *posted;
    uint64_t *sent, *taken;
};

static struct queue
queue_of(const struct uli_staged_relay *relay,
    const struct uli_staged_peer *peer, int32_t l)
{
    const struct uli_staged_memory *memory = relay->memory;
    const struct uli_staged_shape *shape = &memory->shape;
    int64_t at = (int64_t)peer->remote * shape->queues + l;
    return (struct queue){peer,
        uli_staged_index(relay->params->rank, peer->rank), l,
        (const void *)(memory->base +
                       uli_staged_own_flags_at(shape, peer->remote, l)),
        &relay->sent[at], &relay->taken[at]};
}

/* Puts the next chunk, if the kernel has filled it. */
static bool
put_chunk(struct uli_staged_relay *relay, const struct queue *queue)
{
    const struct uli_staged_memory *memory = relay->memory;
    const struct uli_staged_shape *shape = &memory->shape;
    const struct uli_staged_peer *peer = queue->peer;
    int64_t slot = (int64_t)(*queue->sent % ULI_STAGED_SLOTS);
    int64_t at = slot * shape->chunk_bytes;
    uint64_t filled =
        __atomic_load_n(&queue->posted->filled[slot], __ATOMIC_ACQUIRE);
    if (filled >> ULI_STAGED_SIZE_BITS != *queue->sent + 1)
        return false;
    struct uli_net_put what = {
        .data = memory->base + at +
                uli_staged_sending_at(
                    shape, memory->remotes, peer->remote, queue->queue),
        .bytes = (int64_t)queue->posted->bytes[slot],
        .window = peer->window,
        .offset = peer->offset + at +
                  uli_staged_recv_at(shape, queue->self, queue->queue),
        .signal_window = peer->window,
        .signal_offset = peer->offset +
                         uli_staged_flags_at(shape, queue->self, queue->queue) +
                         (int64_t)offsetof(struct uli_staged_flags, filled) +
                         slot * (int64_t)sizeof(uint64_t),
        .signal = filled};
    if (staged_relay_put(relay, peer->rank, &what) != ULYX_SUCCESS)
        return false;
    ++*queue->sent;
    return true;
}

/* Puts the count of emptied slots, if the kernel has emptied more. */
static bool
put_consumed(struct uli_staged_relay *relay, const struct queue *queue)
{
    const struct uli_staged_peer *peer = queue->peer;
    uint64_t consumed =
        __atomic_load_n(&queue->posted->consumed, __ATOMIC_ACQUIRE);
    if (consumed == *queue->taken)
        return false;
    struct uli_net_put what = {.window = peer->window,
        .offset = peer->offset,
        .signal_window = peer->window,
        .signal_offset = peer->offset +
                         uli_staged_flags_at(
                             &relay->memory->shape, queue->self, queue->queue) +
                         (int64_t)offsetof(struct uli_staged_flags, consumed),
        .signal = consumed};
    if (staged_relay_put(relay, peer->rank, &what) != ULYX_SUCCESS)
        return false;
    *queue->taken = consumed;
    return true;
}

/* Puts all that is ready now; the network's own thread drives the puts. */
static bool
staged_relay_notify(struct uli_staged_relay *relay)
{
    const struct uli_staged_memory *memory = relay->memory;
    bool moved = false;
    if (has_failed(relay))
        return false;
    for (int32_t i = 0; i < memory->shape.peers; i++) {
        if (memory->peers[i].remote < 0)
            continue;
        for (int32_t l = 0; l < memory->shape.queues; l++) {
            struct queue queue = queue_of(relay, &memory->peers[i], l);
            while (put_chunk(relay, &queue))
                moved = true;
            moved |= put_consumed(relay, &queue);
        }
    }
    return moved;
}

/* ---- the thread ---------------------------------------------------------- */

static bool
run_under_way(struct uli_staged_relay *relay)
{
    return __atomic_load_n(&relay->report->ended, __ATOMIC_ACQUIRE) !=
               atomic_load(&relay->runs) &&
           !has_failed(relay);
}

static void
pause_after(int vain)
{
    struct timespec time = {
        0, vain > YIELDS + SHORT_PAUSES ? LONG_NS : SHORT_NS};
    if (vain > YIELDS)
        nanosleep(&time, NULL);
    else
        sched_yield();
}

static void *
relay_main(void *context)
{
    struct uli_staged_relay *relay = context;
    int vain = 0;
    pthread_setname_np(pthread_self(), "ulyx-stage");
    while (!atomic_load(&relay->stop)) {
        bool busy = run_under_way(relay);
        bool notified = staged_relay_notify(relay);
        if (notified || (busy && staged_relay_progress(relay))) {
            vain = 0;
        } else if (busy) {
            pause_after(vain++);
        } else {
            vain = 0;
            sem_wait(&relay->work);
        }
    }
    (void)staged_relay_notify(relay);
    return NULL;
}

void
uli_staged_relay_wake(void *context)
{
    struct uli_staged_relay *relay = context;
    atomic_fetch_add(&relay->runs, 1);
    sem_post(&relay->work);
}

/* ---- life ---------------------------------------------------------------- */

ulyx_status_t
uli_staged_relay_open(struct uli_staged_relay *relay,
    const struct uli_batch_params *params,
    const struct uli_staged_memory *memory,
    const struct uli_staged_report *report)
{
    size_t n = (size_t)memory->remotes * (size_t)memory->shape.queues;
    if (!memory->remotes)
        return ULYX_SUCCESS;
    relay->params = params;
    relay->memory = memory;
    relay->report = report;
    relay->sent = calloc(2 * n, sizeof(*relay->sent));
    if (!relay->sent)
        return uli_error(ULYX_ERR_NO_MEMORY, "staged: no memory");
    relay->taken = relay->sent + n;
    sem_init(&relay->work, 0, 0);
    ulyx_status_t status =
        uli_thread_start("staged", relay_main, relay, &relay->thread);
    relay->has_thread = status == ULYX_SUCCESS;
    if (relay->has_thread)
        uli_bind_thread(params->binding, relay->thread);
    else
        uli_staged_relay_close(relay);
    return status;
}

void
uli_staged_relay_close(struct uli_staged_relay *relay)
{
    if (!relay->sent)
        return;
    if (relay->has_thread) {
        atomic_store(&relay->stop, true);
        sem_post(&relay->work);
        pthread_join(relay->thread, NULL);
    }
    sem_destroy(&relay->work);
    free(relay->sent);
    relay->sent = relay->taken = NULL;
    relay->has_thread = false;
}
