/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange: sequence-sharded [b, s_r, h, d] <=> head-sharded [b, S, h_r,
 * d].
 *
 * A plan describes one exchange of 1 to 8 tensors over a communicator. It is
 * made once; only the contents of its document tables and, within capacities,
 * its rows can change. Execute takes pointers to the sources and destinations
 * and moves the tensors, without packing by the caller and without padding.
 * There are four directions: to heads, to sequences, and the adjoint
 * (transpose) of each, which training needs. Adjoints have factor one: nothing
 * is averaged.
 *
 * Words: P ranks; part = a run of rows of a token axis, sharded over the
 * ranks or replicated; s_r = rows of a part on rank r; sequence side = the
 * tensors before seq_to_head; head side = those after.
 *
 * Method: the sequence-parallel exchange of DeepSpeed-Ulysses (Jacobs et al.,
 * arXiv 2309.14509), generalised to any split.
 *
 * Threads: create, update, destroy and the executes of one plan are
 * serialised by the caller and come in the same order on all ranks; different
 * plans are independent. Queries may be called at any time.
 */
#ifndef ULYX_RESHUFFLE_H
#define ULYX_RESHUFFLE_H

#include "ulyx/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where an exchange takes the tensors. */
typedef int32_t ulyx_direction_t;
enum {
    ULYX_SEQ_TO_HEAD = 0,
    /* A head that several ranks hold comes from the lowest of them. */
    ULYX_HEAD_TO_SEQ = 1,
    /* From head-side gradients of seq_to_head's outputs (in partial_dtype)
     * to gradients of its inputs: heads that several ranks hold are summed by
     * the rank that owns the tokens, in fp32 (fp64 for F64), rounded once. */
    ULYX_SEQ_TO_HEAD_ADJOINT = 2,
    /* From sequence-side gradients of head_to_seq's outputs to gradients of
     * its inputs: a shared row's gradient goes to its lowest holder, the
     * other holders get zeros. */
    ULYX_HEAD_TO_SEQ_ADJOINT = 3,
};
#define ULYX_DIRECTIONS 4

/* How a part's rows lie over the ranks. */
enum {
    ULYX_PART_SHARDED = 0,
    ULYX_PART_REPLICATED = 1, /* every rank has all rows */
};
/* Which tokens of a sharded part each rank has. */
enum {
    ULYX_TOKENS_CONTIGUOUS = 0,
    /* 2P chunks, rank r holds chunks r and 2P-1-r (causal balance). Of n rows
     * the first n mod 2P chunks have n / 2P + 1, the others n / 2P. With
     * splits, rank r's two chunks have its rows in halves, the first one the
     * odd row; the first chunks lie in rank order from the part's begin, the
     * second ones in reverse from its end. */
    ULYX_TOKENS_ZIGZAG = 1,
    /* the same within each document, local rows document by document; batch 1
     * and balanced splits only. Rows between two documents that have rows, and
     * those before the first and after the last, are cut like a document: empty
     * documents cut nothing. */
    ULYX_TOKENS_ZIGZAG_DOCS = 2,
};

/* Parts, in order, make up an axis: axis a's rows are those of its parts one
 * after another. Axis 0 is the queries', axis 1, when there is one, the keys'.
 */
typedef struct {
    int32_t axis;  /* 0 or 1 */
    int32_t kind;  /* ULYX_PART_SHARDED (default) or _REPLICATED */
    int32_t order; /* of the tokens of a sharded part: ULYX_TOKENS_... */
    int64_t rows;  /* rows per batch item over all ranks, >= 0 */
    const int64_t *splits; /* [P] rows on each rank, adding up to rows; NULL =
                            * balanced: the first rows mod P ranks hold one
                            * more */
    int64_t row_capacity;  /* most rows that ulyx_plan_update_rows gives the
                            * part, >= rows; 0 (default): they never change.
                            * Host memory; not for PACKED head sides:
                            * ERR_UNSUPPORTED */
} ulyx_part_t;
#define ULYX_PART_INIT                                                         \
    {                                                                          \
        0, ULYX_PART_SHARDED, ULYX_TOKENS_CONTIGUOUS, 0, 0, 0                  \
    }

/* Which ranks hold which heads of a tensor on the head side. */
enum {
    ULYX_HEADS_QUERY = 0, /* heads = h: each with its one owner (q, o, lse) */
    ULYX_HEADS_KV = 1,    /* h a multiple of heads (GQA, MQA): a rank holds
                           * the heads that its query heads read (k, v):
                           * query head i reads floor(i * heads / h) */
};

/* Options of tensors on replicated parts. */
/* Adjoint of seq_to_head gives the sum over all ranks to every rank; default
 * is PARTIAL: each rank's own share, zero for heads that it does not hold. */
#define ULYX_TENSOR_FULL UINT64_C(1)
/* The gradients that enter the adjoint of head_to_seq are equal on all ranks:
 * each takes its heads from its own copy; default: the copies are summed. */
#define ULYX_TENSOR_GRAD_EQUAL UINT64_C(2)

/* Strides are {batch, row, head} in bytes; three zeros mean dense: [b, s_r,
 * heads, dim] on the sequence side, [b, S, h_r, dim] on the head side with S
 * the axis's rows and h_r the rank's heads (PACKED: [n_r, dim], only the row
 * stride counts). The elements of a row and head are adjacent. The head side's
 * pointer is the axis's first row, whichever part the tensor names. Strides may
 * differ between ranks and may not be negative; elements of one tensor must not
 * overlap. A call may bring others (ulyx_reshuffle_execute_strided). The stride
 * of a dimension that has at most one entry on this rank (with document tables:
 * for any table) is ignored, and so are all strides of a tensor without
 * elements. */
typedef struct {
    int32_t part;          /* index into the plan's parts */
    int32_t dtype;         /* ULYX_DTYPE_... */
    int64_t elem_bytes;    /* of DTYPE_BYTES only: 1 .. 4096; else 0 */
    int64_t heads;         /* >= 1 */
    int64_t dim;           /* elements a row and head, >= 1 */
    int32_t ownership;     /* ULYX_HEADS_QUERY (default) or ULYX_HEADS_KV */
    int32_t partial_dtype; /* of the source of the adjoint of seq_to_head:
                            * F32, F64 or dtype itself; 0 = default: F32 for
                            * 16-bit dtypes when any of its heads is held by two
                            * ranks, else dtype */
    uint64_t flags;        /* ULYX_TENSOR_... */
    int64_t seq_strides[3];
    int64_t head_strides[3];
    int64_t partial_strides[3]; /* head side, of partial_dtype elements */
} ulyx_tensor_t;
#define ULYX_TENSOR_INIT                                                       \
    {                                                                          \
        0, ULYX_DTYPE_BF16, 0, 1, 1, ULYX_HEADS_QUERY, 0, 0, {0, 0, 0},        \
            {0, 0, 0},                                                         \
        {                                                                      \
            0, 0, 0                                                            \
        }                                                                      \
    }

/* Who computes what on the head side. */
enum {
    ULYX_WORK_HEADS = 0, /* whole heads, balanced or by head_splits */
    /* (head, batch, row) order cut into P runs of equal attention cost; the
     * head side is PACKED unless h mod P = 0, which is the same as HEADS */
    ULYX_WORK_BALANCED = 1,
};

/* What a plan may assume of the pointers of one side on this rank. */
enum {
    ULYX_POINTER_ANY = 0,    /* any memory of the communicator's kind */
    ULYX_POINTER_WINDOW = 1, /* inside windows attached to the communicator */
};

/* The library's progress thread copies for started exchanges. */
#define ULYX_PLAN_PROGRESS_THREAD UINT64_C(1)
/* CUDA; on all ranks or none: copy engines move the bytes, not multiprocessors,
 * unless document tables or rows may change (ulyx_plan_describe says so).
 * A captured call must not be launched on a communicator that has failed. */
#define ULYX_PLAN_COPY_ENGINE UINT64_C(2)

typedef struct {
    size_t size;              /* sizeof(ulyx_plan_params_t), set by the macro */
    int64_t batch;            /* b >= 0; default 1 */
    int64_t heads;            /* h >= 1 query heads */
    const ulyx_part_t *parts; /* 1 to 4 an axis, 1 or 2 axes */
    size_t part_size;         /* sizeof(ulyx_part_t), set by the macro */
    int32_t nparts;
    int32_t ntensors; /* 1 to 8 */
    const ulyx_tensor_t *tensors;
    size_t tensor_size;         /* sizeof(ulyx_tensor_t), set by the macro */
    const int64_t *head_splits; /* [P] query heads a rank; NULL = balanced: the
                                 * first h mod P ranks hold one more */
    int32_t work_split;         /* ULYX_WORK_... */
    int32_t seq_memory;         /* ULYX_POINTER_..., of this rank */
    int32_t head_memory;
    int32_t mask_kind; /* BALANCED: the mask that the attention will use */
    int32_t mask_align;
    int64_t mask_diagonal;
    int64_t mask_left, mask_right; /* of ULYX_MASK_WINDOW */
    int64_t row_cost;  /* BALANCED: cost of a row beside its keys, in keys;
                        * 0 = 16 */
    int64_t row_round; /* BALANCED: cuts at multiples of it; 0 = 64 */
    int64_t max_rows; /* BALANCED: bound of any rank's rows n_r of a HEADS_QUERY
                       * tensor; 0 = twice the mean, rounded up */
    int64_t max_kv_rows;  /* the same of a HEADS_KV tensor; 0 = all rows of the
                           * heads that max_rows can touch */
    int64_t max_segments; /* bound of any rank's segments; 0 = what max_rows,
                           * batch and max_docs can make */
    int64_t max_local_rows; /* ZIGZAG_DOCS: bound of s_r, for which given
                             * seq_strides need room; 0 = ceil(S/P) + 2 *
                             * max_docs + 1, at most S */
    int64_t max_docs;       /* most documents of any update; 0 = none */
    const ulyx_docs_t
        *docs_q; /* the first table; NULL = one document a batch
                  * item. Needed by ZIGZAG_DOCS and BALANCED only */
    const ulyx_docs_t *docs_k;
    uint64_t flags;          /* ULYX_PLAN_... */
    uint64_t directions;     /* bit (1 << direction) for each that will be used;
                              * 0 = all that exist for these tensors */
    const char *algo;        /* "direct", "pairwise", "hier"; on devices "nccl",
                              * "staged"; NULL = chosen */
    int64_t slot_bytes;      /* exchanges of at most so many bytes a pair go
                              * through library slots; 0 = ULYX_SLOT_BYTES,
                              * negative = never */
    int64_t bytes_in_flight; /* staging per pair; 0 = default */
    int32_t max_sms;         /* CUDA: most SMs of a launch; 0 = default */
    double timeout_s;        /* of this creation and of the plan's executes;
                              * 0 = the communicator's */
} ulyx_plan_params_t;
#define ULYX_PLAN_PARAMS_INIT                                                  \
    {                                                                          \
        sizeof(ulyx_plan_params_t), 1, 1, 0, sizeof(ulyx_part_t), 0, 0, 0,     \
            sizeof(ulyx_tensor_t), 0, ULYX_WORK_HEADS, ULYX_POINTER_ANY,       \
            ULYX_POINTER_ANY, ULYX_MASK_NONE, ULYX_ALIGN_BOTTOM_RIGHT, 0, 0,   \
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                  \
    }

/* Collective. Compares everything that must agree, so that ranks which
 * disagree all get the same error before any data moves. Gathered but not
 * compared: strides, memory classes, deadline.
 * ownership: *plan_p is the caller's; params and what it points to are copied.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT (the text names field and value;
 * ERR_PEER_REFUSED on the other ranks, naming the rank); ERR_MISMATCH (field,
 * ranks and both values); ERR_OVERFLOW; ERR_UNSUPPORTED (for instance a sum of
 * DTYPE_BYTES); ERR_NO_MEMORY, here or at the rank named; ERR_TIMEOUT;
 * ERR_RANK_LOST; ERR_ABORTED; ERR_FORKED. */
ULYX_API ulyx_status_t ulyx_plan_create(
    ulyx_comm_t *comm, const ulyx_plan_params_t *params, ulyx_plan_t **plan_p);

/* Replaces the contents of the document tables; local, no communication; all
 * ranks must give the same, which the next execute checks by hash. Segments,
 * extents and, with ZIGZAG_DOCS, s_r change: query again, or allocate once for
 * max_rows, max_kv_rows and max_local_rows. NULL = one document per batch item.
 * Host arrays; stream is NULL on the host. CUDA: in stream order. Replays of
 * calls that were captured before use the new tables, so their tensors need
 * room for the maxima.
 * returns: SUCCESS, also where BALANCED is HEADS for this many ranks and
 * nothing depends on the table; ERR_INVALID_ARGUMENT (bad table);
 * ERR_UNSUPPORTED (neither BALANCED nor ZIGZAG_DOCS, or max_docs was 0); also
 * when the table exceeds a maximum of creation: the text has the value needed);
 * ERR_BUSY (an operation is in flight). On error the old table stays. */
ULYX_API ulyx_status_t ulyx_plan_update(ulyx_plan_t *plan,
    const ulyx_docs_t *docs_q, const ulyx_docs_t *docs_k, void *stream);

/* Sets the numbers of rows from the next call on, so that one plan serves all
 * lengths. Local, no communication; all ranks must give the same, which the
 * next execute checks. rows: one entry per part, at most its row_capacity; of a
 * part without a capacity, its rows at creation. splits: NULL where creation
 * gave no part splits; otherwise one entry per part, [P] where creation gave
 * that part splits and NULL where it did not. Documents as for
 * ulyx_plan_update; they are ignored where the layout does not depend on them.
 * Dense tensors (three zero strides) are dense for the new rows; strides that
 * were given stay, and must have room for the capacity from creation on. Heads,
 * order and algorithm stay those of the capacity. CUDA: in stream order, not
 * during a capture; replays of calls that were captured before move the new
 * rows, so their tensors need room for the capacity.
 * returns: as ulyx_plan_update; ERR_UNSUPPORTED (no part has a capacity). On
 * error the old rows and documents stay. */
ULYX_API ulyx_status_t ulyx_plan_update_rows(ulyx_plan_t *plan,
    const int64_t *rows, const int64_t *const *splits,
    const ulyx_docs_t *docs_q, const ulyx_docs_t *docs_k, void *stream);

/* Local; NULL is fine. returns: SUCCESS; ERR_BUSY with an operation or a call
 * of another thread in flight (the plan stays valid); ERR_INVALID_ARGUMENT
 * (destroyed before, or the plan of a distributed attention). */
ULYX_API ulyx_status_t ulyx_plan_destroy(ulyx_plan_t *plan);

/* Moves all tensors: src[ntensors] and dst[ntensors] in the plan's order. On
 * return (CUDA: in stream order) dst is whole and src may be overwritten. From
 * the call on, until it ends, dst belongs to the library. A tensor without
 * elements on a side may have a NULL pointer there. stream: NULL on the host.
 * CUDA: returns once the call is in the stream, which may be captured; ranks of
 * a process that share a device need streams of their own. All tensors lie in
 * attached windows, except with "nccl" and "staged". The outcome is reported
 * later: a timeout or lost rank by ulyx_comm_get_async_error; ERR_PEER_REFUSED
 * and ERR_MISMATCH of a call once, by the next execute, which is enqueued all
 * the same. returns: SUCCESS; ERR_INVALID_ARGUMENT (NULL, misaligned for its
 * dtype, overlapping, or outside the windows that the plan declared: peers are
 * notified and the communicator stays usable); ERR_PEER_REFUSED naming the
 * rank, also one that has destroyed its plan; ERR_MISMATCH (direction or
 * document table); ERR_UNSUPPORTED (a direction not in params.directions);
 * ERR_BUSY (an operation of this plan is in flight, another thread executes
 * it, or another stream captures it); ERR_TIMEOUT; ERR_RANK_LOST; ERR_ABORTED;
 * ERR_FORKED. A call refused for its arguments leaves dst untouched; one that
 * fails in flight leaves dst undefined, inside the tensors only. */
ULYX_API ulyx_status_t ulyx_reshuffle_execute(ulyx_plan_t *plan,
    ulyx_direction_t direction, const void *const src[], void *const dst[],
    void *stream);

/* The same with this call's own strides on this rank, for tensors that lie
 * otherwise than at creation, such as views whose strides change from call to
 * call. One entry per tensor, in the plan's order, as in ulyx_tensor_t: three
 * zeros mean dense for the present rows; NULL in place of an array means the
 * strides of creation. The strides hold for this call alone, need room for the
 * present rows only, and may differ between ranks: nothing is compared, and the
 * other ranks may call plain execute. How the bytes travel stays as creation
 * has chosen it. Where the strides differ from those of the last call in the
 * same direction, this rank and the ranks that access its memory rebuild their
 * tables, in place. The arrays are read during the call, in a group when they
 * are given.
 * returns: as execute; ERR_INVALID_ARGUMENT (negative strides, overlapping
 * elements of a tensor; the peers get ERR_PEER_REFUSED, as for other
 * arguments); ERR_OVERFLOW (sizes beyond 63 bits; the peers likewise);
 * ERR_UNSUPPORTED (CUDA: strides other than those of creation, of a plan whose
 * bytes go by copy engines or messages; the peers get ERR_PEER_REFUSED). A
 * captured call keeps its strides. */
ULYX_API ulyx_status_t ulyx_reshuffle_execute_strided(ulyx_plan_t *plan,
    ulyx_direction_t direction, const void *const src[],
    const int64_t (*src_strides)[3], void *const dst[],
    const int64_t (*dst_strides)[3], void *stream);

/* Execute in two steps, on the host only: data moves while the owner
 * thread tests or waits for any request of its own (or at any time with
 * ULYX_PLAN_PROGRESS_THREAD). timeout_s: 0 = the plan's.
 * ownership: *request_p belongs to the plan and ends with the first test or
 * wait that returns anything but IN_PROGRESS. Same thread as start. returns: as
 * execute. */
ULYX_API ulyx_status_t ulyx_reshuffle_start(ulyx_plan_t *plan,
    ulyx_direction_t direction, const void *const src[], void *const dst[],
    double timeout_s, ulyx_request_t **request_p);

/* Start with strides: as ulyx_reshuffle_execute_strided. */
ULYX_API ulyx_status_t ulyx_reshuffle_start_strided(ulyx_plan_t *plan,
    ulyx_direction_t direction, const void *const src[],
    const int64_t (*src_strides)[3], void *const dst[],
    const int64_t (*dst_strides)[3], double timeout_s,
    ulyx_request_t **request_p);

/* returns: IN_PROGRESS, or how the exchange ended (as execute). */
ULYX_API ulyx_status_t ulyx_request_test(ulyx_request_t *request);
/* Waits and returns how it ended. Drives all requests of its thread. */
ULYX_API ulyx_status_t ulyx_request_wait(ulyx_request_t *request);

/* ---- queries: local, never block; all return SUCCESS or ERR_INVALID_ARGUMENT
 * (index out of range, NULL, capacity too small: *count_p, where there is one,
 * has the count all the same). A NULL array with capacity 0 gives the count
 * alone, and succeeds. ----------------------- */

/* s_r of a part on a rank. */
ULYX_API ulyx_status_t ulyx_plan_get_seq_rows(
    const ulyx_plan_t *plan, int32_t part, int32_t rank, int64_t *rows_p);

/* Global position within the part of each local row of a rank. */
ULYX_API ulyx_status_t ulyx_plan_get_positions(const ulyx_plan_t *plan,
    int32_t part, int32_t rank, int64_t capacity, int64_t *positions_p);

/* Heads of a tensor that a rank holds, [first, first + count); of a PACKED
 * tensor the range from the lowest to the highest. */
ULYX_API ulyx_status_t ulyx_plan_get_heads(const ulyx_plan_t *plan,
    int32_t tensor, int32_t rank, int64_t *first_p, int64_t *count_p);

/* *packed_p = 1 where the head side is PACKED, and its rows n_r on a rank
 * (0 rows when it is not). */
ULYX_API ulyx_status_t ulyx_plan_get_packed_rows(const ulyx_plan_t *plan,
    int32_t tensor, int32_t rank, int32_t *packed_p, int64_t *rows_p);

/* Segments of a PACKED tensor on a rank, offsets by this rank's row stride.
 * segment_size is sizeof(ulyx_segment_t), of which segments_p has capacity. */
ULYX_API ulyx_status_t ulyx_plan_get_segments(const ulyx_plan_t *plan,
    int32_t tensor, int32_t rank, int64_t capacity, size_t segment_size,
    ulyx_segment_t *segments_p, int64_t *count_p);

/* For each head of HEADS_QUERY tensor q that this rank holds, the local index
 * of the head of HEADS_KV tensor kv that it reads. */
ULYX_API ulyx_status_t ulyx_plan_get_kv_map(const ulyx_plan_t *plan,
    int32_t q_tensor, int32_t kv_tensor, int64_t capacity, int64_t *map_p,
    int64_t *count_p);

/* The type that the source of a tensor's adjoint of seq_to_head must have:
 * partial_dtype with its default settled. */
ULYX_API ulyx_status_t ulyx_plan_get_partial_dtype(
    const ulyx_plan_t *plan, int32_t tensor, ulyx_dtype_t *dtype_p);

/* One of the two arrays of pointers that execute takes. */
typedef int32_t ulyx_side_t;
enum {
    ULYX_SIDE_DST = 0, /* what is written */
    ULYX_SIDE_SRC = 1, /* what is read */
};

/* Bytes from a tensor's base to its last byte on this rank, in src or dst of a
 * direction. */
ULYX_API ulyx_status_t ulyx_plan_get_extent(const ulyx_plan_t *plan,
    int32_t tensor, ulyx_direction_t direction, ulyx_side_t side,
    int64_t *bytes_p);

/* The same for the largest rows and documents that updates may bring. */
ULYX_API ulyx_status_t ulyx_plan_get_max_extent(const ulyx_plan_t *plan,
    int32_t tensor, ulyx_direction_t direction, ulyx_side_t side,
    int64_t *bytes_p);

/* What an exchange in one direction moves. */
typedef struct {
    size_t size;        /* sizeof(ulyx_traffic_t), set by the macro */
    int64_t size_bytes; /* largest over ranks: sequence-side bytes */
    int64_t bus_bytes;  /* largest over ranks: bytes that it must receive
                         * from others, each element once */
    int64_t sent_bytes; /* of this rank, to others, by the algorithm */
    int64_t received_bytes;
    int64_t local_bytes;   /* of this rank, to itself */
    int64_t surplus_bytes; /* received_bytes beyond what must be received */
    int64_t wire_bytes;    /* that this rank puts to other nodes: its own, or
                            * (hier) those that it carries for its node, less
                            * than 8 for each sum's alignment included */
    int64_t wire_counted;  /* the same bytes as the plan's last call, of any
                            * direction, has put them; not to be queried while
                            * one is in flight */
} ulyx_traffic_t;
#define ULYX_TRAFFIC_INIT                                                      \
    {                                                                          \
        sizeof(ulyx_traffic_t), 0, 0, 0, 0, 0, 0, 0, 0                         \
    }

/* Fills *traffic_p, whose size the caller has set, for one direction. */
ULYX_API ulyx_status_t ulyx_plan_get_traffic(const ulyx_plan_t *plan,
    ulyx_direction_t direction, ulyx_traffic_t *traffic_p);

/* Bytes that the library holds for this plan on this rank. */
ULYX_API ulyx_status_t ulyx_plan_get_memory(
    const ulyx_plan_t *plan, int64_t *bytes_p);

/* One line: shape, algorithm, verb per link class, chunks, and the reason of
 * each choice. Cut to text_bytes (4 or more): then it ends in "... (needs N)",
 * N the text_bytes for all of it, or "..." where that has no room. */
ULYX_API ulyx_status_t ulyx_plan_describe(
    const ulyx_plan_t *plan, char *text_p, size_t text_bytes);

#ifdef __cplusplus
}
#endif
#endif
