/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators over nodes that a setting makes; all ranks are threads of the
 * test.
 */
#ifndef TESTS_COMM_REMOTE_NODES_SCENE_H
#define TESTS_COMM_REMOTE_NODES_SCENE_H

#include "comm/comm.h"

enum { MOST_RANKS = 16 };

/* Ranks 0 .. per_node - 1 are node 0, and so on. Asserts success and the number
 * of nodes. */
void scene_open(
    int nranks, int per_node, double timeout_s, ulyx_comm_t **comms_p);
/* Destroys the communicators that are not NULL, all at the same time. */
void scene_close(int nranks, ulyx_comm_t **comms);

/* Sets the setting for communicators that a test creates itself; 0 removes
 * it. */
void scene_set_nodes(int per_node);

#endif
