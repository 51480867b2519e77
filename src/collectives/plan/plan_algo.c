/* SPDX-License-Identifier: Apache-2.0
 *
 * The algorithm of a plan: the requested one, or the choice of the
 * communicator's planner for what the layout moves (choose.h). The choice
 * depends on the tuning files and on what is equal on all ranks; only the
 * tuning files may differ, so the agreement compares the choice.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/status.h"
#include "collectives/exchange/exchange_schedule.h"
#include "collectives/plan/plan.h"
#include "collectives/plan/plan_choose.h"
#include "comm/messages/batch.h"

_Static_assert((int)ULI_PLAN_REASON_BYTES == (int)ULI_REASON_BYTES,
    "a plan has room for the reason of a choice");

ulyx_status_t
uli_plan_check_algo(const char *name)
{
    enum uli_algo algo;
    if (!name || !name[0] || uli_algo_parse(name, &algo) ||
        uli_comm_batch_transport(name))
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_INVALID_ARGUMENT,
        "algo is \"%s\", must be " ULI_SCHEDULE_QUOTED "\"nccl\" or \"staged\"",
        name);
}

const char *
uli_plan_requested_algo(const ulyx_comm_t *comm, const char *name)
{
    return name && name[0] ? name : comm->settings.algo;
}

static ulyx_status_t
algo_choose(const ulyx_plan_t *plan, const char *name, int64_t bytes_in_flight,
    struct uli_choice *choice_p)
{
    const struct uli_plan_preference preference = {
        plan->directions, bytes_in_flight, name, plan->comm->one_machine};
    const ulyx_comm_t *comm = plan->comm;
    int32_t *node_of = calloc((size_t)comm->nranks, sizeof(*node_of));
    if (!node_of)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a plan");
    for (int32_t p = 0; p < comm->nranks; p++)
        node_of[p] = comm->peers[p].node;
    ulyx_status_t status = uli_plan_choose(plan->layout, comm->nnodes, node_of,
        &preference, comm->planner, choice_p);
    free(node_of);
    return status;
}

ulyx_status_t
uli_plan_choose_algo(
    ulyx_plan_t *plan, const char *name, int64_t bytes_in_flight)
{
    const ulyx_comm_t *comm = plan->comm;
    struct uli_choice choice;
    name = uli_plan_requested_algo(comm, name);
    if (uli_comm_batch_transport(name)) /* the name of no schedule */
        name = "";
    ULI_TRY(algo_choose(plan, name, bytes_in_flight, &choice));
    plan->algo = choice.algo;
    plan->schedule_chunk_bytes = choice.best.chunk_bytes;
    snprintf(plan->reason, sizeof(plan->reason), "%s", choice.reason);
    ULI_INFO(ULI_LOG_PLAN, comm->rank, "%s: %s", uli_algo_name(plan->algo),
        plan->reason);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_plan_create_schedule(ulyx_plan_t *plan)
{
    const struct uli_schedule_ops *schedule = uli_schedule_of(plan->algo);
    if (!schedule->applicable(plan->comm)) {
        plan->schedule_chunk_bytes = 0;
        return ULYX_SUCCESS;
    }
    plan->exchange.schedule = schedule;
    return schedule->create(plan);
}
