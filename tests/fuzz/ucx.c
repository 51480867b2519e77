/* SPDX-License-Identifier: Apache-2.0
 *
 * Input over UCX that this library reads: a rank's address (the first byte is
 * even), and active messages, header and data, with the token of the receiver.
 * UCX itself is replaced by calls that do nothing.
 */
#include <stdlib.h>
#include <string.h>
#include "fuzz/fuzz.h"
#include "transport/ucx/net.h"

enum { RANKS = 3, WINDOW = 4096, HEAD = sizeof(struct uli_ucx_head) };

static struct uli_ucx_calls calls;
static ucp_am_recv_callback_t handler;
static unsigned char window[WINDOW];

/* Stands in for calls that return a request. NULL means that the operation has
 * completed at once. */
static void *
call_nothing(void)
{
    return NULL;
}

static const char *
call_name(ucs_status_t status)
{
    (void)status;
    return "made up";
}

static ucs_status_t
call_set_handler(ucp_worker_h worker, const ucp_am_handler_param_t *param)
{
    (void)worker;
    handler = param->cb;
    return UCS_OK;
}

static void *
hook_target(void *context, uint32_t number, int64_t offset, int64_t bytes)
{
    (void)context;
    return number == 1 && offset >= 0 && bytes >= 0 && bytes <= WINDOW &&
                   offset <= WINDOW - bytes
               ? window + offset
               : NULL;
}

static void
hook_arrived(void *context)
{
    (void)context;
}

static void
hook_message(void *context, int32_t from, const void *message, size_t bytes)
{
    (void)context;
    if (from < 1 || from >= RANKS || (bytes && !message))
        abort();
}

static void
hook_lost(void *context, int32_t peer, const char *how)
{
    (void)context;
    if (peer < 1 || peer >= RANKS || !how[0])
        abort();
}

static struct uli_net *
net_make(void)
{
    struct uli_net *net =
        calloc(1, sizeof(*net) + RANKS * sizeof(net->peers[0]));
    if (!net)
        abort();
    net->ucx = &calls;
    net->hooks = (struct uli_net_hooks){
        NULL, hook_target, hook_arrived, hook_message, hook_lost};
    net->nranks = RANKS;
    net->token = 7;
    net->keepalive_s = 5;
    net->listener = net->sentinel.fd = net->event_fd = net->wake_fd = -1;
    uli_list_init(&net->watched);
    uli_list_init(&net->probed);
    uli_list_init(&net->dropped);
    for (int32_t p = 0; p < RANKS; p++) {
        struct uli_ucx_peer *peer = &net->peers[p];
        peer->net = net;
        peer->rank = p;
        peer->probe_fd = peer->watcher_fd = -1;
        uli_list_init(&peer->watch);
        uli_list_init(&peer->sends);
        uli_list_init(&peer->receives);
    }
    return net;
}

static void
net_free(struct uli_net *net)
{
    uli_ucx_recv_close(net); /* open receives, which this UCX never completes */
    for (int32_t p = 0; p < RANKS; p++) {
        uli_ucx_forget(&net->peers[p]);
        free(net->peers[p].address);
        free(net->peers[p].keys);
    }
    free(net->gate.admitted);
    free(net);
}

/* The input holds several messages, each after a byte with its length. */
static void
messages_receive(struct uli_net *net, const uint8_t *data, size_t bytes)
{
    ucp_am_recv_param_t about = {0};
    while (bytes > HEAD + 1) {
        struct uli_ucx_head head;
        size_t count = data[0];
        memcpy(&head, data + 1, HEAD);
        data += HEAD + 1;
        bytes -= HEAD + 1;
        count = count < bytes ? count : bytes;
        head.token = net->token;
        uli_ucx_enter(net);
        handler(
            net, &head, sizeof(head), (void *)(uintptr_t)data, count, &about);
        uli_ucx_leave(net);
        data += count;
        bytes -= count;
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (!handler) {
        void **at = (void **)&calls;
        for (size_t i = 0; i < sizeof(calls) / sizeof(void *); i++)
            at[i] = (void *)call_nothing;
        calls.status_string = call_name;
        calls.worker_set_am_recv_handler = call_set_handler;
    }
    struct uli_net *net = net_make();
    if (!handler && uli_ucx_listen(net) != ULYX_SUCCESS)
        abort();
    if (bytes > 1 && data[0] % 2)
        messages_receive(net, data + 1, bytes - 1);
    else if (bytes > 1)
        uli_ucx_connect(net, 1, data + 1, bytes - 1);
    net_free(net);
    return 0;
}
