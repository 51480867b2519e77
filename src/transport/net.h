/* SPDX-License-Identifier: Apache-2.0
 *
 * The PUT capability of transports: one rank's end of the network (struct
 * uli_net), by which it writes into the memory of ranks on other nodes and
 * tells them so. Contiguous ranges only; packing belongs to the schedules.
 *
 * A put is data and a signal: bytes go to (window, offset) of the peer, and
 * when they are there, and not before, a 64-bit value is stored with release
 * to another place of the peer's windows. Signals of different puts may come
 * in any order; a receiver therefore never concludes from one signal that the
 * data of another put has come. Values at one place only grow, and an older
 * value never overwrites a newer one.
 *
 * A message is a few bytes that are handed to the peer's `message` hook, in
 * the order in which they were sent to that peer by one rank.
 *
 * Threads. put, message and progress may be called by any thread at any time
 * between open and close; an implementation serialises them with a try-lock,
 * so a caller never waits for another thread's copy for longer than one step
 * of progress. Hooks run inside progress (of any thread); they must not call
 * back into put or progress, and never block. The service thread sleeps on
 * the net (`wait`), so a put moves on while no thread of the caller is in the
 * library.
 */
#ifndef ULI_TRANSPORT_NET_H
#define ULI_TRANSPORT_NET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/settings.h"
#include "base/status.h"

enum {
    ULI_NET_ADDRESS_BYTES = 1024, /* the longest address of a net */
    ULI_NET_MESSAGE_BYTES = 8192, /* the longest message */
    ULI_NET_INLINE_BYTES = 1024,  /* puts up to it are copied at once */
};

struct uli_net; /* first member of each kind: const struct uli_tr_ops *ops */

/* What the communicator gives its net. context outlives the net. */
struct uli_net_hooks {
    void *context;
    /* Where [offset, offset + bytes) of my window lies; NULL: a peer names
     * memory that is not mine, its put is dropped and `lost` is called. */
    void *(*target)(
        void *context, uint32_t window, int64_t offset, int64_t bytes);
    /* Something has arrived (signal stored, message handled, a put of mine
     * ended): rings the rank's doorbell. */
    void (*arrived)(void *context);
    void (*message)(
        void *context, int32_t from, const void *message, size_t bytes);
    /* The peer cannot be reached any more: dead, or its host is. At most once
     * a peer. Never for a peer that is merely slow. */
    void (*lost)(void *context, int32_t peer, const char *how);
};

struct uli_net_params {
    int32_t rank, nranks;
    const struct uli_settings *settings;
    struct uli_net_hooks hooks;
    /* Among the ranks of its node, for the choice of a NIC; 0 of 0: not known.
     */
    int32_t local_rank, local_nranks;
};

struct uli_net_put {
    const void *data; /* the caller's until *pending has fallen */
    int64_t bytes;    /* 0: only the signal */
    uint32_t window;  /* where the data goes, at the peer */
    int64_t offset;
    uint32_t signal_window; /* 8-byte aligned word at the peer */
    int64_t signal_offset;
    uint64_t signal;
    /* Incremented by put when it takes the data by reference, decremented
     * once `data` may be overwritten; untouched when it was copied. NULL: the
     * caller never overwrites data before the peer has answered. */
    _Atomic int64_t *pending;
};

/* ---- the slots of struct uli_tr_ops for ULI_TR_PUT ----------------------- */

struct uli_net_ops {
    /* Opens this rank's end. Slow (milliseconds); at most once a
     * communicator. Errors: UNSUPPORTED with the reason and what would help,
     * NO_MEMORY, SYSTEM. */
    ulyx_status_t (*open)(
        const struct uli_net_params *params, struct uli_net **net_p);
    /* My address, for everybody. Blocks: no. */
    ulyx_status_t (*address)(
        struct uli_net *net, void *address_p, size_t *bytes_p);
    /* Peer's address, kept; a connection is made by the first put or message.
     * Errors, which leave it to the caller to name the peer: NO_MEMORY,
     * INVALID_ARGUMENT (not an address). */
    ulyx_status_t (*connect)(
        struct uli_net *net, int32_t peer, const void *address, size_t bytes);
    /* From now on the end of this peer's process is noticed also while nothing
     * is on its way, and also where others hold copies of its sockets; one peer
     * a net. After connect; blocks: no. What cannot be watched so is noticed by
     * the connection's end, or late. */
    void (*watch)(struct uli_net *net, int32_t peer);
    /* A window of mine that peers may put into begins, or ends. Registers
     * memory where the network needs it. Errors of add: NO_MEMORY, SYSTEM. */
    ulyx_status_t (*window_add)(
        struct uli_net *net, uint32_t window, void *address, int64_t bytes);
    void (*window_remove)(struct uli_net *net, uint32_t window);
    /* Never blocks; the data travels during later progress. Small puts are
     * copied. Errors: RANK_LOST (the peer is lost), NO_MEMORY, SYSTEM. */
    ulyx_status_t (*put)(
        struct uli_net *net, int32_t peer, const struct uli_net_put *put);
    /* Copied, never blocks. Errors: as put. */
    ulyx_status_t (*message)(
        struct uli_net *net, int32_t peer, const void *message, size_t bytes);
    /* Moves things on; true when something happened. Returns false at once
     * when another thread is in it. */
    bool (*progress)(struct uli_net *net);
    /* Sleeps until there may be something to progress, at most max_ms; for
     * one thread at a time (the service). wake ends it from any thread, and
     * from a signal handler. */
    void (*wait)(struct uli_net *net, int max_ms);
    void (*wake)(struct uli_net *net);
    /* True when nothing that I have put to the peer can land there any more:
     * each put taken so far has been completed at the target or has failed,
     * or, where puts and messages share one order, will land before a message
     * that is sent now. Any thread, never blocks; for giving back memory. */
    bool (*settled)(struct uli_net *net, int32_t peer);
    /* Of a peer that has gone, or will put nothing more: true when nothing that
     * it has put can land here any more. dead: it has not left in good order,
     * so nothing more of it is taken from now on. Not from a hook; takes the
     * lock. */
    bool (*landed)(struct uli_net *net, int32_t peer, bool dead);
    /* Blocks until all puts and messages to living peers have left this
     * process or the deadline is over, then closes all connections and frees
     * everything. In it `lost` is not called, for a peer that leaves at the
     * same time looks as if it had died; after it no hook is. */
    void (*close)(struct uli_net *net, int64_t deadline_ns);
    /* One line for plan_describe and ulyx_info: verb, devices, version. */
    void (*describe)(
        struct uli_net *net, int32_t peer, char *text_p, size_t text_bytes);
    /* The devices that it goes by, "mlx5_0:1,mlx5_1:1" or "eth0"; the net's.
     * NULL where a net has none to name. */
    const char *(*devices)(const struct uli_net *net);
};

#endif
