/* SPDX-License-Identifier: Apache-2.0
 *
 * The PUT capability of transports: one rank's end of the network (struct
 * uli_net), by which it writes into the memory of ranks on other nodes and
 * signals them. Contiguous ranges only; packing belongs to the schedules.
 *
 * A put is data and a signal: bytes go to (window, offset) of the peer, and
 * when they are there, and not before, a 64-bit value is stored with release to
 * another place in the peer's windows. Signals of different puts may arrive in
 * any order, so a receiver never concludes from one signal that the data of
 * another put has arrived. Values at one place only grow, and an older value
 * never overwrites a newer one.
 *
 * A message is a few bytes that are given to the peer's `message` hook.
 * Messages from one rank to one peer keep their order.
 *
 * Threads. put, message and progress may be called by any thread at any time
 * between open and close; an implementation serialises them with a try-lock, so
 * a caller never waits for another thread's copy for longer than one step of
 * progress. Hooks run inside progress (of any thread); they must not call back
 * into put or progress, and never block. A thread of the communicator sleeps in
 * `wait`, so a put makes progress while no thread of the caller is in the
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
    ULI_NET_ADDRESS_BYTES = 1024, /* the longest address of a network end */
    ULI_NET_MESSAGE_BYTES = 8192, /* the longest message */
    ULI_NET_INLINE_BYTES = 1024,  /* puts of at most this size are copied at
                                   * once */
};

struct uli_net; /* first member of each kind: const struct uli_tr_ops *ops */

/* Functions of the communicator for its network. context outlives it. */
struct uli_net_hooks {
    void *context;
    /* The address of [offset, offset + bytes) in a window of this rank. NULL: a
     * peer names memory that is not this rank's; its put is dropped and `lost`
     * is called. */
    void *(*target)(
        void *context, uint32_t window, int64_t offset, int64_t bytes);
    /* Something has happened (signal stored, message handled, a put of this
     * rank ended): rings the rank's doorbell. */
    void (*arrived)(void *context);
    void (*message)(
        void *context, int32_t from, const void *message, size_t bytes);
    /* The peer can no longer be reached: the peer or its host is dead. At most
     * once per peer. Never for a peer that is merely slow. */
    void (*lost)(void *context, int32_t peer, const char *how);
};

struct uli_net_params {
    int32_t rank, nranks;
    const struct uli_settings *settings;
    struct uli_net_hooks hooks;
    /* The rank's place among the ranks of its node, for the choice of a NIC; 0
     * of 0: not known.
     */
    int32_t local_rank, local_nranks;
};

struct uli_net_put {
    const void *data; /* unchanged until *pending is decremented */
    int64_t bytes;    /* 0: only the signal */
    uint32_t window;  /* where the data goes, at the peer */
    int64_t offset;
    uint32_t signal_window; /* 8-byte aligned word at the peer */
    int64_t signal_offset;
    uint64_t signal;
    /* put increments *pending when it takes the data by reference; it is
     * decremented once `data` may be overwritten. Untouched when the data was
     * copied. NULL: the caller never overwrites data before the peer has
     * answered. */
    _Atomic int64_t *pending;
};

/* ---- the slots of struct uli_tr_ops for ULI_TR_PUT ----------------------- */

struct uli_net_ops {
    /* Opens this rank's end. Slow (milliseconds); at most once per
     * communicator. Errors: UNSUPPORTED with the reason and a remedy,
     * NO_MEMORY, SYSTEM. */
    ulyx_status_t (*open)(
        const struct uli_net_params *params, struct uli_net **net_p);
    /* The address of this end, for all peers. Does not block. */
    ulyx_status_t (*address)(
        struct uli_net *net, void *address_p, size_t *bytes_p);
    /* Keeps a peer's address; the first put or message makes the connection.
     * Errors, in whose text the caller names the peer: NO_MEMORY,
     * INVALID_ARGUMENT (not an address). */
    ulyx_status_t (*connect)(
        struct uli_net *net, int32_t peer, const void *address, size_t bytes);
    /* From now on the end of this peer's process is noticed also while nothing
     * is on its way, and also where other processes hold copies of its sockets.
     * One peer per network end. After connect; does not block. Where such a
     * watch is not possible, the end is noticed when the connection ends, or
     * late. */
    void (*watch)(struct uli_net *net, int32_t peer);
    /* Adds or removes a window of this rank that peers may put into. Registers
     * memory where the network needs that. Errors of add: NO_MEMORY, SYSTEM. */
    ulyx_status_t (*window_add)(
        struct uli_net *net, uint32_t window, void *address, int64_t bytes);
    void (*window_remove)(struct uli_net *net, uint32_t window);
    /* Never blocks; later progress moves the data. Small puts are copied.
     * Errors: RANK_LOST (the peer is lost), NO_MEMORY, SYSTEM. */
    ulyx_status_t (*put)(
        struct uli_net *net, int32_t peer, const struct uli_net_put *put);
    /* Sends a copy of the message; never blocks. Errors: as put. */
    ulyx_status_t (*message)(
        struct uli_net *net, int32_t peer, const void *message, size_t bytes);
    /* Advances all transfers; true when something happened. Returns false at
     * once when another thread is in progress. */
    bool (*progress)(struct uli_net *net);
    /* wait: sleeps until progress may have work, at most max_ms; for one thread
     * at a time. wake: ends the sleep, from any thread and from a signal
     * handler. */
    void (*wait)(struct uli_net *net, int max_ms);
    void (*wake)(struct uli_net *net);
    /* True when no put of this rank to the peer can land there any more: each
     * put taken so far has been completed at the target or has failed, or,
     * where puts and messages share one order, will land before a message that
     * is sent now. Any thread, never blocks; needed before memory is given
     * back. */
    bool (*settled)(struct uli_net *net, int32_t peer);
    /* For a peer that has gone, or will put nothing more: true when no put of
     * the peer can land here any more. dead: the peer has not left in good
     * order, so nothing more is accepted from it from now on. Not from a hook;
     * takes the lock. */
    bool (*landed)(struct uli_net *net, int32_t peer, bool dead);
    /* Blocks until all puts and messages to living peers have left this process
     * or the deadline is over, then closes all connections and frees
     * everything. Does not call `lost`, because a peer that leaves at the same
     * time cannot be distinguished from a dead peer; after close no hook is
     * called. */
    void (*close)(struct uli_net *net, int64_t deadline_ns);
    /* One line for plan_describe and ulyx_info: verb, devices, version. */
    void (*describe)(
        struct uli_net *net, int32_t peer, char *text_p, size_t text_bytes);
    /* The network devices in use, "mlx5_0:1,mlx5_1:1" or "eth0"; the text
     * belongs to the net. The slot is NULL where a network has none to name. */
    const char *(*devices)(const struct uli_net *net);
};

#endif
