/* SPDX-License-Identifier: Apache-2.0
 *
 * Distributed attention, inside: plans per head group, and the places of all
 * tensors.
 *
 * Head group c covers the query heads [q_first, q_first + q_heads) and the KV
 * heads that they read. Each group has plans of its own, which divide these
 * heads among the ranks; the sequence side of the plans points into the
 * caller's tensors. Each group has three plan sets:
 *   IN    q, k, v     SEQ_TO_HEAD, and its adjoint for dq, dk, dv
 *   OUT   out (lse)   HEAD_TO_SEQ
 *   GRAD  dout delta  HEAD_TO_SEQ_ADJOINT
 * A plan set is one plan, or two where joint parts make more than 8 tensors.
 *
 * Where a ceiling cuts the queries of a KV head into pieces, each piece is a
 * group. dk and dv of the KV head are then carried from piece to piece in
 * accumulators [b, S, dim] (fp32, or fp64) on the ranks that have any of its
 * queries, and two more plan sets take the place of IN's adjoint:
 *   DQ    q           its adjoint for dq, after each piece
 *   DKV   k, v        its adjoint for dk, dv, after the last piece of a KV head
 */
#ifndef ULI_ATTENTION_DIST_ATTENTION_DIST_ATTENTION_H
#define ULI_ATTENTION_DIST_ATTENTION_DIST_ATTENTION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "attention/problem.h"
#include "base/params/held.h"
#include "collectives/plan/plan.h"
#include "ulyx/attention.h"
#include "ulyx/dist_attention.h"

enum {
    ULI_AXIS_PARTS = 4,
    ULI_PLAN_SET_PLANS = 2,
    ULI_DIST_SLOTS = 2,
    ULI_SAVED_TENSORS = 4,
    ULI_SAVED_HEADER_BYTES = 64
};

/* Tensors of a call; the first five have strides of their own. */
enum uli_dist_tensor {
    ULI_DIST_Q,
    ULI_DIST_K,
    ULI_DIST_V,
    ULI_DIST_OUT,
    ULI_DIST_DOUT,
    ULI_DIST_STRIDED,
    ULI_DIST_LSE = ULI_DIST_STRIDED,
    ULI_DIST_DQ,
    ULI_DIST_DK,
    ULI_DIST_DV,
    ULI_DIST_DLSE,
    ULI_DIST_TENSORS
};

extern const char *const uli_dist_tensor_names[ULI_DIST_TENSORS];

/* Checked parameters with copies of all arrays. */
struct uli_dist_params {
    ulyx_dist_attention_params_t
        p;                  /* parts, head_splits, strides: NULL, see below */
    struct uli_shape shape; /* what all plans are given, without tensors */
    int64_t strides[ULI_DIST_STRIDED][ULI_AXIS_PARTS][3]; /* zeros: dense */
    struct uli_held held; /* splits, document tables, the kernel's name */
};
void uli_dist_params_free(struct uli_dist_params *params);

/* ulyx_dist_attention_params_t into struct uli_dist_params. Plans check and
 * compare the fields that are part of their shapes (uli_shape_fields); all
 * other fields, and those that the attention needs too, are compared when a
 * distributed attention is made. */
extern const struct uli_fields uli_dist_fields;

enum uli_plan_set_kind {
    ULI_PLAN_SET_IN,
    ULI_PLAN_SET_OUT,
    ULI_PLAN_SET_GRAD,
    ULI_PLAN_SET_DQ,
    ULI_PLAN_SET_DKV,
    ULI_PLAN_SETS
};

struct uli_plan_set {
    ulyx_plan_t *plans[ULI_PLAN_SET_PLANS];
    int32_t nplans, ntensors;
};

/* Tensors on the head side of a group, and delta on the sequence side. */
enum uli_head_tensor {
    ULI_HEAD_Q,
    ULI_HEAD_K,
    ULI_HEAD_V,
    ULI_HEAD_OUT,
    ULI_HEAD_LSE,
    ULI_HEAD_DOUT,
    ULI_HEAD_DELTA,
    ULI_HEAD_DQ,
    ULI_HEAD_DK,
    ULI_HEAD_DV,
    ULI_HEAD_SEQ_DELTA,
    ULI_HEAD_PART_DK, /* PACKED pieces: the rows of the accumulators that */
    ULI_HEAD_PART_DV, /* the piece's queries see */
    ULI_HEAD_TENSORS
};

/* Has the tensor rows of keys; is its dim that of q and k? */
static inline bool
uli_head_keys(enum uli_head_tensor t)
{
    return t == ULI_HEAD_K || t == ULI_HEAD_V || t == ULI_HEAD_DK ||
           t == ULI_HEAD_DV || t == ULI_HEAD_PART_DK || t == ULI_HEAD_PART_DV;
}
static inline bool
uli_head_wide(enum uli_head_tensor t)
{
    return t == ULI_HEAD_Q || t == ULI_HEAD_K || t == ULI_HEAD_DQ ||
           t == ULI_HEAD_DK || t == ULI_HEAD_PART_DK;
}
static inline bool
uli_head_statistic(enum uli_head_tensor t)
{
    return t == ULI_HEAD_LSE || t == ULI_HEAD_DELTA;
}

/* What a rank holds of a group: a function of the shape alone. */
struct uli_head_sizes {
    bool packed;
    int64_t q_first, q_heads, kv_first, kv_heads; /* within the group */
    int64_t q_rows, kv_rows; /* rows x heads, or the bound of n_r */
    int64_t max_segments[2]; /* of q and k */
    ulyx_dtype_t dtypes[ULI_HEAD_TENSORS];
    int64_t bytes[ULI_HEAD_TENSORS];
    int64_t attention_bytes[2]; /* workspace of each pass */
};

struct uli_head_group {
    int64_t q_first, q_heads, kv_first, kv_heads; /* global */
    bool cut;                                     /* a piece of a KV head: */
    bool first_piece, last_piece;
    int32_t holders; /* ranks that carry its KV head's accumulators */
    int32_t kv_slot; /* where dk and dv are */
    struct uli_head_sizes sizes; /* of this rank */
    struct uli_plan_set plan_sets[ULI_PLAN_SETS];
    int64_t *kv_map;             /* [sizes.q_heads], HEADS */
    ulyx_segment_t *segments[2]; /* PACKED, of q and k */
    int64_t nsegments[2];
    int64_t saved[ULI_HEAD_TENSORS]; /* offsets in saved, or -1 */
};

/* A document table that distributed attention owns. */
struct uli_dist_docs {
    bool given; /* else each batch item is one document; for keys: the table
                 * of queries holds */
    ulyx_docs_t table;
    unsigned char *begin, *length; /* room for max_docs (+ 1) entries of 8 */
};

/* Rows of the parts, owned as well; splits of the parts that got splits at
 * creation. */
struct uli_dist_rows {
    int64_t parts[ULI_MAX_PARTS];
    int64_t *splits[ULI_MAX_PARTS]; /* [P] or NULL */
};

/* Offsets of a pass in the workspace; -1: not there. */
struct uli_pass_layout {
    int64_t tensors[ULI_DIST_SLOTS][ULI_HEAD_TENSORS];
    int64_t d_sink, attention;
    int64_t attention_bytes, bytes;
};

struct uli_dist_memory; /* memory.h */

struct ulyx_dist_attention {
    ulyx_comm_t *comm;                    /* NULL: sizes alone, without plans */
    const struct uli_dist_memory *memory; /* where all tensors lie */
    struct uli_dist_device *device;       /* the device memory's own, or NULL */
    int32_t exchange_sms; /* of plans beside attention; 0 = the setting */
    int32_t nranks, rank;
    struct uli_dist_params *params;
    /* settled parameters */
    ulyx_dtype_t stat_dtype;
    int64_t elem_bytes, stat_bytes;
    bool saves_heads, has_backward;
    int32_t threads;
    double timeout_s;
    int32_t part_of[2][ULI_AXIS_PARTS], nparts[2]; /* of queries and keys */
    int64_t rows[2], most_rows[2]; /* of the two axes: now, and of updates */
    bool rows_change;
    int64_t ceiling; /* the smallest of all ranks; 0 = none */

    int32_t ngroups, slots, pieces; /* pieces: groups of a KV head, or 1 */
    struct uli_head_group *groups;
    int64_t seq_rows[ULI_MAX_PARTS];     /* s_r of each part on this rank, */
    int64_t seq_rows_max[ULI_MAX_PARTS]; /* and its bound */
    struct uli_pass_layout passes[2];
    int64_t saved_bytes, saved_now; /* of the most rows, and of the present */

    struct uli_dist_docs docs[2][2]; /* [bank][axis] */
    struct uli_dist_rows part_rows[2];
    int32_t bank;
    uint64_t
        tables; /* hash of documents and rows; READY of every plan has it */

    _Atomic bool busy;
    bool leaving; /* destroy has begun, and a plan was in flight */
    ulyx_dist_attention_times_t times;
    bool last_backward; /* the last call was backward: `times` are its */
    void *user; /* of the public layer, freed with distributed attention */
};

/* ---- life (create.c) -------------------------------------------- */

/* Collective. Takes params over, also on an error. outcome: as for
 * uli_plan_create; params may then be NULL. */
ulyx_status_t uli_dist_create(ulyx_comm_t *comm, struct uli_dist_params *params,
    ulyx_status_t outcome, double timeout_s, ulyx_dist_attention_t **dist_p);
ulyx_status_t uli_dist_destroy(ulyx_dist_attention_t *dist);

/* Local. Makes what `rank` of nranks would have with these parameters on all
 * ranks: completed parameters, head groups, sizes; no plans, no calls. Without
 * a kernel or a number of threads, one is taken. Takes params over, also on an
 * error. ownership: *dist_p by uli_dist_measured_free.
 * returns SUCCESS; as uli_dist_create of one rank alone. */
ulyx_status_t uli_dist_measure_params(struct uli_dist_params *params,
    int32_t nranks, int32_t rank, ulyx_dist_attention_t **dist_p);
void uli_dist_measured_free(ulyx_dist_attention_t *dist);

/* ---- plans and sizes (plans.c, chunks.c) --------------- */

/* The parameters of plan number `plan` of a plan set; false: there is none. The
 * tensors of a plan set are in order: q parts, k parts, v parts; out parts (lse
 * parts); dout parts, delta parts. */
bool uli_dist_plan_params(const struct ulyx_dist_attention *dist,
    const struct uli_head_group *group, enum uli_plan_set_kind kind,
    int32_t plan, struct uli_plan_params *params_p);

/* The plan that is created first: that of the queries and keys of group 0. */
static inline const ulyx_plan_t *
uli_dist_first_plan(const struct ulyx_dist_attention *dist)
{
    return dist->groups[0].plan_sets[ULI_PLAN_SET_IN].plans[0];
}

/* The strides that the call's tensor for part i of an axis got at creation. dq,
 * dk and dv have the strides of q, k and v. */
void uli_dist_seq_strides(const struct ulyx_dist_attention *dist,
    enum uli_dist_tensor tensor, int32_t axis, int32_t i, int64_t strides_p[3]);
/* delta on the sequence side: [b, heads of the group, s_p], for the most rows.
 */
void uli_dist_delta_strides(const struct ulyx_dist_attention *dist,
    const struct uli_head_group *group, int32_t i, int64_t strides_p[3]);

/* What `rank` holds of a group, by a layout of the group's plan set IN.
 * threads: the threads of the rank's attention. returns SUCCESS; OVERFLOW; as
 * uli_attn_translate. */
ulyx_status_t uli_dist_measure(const struct ulyx_dist_attention *dist,
    const struct uli_head_group *group, const struct uli_layout *layout,
    int32_t rank, int32_t threads, struct uli_head_sizes *sizes_p);
/* Bytes of a saved tensor with the present rows. */
int64_t uli_dist_bytes_now(const struct ulyx_dist_attention *dist,
    const struct uli_head_group *group, enum uli_head_tensor tensor);
/* Sets the places of saved tensors with the present rows: group->saved, and
 * saved_now. */
void uli_dist_place_saved(struct ulyx_dist_attention *dist);

/* If the number of threads was not given, the head groups under a ceiling are
 * those of one thread per rank, so that they do not depend on a rank's cores; a
 * rank then runs as many threads as fit (dist->threads, and the sizes).
 * returns as uli_dist_attention_bytes. */
ulyx_status_t uli_dist_fit_threads(struct ulyx_dist_attention *dist);

/* Chooses the head groups within the ceiling, alike on all ranks; fills
 * ngroups, slots, pieces and groups with their sizes (dist_choose.c), and
 * for chunk also passes and saved_bytes, and allocates what groups need.
 * threads: the most of all ranks.
 * returns SUCCESS; INVALID_ARGUMENT (the ceiling, with the bytes needed); as
 * uli_layout_create and uli_dist_measure. */
ulyx_status_t uli_dist_choose(
    struct ulyx_dist_attention *dist, int32_t threads);
ulyx_status_t uli_dist_chunk(struct ulyx_dist_attention *dist, int32_t threads);

/* Raises each size in *most to at least that in *sizes. */
void uli_dist_raise_sizes(
    struct uli_head_sizes *most, const struct uli_head_sizes *sizes);
/* Workspace of the larger pass for groups whose sizes are at most *most. */
int64_t uli_dist_pass_bytes(const struct ulyx_dist_attention *dist,
    const struct uli_head_sizes *most, int32_t slots);

/* Workspace of the larger pass. */
static inline int64_t
uli_dist_workspace(const struct ulyx_dist_attention *dist)
{
    return uli_max(
        dist->passes[0].bytes, dist->has_backward ? dist->passes[1].bytes : 0);
}

/* What this rank would need with another save mode and the same groups. */
void uli_dist_bytes_of(const struct ulyx_dist_attention *dist,
    ulyx_save_mode_t save, int64_t *workspace_p, int64_t *saved_p);

/* The attention of a group and how to run it, with the present documents and
 * tables; sinks and slopes are the call's. (attend.c) */
struct uli_attention_setup {
    ulyx_attention_t problem;
    ulyx_attention_exec_t exec;
};
void uli_dist_problem(const struct ulyx_dist_attention *dist,
    const struct uli_head_group *group, const struct uli_head_sizes *sizes,
    struct uli_attention_setup *setup_p);
/* The largest workspace that a pass of the group's attention can need, over all
 * tables within the maxima. returns as ulyx_attention_workspace; NO_MEMORY. */
ulyx_status_t uli_dist_attention_bytes(const struct ulyx_dist_attention *dist,
    const struct uli_head_group *group, const struct uli_head_sizes *sizes,
    int32_t threads, ulyx_attention_pass_t pass, int64_t *bytes_p);

/* ---- documents (update.c) --------------------------------------- */

/* Documents and rows that take the place of the present ones. */
struct uli_dist_change {
    void *stream;   /* on device memory */
    bool keep_docs; /* else docs_q NULL: each batch item is one document */
    const ulyx_docs_t *docs_q, *docs_k;
    const int64_t *rows; /* [parts], or NULL: unchanged */
    const int64_t *const *splits;
};
ulyx_status_t uli_dist_update(
    ulyx_dist_attention_t *dist, const struct uli_dist_change *change);
/* At creation: reserves memory for tables and rows, and copies and checks the
 * first ones. */
ulyx_status_t uli_dist_take_docs(struct ulyx_dist_attention *dist);
/* The present table of an axis, or NULL. */
static inline const ulyx_docs_t *
uli_dist_docs_of(const struct ulyx_dist_attention *dist, int axis)
{
    const struct uli_dist_docs *docs = &dist->docs[dist->bank][axis];
    return docs->given ? &docs->table : NULL;
}
/* As uli_dist_update, within a call, which has set dist->busy already: for a
 * call with documents and rows of its own. Does nothing if these are the
 * present ones. */
ulyx_status_t uli_dist_replace(
    struct ulyx_dist_attention *dist, const struct uli_dist_change *change);
/* After plans were made or updated: sets kv_map, segments and the tables'
 * hash. */
void uli_dist_take_tables(struct ulyx_dist_attention *dist);

/* ---- calls (pass.c, _forward.c, _backward.c) -------------------- */

struct uli_dist_call {
    bool backward;
    void *tensors[ULI_DIST_TENSORS][ULI_AXIS_PARTS];
    bool given[ULI_DIST_TENSORS];
    const void *sinks, *alibi_slopes;
    void *d_sink;
    void *stream; /* on device memory */
    void *workspace, *saved;
    int64_t workspace_bytes, saved_bytes;
    bool has_docs[2]; /* else the documents stay unchanged */
    ulyx_docs_t docs[2];
    const int64_t *rows; /* NULL: unchanged */
    const int64_t *const *splits;
    bool strided[ULI_DIST_TENSORS]; /* else as at creation */
    int64_t strides[ULI_DIST_TENSORS][ULI_AXIS_PARTS][3];
    double timeout_s;
};

/* Has the tensor rows of keys; is its dim that of q and k? (of a call) */
static inline bool
uli_dist_keys(enum uli_dist_tensor t)
{
    return t == ULI_DIST_K || t == ULI_DIST_V || t == ULI_DIST_DK ||
           t == ULI_DIST_DV;
}
static inline bool
uli_dist_wide(enum uli_dist_tensor t)
{
    return t == ULI_DIST_Q || t == ULI_DIST_K || t == ULI_DIST_DQ ||
           t == ULI_DIST_DK;
}
static inline bool
uli_dist_statistic(enum uli_dist_tensor t)
{
    return t == ULI_DIST_LSE || t == ULI_DIST_DLSE;
}

/* Checks the strides of creation, once the rows of this rank are known. returns
 * SUCCESS; INVALID_ARGUMENT, OVERFLOW. (dist_strides.c) */
ulyx_status_t uli_dist_check_strides(const struct ulyx_dist_attention *dist);
/* Checks the strides that the call gives against the present rows; three zeros
 * become the dense strides. returns SUCCESS; INVALID_ARGUMENT.
 * (dist_strides.c) */
ulyx_status_t uli_dist_settle_strides(
    const struct ulyx_dist_attention *dist, struct uli_dist_call *call);
/* The strides of a tensor of the call: those that the call gives, else those of
 * creation. (dist_strides.c) */
void uli_dist_call_strides(const struct ulyx_dist_attention *dist,
    const struct uli_dist_call *call, enum uli_dist_tensor tensor, int32_t i,
    int64_t strides_p[3]);

/* outcome: the result of the public layer's check of the call, with the error's
 * text set. A refusal is sent to the peers. (pass.c) */
ulyx_status_t uli_dist_run(ulyx_dist_attention_t *dist,
    struct uli_dist_call *call, ulyx_status_t outcome);

/* ---- words (describe.c) ----------------------------------------- */

int64_t uli_dist_held_bytes(const struct ulyx_dist_attention *dist);
/* Tensor i of ULI_SAVED_TENSORS of a group; false where it is not saved. */
bool uli_dist_saved_tensor(const struct ulyx_dist_attention *dist,
    int32_t group_index, int i, ulyx_saved_tensor_t *tensor_p);
/* Bytes that the last call has sent to and received from other ranks. */
void uli_dist_traffic(const struct ulyx_dist_attention *dist, int64_t *sent_p,
    int64_t *received_p);
void uli_dist_describe(
    const struct ulyx_dist_attention *dist, char *text_p, size_t text_bytes);

#endif
