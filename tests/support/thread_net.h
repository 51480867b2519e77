/* SPDX-License-Identifier: Apache-2.0
 *
 * A network between threads of this process, for tests of the layers over
 * networks: late and reordered deliveries, a peer that vanishes, a peer that
 * stands still, and counts of messages. A program that links it with
 * --wrap=uli_tr_select uses it between every pair of nodes.
 */
#ifndef TESTS_SUPPORT_THREAD_NET_H
#define TESTS_SUPPORT_THREAD_NET_H

#include <stdbool.h>
#include "transport/transport.h"

extern const struct uli_tr_ops thread_net_transport;

/* Every delivery is delayed by at most max_us. Puts land in any order; messages
 * of one sender stay in order. With 0, deliveries are immediate. */
void thread_net_delay(int max_us);

/* The rank's host vanishes: nothing arrives at it or leaves it any more, and
 * the ranks that have exchanged data with this rank are notified of its
 * loss. */
void thread_net_cut(struct uli_net *net);

/* The rank stands still like a stopped process: nothing is delivered to it, and
 * no rank is notified. */
void thread_net_freeze(struct uli_net *net, bool frozen);

/* While hold is set, all nets report puts of dead peers as not yet landed. */
void thread_net_hold_landing(bool hold);

/* While broken is set, opening a net fails, as it does where a library is
 * missing. */
void thread_net_break_opening(bool broken);

/* Returns how many messages all nets have sent since the start of the
 * program. */
int64_t thread_net_messages(void);

#endif
