/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan of a reshuffle inside the library. It is made from checked
 * parameters, and only its document tables and rows change afterwards. Errors
 * and rules as in ulyx/reshuffle.h.
 */
#ifndef ULI_COLLECTIVES_PLAN_PLAN_H
#define ULI_COLLECTIVES_PLAN_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include "collectives/exchange/exchange.h"
#include "collectives/layout/layout.h"
#include "comm/comm.h"

enum { ULI_PLAN_REASON_BYTES = 192 }; /* as in uli_choice */

/* The three tensors that one tensor of a plan stands for. */
enum uli_side { ULI_SIDE_SEQ, ULI_SIDE_HEAD, ULI_SIDE_PARTIAL, ULI_SIDES };

/* Per side, strides {batch, row, head} in bytes. */
typedef int64_t uli_strides_t[ULI_SIDES][3];

/* How the strides of a side follow when rows change. */
enum uli_stride_mark {
    ULI_STRIDES_DENSE,     /* [batch, rows, heads, dim] */
    ULI_STRIDES_STATISTIC, /* [batch, heads, rows] */
    ULI_STRIDES_GIVEN,     /* they do not: the caller has given them */
};
typedef uint8_t uli_stride_marks_t[ULI_SIDES];

/* A tensor whose strides are checked. */
struct uli_strided {
    const char *name, *field; /* "src_strides", "": in errors */
    int32_t number;
    int64_t counts[3], dense[3];
    int64_t first;       /* row of the tensor's first element */
    int64_t axis_rows;   /* rows that the row stride passes over */
    int64_t run_bytes;   /* of one row of one head */
    const char *rows_as; /* " (max_local_rows)": source of the rows */
};

/* One call of a plan. The arrays are the caller's, and are read during the call
 * only. */
struct uli_plan_call {
    ulyx_direction_t direction;
    const void *const *src;
    void *const *dst;
    /* [ntensors]; three zeros: dense; NULL: those of creation. */
    const int64_t (*src_strides)[3], (*dst_strides)[3];
    void *stream;
    double timeout_s; /* 0 = the plan's */
    bool awaited; /* the caller waits for the call as soon as it has started */
    /* For movers that take_hash and are by_stream: gets the error of an earlier
     * call, whose text is then the last error. NULL: this call returns that
     * error. */
    ulyx_status_t *earlier_p;
};

/* What create needs, in the library's own terms. The arrays are the caller's,
 * and are read during the call only. */
struct uli_plan_params {
    struct uli_shape shape;
    uli_strides_t strides[ULI_TENSORS];       /* all zero = dense */
    uli_stride_marks_t dense_as[ULI_TENSORS]; /* how zero strides are filled */
    /* Heads of the sequence-side tensor of which the plan's tensor is a part,
     * for dense strides; 0 = the tensor's own. Equal on all ranks. */
    int64_t seq_heads[ULI_TENSORS];
    const ulyx_docs_t *docs_q, *docs_k;
    int32_t seq_memory, head_memory; /* ULYX_POINTER_... */
    uint64_t flags, directions;
    const char *algo;
    int64_t slot_bytes, bytes_in_flight;
    int32_t max_sms; /* 0 = the setting */
    /* On a device: a plan of the communicator, or NULL. No call of one plan
     * runs beside a call of the other, so both share one claim of the device
     * (comm/device/residency.h). Once the plan here is destroyed, neither is
     * executed. */
    const ulyx_plan_t *in_turn_with;
    double timeout_s;
};

/* What a rank publishes to the others about itself, and what is not
 * compared. */
struct uli_rank_info {
    uli_strides_t strides[ULI_TENSORS];
    uli_stride_marks_t stride_marks[ULI_TENSORS];
    int32_t memory[2];             /* ULYX_POINTER_: sequence side, head side */
    struct uli_address pair_flags; /* eager slots follow the flags */
    int64_t slot_bytes;            /* of an eager slot, after its record */
    struct uli_address schedule;   /* the block shared by the rank's schedule */
    struct uli_address device, marks; /* of a plan on device memory */
    int64_t cma_min_row; /* shortest row that the rank reads; 0 = none */
    uint64_t probe;      /* address of the rank's uli_tr_probe_word */
};

/* What one rank of a pair sends the other in one direction. */
struct uli_volume {
    int64_t copies, sums; /* bytes, items rounded up to ULI_STREAM_ALIGN */
    int64_t items;
};

/* Sizes of one direction's tables. */
struct uli_plan_room {
    struct uli_volume *in, *out; /* [nranks] */
    int64_t locals, sums, sources;
};

/* Pools of the arrays that sums point into. */
struct uli_sum_pool {
    int32_t *group;
    int64_t *src_offset;
    int64_t (*src_stride)[3];
    struct uli_sum_source *sources;
    int64_t used;
};

/* What the plan's mover needs to be equal on all ranks; 0 for other movers. */
enum uli_term {
    ULI_TERM_MESSAGES, /* 1: the mover moves by messages */
    ULI_TERM_BATCH_TRANSPORT,
    ULI_TERM_MESSAGE_CHUNK,
    ULI_TERM_ENGINE_CHUNK,
    ULI_TERMS
};

struct uli_mover_ops; /* mover.h */
struct uli_mover_state;

struct ulyx_plan {
    struct uli_exchange exchange; /* first */
    ulyx_comm_t *comm;
    struct uli_layout *layout;
    uint64_t directions, flags;
    double timeout_s;
    int64_t slot_limit; /* bytes; 0 = no slots */

    int32_t algo; /* enum uli_algo: how bytes go between nodes */
    int64_t schedule_chunk_bytes;       /* 0: the schedule has no chunks */
    char reason[ULI_PLAN_REASON_BYTES]; /* why algo was chosen */
    struct uli_rank_info info;          /* this rank's */
    struct uli_rank_info *ranks;        /* [nranks], gathered */
    int64_t *bounce_at;        /* [nranks]: byte offset in the bounce buffers */
    int64_t bounce_slot_bytes; /* of each eager slot there, after its record */
    struct uli_place *by_node; /* [nranks]: sources of a sum, sorted */
    int64_t *extents;          /* bytes [nranks][ULI_SIDES][ULI_TENSORS] */
    struct uli_place *scratch; /* of uli_layout_each_move */
    struct uli_plan_room room[ULYX_DIRECTIONS];
    struct uli_work work[ULYX_DIRECTIONS];
    struct uli_sum_pool pools[ULYX_DIRECTIONS];
    struct uli_call_strides call; /* this rank's, of the last started call */
    /* [nranks]: the strides for which a direction's tables are made; NULL for
     * directions that are not used, and under movers that take no strides. */
    struct uli_call_strides *laid[ULYX_DIRECTIONS];

    int64_t seq_heads[ULI_TENSORS]; /* as in the parameters */

    const struct uli_mover_ops *mover; /* executes the plan */
    struct uli_mover_state *state;     /* the mover's; outlives the plan */
    int64_t terms[ULI_TERMS];          /* of the mover, by enum uli_term */
    int64_t table_bytes;               /* bytes held in the arrays above */
    uint64_t user_hash; /* 0, or a hash that peers compare: on the host in place
                         * of the layout's hash, on a device combined with it */
    void *user;         /* the public layer's, freed with the plan */
    void (*free_user)(void *user);
};

/* ---- life (plan.c) ------------------------------------------------------- */

/* outcome: the public edge's verdict on the arguments, with its text set. A
 * rank that refuses still takes part, so that all ranks get the refusal; its
 * params are not read. */
ulyx_status_t uli_plan_create(ulyx_comm_t *comm,
    const struct uli_plan_params *params, ulyx_status_t outcome,
    double timeout_s, ulyx_plan_t **plan_p);
/* stream: for device memory. */
ulyx_status_t uli_plan_update(ulyx_plan_t *plan, const ulyx_docs_t *docs_q,
    const ulyx_docs_t *docs_k, void *stream);
/* With other rows, as uli_layout_update_rows. */
ulyx_status_t uli_plan_update_rows(ulyx_plan_t *plan, const int64_t *rows,
    const int64_t *const *splits, const ulyx_docs_t *docs_q,
    const ulyx_docs_t *docs_k, void *stream);
/* From the next call on, READY carries this hash, which is not 0 and covers the
 * layout's tables and what the caller adds. For a plan whose mover takes_hash.
 * On host memory: no call is in flight. On a device: a call has the hash of the
 * time at which it was enqueued or captured. */
static inline void
uli_plan_use_hash(ulyx_plan_t *plan, uint64_t hash)
{
    plan->user_hash = hash;
}
/* Announces to the peers that this rank executes the plan no more; destroy may
 * follow, and calls this where the caller has not. Waits for no peer. Errors:
 * BUSY, a call is in flight; the driver's. */
ulyx_status_t uli_plan_leave(ulyx_plan_t *plan);
ulyx_status_t uli_plan_destroy(ulyx_plan_t *plan);

/* ---- the algorithm (plan_algo.c) ----------------------------------------- */

/* Refuses unknown names. Errors: INVALID_ARGUMENT. */
ulyx_status_t uli_plan_check_algo(const char *name);
/* The name that the caller requests (NULL or "": none), else the setting's; "":
 * none. */
const char *uli_plan_requested_algo(const ulyx_comm_t *comm, const char *name);
/* Sets algo, schedule_chunk_bytes and reason of a plan that has its layout and
 * directions. name: what the caller requests, or NULL; with the name of a
 * batch transport the schedule is chosen freely. Equal on all ranks. Errors:
 * UNSUPPORTED (the name cannot be served), NO_MEMORY. */
ulyx_status_t uli_plan_choose_algo(
    ulyx_plan_t *plan, const char *name, int64_t bytes_in_flight);

/* Makes the chosen schedule part of the exchange, if it has anything to do.
 * Errors: of its create. */
ulyx_status_t uli_plan_create_schedule(ulyx_plan_t *plan);

/* Does the schedule carry the move, in place of pairs? */
bool uli_plan_carries(const ulyx_plan_t *plan, const struct uli_move *move);
/* Does the engine ever move a byte between p and this rank? */
bool uli_plan_shares(const ulyx_plan_t *plan, int32_t p);

/* ---- one call (plan_start.c) --------------------------------------------- */

/* As ulyx_reshuffle_execute without the wait: *request_p is what to wait for,
 * or NULL where the call belongs to its stream. */
ulyx_status_t uli_plan_execute(ulyx_plan_t *plan,
    const struct uli_plan_call *call, ulyx_request_t **request_p);
/* As ulyx_reshuffle_start. */
ulyx_status_t uli_plan_start(ulyx_plan_t *plan,
    const struct uli_plan_call *call, ulyx_request_t **request_p);

/* Checks a call's arguments and stores them: pointers and their places in
 * plan->exchange, strides in plan->call. */
ulyx_status_t uli_plan_check_call(
    ulyx_plan_t *plan, const struct uli_plan_call *call);

/* Refuses the next call for a reason that the public edge found. */
ulyx_status_t uli_plan_refuse(
    ulyx_plan_t *plan, ulyx_status_t status, const char *text);
/* As above, for a reason that was reported before: it is not logged again. Of
 * the call its direction and stream are read. */
ulyx_status_t uli_plan_refuse_call(ulyx_plan_t *plan,
    const struct uli_plan_call *call, ulyx_status_t status, const char *text);

/* ---- sides and strides (plan_strides.c) ---------------------------------- */

static inline enum uli_side
uli_plan_side(ulyx_direction_t direction, bool source)
{
    static const enum uli_side sides[ULYX_DIRECTIONS][2] = {
        /* by ulyx_side_t: of the destination, of the source */
        [ULYX_SEQ_TO_HEAD] = {ULI_SIDE_HEAD, ULI_SIDE_SEQ},
        [ULYX_HEAD_TO_SEQ] = {ULI_SIDE_SEQ, ULI_SIDE_HEAD},
        [ULYX_SEQ_TO_HEAD_ADJOINT] = {ULI_SIDE_SEQ, ULI_SIDE_PARTIAL},
        [ULYX_HEAD_TO_SEQ_ADJOINT] = {ULI_SIDE_HEAD, ULI_SIDE_SEQ}};
    return sides[direction][source];
}
static inline int32_t
uli_plan_dtype(const struct uli_shape_tensor *tensor, enum uli_side side)
{
    return side == ULI_SIDE_PARTIAL ? tensor->partial_dtype : tensor->dtype;
}
/* Bytes of an element of the tensor on the side. */
int64_t uli_plan_elem_bytes(
    const struct uli_layout *layout, int32_t tensor, enum uli_side side);
/* Fills in dense strides and checks all, for the most rows of this rank. */
ulyx_status_t uli_plan_fix_strides(const struct uli_layout *layout,
    int32_t rank, uli_strides_t strides[ULI_TENSORS]);
/* As above. marks: how zero strides are filled, DENSE or STATISTIC; set to
 * GIVEN where strides are given. seq_heads: as in the parameters. */
ulyx_status_t uli_plan_mark_strides(const struct uli_layout *layout,
    int32_t rank, const int64_t seq_heads[ULI_TENSORS],
    uli_strides_t strides[ULI_TENSORS], uli_stride_marks_t marks[ULI_TENSORS]);
/* Fills in dense strides of all ranks for the present rows; cannot fail. */
void uli_plan_fill_strides(ulyx_plan_t *plan);

/* Three zeros become the dense strides, as does the stride of a dimension with
 * one index. Then no stride may be negative, and no two elements may overlap.
 * Errors: INVALID_ARGUMENT, OVERFLOW, with the tensor's name. */
ulyx_status_t uli_strides_settle(
    const struct uli_strided *tensor, int64_t strides[3]);
/* Checks this rank's strides of a call against the present rows, and stores
 * them in plan->call. Errors: of uli_strides_settle. */
ulyx_status_t uli_plan_take_strides(
    ulyx_plan_t *plan, const struct uli_plan_call *call);
/* Computes the bytes of each tensor of a rank by strides that the rank has
 * sent; false: strides are negative, or the bytes do not fit 64 bits. */
bool uli_plan_measure_strides(const struct uli_layout *layout, int32_t ntensors,
    int32_t rank, ulyx_direction_t direction, struct uli_call_strides *strides);
/* The strides of a rank's tensor for which a direction's tables are made. */
static inline const int64_t *
uli_plan_strides(const ulyx_plan_t *plan, ulyx_direction_t direction,
    int32_t rank, int32_t tensor, bool source)
{
    const struct uli_call_strides *laid = plan->laid[direction];
    enum uli_side side = uli_plan_side(direction, source);
    if (laid && laid[rank].given)
        return laid[rank].at[source][tensor];
    return rank == plan->comm->rank ? plan->info.strides[tensor][side]
                                    : plan->ranks[rank].strides[tensor][side];
}

/* A tensor as a set of runs, in bytes: first + i * strides, i < counts. A count
 * of 0: no elements. */
struct uli_grid {
    int64_t first, counts[3], strides[3], run_bytes;
};
void uli_plan_grid(const struct uli_layout *layout, int32_t tensor,
    int32_t rank, enum uli_side side, const int64_t strides[3],
    struct uli_grid *grid_p);
/* The most bytes that this rank's tensor can have after any update. */
int64_t uli_plan_max_extent(
    const ulyx_plan_t *plan, int32_t tensor, enum uli_side side);
/* Bytes from the base to the last byte; 0 without elements. */
int64_t uli_grid_extent(const struct uli_grid *grid);
/* Do any runs of a (at pointer a_base) and b overlap? Exact, unless the strides
 * are so irregular that the search takes more than some thousand steps: then
 * false. */
bool uli_grid_overlap(const struct uli_grid *a, uintptr_t a_base,
    const struct uli_grid *b, uintptr_t b_base);

/* ---- tables (plan_build.c) ----------------------------------------------- */

/* Measures what every direction moves: plan->room. Errors: NO_MEMORY. */
ulyx_status_t uli_plan_measure(ulyx_plan_t *plan);
/* After measure, the host's tables: plan->work, and scratch of sums. Errors:
 * NO_MEMORY. */
ulyx_status_t uli_plan_allocate_work(ulyx_plan_t *plan);
/* Measures the volumes of the present document tables. */
void uli_plan_remeasure(ulyx_plan_t *plan);
/* Computes the bytes of every tensor of every rank (plan_fill.c). */
void uli_plan_fill_extents(ulyx_plan_t *plan);
/* Fills the tables from the gathered strides (plan_fill.c). Cannot fail. */
void uli_plan_build(ulyx_plan_t *plan);
/* Rebuilds boxes in place where plan->laid has changed: what moves with rank p;
 * what this rank moves to itself; sums. (plan_fill.c) */
void uli_plan_lay_pair(
    ulyx_plan_t *plan, ulyx_direction_t direction, int32_t p);
void uli_plan_lay_own(ulyx_plan_t *plan, ulyx_direction_t direction);
void uli_plan_lay_sums(ulyx_plan_t *plan, ulyx_direction_t direction);
void uli_plan_free_tables(ulyx_plan_t *plan);
/* May anything travel from p to this rank by a ring? At most *bytes_p in one
 * call. */
bool uli_plan_may_stream(const ulyx_plan_t *plan, int32_t p, int64_t *bytes_p);
/* As above, from this rank to p, a remote rank. */
bool uli_plan_may_send(const ulyx_plan_t *plan, int32_t p, int64_t *bytes_p);
bool uli_plan_slot(
    const ulyx_plan_t *plan, ulyx_direction_t direction, int32_t p);

/* The move with its sources in the order of sums, by node, then by rank, in
 * plan->by_node. (plan_sum.c) */
struct uli_move uli_plan_by_node(
    ulyx_plan_t *plan, const struct uli_move *move);
/* Makes a sum with source strides `src` canonical: dimensions by destination
 * stride, merged where all sides are adjacent. (plan_sum.c) */
void uli_plan_normalize_sum(struct uli_sum *sum, int64_t (*src)[3]);
/* The order of the loops over the dimensions {batch, row, head} of a move in a
 * stream, outermost first. Equal at both ends. (plan_sum.c) */
void uli_plan_stream_order(const ulyx_plan_t *plan, ulyx_direction_t direction,
    const struct uli_move *move, int order_p[3]);
/* Makes the sum of a move with known sources: canonical, or, where any source
 * is a stream, in that stream's order. Its arrays are the pool's next places.
 * (plan_sum.c) */
void uli_plan_make_sum(const ulyx_plan_t *plan, ulyx_direction_t direction,
    const struct uli_move *move, struct uli_sum_pool *pool,
    struct uli_sum_item *sum_p);
static inline int64_t
uli_place_offset(const struct uli_place *place, const int64_t strides[3])
{
    return place->batch * strides[0] + place->row * strides[1] +
           place->head * strides[2];
}

/* ---- agreement (plan_agree.c) -------------------------------------------- */

/* The agreement of creation. plan = NULL with an outcome that refuses. On
 * SUCCESS plan->ranks is filled. */
ulyx_status_t uli_plan_agree(ulyx_comm_t *comm, ulyx_plan_t *plan,
    ulyx_status_t outcome, uli_deadline_t deadline);

/* ---- description and numbers (plan_describe.c, plan_traffic.c) ----------- */

void uli_plan_describe(
    const ulyx_plan_t *plan, char *text_p, size_t text_bytes);
ulyx_status_t uli_plan_traffic(const ulyx_plan_t *plan,
    ulyx_direction_t direction, ulyx_traffic_t *traffic_p);
int64_t uli_plan_bytes(const ulyx_plan_t *plan);

/* The reader of a peer's ordinary memory, if it can read the peer's probe word,
 * else NULL (reshuffle_cma.c). probe: address of the peer's
 * uli_tr_probe_word. */
const struct uli_tr_ops *uli_reader_of(
    const ulyx_comm_t *comm, int32_t p, uint64_t probe);
/* The shortest row in bytes that this rank would read; 0: it reads none. */
int64_t uli_reader_min_row(const ulyx_comm_t *comm);

#endif
