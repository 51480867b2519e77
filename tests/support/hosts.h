/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of a test on several hosts: `scripts/netns-test.sh spread` makes hosts
 * as namespaces and names a process of each in ULYX_TEST_HOSTS. Processes that
 * ranks_run_processes starts then go there, so that every test of processes is
 * also a test of nodes, with the memory that the test shares between ranks.
 */
#ifndef TESTS_SUPPORT_HOSTS_H
#define TESTS_SUPPORT_HOSTS_H

/* Takes the calling process, which has one thread, to the host of a rank:
 * consecutive ranks share one, or, with ULYX_TEST_PLACEMENT=cyclic, go in
 * turn. Nothing without ULYX_TEST_HOSTS. Ends the process where it fails. */
void hosts_enter(int rank, int nranks);
/* The number of a rank's host. */
int hosts_of(int rank, int nranks);
/* Takes the calling process to the network that joins the hosts, where the link
 * of host N ends in the device "portN". Ends the process where it fails. */
void hosts_enter_switch(void);

#endif
