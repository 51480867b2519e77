/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the ranks of a test on several hosts. `scripts/netns-test.sh spread`
 * makes hosts of namespaces and lists one process of each in
 * ULYX_TEST_HOSTS. Processes that ranks_run_processes starts then enter these
 * hosts, so every test of processes is also a test of nodes. Ranks still share
 * the memory of the test.
 */
#ifndef TESTS_SUPPORT_HOSTS_H
#define TESTS_SUPPORT_HOSTS_H

/* Moves the calling process, which must have one thread, to the host of a rank.
 * Consecutive ranks share a host; with ULYX_TEST_PLACEMENT=cyclic consecutive
 * ranks are on consecutive hosts. Does nothing where ULYX_TEST_HOSTS is not
 * set. Ends the process on failure. */
void hosts_enter(int rank, int nranks);
/* The number of a rank's host. */
int hosts_of(int rank, int nranks);
/* Moves the calling process to the network that joins the hosts. There the
 * device "portN" is the other end of the link of host N. Ends the process on
 * failure. */
void hosts_enter_switch(void);

#endif
