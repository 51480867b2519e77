/* SPDX-License-Identifier: Apache-2.0
 *
 * See batch.h. To try a transport takes two gathers. In the first, rank 0 gives
 * the id, and each rank gives whether it could use the transport; in the
 * second, each rank gives whether it has opened its batch. So all ranks pass
 * over the same transports for the same reasons, and a failure of one rank is
 * the same named error on all.
 *
 * Locks: the batch's lock guards the list of watches. It is taken under the
 * service's lock; failure_lock may be taken under it. Aborting a batch may take
 * long, so a new thread does that, without a lock, and the service does not
 * wait; close waits for the thread.
 */
#include "comm/messages/batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "comm/messages/batch_hooks.h"
#include "comm/service/service.h"

/* A call is late when it has run this much longer than its timeout: the peers'
 * progress is known only as of their last uli_batch_look. */
#define GRACE_NS (INT64_C(100) * 1000 * 1000)
/* How long a call has run before it fails because a rank for which it waits has
 * left. Until then the progress that the rank published last may not be visible
 * here yet. */
#define LEFT_NS        (INT64_C(1000) * 1000 * 1000)
#define CLOSE_S        1.0
#define TAKEN_PAUSE_NS 20000

struct uli_comm_batch {
    struct uli_batch_context context;
    const struct uli_tr_ops *transport;
    struct uli_batch *batch;
    char passed[400]; /* why the transports before this one were not chosen; "":
                       * this one is the first */
    pthread_mutex_t lock;
    struct uli_list watches; /* under lock */
    pthread_t aborter;       /* started by the look that aborts */
    bool aborted, has_aborter;
    _Atomic bool taken; /* a call has the turn */
};

/* The n-th transport that carries batches, from 1 on; NULL: there are fewer.
 * The numbers are the same on all ranks. */
static const struct uli_tr_ops *
transport_at(int32_t n)
{
    size_t count;
    const struct uli_tr_ops *const *list = uli_tr_list(&count);
    for (size_t i = 0; i < count; i++)
        if ((list[i]->caps & ULI_TR_BATCH) && --n == 0)
            return list[i];
    return NULL;
}

int32_t
uli_comm_batch_transport(const char *name)
{
    const struct uli_tr_ops *transport;
    for (int32_t n = 1; (transport = transport_at(n)); n++)
        if (strcmp(transport->name, name) == 0)
            return n;
    return 0;
}

/* ---- opening ------------------------------------------------------------- */

struct hello {
    unsigned char id[ULI_BATCH_ID_BYTES];
    int32_t status;
    char text[204];
};
_Static_assert(
    sizeof(struct hello) >= ULI_BATCH_ADDRESS_BYTES, "one table holds either");

/* Gathers the outcomes of all ranks: the lowest rank's error becomes the
 * outcome of all, with its text. Errors: of the gather. */
static ulyx_status_t
batch_agree(ulyx_comm_t *comm, const struct hello *mine, struct hello *all,
    uli_deadline_t deadline, ulyx_status_t *outcome_p, char *why_p,
    size_t why_bytes)
{
    *outcome_p = ULYX_SUCCESS;
    ULI_TRY(uli_agree_gather(comm, &(struct uli_gather){.call = ULI_CALL_BATCH,
                                       .mine = mine,
                                       .bytes = sizeof(*mine),
                                       .max_bytes = sizeof(*mine),
                                       .all_p = all,
                                       .deadline = deadline}));
    for (int32_t p = 0; p < comm->nranks && *outcome_p == ULYX_SUCCESS; p++)
        if (all[p].status != ULYX_SUCCESS) {
            *outcome_p = (ulyx_status_t)all[p].status;
            snprintf(why_p, why_bytes, "rank %d: %.*s", p,
                (int)sizeof(all[p].text), all[p].text);
        }
    return ULYX_SUCCESS;
}

static void
hello_announce(struct hello *mine, ulyx_status_t status)
{
    mine->status = status;
    snprintf(mine->text, sizeof(mine->text), "%s",
        status == ULYX_SUCCESS ? "" : uli_error_text());
}

/* Whether the transport can serve this rank, as far as this rank alone can find
 * out; else why_p has the reason. */
static bool
batch_serves(const ulyx_comm_t *comm, const struct uli_tr_ops *transport,
    char *why_p, size_t why_bytes)
{
    const struct uli_identity *me = &comm->peers[comm->rank].identity;
    int32_t most = transport->batch->ranks_max;
    if (most && comm->nranks > most) {
        snprintf(
            why_p, why_bytes, "%d ranks are more than %d", comm->nranks, most);
        return false;
    }
    for (int32_t p = 0; p < comm->nranks; p++)
        if (!transport->reaches(me, &comm->peers[p].identity, why_p, why_bytes))
            return false;
    return uli_tr_usable(transport, &comm->settings, why_p, why_bytes);
}

/* This rank's record for the first gather, before a batch is opened. */
static struct hello
batch_greet(ulyx_comm_t *comm, const struct uli_tr_ops *transport)
{
    struct hello mine = {.status = ULYX_SUCCESS};
    char why[180];
    if (!batch_serves(comm, transport, why, sizeof(why))) {
        mine.status = ULYX_ERR_UNSUPPORTED;
        snprintf(mine.text, sizeof(mine.text), "%s: %s", transport->name, why);
    } else if (comm->rank == 0) {
        hello_announce(
            &mine, transport->batch->make_id(&comm->settings, mine.id));
    }
    return mine;
}

static ulyx_status_t
open_batch(struct uli_comm_batch *own, const struct hello *all,
    uli_deadline_t deadline)
{
    unsigned char id[ULI_BATCH_ID_BYTES];
    struct uli_batch_params params = uli_batch_params_of(&own->context);
    memcpy(id, all[0].id, sizeof(id)); /* gathers overwrite it */
    params.id = id;
    params.deadline = deadline;
    return own->transport->batch->open(&params, &own->batch);
}

/* Opens own->batch if the transport serves all ranks; else *outcome_p and why_p
 * have the reason. Errors: those of the communicator. */
static ulyx_status_t
transport_try(ulyx_comm_t *comm, struct uli_comm_batch *own, struct hello *all,
    uli_deadline_t deadline, ulyx_status_t *outcome_p, char *why_p,
    size_t why_bytes)
{
    const struct uli_batch_ops *ops = own->transport->batch;
    struct hello mine = batch_greet(comm, own->transport);
    ULI_TRY(
        batch_agree(comm, &mine, all, deadline, outcome_p, why_p, why_bytes));
    if (*outcome_p != ULYX_SUCCESS)
        return ULYX_SUCCESS;
    /* The last quarter of the time is for the gather of outcomes, in which a
     * rank that gave up reports its error. */
    int64_t left = deadline - uli_clock_ns();
    hello_announce(&mine, open_batch(own, all, deadline - left / 4));
    ulyx_status_t status =
        batch_agree(comm, &mine, all, deadline, outcome_p, why_p, why_bytes);
    if (own->batch && (status != ULYX_SUCCESS || *outcome_p != ULYX_SUCCESS)) {
        ops->abort(own->batch);
        ops->close(own->batch, 0);
        own->batch = NULL;
    }
    return status;
}

/* Opens the first transport that serves all ranks. required: the number of the
 * only transport to try; 0: try all. */
static ulyx_status_t
open_first(ulyx_comm_t *comm, struct uli_comm_batch *own, struct hello *all,
    int32_t required, uli_deadline_t deadline)
{
    ulyx_status_t outcome = ULYX_ERR_UNSUPPORTED;
    size_t used = 0;
    for (int32_t n = 1; (own->transport = transport_at(n)); n++) {
        char why[256] = "";
        if (required && required != n)
            continue;
        ULI_TRY(transport_try(
            comm, own, all, deadline, &outcome, why, sizeof(why)));
        if (own->batch)
            return ULYX_SUCCESS;
        if (used < sizeof(own->passed))
            used += (size_t)snprintf(own->passed + used,
                sizeof(own->passed) - used, "%s%s", used ? "; " : "", why);
    }
    return uli_error(outcome, "%s", own->passed);
}

static ulyx_status_t
transport_check(const struct uli_comm_batch *own, int32_t required)
{
    if (!required || transport_at(required) == own->transport)
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_UNSUPPORTED,
        "device memory of this communicator goes by %s already: the first plan "
        "that needs a batch transport decides, and %s is requested",
        own->transport->name, transport_at(required)->name);
}

ulyx_status_t
uli_comm_batch_open(
    ulyx_comm_t *comm, int32_t required, uli_deadline_t deadline)
{
    if (comm->batch)
        return transport_check(comm->batch, required);
    struct uli_comm_batch *own = calloc(1, sizeof(*own));
    struct hello *all = calloc((size_t)comm->nranks, sizeof(*all));
    ulyx_status_t status = ULYX_SUCCESS;
    if (!own || !all) /* the other ranks do not learn of this error, and wait
                       * until their deadline */
        status = uli_error(ULYX_ERR_NO_MEMORY, "a batch: no memory");
    if (status == ULYX_SUCCESS) {
        own->context = (struct uli_batch_context){comm, all};
        status = open_first(comm, own, all, required, deadline);
        own->context.addresses = NULL;
    }
    free(all);
    if (status != ULYX_SUCCESS) {
        free(own);
        return status;
    }
    ULI_INFO(ULI_LOG_TRANS, comm->rank, "device memory goes by %s%s%s",
        own->transport->name, own->passed[0] ? "; " : "", own->passed);
    pthread_mutex_init(&own->lock, NULL);
    uli_list_init(&own->watches);
    uli_service_lock(); /* from here on the service looks at the batch */
    comm->batch = own;
    uli_service_unlock();
    return ULYX_SUCCESS;
}

/* ---- life ---------------------------------------------------------------- */

struct uli_batch *
uli_comm_batch(ulyx_comm_t *comm)
{
    return comm->batch ? comm->batch->batch : NULL;
}

const struct uli_batch_ops *
uli_comm_batch_ops(ulyx_comm_t *comm)
{
    return comm->batch->transport->batch;
}

void
uli_comm_batch_describe(ulyx_comm_t *comm, char *text_p, size_t text_bytes)
{
    const struct uli_comm_batch *own = comm->batch;
    char text[200];
    own->transport->batch->describe(own->batch, text, sizeof(text));
    snprintf(text_p, text_bytes, "%s%s%s", text,
        own->passed[0] ? "; not by " : "", own->passed);
}

ulyx_status_t
uli_comm_batch_take(ulyx_comm_t *comm, uli_deadline_t deadline)
{
    while (atomic_exchange(&comm->batch->taken, true)) {
        if (uli_deadline_over(deadline))
            return uli_error(ULYX_ERR_BUSY,
                "another thread executes a plan of %.63s, whose device memory "
                "goes by %s",
                comm->name, comm->batch->transport->name);
        uli_clock_sleep_ns(TAKEN_PAUSE_NS);
    }
    return ULYX_SUCCESS;
}

void
uli_comm_batch_give(ulyx_comm_t *comm)
{
    atomic_store(&comm->batch->taken, false);
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
    if (own->has_aborter)
        pthread_join(own->aborter, NULL);
    if (atomic_load(&comm->failed))
        own->transport->batch->abort(own->batch);
    own->transport->batch->close(own->batch, uli_deadline_in(CLOSE_S));
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

static uint64_t
batch_load(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void
batch_watch_notify(const struct uli_batch_watch *watch, uint64_t begun)
{
    uint64_t *progress = watch->block.address;
    if (watch->call)
        __atomic_store_n(
            &progress[1], batch_load(watch->call), __ATOMIC_RELAXED);
    __atomic_store_n(&progress[0], begun, __ATOMIC_RELEASE);
}

void
uli_batch_watch_leave(ulyx_comm_t *comm, struct uli_batch_watch *watch)
{
    pthread_mutex_lock(&comm->batch->lock);
    batch_watch_notify(watch, batch_load(watch->begun));
    pthread_mutex_unlock(&comm->batch->lock);
}

void
uli_batch_watch_remove(ulyx_comm_t *comm, struct uli_batch_watch *watch)
{
    pthread_mutex_lock(&comm->batch->lock);
    batch_watch_notify(watch, batch_load(watch->begun));
    uli_list_remove(&watch->node);
    pthread_mutex_unlock(&comm->batch->lock);
}

/* The words that p has written; NULL where p cannot be mapped. */
static const uint64_t *
progress_of(ulyx_comm_t *comm, const struct uli_batch_watch *watch, int32_t p)
{
    return comm->peers[p].map
               ? uli_window_address(comm, p, watch->progress[p].window,
                     watch->progress[p].offset, ULI_BATCH_PROGRESS_BYTES)
               : NULL;
}

/* The ranks for which call n waits, grouped by what this rank knows about
 * each. */
struct blame {
    struct uli_late late;       /* have not begun the call */
    struct uli_late unreadable; /* cannot be read here */
    struct uli_late reached;    /* have begun the call */
    int32_t other;              /* the first in another call, or -1 */
    uint64_t other_call;        /* that call */
};

static struct blame
find_blame(ulyx_comm_t *comm, const struct uli_batch_watch *watch, uint64_t n)
{
    struct blame blame = {uli_late_none(ULI_LATE_REACH),
        uli_late_none(ULI_LATE_UNSEEN), uli_late_none(ULI_LATE_END), -1, 0};
    uint64_t own = watch->call ? batch_load(watch->call) : 0;
    for (int32_t p = 0; p < comm->nranks; p++) {
        if (p == comm->rank || !watch->shares[p])
            continue;
        const uint64_t *progress = progress_of(comm, watch, p);
        uint64_t begun = progress ? batch_load(&progress[0]) : 0;
        uint64_t call = progress ? batch_load(&progress[1]) : 0;
        uli_late_add(!progress   ? &blame.unreadable
                     : begun < n ? &blame.late
                                 : &blame.reached,
            p);
        if (begun == n && batch_load(&progress[0]) == n && call != own &&
            watch->call && blame.other < 0) {
            blame.other = p;
            blame.other_call = call;
        }
    }
    return blame;
}

/* A rank in another call is named before a rank that has not begun, because the
 * former holds up the ranks that wait for it. */
static void
fail_late(ulyx_comm_t *comm, const struct uli_batch_watch *watch, uint64_t n)
{
    struct blame blame = find_blame(comm, watch, n);
    const struct uli_late *late = blame.late.count > 0 ? &blame.late
                                  : blame.unreadable.count > 0
                                      ? &blame.unreadable
                                      : &blame.reached;
    if (blame.other >= 0)
        uli_comm_fail(comm, ULYX_ERR_TIMEOUT, blame.other,
            "%s, call %llu: not ended after %g s: rank %d executes %s, rank %d "
            "%s",
            watch->what, (unsigned long long)n, watch->timeout_s, blame.other,
            watch->name_of(blame.other_call), comm->rank,
            watch->name_of(batch_load(watch->call)));
    else
        uli_comm_fail_late(comm, late, "%s, call %llu, after %g s", watch->what,
            (unsigned long long)n, watch->timeout_s);
}

/* A rank of this node for which call n waits and which has left the
 * communicator without beginning that call; or -1. What ranks of other nodes
 * have begun is not known here. */
static int32_t
find_left(ulyx_comm_t *comm, const struct uli_batch_watch *watch, uint64_t n)
{
    for (int32_t p = 0; p < comm->nranks; p++) {
        if (!watch->shares[p] || p == comm->rank ||
            atomic_load(&comm->control->left[p]) == 0)
            continue;
        const uint64_t *progress = progress_of(comm, watch, p);
        if (progress && batch_load(&progress[0]) < n)
            return p;
    }
    return -1;
}

static void
fail_left(ulyx_comm_t *comm, const struct uli_batch_watch *watch, uint64_t n,
    int32_t rank)
{
    uint32_t how = atomic_load(&comm->control->left[rank]);
    uli_comm_fail(comm, ULYX_ERR_RANK_LOST, rank, "%s, call %llu: rank %d %s",
        watch->what, (unsigned long long)n, rank,
        uli_left_text((enum uli_left)how));
}

static void
look_at(ulyx_comm_t *comm, struct uli_batch_watch *watch)
{
    int64_t now = uli_clock_ns(); /* before the words are read: this thread may
                                   * be delayed */
    uint64_t begun = batch_load(watch->begun);
    uint64_t ended = batch_load(watch->ended);
    batch_watch_notify(watch, begun);
    if (begun != watch->seen) {
        watch->seen = begun;
        watch->since_ns = uli_clock_ns();
    }
    if (begun <= ended)
        return;
    int64_t since = now - watch->since_ns;
    int32_t left = since > LEFT_NS ? find_left(comm, watch, begun) : -1;
    if (left >= 0)
        fail_left(comm, watch, begun, left);
    else if (since > (int64_t)(watch->timeout_s * 1e9) + GRACE_NS)
        fail_late(comm, watch, begun);
}

/* Fails the communicator with an error that the batch transport has found.
 * ABORTED is left out: the thread that aborts the batch fails the communicator
 * with the cause. */
static void
transport_poll(ulyx_comm_t *comm, struct uli_comm_batch *own)
{
    ulyx_status_t status = own->transport->batch->check(own->batch);
    if (status != ULYX_SUCCESS && status != ULYX_IN_PROGRESS &&
        status != ULYX_ERR_ABORTED)
        uli_comm_fail(comm, status, -1, "device memory goes by %s: %s",
            own->transport->name, uli_error_text());
}

static void *
abort_batch(void *context)
{
    struct uli_comm_batch *own = context;
    own->transport->batch->abort(own->batch);
    return NULL;
}

/* Aborts in a new thread; if there is none, in this thread. */
static void
start_abort(struct uli_comm_batch *own)
{
    own->aborted = true;
    own->has_aborter =
        pthread_create(&own->aborter, NULL, abort_batch, own) == 0;
    if (!own->has_aborter)
        abort_batch(own);
}

void
uli_batch_look(ulyx_comm_t *comm)
{
    struct uli_comm_batch *own = comm->batch;
    if (!own || own->aborted)
        return;
    if (!atomic_load(&comm->failed))
        transport_poll(comm, own);
    pthread_mutex_lock(&own->lock);
    for (struct uli_list *n = own->watches.next;
         n != &own->watches && !atomic_load(&comm->failed); n = n->next)
        look_at(comm, ULI_CONTAINER_OF(n, struct uli_batch_watch, node));
    pthread_mutex_unlock(&own->lock);
    if (atomic_load(&comm->failed))
        start_abort(own);
}
