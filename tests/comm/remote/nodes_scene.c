/* SPDX-License-Identifier: Apache-2.0
 *
 * See nodes_scene.h.
 */
#include "comm/remote/nodes_scene.h"

#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include "support/ranks.h"

void
scene_set_nodes(int per_node)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", per_node);
    setenv("ULYX_RANKS_PER_NODE", text, 1);
}

void
scene_open(int nranks, int per_node, double timeout_s, ulyx_comm_t **comms_p)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    params.timeout_s = timeout_s;
    params.name = "nodes";
    scene_set_nodes(per_node);
    assert_status(
        ulyx_comm_create_local(nranks, &params, comms_p), ULYX_SUCCESS);
    scene_set_nodes(0);
    for (int r = 0; r < nranks; r++) {
        assert_int_equal(
            comms_p[r]->nnodes, (nranks + per_node - 1) / per_node);
        assert_int_equal(
            comms_p[r]->peers[nranks - 1].node, (nranks - 1) / per_node);
    }
}

static int
close_body(int rank, int nranks, void *context)
{
    (void)nranks;
    return !ranks_expect(
        ulyx_comm_destroy(((ulyx_comm_t **)context)[rank]) == ULYX_SUCCESS);
}

void
scene_close(int nranks, ulyx_comm_t **comms)
{
    assert_int_equal(ranks_run_threads(nranks, close_body, comms, 60), 0);
}
