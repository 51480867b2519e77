/* SPDX-License-Identifier: Apache-2.0
 *
 * A reshuffle of a random layout with threads as ranks: every rank's tensors,
 * with strides, memory and alignment of its own, and the expected value of
 * every byte of every destination, by obvious placement.
 */
#ifndef TESTS_COLLECTIVES_EXCHANGE_RESHUFFLE_WORLD_H
#define TESTS_COLLECTIVES_EXCHANGE_RESHUFFLE_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include "collectives/layout/layout_cases.h"
#include "collectives/layout/layout_oracle.h"
#include "collectives/plan/plan.h"
#include "support/random.h"
#include "ulyx/comm.h"
#include "ulyx/memory.h"
#include "ulyx/reshuffle.h"

/* Communicators, and a window of each rank. only = -1: all ranks are threads of
 * this process. Otherwise this process is rank `only`, and the memory of the
 * other ranks only stands in for theirs. */
struct world_ranks {
    int32_t nranks, only;
    ulyx_comm_t *comms[ORACLE_MAX_RANKS];
    ulyx_mem_t *mems[ORACLE_MAX_RANKS];
    unsigned char *windows[ORACLE_MAX_RANKS];
    int64_t used[ORACLE_MAX_RANKS];
    int64_t window_bytes; /* of each window; 0: WORLD_WINDOW_BYTES */
};
enum { WORLD_WINDOW_BYTES = 8 << 20 };

void world_ranks_init(struct world_ranks *ranks, int32_t nranks);
/* As world_ranks_init, with windows of another size. */
void world_ranks_init_sized(
    struct world_ranks *ranks, int32_t nranks, int64_t window_bytes);
/* The second half of world_ranks_init: makes a window of each rank, in
 * communicators that exist. */
void world_ranks_attach(struct world_ranks *ranks);
void world_ranks_free(struct world_ranks *ranks);
/* As world_ranks_init, for one rank of a communicator between processes.
 * world_ranks_free then does not destroy the communicator. */
void world_ranks_init_process(
    struct world_ranks *ranks, ulyx_comm_t *comm, int32_t rank, int32_t nranks);

/* The bytes of one tensor of one rank, with space on both sides. */
struct image {
    unsigned char *base;     /* start of the allocation */
    unsigned char *expected; /* what base must hold */
    unsigned char *data;     /* the tensor's pointer; NULL without elements */
    int64_t bytes, at;
    bool owned; /* malloc, not the window */
};

struct world {
    struct oracle_case c;
    struct oracle oracle;
    struct uli_layout *layout; /* made as the ranks make it, for its numbers */
    struct world_ranks *ranks;
    int64_t salt;
    uint64_t directions;
    uint64_t flags;
    const char *algo;  /* or NULL */
    bool all_dense;    /* no rank has strides of its own */
    bool fixed_limits; /* slot_bytes and bytes_in_flight are given, not drawn */
    int64_t slot_bytes, bytes_in_flight;
    int32_t max_sms; /* for device memory; 0 = the setting */
    int32_t memory[ORACLE_MAX_RANKS][2];
    uli_strides_t strides[ORACLE_MAX_RANKS][ULI_TENSORS];
    bool dense[ORACLE_MAX_RANKS];
    /* For calls: which sides of a rank have their tensors elsewhere than at
     * creation, and of which tensors the strides are passed as three zeros. */
    bool moved[ORACLE_MAX_RANKS][ULI_SIDES];
    bool zeros[ORACLE_MAX_RANKS][ULI_TENSORS][ULI_SIDES];
    uli_strides_t usual[ORACLE_MAX_RANKS][ULI_TENSORS];
    struct image src[ULYX_DIRECTIONS][ORACLE_MAX_RANKS][ULI_TENSORS];
    struct image dst[ULYX_DIRECTIONS][ORACLE_MAX_RANKS][ULI_TENSORS];
    ulyx_plan_t *plans[ORACLE_MAX_RANKS];
    int order[8];
    int norder;
};

/* A row of a test's table of draws. name and value are a setting, or NULL; kind
 * has a meaning of the test's own. `run` is a test that finds its row in
 * *state. */
struct world_scene {
    const char *name, *value;
    uint64_t seed;
    int64_t draws;
    int memory, kind;
};
/* Runs the draws with the scene's setting in the environment. */
void world_scene_run(const struct world_scene *scene,
    void (*draws)(const struct world_scene *scene));
#define WORLD_SCENE(test, run, ...)                                            \
    {                                                                          \
#test, run, NULL, NULL, &(struct world_scene)                          \
        {                                                                      \
            __VA_ARGS__                                                        \
        }                                                                      \
    }

/* Makes a plain case: q, k and v of the dtype, [1, rows, heads or kv_heads,
 * dim]. With enough rows and heads every two ranks exchange bytes. */
void world_plain_case(struct world *w, int32_t nranks, int64_t rows,
    int64_t heads, int64_t kv_heads, int64_t dim, int32_t dtype);

/* Draws everything for the case in w->c. memory: 0 malloc, 1 windows, 2 a
 * mixture. Returns false when the layout refuses the case. */
bool world_draw(struct world *w, struct world_ranks *ranks,
    struct test_random *random, int memory);
void world_free(struct world *w);
/* Draws other documents for the world's own layout and its expected bytes; the
 * caller updates the plans. Returns false when the layout refuses the
 * documents. */
bool world_replace_docs(struct world *w, struct test_random *random);
/* Sets dense strides for the present rows, after an update. */
void world_fill_dense(struct world *w);
/* Draws other strides and memory for later calls, with room for the present
 * rows, for one in one_in of the tensors, sides and ranks; all others are as at
 * creation. one_in = 0: all are as at creation. */
void world_move(struct world *w, struct test_random *random, int one_in);
/* The strides that a call passes; src_p and dst_p are NULL where it passes
 * none. */
struct world_strides {
    int64_t src[ULI_TENSORS][3], dst[ULI_TENSORS][3];
    const int64_t (*src_p)[3], (*dst_p)[3];
};
void world_call_strides(const struct world *w, int32_t rank, int direction,
    struct world_strides *strides);
/* Fills the sources and poisons the destinations, for the present tables. */
void world_fill(struct world *w);
/* Returns whether all bytes of all images are right, at all ranks of this
 * process; prints the differences. */
bool world_check(struct world *w);
/* Bytes that an operation sends between nodes: those that any schedule must
 * send, and those sent when each rank sends to each other rank directly. */
struct world_wire {
    int64_t once, direct;
};
struct world_wire world_wire(const struct world *w, int op);
/* world_check for one operation at one rank. */
bool world_check_rank(struct world *w, int direction, int32_t rank);

int64_t world_elem_bytes(
    const struct world *w, int32_t tensor, enum uli_side side);
int32_t world_dtype(const struct world *w, int32_t tensor, enum uli_side side);

/* Of one rank: creates its plan; runs an operation. */
ulyx_status_t world_create(struct world *w, int32_t rank);
ulyx_status_t world_execute(struct world *w, int32_t rank, int direction);
/* Returns whether the rank's last call, which was of that operation, put
 * exactly the bytes to other nodes that the layout demands. */
bool world_wire_agrees(struct world *w, int32_t rank, int direction);
/* Of one rank: creates its plan, runs all operations of w->order, and compares
 * the bytes put to other nodes. */
bool world_runs(struct world *w, int32_t rank);
/* The pointers of an operation at a rank. */
void world_pointers(struct world *w, int32_t rank, int direction,
    const void *src[ULI_TENSORS], void *dst[ULI_TENSORS]);

#endif
