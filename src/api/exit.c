/* SPDX-License-Identifier: Apache-2.0
 *
 * A process that returns from main or calls exit notifies its peers that it
 * leaves, as destroy does. Otherwise ranks that are still working would report
 * a lost rank.
 *
 * Only the steps that peers can see are done. Plans, windows and communicators
 * stay, because other threads may run until the process is gone, and
 * destructors of the program may destroy them later. The handler runs before
 * the destructors of shared libraries, UCX among them, because it is registered
 * after they were loaded.
 *
 * A communicator with a thread in a call is left as it is: the call will not be
 * finished, so its peers do lose a rank. If a log callback calls exit, all
 * communicators are left as they are, because any part of the library may have
 * called the callback.
 */
#include "api/exit.h"

#include <pthread.h>
#include <stdlib.h>
#include "base/handle.h"
#include "base/log.h"
#include "collectives/plan/plan.h"
#include "comm/comm.h"

struct plans {
    const ulyx_comm_t *comm;
    bool busy;
};

static void
plan_look(void *context, void *object)
{
    struct plans *plans = context;
    ulyx_plan_t *plan = object;

    if (plan->comm == plans->comm)
        plans->busy = plans->busy || atomic_load(&plan->exchange.busy);
}

static void
plan_exit(void *context, void *object)
{
    ulyx_plan_t *plan = object;

    if (plan->comm == context)
        uli_plan_leave(plan);
}

static void
comm_exit(void *context, void *object)
{
    ulyx_comm_t *comm = object;
    struct plans plans = {comm, false};

    (void)context;
    uli_handle_each(ULI_HANDLE_PLAN, plan_look, &plans);
    if (plans.busy || !uli_comm_may_exit(comm) || !uli_handle_end(comm))
        return;
    uli_comm_exit_node(comm);
    uli_handle_each(ULI_HANDLE_PLAN, plan_exit, comm);
    if (comm->alltoall_destroy)
        comm->alltoall_destroy(comm);
    uli_comm_exit_net(comm);
}

static void
process_exit(void)
{
    if (!uli_log_is_inside())
        uli_handle_each(ULI_HANDLE_COMM, comm_exit, NULL);
}

static void
exit_register(void)
{
    if (atexit(process_exit) != 0)
        ULI_WARN(ULI_LOG_INIT, -1,
            "no exit handler can be registered: an exit without destroy will "
            "appear to the peers as a lost rank");
}

void
uli_exit_watch(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, exit_register);
}
