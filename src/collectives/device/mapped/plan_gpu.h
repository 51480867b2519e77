/* SPDX-License-Identifier: Apache-2.0
 *
 * What the movers over mapped device memory share: the mover of the kernel
 * ("mapped") and the mover of copy engines ("engine", plan_engine.h).
 * exchange_gpu.h has the protocol of a call.
 *
 * All that a call needs exists before the call: words, slots and tables in one
 * block of the device arena, and the words that the host reads in pinned
 * memory. A call is one launch on the caller's stream, or three where blocks
 * that wait for each other may not fit on the device at one time (residency.h).
 *
 * Errors. The device stores them in pinned memory (uli_gpu_report). A timeout
 * fails the communicator when the host next reads the report: in execute,
 * update and destroy of the plan and in queries of the communicator or the
 * plan. A call that moved nothing between this rank and a peer, because one of
 * the two refused it or they disagree, is reported once; the plan and the
 * communicator stay usable.
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

/* The table of one direction. All places are within a buffer of tables. */
struct uli_gpu_op {
    int64_t item_room, source_room;
    int64_t head_at, items_at, sources_at;
    int64_t rects_at, indices_at, usual_at; /* where calls may give strides */
    /* Rows change: do the slots hold a call with the most rows? Fixed at
     * creation, since a captured launch is that of one kernel. */
    bool most_fit_slots;
    struct uli_gpu_table table; /* arrays in the last buffer that was filled */
    struct uli_gpu_args args;   /* of every call, without its tensors */
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
    int64_t extra_at, extra_bytes;             /* the engine's tables, else 0 */
    struct uli_arena_block marks; /* host: [nranks], stored by peers that
                                   * have destroyed the plan */
    _Atomic uint64_t *
        *their_marks; /* [nranks]: this rank's mark at each, or NULL */

    void *pinned; /* the report, then buffers of tables */
    int64_t pinned_bytes;
    struct uli_gpu_report *report;
    unsigned char *buffers[ULI_GPU_BUFFERS];
    void *copied[ULI_GPU_BUFFERS]; /* events: a buffer may be filled again */
    int nbuffers, next_buffer;

    struct uli_gpu_scratch scratch;
    int32_t *nodes;          /* [nranks] */
    uli_strides_t **strides; /* [nranks] */
    bool *shares;            /* [nranks]: whether calls move bytes with it */
    struct uli_gpu_op op[ULYX_DIRECTIONS];

    int32_t sms, blocks;       /* of a launch that moves */
    struct uli_residency room; /* without a claim: three launches per call */
    bool borrows;              /* the claim is another plan's */

    void *own_stream; /* of refusals and of the end */
    void *ended;      /* event after the last enqueued call, if any */
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

/* The operation `check` of the mover. */
ulyx_status_t uli_plan_gpu_check(
    const ulyx_plan_t *plan, const struct uli_plan_params *params);
/* The first half of the operation `prepare`: makes the zeroed *gpu, with which
 * the mover's state begins, the state of the plan. The mover then sets
 * recv_buffer_bytes and extra_bytes. waits: whether blocks of a launch wait for
 * blocks of other ranks. Errors: NO_MEMORY, the driver's. */
ulyx_status_t uli_plan_gpu_begin(ulyx_plan_t *plan,
    const struct uli_mover_ops *mover, struct uli_plan_gpu *gpu,
    const struct uli_plan_params *params, bool waits);
/* The second half: takes pinned memory and blocks. Errors: NO_MEMORY, the
 * driver's. */
ulyx_status_t uli_plan_gpu_take(ulyx_plan_t *plan);
/* The first half of the operation `complete`: fills peers ([nranks], zeroed)
 * and uploads them and the tables. */
ulyx_status_t uli_plan_gpu_connect(
    ulyx_plan_t *plan, struct uli_gpu_peer *peers);
/* The second half, after which calls may come. status: of all steps so far; an
 * error fails the communicator. */
ulyx_status_t uli_plan_gpu_ready(ulyx_plan_t *plan, ulyx_status_t status);
/* The operations `leave` and `left` of the mover. */
ulyx_status_t uli_plan_gpu_leave(ulyx_plan_t *plan);
bool uli_plan_gpu_left(const struct uli_mover_state *state);
/* The operation `destroy` but for the memory of the struct itself. */
void uli_plan_gpu_free(
    ulyx_comm_t *comm, struct uli_plan_gpu *gpu, bool gives_back);

int64_t uli_plan_gpu_bytes(const struct uli_plan_gpu *gpu);
/* The operation `describe_direction` for a call by the kernel. */
void uli_plan_gpu_describe_direction(
    const ulyx_plan_t *plan, ulyx_direction_t direction, struct uli_text *text);

/* ---- tables (plan_gpu_tables.c) ------------------------------------------ */

/* Lays out a buffer of tables and sets tables_bytes. The layout has its most
 * rows. Errors: NO_MEMORY. */
ulyx_status_t uli_plan_gpu_measure(ulyx_plan_t *plan);
/* Makes the tables of the current documents in the buffer. Errors: INTERNAL. */
ulyx_status_t uli_plan_gpu_fill(ulyx_plan_t *plan, int buffer);
/* The operations `update` and `update_rows` of the mover. */
ulyx_status_t uli_plan_gpu_update(ulyx_plan_t *plan, const ulyx_docs_t *docs_q,
    const ulyx_docs_t *docs_k, void *stream);
ulyx_status_t uli_plan_gpu_update_rows(ulyx_plan_t *plan, const int64_t *rows,
    const int64_t *const *splits, const ulyx_docs_t *docs_q,
    const ulyx_docs_t *docs_k, void *stream);

/* ---- calls (plan_gpu_call.c) --------------------------------------------- */

/* The operation `needs_windows` of the mover: peers reach only windows of a
 * device. */
const char *uli_plan_gpu_needs_windows(
    const ulyx_plan_t *plan, enum uli_side side);
/* Enqueues a call that is too large for slots, with complete args. *begun_p:
 * peers have been notified, so an error ends the communicator. */
typedef ulyx_status_t uli_gpu_enqueue_fn(ulyx_plan_t *plan,
    ulyx_direction_t direction, struct uli_gpu_args *args, void *stream,
    bool *begun_p);
/* The operation `start` of the mover. enqueue: for calls that are not small. */
ulyx_status_t uli_plan_gpu_start(ulyx_plan_t *plan,
    const struct uli_plan_call *call, uli_gpu_enqueue_fn *enqueue);
/* The operation `refuse` of the mover. */
ulyx_status_t uli_plan_gpu_refuse(
    ulyx_plan_t *plan, ulyx_status_t status, const char *text);
/* Enqueues steps of a call. Only args->steps is set here. */
ulyx_status_t uli_plan_gpu_launch(struct uli_plan_gpu *gpu,
    struct uli_gpu_args *args, int32_t steps, int32_t blocks, int32_t threads,
    void *stream);

/* ---- what the device has noted (plan_gpu_call.c) ------------------------- */

/* Fails the communicator if a call of the plan has failed. Any thread. */
void uli_plan_gpu_look(struct uli_plan_gpu *gpu);
/* Returns the error that an outcome (ULI_GPU_CAUSE) stands for at `rank`. */
ulyx_status_t uli_gpu_outcome_error(uint64_t word, int32_t rank);
/* noted: the outcome that the device has stored last. outcome: the error of
 * such an outcome, which is returned once; SUCCESS: none. */
uint64_t uli_plan_gpu_noted(const struct uli_plan_gpu *gpu);
ulyx_status_t uli_plan_gpu_outcome(ulyx_plan_t *plan, uint64_t word);
/* Whether enqueued calls have not ended. Graphs count while they run. Never
 * waits. */
bool uli_plan_gpu_in_flight(const struct uli_plan_gpu *gpu);
/* For comm->gpu->calls: functions over all plans and collectives. */
extern const struct uli_gpu_calls uli_plans_gpu_calls;

#endif
