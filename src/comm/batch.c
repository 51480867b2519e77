/* SPDX-License-Identifier: Apache-2.0
 *
 * See batch.h. Opening takes two gathers: rank 0 draws the id and all say
 * whether they could use one; then all say whether they have opened it. So a
 * failure of one rank is the same named error on all.
 *
 * Locks: the batch's own guards the list of watches and is taken under the
 * service's; failure_lock may be taken under it.
 */
#include "comm/batch.h"

#include <stdio.h>
#include <stdlib.h>
#include "comm/gpu.h"
#include "comm/service.h"

/* A call is late that has gone on for so long beyond its timeout: the peers'
 * words are as old as their last look. */
#define GRACE_NS (INT64_C(100) * 1000 * 1000)
#define CLOSE_S  1.0

struct uli_comm_batch {
    struct uli_batch *batch;
    pthread_mutex_t lock;
    struct uli_list watches; /* under lock */
    bool aborted;            /* by the look */
};

static const struct uli_tr_ops *const transport = &uli_tr_nccl_ops;

/* ---- life ---------------------------------------------------------------- */

struct hello {
    unsigned char id[ULI_BATCH_ID_BYTES];
    int32_t status;
    char text[204];
};

static ulyx_status_t
check_usable(const ulyx_comm_t *comm)
{
    char why[256];
    const struct uli_identity *me = &comm->peers[comm->rank].identity;
    if (!uli_tr_allowed(&comm->settings, transport->name))
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "nccl: ULYX_TRANSPORTS=%.99s leaves it out",
            comm->settings.transports);
    if (!transport->usable(&comm->settings, why, sizeof(why)))
        return uli_error(ULYX_ERR_UNSUPPORTED, "nccl: %s", why);
    for (int32_t p = 0; p < comm->nranks; p++)
        if (!transport->reaches(me, &comm->peers[p].identity, why, sizeof(why)))
            return uli_error(ULYX_ERR_UNSUPPORTED, "nccl: %s", why);
    return ULYX_SUCCESS;
}

/* Everybody's verdict; the lowest rank's bad one is the error of all. */
static ulyx_status_t
agree(ulyx_comm_t *comm, ulyx_status_t verdict, struct hello *all,
    uli_deadline_t deadline)
{
    struct hello mine = all[comm->rank];
    mine.status = verdict;
    snprintf(mine.text, sizeof(mine.text), "%s",
        verdict == ULYX_SUCCESS ? "" : uli_error_text());
    ULI_TRY(uli_agree_gather(comm, ULI_CALL_BATCH, ULYX_SUCCESS, &mine,
        sizeof(mine), sizeof(mine), all, NULL, NULL, deadline));
    for (int32_t p = 0; p < comm->nranks; p++)
        if (all[p].status != ULYX_SUCCESS)
            return uli_error((ulyx_status_t)all[p].status, "rank %d: %.*s", p,
                (int)sizeof(all[p].text), all[p].text);
    return ULYX_SUCCESS;
}

static ulyx_status_t
open_agreed(ulyx_comm_t *comm, struct uli_comm_batch *own, struct hello *all,
    uli_deadline_t deadline)
{
    ulyx_status_t status = check_usable(comm);
    if (status == ULYX_SUCCESS && comm->rank == 0)
        status = transport->batch->make_id(&comm->settings, all[0].id);
    ULI_TRY(agree(comm, status, all, deadline));
    /* The last part is for the verdicts: a rank that gives up tells. */
    int64_t left = deadline - uli_clock_ns();
    struct uli_batch_params params = {.rank = comm->rank,
        .nranks = comm->nranks,
        .memory_kind = comm->memory_kind,
        .device = comm->gpu ? comm->gpu->device : 0,
        .settings = &comm->settings,
        .id = all[0].id,
        .deadline = deadline - left / 4};
    status = transport->batch->open(&params, &own->batch);
    return agree(comm, status, all, deadline);
}

ulyx_status_t
uli_comm_batch_open(ulyx_comm_t *comm, uli_deadline_t deadline)
{
    if (comm->batch)
        return ULYX_SUCCESS;
    struct uli_comm_batch *own = calloc(1, sizeof(*own));
    struct hello *all = calloc((size_t)comm->nranks, sizeof(*all));
    ulyx_status_t status = ULYX_SUCCESS;
    if (!own || !all) /* alone: the others wait for their deadline */
        status = uli_error(ULYX_ERR_NO_MEMORY, "nccl: no memory");
    if (status == ULYX_SUCCESS)
        status = open_agreed(comm, own, all, deadline);
    free(all);
    if (status != ULYX_SUCCESS) {
        if (own && own->batch) {
            transport->batch->abort(own->batch);
            transport->batch->close(own->batch, 0);
        }
        free(own);
        return status;
    }
    pthread_mutex_init(&own->lock, NULL);
    uli_list_init(&own->watches);
    uli_service_lock(); /* from here on it looks */
    comm->batch = own;
    uli_service_unlock();
    return ULYX_SUCCESS;
}

struct uli_batch *
uli_comm_batch(ulyx_comm_t *comm)
{
    return comm->batch ? comm->batch->batch : NULL;
}

const struct uli_batch_ops *
uli_comm_batch_ops(void)
{
    return transport->batch;
}

void
uli_comm_batch_close(ulyx_comm_t *comm)
{
    uli_service_lock();
    struct uli_comm_batch *own = comm->batch;
    comm->batch = NULL;
    uli_service_unlock();
    if (!own)
        return;
    if (atomic_load(&comm->failed))
        transport->batch->abort(own->batch);
    transport->batch->close(own->batch, uli_deadline_in(CLOSE_S));
    pthread_mutex_destroy(&own->lock);
    free(own);
}

/* ---- watches ------------------------------------------------------------- */

void
uli_batch_watch_add(ulyx_comm_t *comm, struct uli_batch_watch *watch)
{
    pthread_mutex_lock(&comm->batch->lock);
    uli_list_append(&comm->batch->watches, &watch->node);
    pthread_mutex_unlock(&comm->batch->lock);
}

void
uli_batch_watch_remove(ulyx_comm_t *comm, struct uli_batch_watch *watch)
{
    pthread_mutex_lock(&comm->batch->lock);
    uli_list_remove(&watch->node);
    pthread_mutex_unlock(&comm->batch->lock);
}

/* The first rank that is known not to have begun call n; -1 with *unseen_p =
 * how many cannot be seen (of other nodes), the last of them in *last_p. */
static int32_t
missing_rank(ulyx_comm_t *comm, const struct uli_batch_watch *watch, uint64_t n,
    int32_t *unseen_p, int32_t *last_p)
{
    *unseen_p = 0;
    for (int32_t p = 0; p < comm->nranks; p++) {
        if (p == comm->rank || !watch->shares[p])
            continue;
        const uint64_t *word =
            comm->peers[p].map
                ? uli_window_address(comm, p, watch->told[p].window,
                      watch->told[p].offset, (int64_t)sizeof(*word))
                : NULL;
        if (!word) {
            ++*unseen_p;
            *last_p = p;
        } else if (__atomic_load_n(word, __ATOMIC_ACQUIRE) < n) {
            return p;
        }
    }
    return -1;
}

static void
fail_late(ulyx_comm_t *comm, const struct uli_batch_watch *watch, uint64_t n)
{
    int32_t unseen, last = -1;
    int32_t rank = missing_rank(comm, watch, n, &unseen, &last);
    const char *why = "has not reached it";
    if (rank < 0 && unseen == 1) {
        rank = last;
        why = "is on another node, and all ranks of this one have reached it";
    }
    if (rank >= 0)
        uli_comm_fail(comm, ULYX_ERR_TIMEOUT, rank,
            "%s, call %llu: not ended after %g s: rank %d %s", watch->what,
            (unsigned long long)n, watch->timeout_s, rank, why);
    else
        uli_comm_fail(comm, ULYX_ERR_TIMEOUT, -1,
            "%s, call %llu: not ended after %g s: all ranks of this node have "
            "reached it, %d of others cannot be seen",
            watch->what, (unsigned long long)n, watch->timeout_s, unseen);
}

static void
look_at(ulyx_comm_t *comm, struct uli_batch_watch *watch)
{
    uint64_t begun = __atomic_load_n(watch->begun, __ATOMIC_ACQUIRE);
    uint64_t ended = __atomic_load_n(watch->ended, __ATOMIC_ACQUIRE);
    int64_t now = uli_clock_ns();
    __atomic_store_n((uint64_t *)watch->piece.address, begun, __ATOMIC_RELEASE);
    if (begun != watch->seen) {
        watch->seen = begun;
        watch->since_ns = now;
    }
    if (begun > ended &&
        now - watch->since_ns > (int64_t)(watch->timeout_s * 1e9) + GRACE_NS)
        fail_late(comm, watch, begun);
}

void
uli_batch_look(ulyx_comm_t *comm)
{
    struct uli_comm_batch *own = comm->batch;
    if (!own || own->aborted)
        return;
    pthread_mutex_lock(&own->lock);
    for (struct uli_list *n = own->watches.next;
         n != &own->watches && !atomic_load(&comm->failed); n = n->next)
        look_at(comm, ULI_CONTAINER_OF(n, struct uli_batch_watch, node));
    pthread_mutex_unlock(&own->lock);
    if (!atomic_load(&comm->failed))
        return;
    own->aborted = true;
    transport->batch->abort(own->batch);
}
