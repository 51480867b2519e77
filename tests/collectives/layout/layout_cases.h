/* SPDX-License-Identifier: Apache-2.0
 *
 * Random small layouts over all options of a layout.
 */
#ifndef TESTS_COLLECTIVES_LAYOUT_LAYOUT_CASES_H
#define TESTS_COLLECTIVES_LAYOUT_LAYOUT_CASES_H

#include "collectives/layout/layout_oracle.h"
#include "support/random.h"

/* Draws a valid case with 1 .. max_ranks ranks. balanced: work_split is
 * BALANCED and tensor 0 is HEADS_QUERY on axis 0. Pointers refer to *c, so *c
 * must not be copied. */
void case_random(struct oracle_case *c, struct test_random *random,
    int32_t max_ranks, bool balanced);

/* Draws new documents for a case, within its max_docs. */
void case_random_docs(struct oracle_case *c, struct test_random *random);

/* Gives at least one part a capacity above its rows at creation. */
void case_random_capacities(struct oracle_case *c, struct test_random *random);

/* Draws other rows and splits within the capacities, as an update takes them.
 * case_random_rows also draws documents within the rows. */
struct case_rows {
    int64_t rows[ULI_MAX_PARTS];
    const int64_t *splits[ULI_MAX_PARTS];
    bool has_splits;
};
void case_random_rows(struct oracle_case *c, struct test_random *random,
    struct case_rows *rows_p);

/* Returns the documents in the library's form, or NULL for none. begin and
 * length point into *c. */
const ulyx_docs_t *case_docs(
    const struct oracle_case *c, int axis, ulyx_docs_t *storage);

ulyx_status_t case_create(
    const struct oracle_case *c, struct uli_layout **layout_p);

/* Returns the cuts of a PACKED layout, from the segments of tensor 0; NULL for
 * HEADS. */
const int64_t *case_cuts(const struct oracle_case *c,
    const struct uli_layout *layout, int64_t cuts[ORACLE_MAX_RANKS + 1]);

/* A plain shape: 2 ranks, 8 rows, 4 heads of which 2 KV, one part; no
 * splits. */
void shape_small(struct uli_shape *shape);

/* Prints the case as one line, for failure messages. */
void case_print(const struct oracle_case *c);

#endif
