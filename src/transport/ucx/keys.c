/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows of this rank, registered when they are attached, and the remote keys
 * of peers' windows. The first large put that needs a key requests it, and goes
 * by AM meanwhile; so keys go only to ranks that use them. Keys and the notices
 * that a key has ended are numbered in one sequence with the messages, and take
 * effect in that order. So the end of an old key is known before the first
 * message that gives the number of its window to another window.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/status.h"
#include "base/system/clock.h"
#include "transport/ucx/net.h"

enum { REQUESTED = 1, SENT = 2, ROOM = 8 };
/* When to request a key again that has not arrived: at the first request the
 * peer did not have the window yet. */
#define AGAIN_NS 1000000000

/* ---- windows of this rank ------------------------------------------------ */

/* Registers memory with UCX. NULL where this fails, or where no put by PUT is
 * possible: then peers get no key. */
static ucp_mem_h
register_memory(struct uli_net *net, void *address, int64_t bytes)
{
    ucp_mem_h memory = NULL;
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                      UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
        .address = address,
        .length = (size_t)bytes,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    if (!net->may_put || bytes <= 0)
        return NULL;
    ucs_status_t status = net->ucx->mem_map(net->context, &params, &memory);
    if (status == UCS_OK)
        return memory;
    ULI_INFO(ULI_LOG_TRANS, net->rank,
        "ucx: %lld bytes cannot be registered, no puts into them: %s",
        (long long)bytes, net->ucx->status_string(status));
    return NULL;
}

ulyx_status_t
uli_ucx_window_add(
    struct uli_net *net, uint32_t window, void *address, int64_t bytes)
{
    struct uli_ucx_window *entry =
        calloc(1, sizeof(*entry) + (size_t)net->nranks);
    if (!entry)
        return uli_error(ULYX_ERR_NO_MEMORY, "ucx: no memory for a window");
    entry->window = window;
    entry->address = address;
    entry->bytes = bytes;
    uli_ucx_enter(net);
    entry->memory = register_memory(net, address, bytes);
    entry->next = net->windows;
    net->windows = entry;
    uli_ucx_leave(net);
    return ULYX_SUCCESS;
}

static void
free_window(struct uli_net *net, struct uli_ucx_window *entry)
{
    if (entry->memory)
        net->ucx->mem_unmap(net->context, entry->memory);
    free(entry);
}

static bool
peer_listens(const struct uli_ucx_peer *peer)
{
    return peer->ep && !peer->broken && !peer->lost && !peer->bye_received &&
           !peer->bye;
}

void
uli_ucx_window_remove(struct uli_net *net, uint32_t window)
{
    struct uli_ucx_head gone = {.kind = ULI_UCX_KEY_GONE, .window = window};
    if (net->pid != getpid())
        return;
    uli_ucx_enter(net);
    struct uli_ucx_window **at = &net->windows;
    while (*at && (*at)->window != window)
        at = &(*at)->next;
    struct uli_ucx_window *entry = *at;
    if (entry) {
        *at = entry->next;
        for (int32_t p = 0; p < net->nranks; p++)
            if (entry->holder[p] == SENT && peer_listens(&net->peers[p]))
                (void)uli_ucx_send_key(net, &net->peers[p], &gone, NULL, 0);
        free_window(net, entry);
    }
    uli_ucx_leave(net);
}

void
uli_ucx_windows_close(struct uli_net *net)
{
    while (net->windows) {
        struct uli_ucx_window *entry = net->windows;
        net->windows = entry->next;
        free_window(net, entry);
    }
}

void
uli_ucx_key_requested(struct uli_ucx_peer *peer, uint32_t window)
{
    struct uli_ucx_window *entry = peer->net->windows;
    while (entry && entry->window != window)
        entry = entry->next;
    if (!entry)
        return;
    entry->holder[peer->rank] = REQUESTED;
    peer->keys_due = true;
    uli_ucx_due(peer->net, peer);
}

static void
give_key(struct uli_net *net, struct uli_ucx_peer *peer,
    struct uli_ucx_window *entry)
{
    struct uli_ucx_head head = {
        .kind = ULI_UCX_KEY,
        .window = entry->window,
        .offset = (int64_t)(uintptr_t)entry->address,
        .signal = (uint64_t)entry->bytes,
        .signal_window = net->verb,
    };
    void *packed = NULL;
    size_t bytes = 0;
    entry->holder[peer->rank] = SENT;
    if (entry->memory && net->ucx->rkey_pack(net->context, entry->memory,
                             &packed, &bytes) != UCS_OK)
        packed = NULL;
    if (!packed || bytes > ULI_NET_INLINE_BYTES)
        bytes = 0;
    (void)uli_ucx_send_key(net, peer, &head, packed, bytes);
    if (packed)
        net->ucx->rkey_buffer_release(packed);
}

/* ---- keys of peers' windows ---------------------------------------------- */

static struct uli_ucx_key *
find_key(const struct uli_ucx_peer *peer, uint32_t window)
{
    for (int i = 0; i < peer->nkeys; i++)
        if (peer->keys[i].window == window)
            return &peer->keys[i];
    return NULL;
}

/* Adds an entry for a key. NULL: no memory; this put goes by AM. */
static struct uli_ucx_key *
key_add(struct uli_ucx_peer *peer, uint32_t window)
{
    if (peer->nkeys == peer->room_keys) {
        int room = peer->room_keys ? 2 * peer->room_keys : ROOM;
        void *grown = realloc(peer->keys, (size_t)room * sizeof(*peer->keys));
        if (!grown)
            return NULL;
        peer->keys = grown;
        peer->room_keys = room;
    }
    struct uli_ucx_key *key = &peer->keys[peer->nkeys++];
    *key = (struct uli_ucx_key){.window = window};
    return key;
}

ucp_rkey_h
uli_ucx_key(struct uli_ucx_peer *peer, uint32_t window, int64_t offset,
    int64_t bytes, uint64_t *address_p, bool *refused_p)
{
    struct uli_ucx_key *key = find_key(peer, window);
    if (!key)
        key = key_add(peer, window);
    *refused_p = key && key->refused;
    if (!key || key->refused)
        return NULL;
    if (!key->key) {
        if (!key->requested_ns ||
            uli_clock_ns() - key->requested_ns > AGAIN_NS) {
            key->requested_ns = 0;
            peer->keys_due = true;
            uli_ucx_due(peer->net, peer);
        }
        return NULL;
    }
    /* A put outside the window goes by AM, whose receiver reports it. */
    if (offset < 0 || bytes < 0 || offset > key->bytes - bytes)
        return NULL;
    *address_p = key->address + (uint64_t)offset;
    return key->key;
}

void
uli_ucx_key_refuse(struct uli_ucx_peer *peer, uint32_t window)
{
    struct uli_ucx_key *key = find_key(peer, window);
    if (!key)
        return;
    if (key->key)
        peer->net->ucx->rkey_destroy(key->key);
    key->key = NULL;
    key->refused = true;
}

void
uli_ucx_key_came(struct uli_ucx_peer *peer, const struct uli_ucx_head *head,
    const void *data, size_t bytes)
{
    struct uli_ucx_key *key = find_key(peer, head->window);
    if (!key || key->key || !peer->ep)
        return; /* not requested */
    key->address = (uint64_t)head->offset;
    key->bytes = (int64_t)head->signal;
    key->refused =
        bytes == 0 || !peer->net->may_put || key->bytes <= 0 ||
        peer->net->ucx->ep_rkey_unpack(peer->ep, data, &key->key) != UCS_OK;
    if (key->refused)
        key->key = NULL;
    if (head->window == ULI_UCX_SCRATCH)
        uli_ucx_verb_forced(peer, head->signal_window);
    uli_ucx_due(peer->net, peer); /* a probe may wait for the key */
}

void
uli_ucx_key_gone(struct uli_ucx_peer *peer, uint32_t window)
{
    struct uli_ucx_key *key = find_key(peer, window);
    if (!key)
        return;
    if (key->key)
        peer->net->ucx->rkey_destroy(key->key);
    *key = peer->keys[--peer->nkeys];
}

void
uli_ucx_keys_free(struct uli_ucx_peer *peer)
{
    for (int i = 0; i < peer->nkeys; i++)
        if (peer->keys[i].key)
            peer->net->ucx->rkey_destroy(peer->keys[i].key);
    free(peer->keys);
    peer->keys = NULL;
    peer->nkeys = peer->room_keys = 0;
}

void
uli_ucx_do_keys(struct uli_net *net, struct uli_ucx_peer *peer)
{
    if (!peer->keys_due || peer->bye)
        return;
    peer->keys_due = false;
    for (int i = 0; i < peer->nkeys; i++) {
        struct uli_ucx_key *key = &peer->keys[i];
        if (key->key || key->refused || key->requested_ns)
            continue;
        key->requested_ns = uli_clock_ns();
        (void)uli_ucx_send_head(net, peer, ULI_UCX_KEY_REQUEST, key->window, 0);
    }
    for (struct uli_ucx_window *w = net->windows; w; w = w->next)
        if (w->holder[peer->rank] == REQUESTED)
            give_key(net, peer, w);
}
