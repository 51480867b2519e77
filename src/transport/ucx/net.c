/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening, progress, sleep and closing of a rank's end of UCX; see net.h.
 *
 * Sleep. wait arms UCX's descriptor and polls it. Events of the network end the
 * poll, but calls of other threads do not. So put and message write to the wake
 * descriptor when they leave work unfinished while `sleeping` is set. wait sets
 * `sleeping` before it arms the worker: either the other thread reads the flag,
 * or arming follows that thread's call and finds the work.
 */
#include "transport/ucx/net.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "base/log.h"
#include "base/status.h"
#include "base/system/clock.h"
#include "base/system/random.h"

enum {
    STEPS = 8,     /* of UCX in one step of this net, while there is work */
    PREPARED = 64, /* operations that exist from the start */
};

void
uli_ucx_enter(struct uli_net *net)
{
    for (int i = 0;
         atomic_flag_test_and_set_explicit(&net->busy, memory_order_acquire);
         i++)
        if (i % 64 == 63)
            sched_yield();
}

void
uli_ucx_leave(struct uli_net *net)
{
    atomic_flag_clear_explicit(&net->busy, memory_order_release);
}

ulyx_status_t
uli_ucx_error(const struct uli_net *net, ucs_status_t status, const char *call)
{
    ulyx_status_t as =
        status == UCS_ERR_NO_MEMORY ? ULYX_ERR_NO_MEMORY : ULYX_ERR_SYSTEM;
    return uli_error(as, "ucx: %s: %s", call, net->ucx->status_string(status));
}

bool
uli_ucx_step(struct uli_net *net)
{
    bool happened = false;
    if (net->gate.stale)
        uli_ucx_gate_close(net);
    for (int i = 0; i < STEPS && net->gate.met; i++) {
        if (!net->ucx->worker_progress(net->worker))
            break;
        happened = true;
    }
    uli_ucx_keepalive_step(net);
    if (net->ready)
        uli_ucx_do_ready(net);
    if (net->due)
        uli_ucx_do_due(net);
    if (net->happened) {
        net->happened = false;
        net->hooks.arrived(net->hooks.context);
        happened = true;
    }
    return happened;
}

static bool
ucx_progress(struct uli_net *net)
{
    if (atomic_flag_test_and_set_explicit(&net->busy, memory_order_acquire))
        return false;
    bool happened = uli_ucx_step(net);
    uli_ucx_leave(net);
    return happened;
}

static void
ucx_wake(struct uli_net *net)
{
    uint64_t one = 1;
    /* A full counter wakes too. */
    ssize_t written = write(net->wake_fd, &one, sizeof(one));
    (void)written;
}

static void
wait_for(struct uli_net *net, int max_ms)
{
    struct pollfd fds[3] = {
        {.fd = net->event_fd, .events = POLLIN},
        {.fd = net->wake_fd, .events = POLLIN},
        {.fd = net->listener, .events = POLLIN},
    };
    uint64_t count;
    atomic_store(&net->sleeping, true);
    uli_ucx_enter(net);
    ucs_status_t armed = net->due || net->happened || net->ready
                             ? UCS_ERR_BUSY
                             : net->ucx->worker_arm(net->worker);
    uli_ucx_leave(net);
    if (armed == UCS_OK && poll(fds, 3, max_ms) > 0 && fds[1].revents) {
        ssize_t taken = read(net->wake_fd, &count, sizeof(count));
        (void)taken;
    }
    atomic_store(&net->sleeping, false);
}

/* ---- opening ------------------------------------------------------------- */

static ulyx_status_t
open_worker(struct uli_net *net)
{
    ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED,
    };
    ucs_status_t status =
        net->ucx->worker_create(net->context, &params, &net->worker);
    if (status != UCS_OK)
        return uli_ucx_error(net, status, "ucp_worker_create");
    status = net->ucx->worker_get_efd(net->worker, &net->event_fd);
    if (status == UCS_OK)
        status = net->ucx->worker_get_address(
            net->worker, &net->address, &net->address_bytes);
    if (status != UCS_OK) {
        net->ucx->worker_destroy(net->worker);
        return uli_ucx_error(net, status, "ucp_worker_get_address");
    }
    ulyx_status_t listens = uli_ucx_listen(net);
    if (listens != ULYX_SUCCESS) {
        net->ucx->worker_release_address(net->worker, net->address);
        net->ucx->worker_destroy(net->worker);
    }
    return listens;
}

static struct uli_net *
ucx_make(const struct uli_net_params *params, const struct uli_ucx_calls *ucx)
{
    struct uli_net *net = calloc(
        1, sizeof(*net) + (size_t)params->nranks * sizeof(net->peers[0]));
    if (!net)
        return NULL;
    net->ops = &uli_tr_ucx_ops;
    net->ucx = ucx;
    net->hooks = params->hooks;
    net->rank = params->rank;
    net->nranks = params->nranks;
    net->pid = getpid();
    net->eager_bytes = uli_ucx_has_infiniband() ? ULI_UCX_EAGER_BYTES
                                                : ULI_UCX_EAGER_TCP_BYTES;
    net->verb = uli_ucx_verb_of(params->settings);
    /* Where a setting forces a verb, smaller puts use it too. */
    net->verb_bytes = net->verb == ULI_UCX_BY_PUT || net->verb == ULI_UCX_BY_TAG
                          ? ULI_NET_INLINE_BYTES
                          : net->eager_bytes;
    atomic_flag_clear(&net->busy);
    net->keepalive_s = params->settings->keepalive_s;
    net->listener = net->sentinel.fd = net->wake_fd = -1;
    for (int i = 0; i < ULI_UCX_CALLERS; i++)
        net->callers[i].fd = -1;
    net->gate.open = net->gate.met = params->settings->insecure;
    uli_list_init(&net->watched);
    uli_list_init(&net->probed);
    uli_list_init(&net->dropped);
    for (int32_t p = 0; p < params->nranks; p++) {
        net->peers[p].net = net;
        net->peers[p].rank = p;
        net->peers[p].probe_fd = net->peers[p].watcher_fd = -1;
        uli_list_init(&net->peers[p].watch);
        uli_list_init(&net->peers[p].sends);
        uli_list_init(&net->peers[p].receives);
    }
    return net;
}

/* Opens the parts that need no UCX. */
static ulyx_status_t
open_own(struct uli_net *net)
{
    ULI_TRY(uli_random_bytes(&net->token, sizeof(net->token)));
    ULI_TRY(uli_random_bytes(&net->next_tag, sizeof(net->next_tag)));
    ULI_TRY(uli_ucx_recv_open(net));
    ULI_TRY(uli_ucx_ops_prepare(net, PREPARED));
    net->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return net->wake_fd < 0 ? uli_error_errno("ucx: eventfd") : ULYX_SUCCESS;
}

/* Frees the parts that need no UCX, and the net itself. */
static void
free_own(struct uli_net *net)
{
    if (net->wake_fd >= 0)
        close(net->wake_fd);
    for (int32_t p = 0; p < net->nranks; p++) {
        uli_ucx_forget(&net->peers[p]);
        free(net->peers[p].address);
    }
    uli_ucx_gate_free(net);
    uli_ucx_recv_close(net);
    uli_ucx_ops_free(net);
    free(net);
}

/* Records the sockets that exist before UCX's worker opens its own. */
static ulyx_status_t
open_gated(struct uli_net *net)
{
    ULI_TRY(uli_ucx_gate_before(net));
    return open_worker(net);
}

static ulyx_status_t
open_net(const struct uli_net_params *params, struct uli_net **net_p)
{
    char why[256];
    const struct uli_ucx_calls *ucx = uli_ucx_open(why, sizeof(why));
    if (!ucx)
        return uli_error(ULYX_ERR_UNSUPPORTED, "ucx: %s", why);
    ULI_TRY(uli_ucx_hold());
    struct uli_net *net = ucx_make(params, ucx);
    ulyx_status_t status = ULYX_ERR_NO_MEMORY;
    if (!net) {
        uli_ucx_let_go();
        return uli_error(status, "ucx: no memory for %d peers", params->nranks);
    }
    status = open_own(net);
    if (status != ULYX_SUCCESS)
        goto err_free;
    status = uli_ucx_context(ucx, params, net->devices, sizeof(net->devices),
        &net->may_put, &net->context);
    if (status != ULYX_SUCCESS)
        goto err_free;
    status = open_gated(net);
    if (status != ULYX_SUCCESS)
        goto err_context;
    uli_ucx_keepalive_open(net, params->settings->ports);
    status = uli_ucx_gate_after(net);
    if (status == ULYX_SUCCESS)
        status = uli_ucx_window_add(
            net, ULI_UCX_SCRATCH, net->scratch, ULI_UCX_SCRATCH_BYTES);
    if (status != ULYX_SUCCESS)
        goto err_worker;
    ULI_INFO(ULI_LOG_TRANS, net->rank, "UCX %s on devices %s",
        ucx->get_version_string(), net->devices);
    *net_p = net;
    return ULYX_SUCCESS;
err_worker:
    uli_ucx_keepalive_close(net);
    ucx->worker_release_address(net->worker, net->address);
    ucx->worker_destroy(net->worker);
err_context:
    ucx->cleanup(net->context);
err_free:
    free_own(net);
    uli_ucx_let_go();
    return status;
}

/* The MB/s of a verb's probes; 0 where no probe has ended. */
static double
found_rate(const struct uli_ucx_link *link, enum uli_ucx_verb verb)
{
    double bytes = ULI_UCX_PROBE_DEPTH * ULI_UCX_SCRATCH_BYTES;
    return link->best_ns[verb] > 0 ? bytes * 1e3 / (double)link->best_ns[verb]
                                   : 0;
}

static void
ucx_describe(struct uli_net *net, int32_t peer, char *text_p, size_t text_bytes)
{
    const struct uli_ucx_link *link = &net->peers[peer].link;
    char found[128] = "", put[32] = "";
    uli_ucx_enter(net);
    if (!link->excluded[ULI_UCX_BY_PUT])
        snprintf(
            put, sizeof(put), ", put %.0f", found_rate(link, ULI_UCX_BY_PUT));
    if (link->turn > 0 && link->state == ULI_UCX_SETTLED)
        snprintf(found, sizeof(found), " (MB/s: am %.0f%s, tag %.0f)",
            found_rate(link, ULI_UCX_BY_AM), put,
            found_rate(link, ULI_UCX_BY_TAG));
    snprintf(text_p, text_bytes, "%s%s over %s, UCX %s",
        uli_ucx_verb_name(link->verb), found, net->devices,
        net->ucx->get_version_string());
    uli_ucx_leave(net);
}

static const char *
ucx_devices(const struct uli_net *net)
{
    return net->devices;
}

/* ---- the end ------------------------------------------------------------- */

/* How a net ends. Until the deadline it waits until all puts have left (a
 * rendezvous ends when the peer has the data), then sends BYE, then waits for
 * the peers' answers. Afterwards connections are closed in whatever state they
 * are. A peer that has received this rank's BYE sends no BYE of its own here,
 * so its end cannot be distinguished from its death: losses are no longer
 * reported. A forked child has the same descriptors as its parent and must not
 * send through them: it only frees its memory. */
static bool
is_open(const struct uli_ucx_peer *peer)
{
    return peer->ep && !peer->broken && !peer->lost && !peer->bye_received;
}

/* Sends BYE when the puts to the peer have ended; true while an answer is
 * missing. */
static bool
take_leave(struct uli_net *net, struct uli_ucx_peer *peer)
{
    if (!is_open(peer) || peer->answered)
        return false;
    if (!peer->bye && atomic_load(&peer->unsettled) == 0) {
        peer->bye = true;
        if (uli_ucx_send_head(net, peer, ULI_UCX_BYE, 0, 0) != ULYX_SUCCESS)
            return false;
    }
    return true;
}

static bool
close_step(struct uli_net *net)
{
    bool open = false;
    uli_ucx_step(net);
    for (int32_t p = 0; p < net->nranks; p++) {
        open |= take_leave(net, &net->peers[p]);
        open |= net->peers[p].answer_due && net->peers[p].ep;
    }
    return open || net->due;
}

static void
net_send_byes(struct uli_net *net, int64_t deadline_ns)
{
    struct pollfd fd = {.fd = net->event_fd, .events = POLLIN};
    while (close_step(net) && !uli_deadline_over(deadline_ns))
        if (net->ucx->worker_arm(net->worker) == UCS_OK)
            poll(&fd, 1, uli_deadline_poll_ms(deadline_ns, 10));
}

/* Cancelled operations end within a few steps; UCX frees the rest. */
static void
close_endpoints(struct uli_net *net)
{
    int64_t deadline = uli_deadline_in(2);
    uli_ucx_recv_drop(net, NULL);
    for (int32_t p = 0; p < net->nranks; p++)
        uli_ucx_drop(net, &net->peers[p]);
    while (net->flying > 0 && !uli_deadline_over(deadline))
        uli_ucx_step(net);
    if (net->flying > 0)
        ULI_INFO(ULI_LOG_TRANS, net->rank,
            "ucx: %lld operations have not ended", (long long)net->flying);
}

static void
ucx_close(struct uli_net *net, int64_t deadline_ns)
{
    uli_ucx_enter(net); /* never left: no call may follow close */
    net->leaving = true;
    if (net->pid == getpid()) {
        net_send_byes(net, deadline_ns);
        net->closing = true;
        close_endpoints(net);
        for (int32_t p = 0; p < net->nranks; p++)
            uli_ucx_keys_free(&net->peers[p]);
        uli_ucx_windows_close(net);
        net->ucx->worker_release_address(net->worker, net->address);
        net->ucx->worker_destroy(net->worker);
        net->ucx->cleanup(net->context);
        uli_ucx_let_go();
    }
    uli_ucx_keepalive_close(net);
    free_own(net);
}

/* ---- the table ----------------------------------------------------------- */

static bool
ucx_settled(struct uli_net *net, int32_t peer)
{
    return atomic_load_explicit(
               &net->peers[peer].unsettled, memory_order_acquire) == 0;
}

static bool
ucx_usable(const struct uli_settings *settings, char *why_p, size_t why_bytes)
{
    (void)settings;
    return uli_ucx_open(why_p, why_bytes) != NULL;
}

static bool
ucx_reaches(const struct uli_identity *me, const struct uli_identity *peer,
    char *why_p, size_t why_bytes)
{
    if (memcmp(me->node_hash, peer->node_hash, sizeof(me->node_hash)) == 0) {
        snprintf(why_p, why_bytes, "rank %d is on the same node", peer->rank);
        return false;
    }
    return true;
}

static const struct uli_net_ops net_ops = {
    .open = open_net,
    .address = uli_ucx_address,
    .connect = uli_ucx_connect,
    .watch = uli_ucx_sentinel_watch,
    .window_add = uli_ucx_window_add,
    .window_remove = uli_ucx_window_remove,
    .put = uli_ucx_put,
    .message = uli_ucx_message,
    .progress = ucx_progress,
    .wait = wait_for,
    .wake = ucx_wake,
    .settled = ucx_settled,
    .landed = uli_ucx_landed,
    .close = ucx_close,
    .describe = ucx_describe,
    .devices = ucx_devices,
};

const struct uli_tr_ops uli_tr_ucx_ops = {
    .name = "ucx",
    .caps = ULI_TR_PUT,
    .usable = ucx_usable,
    .reaches = ucx_reaches,
    ULI_TR_NO_MAP,
    ULI_TR_NO_MAP_DEVICE,
    ULI_TR_NO_READ,
    .net = &net_ops,
};
