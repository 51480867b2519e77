/* SPDX-License-Identifier: Apache-2.0
 *
 * The movers over mapped device memory: what that of the kernel ("mapped") and
 * that of copy engines ("engine", plan_engine.h) share. exchange_gpu.h has the
 * protocol of a call.
 *
 * Everything that a call needs lies ready: words, slots and tables in one
 * block of the device arena, what the host reads in pinned memory. A call is
 * one launch on the caller's stream, or three where the blocks of all ranks
 * that wait for each other may not fit on the card together (residency.h).
 *
 * Errors. The device notes them in pinned memory (uli_gpu_report). A timeout
 * fails the communicator as soon as the host looks: in execute, update and
 * destroy of the plan and in queries of the communicator or the plan. A call
 * that moved nothing with some peer, for one of both refused it or they
 * disagree, leaves all usable and is reported once.
 */
#ifndef ULI_COLLECTIVES_DEVICE_MAPPED_PLAN_GPU_H
#define ULI_COLLECTIVES_DEVICE_MAPPED_PLAN_GPU_H

#include "collectives/device/mapped/exchange_table.h"
#include "collectives/device/movers.h"
#include "comm/device/gpu.h"
#include "comm/device/residency.h"
#include "device/device.h"

enum {
    ULI_GPU_THREADS = 256,
    ULI_GPU_WARPS = ULI_GPU_THREADS / 32,
    ULI_GPU_BUFFERS = 2,
};

/* One direction's table; all places within a buffer of tables. */
struct uli_gpu_op {
    int64_t item_room, source_room;
    int64_t head_at, items_at, sources_at;
    struct uli_gpu_table table; /* arrays in the last buffer that was filled */
    struct uli_gpu_args args;   /* of every call, but for its tensors */
};

struct uli_plan_gpu {
    struct uli_mover_state state; /* first */
    struct uli_list node;         /* comm->gpu->plans */
    const struct uli_device_ops *ops;
    int32_t device, nranks;

    /* words [nranks], slots [nranks][2], receive buffer, state, peers [nranks],
     * tables, extra; peers reach what lies before the state */
    struct uli_arena_block block;
    int64_t slots_at, state_at, peers_at, tables_at, tables_bytes;
    int64_t recv_buffer_at, recv_buffer_bytes; /* of the engine, else 0 */
    int64_t extra_at, extra_bytes;     /* the engine's tables, else 0 */
    struct uli_arena_block marks; /* host: [nranks], by peers: plan destroyed */
    _Atomic uint64_t **their_marks; /* [nranks]: this rank's at them, or NULL */

    void *pinned; /* the report, then buffers of tables */
    int64_t pinned_bytes;
    struct uli_gpu_report *report;
    unsigned char *buffers[ULI_GPU_BUFFERS];
    void *copied[ULI_GPU_BUFFERS]; /* events: a buffer may be filled again */
    int nbuffers, next_buffer;

    struct uli_gpu_scratch scratch;
    int32_t *nodes;          /* [nranks] */
    uli_strides_t **strides; /* [nranks] */
    bool *shares;            /* [nranks]: do calls move anything with it? */
    struct uli_gpu_op op[ULYX_DIRECTIONS];

    int32_t sms, blocks; /* of a launch that moves */
    struct uli_residency room; /* without a claim: three launches per call */

    void *own_stream; /* of refusals and of the end */
    void *ended;      /* event after the last call enqueued, if any was */
    _Atomic bool enqueued;
    bool detour; /* the last call was enqueued on own_stream */
    uint64_t outcome_seen;
};

static inline struct uli_plan_gpu *
uli_plan_gpu_of(const ulyx_plan_t *plan)
{
    return (struct uli_plan_gpu *)plan->state;
}

/* ---- life (plan_gpu.c) --------------------------------------------------- */

/* check of the table. */
ulyx_status_t uli_plan_gpu_check(
    const ulyx_plan_t *plan, const struct uli_plan_params *params);
/* prepare has two halves, between which a mover sets recv_buffer_bytes and
 * extra_bytes. The first makes zeros, whose state begins a mover's, the plan's.
 * waits: do blocks of its launches wait for those of other ranks? Errors:
 * NO_MEMORY, the driver's. */
ulyx_status_t uli_plan_gpu_begin(ulyx_plan_t *plan,
    const struct uli_mover_ops *mover, struct uli_plan_gpu *gpu,
    int32_t max_sms, bool waits);
/* The second takes pinned memory and blocks. Errors: NO_MEMORY, the driver's.
 */
ulyx_status_t uli_plan_gpu_take(ulyx_plan_t *plan);
/* complete has two as well. The first uploads peers ([nranks] zeros, which it
 * fills) and tables. */
ulyx_status_t uli_plan_gpu_connect(
    ulyx_plan_t *plan, struct uli_gpu_peer *peers);
/* The second, after which calls may come. status: what has come of it all; an
 * error fails the communicator. */
ulyx_status_t uli_plan_gpu_ready(ulyx_plan_t *plan, ulyx_status_t status);
/* leave, left of the table. */
ulyx_status_t uli_plan_gpu_leave(ulyx_plan_t *plan);
bool uli_plan_gpu_left(const struct uli_mover_state *state);
/* All of destroy but the memory of the struct itself. */
void uli_plan_gpu_free(
    ulyx_comm_t *comm, struct uli_plan_gpu *gpu, bool gives_back);

int64_t uli_plan_gpu_bytes(const struct uli_plan_gpu *gpu);
/* describe_direction of a call by the kernel. */
void uli_plan_gpu_describe_direction(
    const ulyx_plan_t *plan, ulyx_direction_t direction, struct uli_text *text);

/* ---- tables (plan_gpu_tables.c) ------------------------------------------ */

/* Lays out a buffer of tables, and sets tables_bytes. Errors: NO_MEMORY. */
ulyx_status_t uli_plan_gpu_measure(ulyx_plan_t *plan);
/* Makes all tables of the present documents in the buffer. Errors: INTERNAL. */
ulyx_status_t uli_plan_gpu_fill(ulyx_plan_t *plan, int buffer);
/* update of the table. */
ulyx_status_t uli_plan_gpu_update(ulyx_plan_t *plan, const ulyx_docs_t *docs_q,
    const ulyx_docs_t *docs_k, void *stream);

/* ---- calls (plan_gpu_call.c) --------------------------------------------- */

/* needs_windows of the table: peers reach nothing else of a device. */
const char *uli_plan_gpu_needs_windows(
    const ulyx_plan_t *plan, enum uli_side side);
/* Enqueues a call that is too large for slots and whose args lack nothing.
 * *begun_p: peers know of it, so an error ends the communicator. */
typedef ulyx_status_t uli_gpu_enqueue_fn(ulyx_plan_t *plan,
    ulyx_direction_t direction, struct uli_gpu_args *args, void *stream,
    bool *begun_p);
/* start of the table, with the mover's own way for calls that are not small. */
ulyx_status_t uli_plan_gpu_start(ulyx_plan_t *plan,
    const struct uli_plan_call *call, uli_gpu_enqueue_fn *enqueue);
/* refuse of the table. */
ulyx_status_t uli_plan_gpu_refuse(
    ulyx_plan_t *plan, ulyx_status_t status, const char *text);
/* Enqueues steps of a call whose args lack nothing else. */
ulyx_status_t uli_plan_gpu_launch(struct uli_plan_gpu *gpu,
    struct uli_gpu_args *args, int32_t steps, int32_t blocks, int32_t threads,
    void *stream);

/* ---- what the device has noted (plan_gpu_call.c) ------------------------- */

/* Fails the communicator if a call of the plan has failed. Any thread. */
void uli_plan_gpu_look(struct uli_plan_gpu *gpu);
/* What an outcome (ULI_GPU_CAUSE) means to `rank`, as an error. */
ulyx_status_t uli_gpu_outcome_error(uint64_t word, int32_t rank);
/* What the device has noted of the last call that had an error, and that error,
 * once; SUCCESS if there is none. */
uint64_t uli_plan_gpu_noted(const struct uli_plan_gpu *gpu);
ulyx_status_t uli_plan_gpu_outcome(ulyx_plan_t *plan, uint64_t word);
/* Have enqueued calls not ended? Graphs count while they run. Never waits. */
bool uli_plan_gpu_in_flight(const struct uli_plan_gpu *gpu);
/* For comm->gpu->calls: of all plans and collectives. */
extern const struct uli_gpu_calls uli_plans_gpu_calls;

#endif
