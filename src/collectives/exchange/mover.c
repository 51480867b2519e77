/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of a mover, and the states of plans that have ended.
 */
#include "collectives/exchange/mover.h"

const char *const uli_term_names[ULI_TERMS] = {
    [ULI_TERM_MESSAGES] = "by a batch (not mapped, or requested)",
    [ULI_TERM_BATCH_TRANSPORT] =
        "the batch transport that algo requests (0 any, 1 nccl, 2 staged)",
    [ULI_TERM_MESSAGE_CHUNK] =
        "the chunk of messages (bytes_in_flight, ULYX_MESSAGE_CHUNK)",
    [ULI_TERM_ENGINE_CHUNK] = "the chunk of copy engines (0: the kernel)"};

const struct uli_mover_ops *
uli_mover_choose(const ulyx_plan_t *plan, const char *algo)
{
    const char *requested = uli_plan_requested_algo(plan->comm, algo);
    int i = 0;
    while (!uli_movers[i]->serves(plan, requested))
        i++;
    return uli_movers[i];
}

/* ---- retired states ----------------------------------------------------- */

void
uli_retired_add(ulyx_comm_t *comm, struct uli_mover_state *state)
{
    uli_list_append(&comm->retired_plans, &state->node);
}

static void
retired_free(ulyx_comm_t *comm, struct uli_list *node, bool gives_back)
{
    struct uli_mover_state *state =
        ULI_CONTAINER_OF(node, struct uli_mover_state, node);
    uli_list_remove(node);
    state->mover->destroy(comm, state, gives_back);
}

void
uli_retired_sweep(ulyx_comm_t *comm)
{
    struct uli_list *node = comm->retired_plans.next;
    while (node != &comm->retired_plans) {
        struct uli_list *next = node->next;
        const struct uli_mover_state *state =
            ULI_CONTAINER_OF(node, struct uli_mover_state, node);
        if (state->mover->left(state))
            retired_free(comm, node, true);
        node = next;
    }
}

void
uli_retired_destroy(ulyx_comm_t *comm)
{
    while (!uli_list_empty(&comm->retired_plans))
        retired_free(comm, comm->retired_plans.next, false);
}
