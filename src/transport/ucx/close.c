/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a rank's end; see net.h. Until the deadline: everything that
 * was put is on its way (a rendezvous is over when the peer has the data),
 * then BYE, then the peers' answers. After it connections are closed as they
 * are. Who has had my BYE sends none to me, so that its end and its death look
 * alike from here: losses are not told any more. A forked child has the same
 * descriptors as its parent and must not speak through them: it gives back its
 * memory only.
 */
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "transport/ucx/op.h"

static bool
is_open(const struct uli_ucx_peer *peer)
{
    return peer->ep && !peer->broken && !peer->lost && !peer->said_bye;
}

/* Says what is still to say; true while an answer is missing. */
static bool
take_leave(struct uli_net *net, struct uli_ucx_peer *peer)
{
    if (!is_open(peer) || peer->answered)
        return false;
    if (!peer->bye && atomic_load(&peer->unsettled) == 0) {
        peer->bye = true;
        if (uli_ucx_say(net, peer, ULI_UCX_BYE, 0, 0) != ULYX_SUCCESS)
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
        open |= net->peers[p].want_answer && net->peers[p].ep;
    }
    return open || net->due;
}

static void
say_goodbye(struct uli_net *net, int64_t deadline_ns)
{
    struct pollfd fd = {.fd = net->event_fd, .events = POLLIN};
    while (close_step(net) && !uli_deadline_over(deadline_ns))
        if (net->ucx->worker_arm(net->worker) == UCS_OK)
            poll(&fd, 1, uli_deadline_poll_ms(deadline_ns, 10));
}

/* Cancelled operations end within a few steps; UCX frees what is left. */
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

void
uli_ucx_close(struct uli_net *net, int64_t deadline_ns)
{
    uli_ucx_enter(net); /* for good: no call may come any more */
    net->leaving = true;
    if (net->pid == getpid()) {
        say_goodbye(net, deadline_ns);
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
