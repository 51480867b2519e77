/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the layout share.
 *
 * Life: uli_layout_create checks the shape (layout_check.c), reserves all
 * memory, and fills bank 0. An update fills the other bank and then sets
 * `tables` to it, so a refused table changes nothing. Tables that no document
 * can change (spans of fixed orders, head ranges) are outside the banks.
 *
 * Everything is plain C that a C++ or CUDA source may include too.
 */
#ifndef ULI_COLLECTIVES_LAYOUT_LAYOUT_PRIVATE_H
#define ULI_COLLECTIVES_LAYOUT_LAYOUT_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>
#include "base/size.h"
#include "base/status.h"
#include "collectives/layout/layout.h"

/* Costs are sums of up to 2^62 rows of up to 2^63 keys each. */
typedef unsigned __int128 uli_u128;

/* HEADS_QUERY; HEADS_KV with each number of heads that tensors or key_heads
 * have. */
enum { ULI_MAX_FAMILIES = ULI_TENSORS + 2, ULI_TILE_KEYS = 128 };

/* Spans of a sharded part, of all ranks in rank order: those of rank r are
 * span[start[r] .. start[r + 1]). Rows ascend within a rank, because every
 * order keeps a rank's rows in global order. */
struct uli_row_spans {
    int64_t *start; /* [P + 1] */
    int64_t *rows;  /* [P] s_r */
    struct uli_row_span *span;
    int64_t capacity;
};

/* PACKED: the runs of one family of tensors, of all ranks in rank order; within
 * a rank they ascend by (head, batch, row), disjoint and maximal. */
struct uli_family {
    int64_t *start; /* [P + 1] */
    int64_t *rows;  /* [P] n_r */
    struct uli_run *run;
    int64_t capacity;
};

/* The fixed properties of a family. `group` query heads read one of its
 * heads. */
struct uli_family_info {
    bool kv;
    int64_t heads, group;
    /* The most that a rank's runs can have. most_: as max_rows alone allows.
     * max_: limited by max_kv_rows and max_segments too. */
    int64_t most_heads, most_lines;
    int64_t most_rows, most_segments;
    int64_t max_rows, max_segments;
};

/* Element n is over the documents before document n, with all their queries
 * (PACKED only; arrays of [max_docs + 2]). */
struct uli_doc_sums {
    uli_u128 *cost;    /* keys of all rows of all documents before n */
    int64_t *kv_rows;  /* key rows to which these documents attend */
    int64_t *kv_runs;  /* maximal runs of these key rows */
    int64_t *seen;     /* first document >= n that attends to a key */
    int64_t *seen_end; /* end of the keys of the last document before n that
                        * attends to a key; -1: none */
};

/* Everything that an update replaces. */
struct uli_tables {
    struct uli_docs docs[2]; /* of queries, of keys */
    int64_t *doc_begin[2], *doc_length[2];
    uint64_t hash;
    struct uli_row_spans spans[ULI_MAX_PARTS];
    struct uli_doc_sums sums;
    int64_t *cut; /* [P + 1] positions in (head, batch, row) order; PACKED */
    struct uli_family family[ULI_MAX_FAMILIES];
};

/* Rows, and what follows from them alone. */
struct uli_rows {
    int64_t rows[ULI_MAX_PARTS];
    const int64_t *splits[ULI_MAX_PARTS];
    int64_t axis_rows[2], first_row[ULI_MAX_PARTS];
};

/* For rows that updates change (layout_rows.c). */
struct uli_row_limits {
    bool change;                    /* rows of some part change */
    struct uli_rows most;           /* at capacity; splits unused */
    bool has_splits[ULI_MAX_PARTS]; /* the caller gives splits */
    /* These two only for parts whose rows change in a fixed order. */
    int64_t *splits[2][ULI_MAX_PARTS]; /* [bank], resolved */
    int64_t *fronts[ULI_MAX_PARTS];
    int64_t *seq_rows[ULI_MAX_PARTS]; /* [P] most s_r */
    bool stretched;
    struct uli_rows kept; /* while stretched */
};

struct uli_memory; /* one reserved block, see layout.c */

struct uli_layout {
    struct uli_shape shape; /* defaults resolved, arrays owned here */
    int32_t naxes;
    int64_t axis_rows[2];
    int64_t first_row[ULI_MAX_PARTS];
    struct uli_row_span whole[ULI_MAX_PARTS]; /* of replicated parts */
    int64_t *head_begin; /* [P + 1] HEADS: first query head of each rank */
    bool packed;
    struct uli_row_limits limits;
    bool has_docs_order;  /* a part is ZIGZAG_DOCS */
    bool max_local_given; /* max_local_rows is the caller's */
    int32_t nfamilies;
    int32_t family_of[ULI_TENSORS];
    struct uli_family_info family[ULI_MAX_FAMILIES];
    bool shared[ULI_TENSORS]; /* two ranks or more hold one head */
    struct uli_tables bank[2];
    struct uli_tables *tables; /* the bank in use */
    struct uli_memory *memory;
    ulyx_status_t failure; /* of the last uli_layout_reserve */
    int64_t bytes;
};

static inline const struct uli_tables *
uli_layout_tables(const struct uli_layout *layout)
{
    return __atomic_load_n(&layout->tables, __ATOMIC_ACQUIRE);
}

static inline int64_t
uli_div_up(int64_t a, int64_t unit)
{
    return a / unit + (a % unit != 0);
}

/* ---- layout.c ------------------------------------------------------------ */

/* Zeroed memory that lives as long as the layout; count may be 0.
 * Returns NULL and sets layout->failure (ERR_OVERFLOW or ERR_NO_MEMORY). */
void *uli_layout_reserve(
    struct uli_layout *layout, int64_t count, int64_t elem_bytes);
#define ULI_TRY_RESERVE(layout, pointer, count)                                \
    do {                                                                       \
        (pointer) = uli_layout_reserve(layout, count, sizeof(*(pointer)));     \
        if (!(pointer))                                                        \
            return (layout)->failure;                                          \
    } while (0)

/* ---- layout_check.c ------------------------------------------------------ */

/* Checks everything that does not depend on document tables. */
ulyx_status_t uli_layout_check(const struct uli_shape *shape);
/* Checks that splits add up to `expected`; that a part's splits do. */
ulyx_status_t uli_splits_check(const char *name, const int64_t *splits,
    int32_t nranks, int64_t expected, const char *expected_name);
ulyx_status_t uli_part_splits_check(
    int32_t part, const int64_t *splits, int32_t nranks, int64_t rows);

/* ---- layout_rows.c ------------------------------------------------------- */

/* Sets the first rows of parts and the rows of axes, from the parts' rows. */
void uli_rows_place(struct uli_layout *layout);
/* Before anything is prepared: sets rows to their capacities, and saves the
 * present ones in *present_p. */
void uli_rows_open(struct uli_layout *layout, struct uli_rows *present_p);
/* Sets rows that have been checked; uli_orders_update fills in what follows. */
void uli_rows_set(struct uli_layout *layout, const struct uli_rows *rows);
/* Do the part's rows change, in an order without documents? */
bool uli_rows_refill(const struct uli_layout *layout, int32_t part);

/* Fills the bank that is not in use, and then uses it. (layout.c) */
ulyx_status_t uli_layout_fill(struct uli_layout *layout,
    const ulyx_docs_t *docs_q, const ulyx_docs_t *docs_k);
/* Does the layout accept document tables? (layout.c) */
bool uli_layout_takes_docs(const struct uli_layout *layout);

/* ---- layout_docs.c ------------------------------------------------------- */

/* Checks the table of an axis and copies it into `tables` (capacity
 * max_docs). */
ulyx_status_t uli_docs_load(const struct uli_layout *layout,
    struct uli_tables *tables, int32_t axis, const ulyx_docs_t *docs);
/* Uses the table of axis 0 for axis 1 too. */
void uli_docs_share(struct uli_tables *tables);
/* A hash of the tables, and of the rows where rows change. Never 0. */
uint64_t uli_docs_hash(
    const struct uli_layout *layout, const struct uli_tables *tables);

/* Most documents of any table. */
static inline int64_t
uli_docs_most(const struct uli_layout *layout)
{
    return uli_max(layout->shape.max_docs, layout->shape.batch);
}

/* Documents of an axis; without a table, one per batch item. */
static inline int64_t
uli_docs_count(
    const struct uli_layout *layout, const struct uli_tables *tables, int axis)
{
    return tables->docs[axis].none ? layout->shape.batch
                                   : tables->docs[axis].count;
}

static inline int64_t
uli_docs_begin(const struct uli_layout *layout, const struct uli_tables *tables,
    int axis, int64_t doc)
{
    return tables->docs[axis].none
               ? doc * layout->axis_rows[layout->naxes == 2 ? axis : 0]
               : tables->docs[axis].begin[doc];
}

static inline int64_t
uli_docs_length(const struct uli_layout *layout,
    const struct uli_tables *tables, int axis, int64_t doc)
{
    return tables->docs[axis].none
               ? layout->axis_rows[layout->naxes == 2 ? axis : 0]
               : tables->docs[axis].length[doc];
}

/* ---- layout_orders.c ----------------------------------------------------- */

/* Resolves splits of a part with a fixed order, and reserves and fills its
 * spans in both banks; for ZIGZAG_DOCS reserves only. */
ulyx_status_t uli_orders_prepare(struct uli_layout *layout, int32_t part);
/* Fills the spans of parts with ZIGZAG_DOCS from the tables' documents, and of
 * parts whose rows change.
 * Returns ERR_INVALID_ARGUMENT when a rank exceeds max_local_rows. */
ulyx_status_t uli_orders_update(
    struct uli_layout *layout, struct uli_tables *tables);

/* ---- layout_heads.c ------------------------------------------------------ */

/* HEADS: the rank that has query head `head`. */
int32_t uli_heads_owner(const struct uli_layout *layout, int64_t head);

/* HEADS: heads [first, end) of a tensor. all: that the rank holds; lowest: of
 * which the rank is the lowest holder. */
struct uli_head_range {
    int64_t first, end;
};
struct uli_head_range uli_heads_all(
    const struct uli_layout *layout, int32_t tensor, int32_t rank);
struct uli_head_range uli_heads_lowest(
    const struct uli_layout *layout, int32_t tensor, int32_t rank);

/* HEADS: the longest run of heads from `head` on with the same holders, which
 * are the ranks of lo .. hi that have heads at all.
 * Returns its end. */
int64_t uli_heads_cell(const struct uli_layout *layout, int32_t tensor,
    int64_t head, int32_t *lo_p, int32_t *hi_p);

#endif
