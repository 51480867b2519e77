/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange: sequence-sharded [b, s_r, h, d] <=> head-sharded [b, S, h_r,
 * d].
 *
 * A plan describes one exchange of 1 to 8 tensors over a communicator. A plan
 * is made once; later only the contents of its document tables and, within
 * capacities, its numbers of rows can change. Execute takes pointers to the
 * sources and destinations and moves the tensors. The caller packs nothing, and
 * there is no padding. There are four directions: sequence to heads, heads to
 * sequence, and the adjoint (transpose) of each, which training needs. Adjoints
 * have factor one: nothing is averaged.
 *
 * Words: P = the number of ranks; part = a range of rows of a token axis,
 * sharded over the ranks or replicated; s_r = the number of rows of a part on
 * rank r; sequence side = the tensors before seq_to_head; head side = the
 * tensors after it.
 *
 * Method: the sequence-parallel exchange of DeepSpeed-Ulysses (Jacobs et al.,
 * arXiv 2309.14509), generalised to any split.
 *
 * Threads: the caller serialises the updates and executes of one plan, and
 * makes them in the same order on all ranks. Updates and executes of different
 * plans are independent; only plans of a communicator that go by messages
 * ("nccl", "staged") are executed by one thread at a time, and in one order on
 * all ranks (collective.h). The caller also serialises creation and destruction
 * of all plans of a communicator. Queries may be called at any time.
 */
#ifndef ULYX_RESHUFFLE_H
#define ULYX_RESHUFFLE_H

#include "ulyx/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* From which side an exchange moves the tensors to which. */
typedef int32_t ulyx_direction_t;
enum {
    ULYX_SEQ_TO_HEAD = 0,
    /* If several ranks hold a head, the lowest of them sends it. */
    ULYX_HEAD_TO_SEQ = 1,
    /* From gradients of seq_to_head's outputs (head side, in partial_dtype) to
     * gradients of its inputs. If several ranks hold a head, the rank that owns
     * the tokens sums their gradients in fp32 (fp64 for F64) and rounds
     * once. */
    ULYX_SEQ_TO_HEAD_ADJOINT = 2,
    /* From gradients of head_to_seq's outputs (sequence side) to gradients of
     * its inputs. If several ranks hold a row of a head, the lowest of them
     * gets the gradient of the row, and the others get zeros. */
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
    /* The part is cut into 2P chunks; rank r holds chunks r and 2P-1-r, which
     * balances a causal mask. Of n rows, the first n mod 2P chunks have n / 2P
     * + 1 rows, the others n / 2P. With splits, the rows of a rank are halved
     * into its two chunks, and an odd row belongs to the first. The first
     * chunks of all ranks lie in rank order at the beginning of the part, the
     * second chunks in reverse rank order after them. */
    ULYX_TOKENS_ZIGZAG = 1,
    /* Zigzag within each document; a rank's local rows lie document by
     * document. Batch 1 and balanced splits only. Rows that belong to no
     * document (before the first, between two, after the last) are cut like a
     * document; an empty document has no effect. */
    ULYX_TOKENS_ZIGZAG_DOCS = 2,
};

/* The rows of an axis are the rows of its parts, one part after another. Axis 0
 * is that of the queries; axis 1, if there is one, is that of the keys.
 */
typedef struct {
    int32_t axis;  /* 0 or 1 */
    int32_t kind;  /* ULYX_PART_SHARDED (default) or _REPLICATED */
    int32_t order; /* of the tokens, if the part is sharded: ULYX_TOKENS_... */
    int64_t rows;  /* rows per batch item over all ranks, >= 0 */
    const int64_t *splits; /* [P] rows on each rank, with the sum `rows`; NULL =
                            * balanced. In CONTIGUOUS order the first (rows mod
                            * P) ranks then hold one row more */
    int64_t row_capacity;  /* most rows that ulyx_plan_update_rows may set, >=
                            * rows; 0 (default): the rows never change.
                            * ERR_UNSUPPORTED for PACKED head sides, and for
                            * device plans that go by messages */
} ulyx_part_t;
#define ULYX_PART_INIT                                                         \
    {                                                                          \
        0, ULYX_PART_SHARDED, ULYX_TOKENS_CONTIGUOUS, 0, 0, 0                  \
    }

/* Which ranks hold which heads of a tensor on the head side. */
enum {
    ULYX_HEADS_QUERY = 0, /* heads = h; each head is on one rank (q, out,
                           * lse) */
    ULYX_HEADS_KV = 1,    /* for k and v; h is a multiple of heads (GQA, MQA).
                           * Query head i reads KV head floor(i * heads / h); a
                           * rank holds the KV heads that its query heads
                           * read */
};

/* Flags of tensors on replicated parts. */
/* The adjoint of seq_to_head gives every rank the sum over all ranks. Without
 * the flag the result is PARTIAL: each rank gets its own summand, which is zero
 * for heads that the rank does not hold. */
#define ULYX_TENSOR_FULL UINT64_C(1)
/* The gradients that enter the adjoint of head_to_seq are equal on all ranks,
 * so each rank takes its heads from its own copy. Without the flag the copies
 * of all ranks are summed. */
#define ULYX_TENSOR_GRAD_EQUAL UINT64_C(2)

/* A tensor of a plan. Strides are {batch, row, head} in bytes. Three zeros mean
 * a dense tensor: [b, s_r, heads, dim] on the sequence side, [b, S, h_r, dim]
 * on the head side, with S the rows of the axis and h_r the heads of the rank
 * (PACKED: [n_r, dim], where only the row stride is used). The dim elements of
 * a row and head are adjacent. On the head side the pointer is that of the
 * first row of the axis, whatever part the tensor names. Strides may differ
 * between ranks and may not be negative; elements of one tensor must not
 * overlap. A call may have strides of its own (ulyx_reshuffle_execute_strided).
 * A stride is ignored if its dimension has at most one entry on this rank
 * (under every document table), or if the tensor has no elements. */
typedef struct {
    int32_t part;          /* index into the plan's parts */
    int32_t dtype;         /* ULYX_DTYPE_... */
    int64_t elem_bytes;    /* for DTYPE_BYTES: 1 to 4096; else 0 */
    int64_t heads;         /* >= 1 */
    int64_t dim;           /* elements per row and head, >= 1 */
    int32_t ownership;     /* ULYX_HEADS_QUERY (default) or ULYX_HEADS_KV */
    int32_t partial_dtype; /* dtype of the source in the adjoint of seq_to_head:
                            * F32, F64 or dtype; 0 = default: F32 for 16-bit
                            * dtypes if two ranks hold a head of the tensor,
                            * else dtype */
    uint64_t flags;        /* ULYX_TENSOR_... */
    int64_t seq_strides[3];
    int64_t head_strides[3];
    int64_t partial_strides[3]; /* as head_strides, for the source in
                                 * partial_dtype */
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
    /* all rows in (head, batch, row) order, cut into P runs of equal attention
     * cost. The head side is PACKED, unless h mod P = 0: then this is the same
     * as HEADS */
    ULYX_WORK_BALANCED = 1,
};

/* What a plan may assume about this rank's pointers on one side. */
enum {
    ULYX_POINTER_ANY = 0,    /* any memory of the communicator's kind */
    ULYX_POINTER_WINDOW = 1, /* inside windows attached to the communicator */
};

/* A thread of the library makes progress on exchanges that were started
 * (ulyx_reshuffle_start), without calls of the owner. */
#define ULYX_PLAN_PROGRESS_THREAD UINT64_C(1)
/* CUDA only; on all ranks or on none. Copy engines move the bytes instead of
 * multiprocessors, unless document tables or rows may change
 * (ulyx_plan_describe reports which). A captured call must not be launched on a
 * communicator that has failed. */
#define ULYX_PLAN_COPY_ENGINE UINT64_C(2)

typedef struct {
    size_t size;              /* sizeof(ulyx_plan_params_t), set by the macro */
    int64_t batch;            /* b >= 0; default 1 */
    int64_t heads;            /* h >= 1 query heads */
    const ulyx_part_t *parts; /* 1 to 4 per axis, 1 or 2 axes */
    size_t part_size;         /* sizeof(ulyx_part_t), set by the macro */
    int32_t nparts;
    int32_t ntensors; /* 1 to 8 */
    const ulyx_tensor_t *tensors;
    size_t tensor_size;         /* sizeof(ulyx_tensor_t), set by the macro */
    const int64_t *head_splits; /* [P] query heads per rank; NULL = balanced:
                                 * the first (h mod P) ranks hold one head
                                 * more */
    int32_t work_split;         /* ULYX_WORK_... */
    int32_t seq_memory;         /* ULYX_POINTER_..., for this rank alone */
    int32_t head_memory;
    int32_t mask_kind; /* BALANCED: the mask of the attention */
    int32_t mask_align;
    int64_t mask_diagonal;
    int64_t mask_left, mask_right; /* for ULYX_MASK_WINDOW */
    int64_t row_cost;  /* BALANCED: fixed cost of a row, in keys, added to the
                        * keys that it sees; 0 = 16 */
    int64_t row_round; /* BALANCED: cuts only at multiples of this many rows; 0
                        * = 64 */
    int64_t max_rows;  /* BALANCED: most rows n_r of a HEADS_QUERY tensor on any
                        * rank; 0 = twice the mean, rounded up */
    int64_t max_kv_rows;  /* BALANCED: most rows of a HEADS_KV tensor on any
                           * rank; 0 = all rows of the heads that max_rows rows
                           * can touch */
    int64_t max_segments; /* BALANCED: most segments on any rank; 0 = as many as
                           * max_rows, batch and max_docs allow */
    int64_t max_local_rows; /* ZIGZAG_DOCS: most rows s_r, for which the
                             * caller's seq_strides need room; 0 = ceil(S/P) + 2
                             * * max_docs + 1, at most S */
    int64_t max_docs;       /* most documents of any update; 0 = no updates */
    const ulyx_docs_t
        *docs_q; /* the first document table; NULL = one document per batch
                  * item. Used by ZIGZAG_DOCS and BALANCED only */
    const ulyx_docs_t *docs_k;
    uint64_t flags;          /* ULYX_PLAN_... */
    uint64_t directions;     /* bit (1 << direction) for each direction that
                              * will be used; 0 = all that these tensors
                              * allow */
    const char *algo;        /* "direct", "pairwise", "hier"; on devices also
                              * "nccl", "staged"; NULL = the library chooses */
    int64_t slot_bytes;      /* exchanges of at most this many bytes per pair of
                              * ranks go through slots of the library; 0 =
                              * ULYX_SLOT_BYTES, negative = never */
    int64_t bytes_in_flight; /* most staged bytes in flight per pair of ranks; 0
                              * = default */
    int32_t max_sms;         /* CUDA: most SMs that a launch uses; 0 =
                              * default */
    double timeout_s;        /* for this creation and for the plan's executes; 0
                              * = the communicator's */
} ulyx_plan_params_t;
#define ULYX_PLAN_PARAMS_INIT                                                  \
    {                                                                          \
        sizeof(ulyx_plan_params_t), 1, 1, 0, sizeof(ulyx_part_t), 0, 0, 0,     \
            sizeof(ulyx_tensor_t), 0, ULYX_WORK_HEADS, ULYX_POINTER_ANY,       \
            ULYX_POINTER_ANY, ULYX_MASK_NONE, ULYX_ALIGN_BOTTOM_RIGHT, 0, 0,   \
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                  \
    }

/* Collective. Compares everything that must agree, so all ranks get the same
 * error before any data moves. Strides, seq_memory, head_memory and timeout_s
 * may differ between ranks.
 * ownership: *plan_p is the caller's; params and what it points to are copied.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT (the text names field and value; the
 * other ranks get ERR_PEER_REFUSED, whose text names the rank); ERR_MISMATCH
 * (the text has the field, the ranks and both values); ERR_OVERFLOW;
 * ERR_UNSUPPORTED (for instance a sum of DTYPE_BYTES); ERR_NO_MEMORY, here or
 * at the rank named; ERR_TIMEOUT; ERR_RANK_LOST; ERR_ABORTED; ERR_FORKED. */
ULYX_API ulyx_status_t ulyx_plan_create(
    ulyx_comm_t *comm, const ulyx_plan_params_t *params, ulyx_plan_t **plan_p);

/* Replaces the contents of the document tables. Local, no communication; all
 * ranks must give the same tables, which the next execute checks by a hash.
 * Segments, extents and, with ZIGZAG_DOCS, s_r change: query them again, or
 * allocate once for max_rows, max_kv_rows and max_local_rows. NULL = one
 * document per batch item. The arrays lie on the host. stream is NULL on the
 * host; on CUDA the update takes effect in stream order. Replays of calls that
 * were captured before the update use the new tables, so their tensors need
 * room for the maxima.
 * returns: SUCCESS, also for a BALANCED plan that is the same as HEADS and does
 * not depend on the table; ERR_INVALID_ARGUMENT (bad table, or a table that
 * exceeds a maximum of creation: the text has the value needed);
 * ERR_UNSUPPORTED (neither BALANCED nor ZIGZAG_DOCS, or max_docs was 0);
 * ERR_BUSY (an operation is in flight). On error the old tables stay. */
ULYX_API ulyx_status_t ulyx_plan_update(ulyx_plan_t *plan,
    const ulyx_docs_t *docs_q, const ulyx_docs_t *docs_k, void *stream);

/* Sets the numbers of rows from the next call on, so that one plan serves all
 * lengths. Local, no communication; all ranks must give the same numbers, which
 * the next execute checks. rows: one entry per part, at most the part's
 * row_capacity; for a part without a capacity, its rows at creation. splits:
 * NULL if no part had splits at creation; otherwise one entry per part, which
 * is [P] if the part had splits at creation, else NULL. Documents as for
 * ulyx_plan_update; they are ignored if the layout does not depend on them.
 * Dense tensors (three zero strides) are dense for the new rows; other strides
 * stay, and must have had room for the capacity from creation on. Heads, token
 * order and algorithm stay those that were chosen for the capacity. On CUDA the
 * update takes effect in stream order, and not during a capture; replays of
 * calls that were captured before the update move the new rows, so their
 * tensors need room for the capacity.
 * returns: as ulyx_plan_update; ERR_UNSUPPORTED (no part has a capacity). On
 * error the old rows and documents stay. */
ULYX_API ulyx_status_t ulyx_plan_update_rows(ulyx_plan_t *plan,
    const int64_t *rows, const int64_t *const *splits,
    const ulyx_docs_t *docs_q, const ulyx_docs_t *docs_k, void *stream);

/* Local; NULL is fine. returns: SUCCESS; ERR_BUSY (an operation, or a call of
 * another thread, is in flight; the plan stays valid); ERR_INVALID_ARGUMENT
 * (destroyed before, or the plan of a distributed attention). */
ULYX_API ulyx_status_t ulyx_plan_destroy(ulyx_plan_t *plan);

/* Moves all tensors: src[ntensors] and dst[ntensors] in the plan's order. On
 * return (CUDA: in stream order) dst is complete and src may be overwritten.
 * During the call dst belongs to the library. A tensor without elements on a
 * side may have a NULL pointer there. stream: NULL on the host.
 * CUDA: execute returns when the call is in the stream, which may be captured;
 * ranks of one process that share a device need streams of their own. All
 * tensors lie in attached windows, except with "nccl" and "staged". The outcome
 * is reported later: a timeout or a lost rank by ulyx_comm_get_async_error;
 * ERR_PEER_REFUSED and ERR_MISMATCH once, by the next execute, which is
 * enqueued all the same.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT (a pointer that is NULL, misaligned
 * for its dtype, in overlapping tensors, or outside of windows if the plan
 * declared ULYX_POINTER_WINDOW; the peers get ERR_PEER_REFUSED and the
 * communicator stays usable); ERR_PEER_REFUSED naming the rank, which may also
 * have destroyed its plan; ERR_MISMATCH (direction or document table);
 * ERR_UNSUPPORTED (a direction not in params.directions); ERR_BUSY (an
 * operation of this plan is in flight, or another thread executes the plan, or
 * another stream captures it); ERR_TIMEOUT; ERR_RANK_LOST; ERR_ABORTED;
 * ERR_FORKED. A call that is refused for its arguments leaves dst untouched.
 * After a call that fails later the elements of dst are undefined; bytes
 * outside the tensors are never written. */
ULYX_API ulyx_status_t ulyx_reshuffle_execute(ulyx_plan_t *plan,
    ulyx_direction_t direction, const void *const src[], void *const dst[],
    void *stream);

/* As ulyx_reshuffle_execute, with strides for this call on this rank: for
 * tensors whose strides are not those of creation, such as views whose strides
 * change from call to call. Each array has one entry per tensor, in the plan's
 * order, as in ulyx_tensor_t: three zeros mean dense for the present rows. NULL
 * in place of an array means the strides of creation. The strides apply to this
 * call alone, need room for the present rows only, and may differ between
 * ranks: nothing is compared, and the other ranks may call
 * ulyx_reshuffle_execute. The algorithm and the transports stay those chosen at
 * creation. If the strides differ from those of the last call in the same
 * direction, this rank and the ranks that access its memory rebuild their
 * tables in place, without allocating. The arrays are read before the call
 * returns, also in a group.
 * returns: as execute; ERR_INVALID_ARGUMENT (negative strides, overlapping
 * elements of a tensor; the peers get ERR_PEER_REFUSED, as for other
 * arguments); ERR_OVERFLOW (sizes beyond 63 bits; the peers likewise);
 * ERR_UNSUPPORTED (CUDA: other strides than those of creation, for a plan that
 * moves its bytes by copy engines or messages; the peers get ERR_PEER_REFUSED).
 * Replays of a captured call use its strides. */
ULYX_API ulyx_status_t ulyx_reshuffle_execute_strided(ulyx_plan_t *plan,
    ulyx_direction_t direction, const void *const src[],
    const int64_t (*src_strides)[3], void *const dst[],
    const int64_t (*dst_strides)[3], void *stream);

/* Takes this rank's place in a call that its peers make and that this rank
 * cannot make, for a reason that the caller has found outside of the library.
 * Without it the peers would wait for this rank until the call's deadline. The
 * call is the next one of this plan on all ranks: they get ERR_PEER_REFUSED
 * with the reason, and the communicator and the plan stay usable. direction:
 * that of the peers' call. reason: at most 159 bytes arrive. stream: NULL on
 * the host, else the call's stream. Not in a group.
 * returns: never SUCCESS. In the usual case ERR_INVALID_ARGUMENT with `reason`
 * as its text, once the peers have been notified; ERR_INVALID_ARGUMENT too in a
 * group or for a direction that is none, with nothing announced; other errors
 * as ulyx_reshuffle_execute. */
ULYX_API ulyx_status_t ulyx_reshuffle_refuse(ulyx_plan_t *plan,
    ulyx_direction_t direction, const char *reason, void *stream);

/* Execute in two steps, for host memory only. Data moves while the calling
 * thread tests or waits for any of its requests, or at any time with
 * ULYX_PLAN_PROGRESS_THREAD. timeout_s: 0 = the plan's.
 * ownership: *request_p belongs to the plan, and ends with the first test or
 * wait that returns anything but IN_PROGRESS. Only the thread that started the
 * request may test it or wait for it. returns: as execute. */
ULYX_API ulyx_status_t ulyx_reshuffle_start(ulyx_plan_t *plan,
    ulyx_direction_t direction, const void *const src[], void *const dst[],
    double timeout_s, ulyx_request_t **request_p);

/* As ulyx_reshuffle_start, with the strides of
 * ulyx_reshuffle_execute_strided. */
ULYX_API ulyx_status_t ulyx_reshuffle_start_strided(ulyx_plan_t *plan,
    ulyx_direction_t direction, const void *const src[],
    const int64_t (*src_strides)[3], void *const dst[],
    const int64_t (*dst_strides)[3], double timeout_s,
    ulyx_request_t **request_p);

/* returns: IN_PROGRESS, or how the exchange ended (as execute). */
ULYX_API ulyx_status_t ulyx_request_test(ulyx_request_t *request);
/* Waits until the exchange ends, and makes progress on all requests of the
 * thread meanwhile. returns: as execute. */
ULYX_API ulyx_status_t ulyx_request_wait(ulyx_request_t *request);

/* ---- queries: local, never block; all return SUCCESS or ERR_INVALID_ARGUMENT
 * (an index out of range, a NULL pointer, or a capacity that is too small;
 * *count_p, if there is one, then still gets the count). A NULL array with
 * capacity 0 succeeds where there is a *count_p, and gives only the count. */

/* s_r of a part on a rank. */
ULYX_API ulyx_status_t ulyx_plan_get_seq_rows(
    const ulyx_plan_t *plan, int32_t part, int32_t rank, int64_t *rows_p);

/* Global position within the part of each local row of a rank. */
ULYX_API ulyx_status_t ulyx_plan_get_positions(const ulyx_plan_t *plan,
    int32_t part, int32_t rank, int64_t capacity, int64_t *positions_p);

/* The heads of a tensor that a rank holds, [first, first + count); for a PACKED
 * tensor the range from the lowest to the highest of them. */
ULYX_API ulyx_status_t ulyx_plan_get_heads(const ulyx_plan_t *plan,
    int32_t tensor, int32_t rank, int64_t *first_p, int64_t *count_p);

/* *packed_p: 1 if the head side is PACKED, else 0. *rows_p: the rows n_r of a
 * PACKED tensor on a rank, else 0. */
ULYX_API ulyx_status_t ulyx_plan_get_packed_rows(const ulyx_plan_t *plan,
    int32_t tensor, int32_t rank, int32_t *packed_p, int64_t *rows_p);

/* The segments of a PACKED tensor on a rank; offsets are multiples of the row
 * stride of that rank. segment_size is sizeof(ulyx_segment_t); segments_p has
 * room for `capacity` segments. */
ULYX_API ulyx_status_t ulyx_plan_get_segments(const ulyx_plan_t *plan,
    int32_t tensor, int32_t rank, int64_t capacity, size_t segment_size,
    ulyx_segment_t *segments_p, int64_t *count_p);

/* For each head of the HEADS_QUERY tensor q_tensor on this rank: the local
 * index of the head that it reads in the HEADS_KV tensor kv_tensor. */
ULYX_API ulyx_status_t ulyx_plan_get_kv_map(const ulyx_plan_t *plan,
    int32_t q_tensor, int32_t kv_tensor, int64_t capacity, int64_t *map_p,
    int64_t *count_p);

/* The dtype of a tensor's source in the adjoint of seq_to_head: partial_dtype,
 * or what its default 0 stands for. */
ULYX_API ulyx_status_t ulyx_plan_get_partial_dtype(
    const ulyx_plan_t *plan, int32_t tensor, ulyx_dtype_t *dtype_p);

/* One of the two arrays of pointers that execute takes. */
typedef int32_t ulyx_side_t;
enum {
    ULYX_SIDE_DST = 0, /* the tensors that are written */
    ULYX_SIDE_SRC = 1, /* the tensors that are read */
};

/* The bytes from a tensor's base to the end of its last element on this rank,
 * in src or dst of a direction. */
ULYX_API ulyx_status_t ulyx_plan_get_extent(const ulyx_plan_t *plan,
    int32_t tensor, ulyx_direction_t direction, ulyx_side_t side,
    int64_t *bytes_p);

/* As ulyx_plan_get_extent, for the most rows and documents that updates can
 * set. */
ULYX_API ulyx_status_t ulyx_plan_get_max_extent(const ulyx_plan_t *plan,
    int32_t tensor, ulyx_direction_t direction, ulyx_side_t side,
    int64_t *bytes_p);

/* What an exchange in one direction moves. */
typedef struct {
    size_t size;        /* sizeof(ulyx_traffic_t), set by the macro */
    int64_t size_bytes; /* bytes on the sequence side of one rank; the largest
                         * of all ranks */
    int64_t bus_bytes;  /* bytes that one rank must receive from others, each
                         * element once; the largest of all ranks */
    int64_t sent_bytes; /* bytes that this rank sends to others with the plan's
                         * algorithm */
    int64_t received_bytes;
    int64_t local_bytes;   /* bytes that this rank copies to itself */
    int64_t surplus_bytes; /* received_bytes less the bytes that this rank must
                            * receive */
    int64_t wire_bytes;    /* bytes that this rank puts to other nodes: its own
                            * or, with hier, those that it carries for its node;
                            * includes fewer than 8 bytes of alignment per
                            * sum */
    int64_t wire_counted;  /* such bytes as counted during the plan's last call,
                            * whatever its direction; not to be queried while
                            * a call is in flight */
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
 * each choice. A text longer than text_bytes (4 or more) is cut: it then ends
 * in "... (needs N)", where N is the text_bytes for the whole text, or in "..."
 * if there is no room for that. */
ULYX_API ulyx_status_t ulyx_plan_describe(
    const ulyx_plan_t *plan, char *text_p, size_t text_bytes);

#ifdef __cplusplus
}
#endif
#endif
