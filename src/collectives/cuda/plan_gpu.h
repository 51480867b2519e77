/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan on device memory: what plan.c, the public layer and graves ask of it.
 * exchange_gpu.h has the protocol of a call.
 *
 * Everything that a call needs lies ready: words, slots and tables in one
 * piece of the device arena, what the host reads in pinned memory. A call is
 * one launch on the caller's stream, or three where the blocks of all ranks
 * that wait for each other may not fit on the card together (residency.h).
 *
 * Errors. The device notes them in pinned memory (uli_gpu_report). A timeout
 * fails the communicator as soon as the host looks: in execute, update and
 * destroy of the plan and in queries of the communicator or the plan. A call
 * that moved nothing with some peer, for one of both refused it or they
 * disagree, leaves all usable and is reported once.
 */
#ifndef ULI_COLLECTIVES_CUDA_PLAN_GPU_H
#define ULI_COLLECTIVES_CUDA_PLAN_GPU_H

#include "collectives/cuda/exchange_table.h"
#include "collectives/plan.h"
#include "comm/residency.h"
#include "device/device.h"

enum { ULI_GPU_THREADS = 256, ULI_GPU_BUFFERS = 2 };

/* One operation's table; all places within a buffer of tables. */
struct uli_gpu_op {
    int64_t item_room, source_room;
    int64_t head_at, items_at, sources_at;
    struct uli_gpu_table table; /* arrays in the last buffer that was filled */
    struct uli_gpu_args args;   /* of every call, but for its tensors */
};

struct uli_plan_engine;

struct uli_plan_gpu {
    struct uli_list node; /* comm->gpu->plans */
    ulyx_plan_t *plan;    /* NULL in a grave */
    const struct uli_device_ops *ops;
    int32_t device, nranks;

    /* words [nranks], slots [nranks][2], state, peers [nranks], tables */
    struct uli_arena_piece piece;
    int64_t slots_at, state_at, peers_at, tables_at, tables_bytes;
    struct uli_arena_piece marks; /* host: [nranks], by peers: plan destroyed */
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
    struct uli_gpu_op op[ULYX_OPERATIONS];

    struct uli_plan_engine *engine; /* of the copy-engine mode, or NULL */
    int32_t blocks;                 /* of a launch that moves */
    struct uli_residency room;      /* without a claim: three launches a call */

    void *own_stream; /* of refusals and of the end */
    void *ended;      /* event after the last call enqueued, if any was */
    _Atomic bool enqueued;
    bool detour; /* the last call was enqueued on own_stream */
    uint64_t verdict_seen;
};

/* ---- life (plan_gpu.c) --------------------------------------------------- */

/* Before the agreement, with everything of the plan but its pieces: memory for
 * all that follows. On error destroy leaves nothing. Errors: UNSUPPORTED (no
 * kernels, memory of ranks not mapped, host-only flags), NO_MEMORY, the
 * driver's. */
ulyx_status_t uli_plan_gpu_prepare(
    ulyx_plan_t *plan, const struct uli_plan_params *params);
/* After it: peers and tables. Fails with the device only, and then the
 * communicator with it. */
ulyx_status_t uli_plan_gpu_complete(ulyx_plan_t *plan);
/* Tells the peers that this rank takes no part in calls any more; the plan is
 * in a grave then. Errors: BUSY, calls are in flight; nothing has changed. */
ulyx_status_t uli_plan_gpu_leave(ulyx_plan_t *plan);
/* Has p left, so that nothing of it comes any more? */
bool uli_plan_gpu_left_by(const struct uli_plan_gpu *gpu, int32_t p);
/* comm: gives arena pieces back; NULL: they go with the communicator. */
void uli_plan_gpu_destroy(ulyx_comm_t *comm, struct uli_plan_gpu *gpu);

int64_t uli_plan_gpu_bytes(const struct uli_plan_gpu *gpu);
/* "32 SMs, one launch a call (...)" */
void uli_plan_gpu_describe(
    const struct uli_plan_gpu *gpu, char *text_p, size_t text_bytes);

/* ---- tables (plan_gpu_tables.c) ------------------------------------------ */

/* Lays out a buffer of tables, and sets tables_bytes. Errors: NO_MEMORY. */
ulyx_status_t uli_plan_gpu_measure(ulyx_plan_t *plan);
/* Makes all tables of the present documents in the buffer. Errors: INTERNAL. */
ulyx_status_t uli_plan_gpu_fill(ulyx_plan_t *plan, int buffer);
/* As ulyx_plan_update. */
ulyx_status_t uli_plan_gpu_update(ulyx_plan_t *plan, const ulyx_docs_t *docs_q,
    const ulyx_docs_t *docs_k, void *stream);

/* ---- calls (plan_gpu_call.c) --------------------------------------------- */

/* As ulyx_reshuffle_execute; the error of an earlier call may come, while this
 * one is enqueued all the same. Allocates nothing, takes no lock. */
ulyx_status_t uli_plan_gpu_execute(ulyx_plan_t *plan,
    ulyx_operation_t operation, const void *const src[], void *const dst[],
    void *stream);
/* Refuses the next call for a reason that is the thread's last error. */
ulyx_status_t uli_plan_gpu_refuse(ulyx_plan_t *plan, ulyx_status_t status);
/* Enqueues steps of a call whose args lack nothing else. */
ulyx_status_t uli_plan_gpu_launch(struct uli_plan_gpu *gpu,
    struct uli_gpu_args *args, int32_t steps, int32_t blocks, int32_t threads,
    void *stream);

/* ---- what the device has noted (plan_gpu_error.c) ------------------------ */

/* Fails the communicator if a call of the plan has failed. Any thread. */
void uli_plan_gpu_look(struct uli_plan_gpu *gpu);
/* The same of all plans of the communicator. Does nothing on the host. */
void uli_plans_gpu_look(ulyx_comm_t *comm);
/* What a verdict (ULI_GPU_CAUSE) means to `rank`, as an error. */
ulyx_status_t uli_gpu_verdict_error(uint64_t word, int32_t rank);
/* What the device has noted of the last call that had an error, and that error,
 * once; SUCCESS if there is none. */
uint64_t uli_plan_gpu_noted(const struct uli_plan_gpu *gpu);
ulyx_status_t uli_plan_gpu_verdict(ulyx_plan_t *plan, uint64_t word);
/* Have enqueued calls not ended? Graphs count while they run. Never waits. */
bool uli_plan_gpu_in_flight(const struct uli_plan_gpu *gpu);
/* For comm->gpu->in_flight. */
bool uli_plans_gpu_in_flight(ulyx_comm_t *comm);

#endif
