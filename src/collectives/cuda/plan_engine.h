/* SPDX-License-Identifier: Apache-2.0
 *
 * The copy-engine mode of a plan on device memory: its copies are strided
 * copies of the driver, which take no multiprocessor, for steps whose
 * multiprocessors are busy. engine_gpu.h has a call's protocol, engine_table.h
 * how it is cut. Words, records, refusals, errors and the plan's end are those
 * of the direct exchange (plan_gpu.h); small calls go by its slots.
 *
 * A copy that was captured stays what it was, so document tables, which replays
 * must obey, and this mode exclude each other: such plans take the kernel.
 */
#ifndef ULI_COLLECTIVES_CUDA_PLAN_ENGINE_H
#define ULI_COLLECTIVES_CUDA_PLAN_ENGINE_H

#include "collectives/cuda/engine_gpu.h"
#include "collectives/cuda/engine_table.h"
#include "collectives/cuda/plan_gpu.h"

/* One operation; places are within the engine's tables on the device. */
struct uli_engine_op {
    struct uli_engine_table table;
    int64_t items_at, sources_at;
};

struct uli_plan_engine {
    int64_t chunk_bytes, slot_bytes;
    int32_t slots;
    int64_t landing_at, landing_bytes; /* in the plan's piece: as at peers */
    int64_t tables_at, tables_bytes;   /* in the plan's piece */
    int64_t peers_at, rounds_at;       /* in the tables; slots are landings */
    struct uli_engine_walk walk;
    struct uli_engine_op op[ULYX_OPERATIONS];
    unsigned char **landings; /* [nranks] at each peer, for this rank */
    void *stream;             /* what comes out of the landing */
    void *fork, *join;        /* events between the two streams */
};

/* Is the mode asked for, by flag or setting? The same at all ranks, or their
 * agreement says so. */
bool uli_plan_engine_wanted(const ulyx_plan_t *plan);
/* Why a plan that asks for it has the kernel; NULL: it has the mode. */
const char *uli_plan_engine_refused(const ulyx_plan_t *plan);

/* Before the agreement: all that needs no peer's strides. bytes_in_flight: of
 * the plan's parameters. Errors: NO_MEMORY, UNSUPPORTED, the driver's. */
ulyx_status_t uli_plan_engine_prepare(
    ulyx_plan_t *plan, int64_t bytes_in_flight);
/* After it. peers: as the plan has filled them. */
ulyx_status_t uli_plan_engine_complete(
    ulyx_plan_t *plan, const struct uli_gpu_peer *peers);
void uli_plan_engine_destroy(
    const struct uli_plan_gpu *gpu, struct uli_plan_engine *engine);

/* Enqueues a call whose arguments lack nothing. *begun_p: peers know of it, so
 * an error ends the communicator. */
ulyx_status_t uli_plan_engine_enqueue(ulyx_plan_t *plan,
    ulyx_operation_t operation, const struct uli_gpu_args *call, void *stream,
    bool *begun_p);

/* What the agreement compares: 0 = the mode is not taken. */
int64_t uli_plan_engine_chunk(const ulyx_plan_t *plan);
int64_t uli_plan_engine_bytes(
    const struct uli_plan_engine *engine, int32_t nranks);
void uli_plan_engine_describe(
    const ulyx_plan_t *plan, char *text_p, size_t text_bytes);
void uli_plan_engine_describe_operation(const ulyx_plan_t *plan,
    ulyx_operation_t operation, char *text_p, size_t text_bytes);

#endif
