/* SPDX-License-Identifier: Apache-2.0
 *
 * A network between threads of this process, for tests of what is built over
 * nets: late and reordered deliveries, a peer that vanishes, one that stands
 * still, and counts. A program that links it with --wrap=uli_tr_select gets it
 * for every pair of nodes.
 */
#ifndef TESTS_SUPPORT_THREAD_NET_H
#define TESTS_SUPPORT_THREAD_NET_H

#include <stdbool.h>
#include "transport/transport.h"

extern const struct uli_tr_ops thread_net_transport;

/* Every delivery comes up to so much late, and puts in any order; messages of
 * one sender stay in order. 0: at once. */
void thread_net_delay(int max_us);

/* The rank's host vanishes: nothing comes to it or from it any more, and who
 * has been in touch with it hears that it is lost. */
void thread_net_cut(struct uli_net *net);

/* A stopped process: nothing is delivered to it, nobody hears of it. */
void thread_net_freeze(struct uli_net *net, bool frozen);

/* What dead peers have put is said to be landing still, on all nets. */
void thread_net_hold_landing(bool hold);

/* Opening fails from now on, as where a library is missing. */
void thread_net_break_opening(bool broken);

/* Messages handed to nets since the start of the program. */
int64_t thread_net_messages(void);

#endif
