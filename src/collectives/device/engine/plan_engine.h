/* SPDX-License-Identifier: Apache-2.0
 *
 * The mover of copy engines, for steps whose multiprocessors are busy: the bytes
 * go by strided copies of the driver, which take no multiprocessor. engine_gpu.h
 * has the protocol of a call, engine_table.h the way a call is cut. Words,
 * records, refusals, errors and the plan's end are those of the direct exchange
 * (plan_gpu.h), and small calls go through the slots of the direct exchange.
 *
 * A captured copy cannot change, but replays must follow updates of document
 * tables. So this mover does not serve plans with document tables; the mover
 * "mapped" does.
 */
#ifndef ULI_COLLECTIVES_DEVICE_ENGINE_PLAN_ENGINE_H
#define ULI_COLLECTIVES_DEVICE_ENGINE_PLAN_ENGINE_H

#include "collectives/device/engine/engine_gpu.h"
#include "collectives/device/engine/engine_table.h"
#include "collectives/device/mapped/plan_gpu.h"

/* One direction. items_at and sources_at are offsets in the engine's tables on
 * the device. */
struct uli_engine_op {
    struct uli_engine_table table;
    int64_t items_at, sources_at;
};

struct uli_plan_engine {
    struct uli_plan_gpu gpu; /* first; its extra bytes are the tables */
    int64_t chunk_bytes, slot_bytes;
    int32_t slots;
    /* Offsets in the tables. The slot_in of a peer there points into the receive
     * buffer. */
    int64_t peers_at, rounds_at;
    struct uli_engine_walk walk;
    struct uli_engine_op op[ULYX_DIRECTIONS];
    unsigned char **recv_buffers; /* [nranks]: the slots for this rank in the
                                   * receive buffer of each peer */
    void *stream;      /* of copies and sums that write dst */
    void *fork, *join; /* events between the two streams */
};

static inline struct uli_plan_engine *
uli_plan_engine_of(const ulyx_plan_t *plan)
{
    return (struct uli_plan_engine *)plan->state;
}

/* Whether the flag or the setting selects the mover. The agreement of the plan
 * refuses ranks that differ in this. */
bool uli_plan_engine_selected(const ulyx_plan_t *plan);
/* Why this mover does not serve a plan that selects it; NULL: it does. */
const char *uli_plan_engine_refused(const ulyx_plan_t *plan);

#endif
