/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange of the soaks: q, k and v of grouped-query attention, through the
 * public API alone. Values are whole numbers that encode tensor, row, head and
 * element, so results, and sums too, are checked without an oracle.
 */
#ifndef TESTS_SOAK_SCENE_H
#define TESTS_SOAK_SCENE_H

#include <stdbool.h>
#include "ulyx/ulyx.h"

enum scene_path {
    SCENE_WINDOW,
    SCENE_RING, /* also needs ULYX_CMA=off when the communicator is made */
    SCENE_CMA,  /* also needs ULYX_CMA=on and ULYX_CMA_MIN_ROW=8 */
    SCENE_SLOT,
    SCENE_PATHS
};
extern const char *const scene_path_names[SCENE_PATHS];
/* Sets or clears the variables that the path needs. */
void scene_environment(enum scene_path path);

enum { SCENE_TENSORS = 3 };

struct scene {
    ulyx_comm_t *comm;
    ulyx_plan_t *plan;
    ulyx_mem_t *mem; /* NULL: ordinary memory */
    bool attached;
    char *memory;
    int32_t rank, nranks;
    int64_t rows;                 /* S, of all ranks */
    int64_t seq_rows, *positions; /* of this rank */
    int64_t first[SCENE_TENSORS], count[SCENE_TENSORS];
    float *seq[SCENE_TENSORS], *head[SCENE_TENSORS];
    char text[256]; /* the error text when open failed */
};

/* Makes memory, then the plan. `rows` is S; an odd S selects the zigzag order.
 * On an error only the text remains. */
ulyx_status_t scene_open(
    ulyx_comm_t *comm, enum scene_path path, int64_t rows, struct scene *s);
/* Fills the source of the operation, runs the operation and returns its status.
 * The operation is SEQ_TO_HEAD or SEQ_TO_HEAD_ADJOINT. */
ulyx_status_t scene_execute(struct scene *s, ulyx_direction_t direction);
/* Returns whether every element of the destination is right. */
bool scene_check(const struct scene *s, ulyx_direction_t direction);
/* The two pointer arrays of an operation. */
void scene_pointers(const struct scene *s, ulyx_direction_t direction,
    const void *src[SCENE_TENSORS], void *dst[SCENE_TENSORS]);
void scene_fill(struct scene *s, ulyx_direction_t direction);
/* Overwrites all tensors. */
void scene_spoil(struct scene *s);
/* Destroys the plan, the window and the memory; waits at most limit_s for
 * windows that are BUSY. If anything is left, prints the reason and returns
 * false. */
bool scene_close(struct scene *s, double limit_s);

#endif
