/* SPDX-License-Identifier: Apache-2.0
 *
 * One net per rank; an address is the net's number. A put or message lies in
 * the receiver's inbox until it is due, and the receiver's progress delivers
 * it. Data of large puts is read at delivery, so that a sender that overwrites
 * it too early is detected. One lock for all nets: this is for tests.
 */
#include "support/thread_net.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/list.h"
#include "base/system/clock.h"
#include "support/random.h"
#include "support/select_wrap.h"

enum { MAX_NETS = 4096 };

struct item {
    struct uli_list node;
    int64_t due_ns;
    int from;     /* number of the sender's net */
    int32_t rank; /* rank of the sender */
    int32_t to;   /* rank of the receiver */
    bool is_put;
    struct uli_net_put put;
    size_t bytes;
    unsigned char data[];
};

struct uli_net {
    const struct uli_tr_ops *ops;
    struct uli_net_params params;
    int number;
    int *peers;           /* [nranks] number of the peer's net, or -1 */
    bool *touched, *lost; /* [nranks] */
    int *open_puts;       /* [nranks] puts to the peer, not yet delivered */
    /* [nranks] when the last message to the peer is due */
    int64_t *last_due_ns;
    struct uli_list inbox;
    bool cut, frozen, woken;
    atomic_flag busy;
    pthread_cond_t changed;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct uli_net *nets[MAX_NETS]; /* protected by lock */
/* protected by lock; no number is used twice */
static int used;
static struct test_random chance = {1};
static atomic_int max_delay_us;
static atomic_bool opening_broken, holds_landing;
static _Atomic int64_t message_count;

void
thread_net_delay(int max_us)
{
    atomic_store(&max_delay_us, max_us);
}

void
thread_net_break_opening(bool broken)
{
    atomic_store(&opening_broken, broken);
}

int64_t
thread_net_messages(void)
{
    return atomic_load(&message_count);
}

static void
wake_all(void)
{
    for (int i = 0; i < used; i++)
        if (nets[i])
            pthread_cond_broadcast(&nets[i]->changed);
}

void
thread_net_cut(struct uli_net *net)
{
    pthread_mutex_lock(&lock);
    net->cut = true;
    wake_all();
    pthread_mutex_unlock(&lock);
}

void
thread_net_freeze(struct uli_net *net, bool frozen)
{
    pthread_mutex_lock(&lock);
    net->frozen = frozen;
    wake_all();
    pthread_mutex_unlock(&lock);
}

/* ---- life ---------------------------------------------------------------- */

static void
free_net(struct uli_net *net)
{
    free(net->peers);
    free(net->touched);
    free(net->lost);
    free(net->open_puts);
    free(net->last_due_ns);
    free(net);
}

static ulyx_status_t
net_open(const struct uli_net_params *params, struct uli_net **net_p)
{
    size_t nranks = (size_t)params->nranks;
    pthread_condattr_t attributes;
    if (atomic_load(&opening_broken))
        return uli_error(ULYX_ERR_UNSUPPORTED, "the test's network is broken");
    struct uli_net *net = calloc(1, sizeof(*net));
    net->ops = &thread_net_transport;
    net->params = *params;
    net->peers = malloc(nranks * sizeof(*net->peers));
    for (size_t p = 0; p < nranks; p++)
        net->peers[p] = -1;
    net->touched = calloc(nranks, sizeof(*net->touched));
    net->lost = calloc(nranks, sizeof(*net->lost));
    net->open_puts = calloc(nranks, sizeof(*net->open_puts));
    net->last_due_ns = calloc(nranks, sizeof(*net->last_due_ns));
    uli_list_init(&net->inbox);
    atomic_flag_clear(&net->busy);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&net->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_lock(&lock);
    net->number = used++;
    nets[net->number] = net;
    pthread_mutex_unlock(&lock);
    *net_p = net;
    return ULYX_SUCCESS;
}

static ulyx_status_t
net_address(struct uli_net *net, void *address_p, size_t *bytes_p)
{
    memcpy(address_p, &net->number, sizeof(net->number));
    *bytes_p = sizeof(net->number);
    return ULYX_SUCCESS;
}

static ulyx_status_t
net_connect(
    struct uli_net *net, int32_t peer, const void *address, size_t bytes)
{
    if (bytes != sizeof(net->number))
        return uli_error(ULYX_ERR_INVALID_ARGUMENT, "not an address");
    memcpy(&net->peers[peer], address, bytes);
    return ULYX_SUCCESS;
}

static ulyx_status_t
net_window_add(
    struct uli_net *net, uint32_t window, void *address, int64_t bytes)
{
    (void)net, (void)window, (void)address, (void)bytes;
    return ULYX_SUCCESS;
}

static void
net_window_remove(struct uli_net *net, uint32_t window)
{
    (void)net, (void)window;
}

/* ---- sending, under lock ------------------------------------------------- */

static struct uli_net *
target_of(struct uli_net *net, int32_t peer)
{
    struct uli_net *target =
        net->peers[peer] < 0 ? NULL : nets[net->peers[peer]];
    net->touched[peer] = true;
    return target && !target->cut && !net->cut ? target : NULL;
}

static void
send_item(struct uli_net *net, struct uli_net *target, int32_t peer,
    struct item *item)
{
    int delay = atomic_load(&max_delay_us);
    item->from = net->number;
    item->rank = net->params.rank;
    item->to = peer;
    item->due_ns = uli_clock_ns();
    if (delay)
        item->due_ns += 1000 * test_random_in(&chance, 0, delay);
    if (!item->is_put && item->due_ns < net->last_due_ns[peer])
        item->due_ns = net->last_due_ns[peer];
    if (!item->is_put)
        net->last_due_ns[peer] = item->due_ns;
    /* The inbox is sorted by time; items of equal time are in the order of
     * sending. */
    struct uli_list *before = target->inbox.prev;
    while (before != &target->inbox &&
           ULI_CONTAINER_OF(before, struct item, node)->due_ns > item->due_ns)
        before = before->prev;
    uli_list_append(before->next, &item->node);
    pthread_cond_broadcast(&target->changed);
}

static struct item *
new_item(const void *data, size_t bytes)
{
    struct item *item = calloc(1, sizeof(*item) + bytes);
    item->bytes = bytes;
    if (bytes)
        memcpy(item->data, data, bytes);
    return item;
}

static ulyx_status_t
net_put(struct uli_net *net, int32_t peer, const struct uli_net_put *put)
{
    bool by_reference = put->bytes > ULI_NET_INLINE_BYTES;
    pthread_mutex_lock(&lock);
    struct uli_net *target = target_of(net, peer);
    if (target) {
        struct item *item =
            new_item(put->data, by_reference ? 0 : (size_t)put->bytes);
        item->is_put = true;
        item->put = *put;
        if (!by_reference)
            item->put.pending = NULL;
        if (item->put.pending)
            atomic_fetch_add(put->pending, 1);
        net->open_puts[peer]++;
        send_item(net, target, peer, item);
    }
    pthread_mutex_unlock(&lock);
    return target ? ULYX_SUCCESS
                  : uli_error(ULYX_ERR_RANK_LOST, "rank %d is lost", peer);
}

static ulyx_status_t
net_message(
    struct uli_net *net, int32_t peer, const void *message, size_t bytes)
{
    /* Before the send: an answer must not arrive uncounted. */
    atomic_fetch_add(&message_count, 1);
    pthread_mutex_lock(&lock);
    struct uli_net *target = target_of(net, peer);
    if (target)
        send_item(net, target, peer, new_item(message, bytes));
    pthread_mutex_unlock(&lock);
    return target ? ULYX_SUCCESS
                  : uli_error_pass(ULYX_ERR_RANK_LOST, "it is lost");
}

/* ---- delivering ---------------------------------------------------------- */

static void
end_put(const struct item *item)
{
    struct uli_net *sender = nets[item->from];
    if (item->is_put && sender) {
        sender->open_puts[item->to]--;
        pthread_cond_broadcast(&sender->changed);
    }
    if (item->put.pending)
        atomic_fetch_sub(item->put.pending, 1);
}

static void
deliver_put(struct uli_net *net, const struct item *item)
{
    const struct uli_net_hooks *hooks = &net->params.hooks;
    const struct uli_net_put *put = &item->put;
    void *data = put->bytes ? hooks->target(hooks->context, put->window,
                                  put->offset, put->bytes)
                            : NULL;
    _Atomic uint64_t *signal = hooks->target(
        hooks->context, put->signal_window, put->signal_offset, 8);
    if ((put->bytes && !data) || !signal) {
        hooks->lost(hooks->context, item->rank, "names memory it has not");
        return;
    }
    if (put->bytes)
        memcpy(data, item->bytes ? item->data : put->data, (size_t)put->bytes);
    uint64_t seen = atomic_load(signal);
    while (seen < put->signal &&
           !atomic_compare_exchange_weak(signal, &seen, put->signal))
        ;
}

/* Removes and returns the next item that is due, or returns NULL. */
static struct item *
take_due(struct uli_net *net)
{
    struct item *item = NULL;
    if (!net->cut && !net->frozen && !uli_list_empty(&net->inbox)) {
        item = ULI_CONTAINER_OF(net->inbox.next, struct item, node);
        if (item->due_ns > uli_clock_ns())
            return NULL;
        uli_list_remove(&item->node);
    }
    return item;
}

/* Returns a lost peer with which this net has exchanged data, or -1. */
static int32_t
take_lost(struct uli_net *net)
{
    for (int32_t p = 0; !net->frozen && p < net->params.nranks; p++) {
        const struct uli_net *peer =
            net->peers[p] < 0 ? NULL : nets[net->peers[p]];
        if (!net->touched[p] || net->lost[p] || (peer && !peer->cut))
            continue;
        net->lost[p] = true;
        return p;
    }
    return -1;
}

static bool
deliver_one(struct uli_net *net)
{
    const struct uli_net_hooks *hooks = &net->params.hooks;
    pthread_mutex_lock(&lock);
    struct item *item = take_due(net);
    int32_t lost = item || !uli_list_empty(&net->inbox) ? -1 : take_lost(net);
    if (item)
        net->touched[item->rank] = true;
    pthread_mutex_unlock(&lock);
    if (lost >= 0)
        hooks->lost(hooks->context, lost, "has broken its connection");
    if (!item)
        return lost >= 0;
    if (item->is_put)
        deliver_put(net, item);
    else
        hooks->message(hooks->context, item->rank, item->data, item->bytes);
    hooks->arrived(hooks->context);
    pthread_mutex_lock(&lock);
    end_put(item);
    pthread_mutex_unlock(&lock);
    free(item);
    return true;
}

static bool
net_progress(struct uli_net *net)
{
    bool moved = false;
    if (atomic_flag_test_and_set(&net->busy))
        return false;
    while (deliver_one(net))
        moved = true;
    atomic_flag_clear(&net->busy);
    return moved;
}

static struct timespec
at_ns(int64_t ns)
{
    return (struct timespec){ns / 1000000000, ns % 1000000000};
}

static void
net_wait(struct uli_net *net, int max_ms)
{
    int64_t end = uli_clock_ns() + (int64_t)max_ms * 1000000;
    pthread_mutex_lock(&lock);
    if (!uli_list_empty(&net->inbox) && !net->frozen) {
        int64_t due =
            ULI_CONTAINER_OF(net->inbox.next, struct item, node)->due_ns;
        end = due < end ? due : end;
    }
    struct timespec until = at_ns(end);
    if (!net->woken && end > uli_clock_ns())
        pthread_cond_timedwait(&net->changed, &lock, &until);
    net->woken = false;
    pthread_mutex_unlock(&lock);
}

static void
net_wake(struct uli_net *net)
{
    pthread_mutex_lock(&lock);
    net->woken = true;
    pthread_cond_broadcast(&net->changed);
    pthread_mutex_unlock(&lock);
}

static bool
net_settled(struct uli_net *net, int32_t peer)
{
    pthread_mutex_lock(&lock);
    bool settled = net->open_puts[peer] == 0;
    pthread_mutex_unlock(&lock);
    return settled;
}

/* A put never lands in a window that is gone: its delivery looks the window up
 * when the put is due. */
static bool
net_landed(struct uli_net *net, int32_t peer, bool dead)
{
    (void)net;
    (void)peer;
    return !dead || !atomic_load(&holds_landing);
}

void
thread_net_hold_landing(bool hold)
{
    atomic_store(&holds_landing, hold);
}

/* ---- the end ------------------------------------------------------------- */

/* Counts the items that this net has sent and that are still in an inbox; with
 * drop set, also removes them. The lock is held. */
static int
on_their_way(const struct uli_net *net, bool drop)
{
    int count = 0;
    for (int i = 0; i < used; i++) {
        struct uli_list *next;
        for (struct uli_list *n = nets[i] ? nets[i]->inbox.next : NULL;
             n && n != &nets[i]->inbox; n = next) {
            struct item *item = ULI_CONTAINER_OF(n, struct item, node);
            next = n->next;
            if (item->from != net->number)
                continue;
            count += item->is_put;
            if (!drop || !item->is_put)
                continue;
            uli_list_remove(n);
            if (item->put.pending)
                atomic_fetch_sub(item->put.pending, 1);
            free(item);
        }
    }
    return count;
}

static void
net_close(struct uli_net *net, int64_t deadline_ns)
{
    struct timespec until = at_ns(deadline_ns);
    pthread_mutex_lock(&lock);
    while (on_their_way(net, false) && !uli_deadline_over(deadline_ns))
        pthread_cond_timedwait(&net->changed, &lock, &until);
    on_their_way(net, true);
    while (!uli_list_empty(&net->inbox)) {
        struct item *item =
            ULI_CONTAINER_OF(net->inbox.next, struct item, node);
        uli_list_remove(&item->node);
        end_put(item);
        free(item);
    }
    nets[net->number] = NULL;
    wake_all();
    pthread_mutex_unlock(&lock);
    pthread_cond_destroy(&net->changed);
    free_net(net);
}

static void
net_describe(struct uli_net *net, int32_t peer, char *text_p, size_t text_bytes)
{
    snprintf(text_p, text_bytes, "threads: net %d to %d", net->number,
        net->peers[peer]);
}

static const char *
net_devices(const struct uli_net *net)
{
    (void)net;
    return "threads0,threads1:1";
}

/* Nothing to watch: a thread does not die without its process. */
static void
net_watch(struct uli_net *net, int32_t peer)
{
    (void)net, (void)peer;
}

static const struct uli_net_ops ops = {
    .open = net_open,
    .address = net_address,
    .connect = net_connect,
    .watch = net_watch,
    .window_add = net_window_add,
    .window_remove = net_window_remove,
    .put = net_put,
    .message = net_message,
    .progress = net_progress,
    .wait = net_wait,
    .wake = net_wake,
    .settled = net_settled,
    .landed = net_landed,
    .close = net_close,
    .describe = net_describe,
    .devices = net_devices,
};

const struct uli_tr_ops thread_net_transport = {
    .name = "threads",
    .caps = ULI_TR_PUT,
    .net = &ops,
};

/* ---- replaces the library's choice --------------------------------------- */

const struct uli_tr_ops *
__wrap_uli_tr_select(const struct uli_settings *settings,
    const struct uli_identity *me, const struct uli_identity *peer,
    uint64_t caps, char *why_p, size_t why_bytes)
{
    if (caps & ULI_TR_PUT)
        return &thread_net_transport;
    return __real_uli_tr_select(settings, me, peer, caps, why_p, why_bytes);
}
