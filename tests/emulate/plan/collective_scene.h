/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives on device memory beside the same calls on host memory. Each rank
 * has a source and a destination of one size on its device, in its window or
 * outside of it, and two images of the destination on the host: the result of
 * the device, and the result of the host's call. The whole destination is
 * compared, so the bytes between and around the pieces serve as guards.
 */
#ifndef TESTS_EMULATE_PLAN_COLLECTIVE_SCENE_H
#define TESTS_EMULATE_PLAN_COLLECTIVE_SCENE_H

#include "emulate/plan/plan_scene.h"
#include "ulyx/collective.h"

enum { COLL_BYTES = 1 << 17 }; /* bytes of a source or destination */

struct coll_rank {
    /* device memory in no window, for both a source and a destination */
    unsigned char *outside;
    unsigned char *src, *dst;           /* of the present call, on the device */
    unsigned char *src_host, *dst_host; /* tensors of the host's call */
    unsigned char *seen;                /* dst, copied back from the device */
};

struct coll_scene {
    struct plan_scene s;
    ulyx_comm_t *hosts[PLAN_RANKS_MAX];
    struct coll_rank at[PLAN_RANKS_MAX];
};

/* A call that the device and the host make alike. A rank's pointers are
 * src + src_at and dst + dst_at in its tensors on the device, and the same
 * offsets apply to its tensors on the host. In place, src lies in dst instead
 * (in_place). */
enum coll_kind {
    COLL_ALLTOALL,
    COLL_ALLTOALLV,
    COLL_ALLREDUCE,
    COLL_ALLGATHER,
    COLL_BROADCAST,
    COLL_KINDS
};
struct coll_call {
    enum coll_kind kind;
    int64_t count; /* elements (ALLREDUCE), else bytes of a piece */
    ulyx_dtype_t dtype;
    int32_t root;
    bool in_place; /* whether src lies in dst (ALLREDUCE, ALLGATHER) */
    bool in_window[PLAN_RANKS_MAX][2]; /* whether src and dst are in a window */
    int64_t src_at[PLAN_RANKS_MAX], dst_at[PLAN_RANKS_MAX];
    /* ALLTOALLV: bytes[r][p] go from r to p; from[r][p] is the offset in r's
     * source of what goes to p, to[r][p] the offset in r's destination of what
     * comes from p */
    int64_t bytes[PLAN_RANKS_MAX][PLAN_RANKS_MAX];
    /* the bytes that r expects from p */
    int64_t come[PLAN_RANKS_MAX][PLAN_RANKS_MAX];
    int64_t from[PLAN_RANKS_MAX][PLAN_RANKS_MAX];
    int64_t to[PLAN_RANKS_MAX][PLAN_RANKS_MAX];
};

void coll_open(
    struct coll_scene *c, int32_t nranks, int32_t devices, double timeout_s);
void coll_close(struct coll_scene *c);
/* The parts of coll_open and coll_close that remain without plan_open and
 * plan_close. They serve a scene that was connected in another way. Such a
 * scene must have ranks, streams, and a window of 2 * COLL_BYTES per rank. */
void coll_prepare(struct coll_scene *c);
void coll_release(struct coll_scene *c);

void coll_draw(const struct coll_scene *c, struct coll_call *call,
    struct test_random *random);
/* Draws new sources, the same on the host and the device. The destinations are
 * drawn too where the call reads them (in place, BROADCAST), else poisoned. */
void coll_fill(struct coll_scene *c, const struct coll_call *call,
    struct test_random *random);
/* Makes the call of one rank, on its device. */
ulyx_status_t coll_run(
    struct coll_scene *c, const struct coll_call *call, int32_t r);
/* There are COLL_WRONG calls with a wrong argument. Makes the call number
 * `which` of these at rank 0. Returns the text that its error must contain. */
enum { COLL_WRONG = 9 };
const char *coll_wrong(
    struct coll_scene *c, int which, ulyx_status_t *status_p);
/* Makes the call of all ranks, in a group; all must succeed. */
void coll_run_all(struct coll_scene *c, const struct coll_call *call);
/* Compares each byte of each destination with the host's. Until coll_host is
 * called, the host's destinations are as they were filled, so the comparison
 * shows that nothing has arrived. */
void coll_compare(struct coll_scene *c, const struct coll_call *call);
/* Makes the call on the host. */
void coll_host(struct coll_scene *c, const struct coll_call *call);
/* Makes the call on both sides and compares. */
void coll_check(struct coll_scene *c, const struct coll_call *call);

/* A call of fp32 whose tensors are in windows, or in none. */
struct coll_call coll_plain(enum coll_kind kind, int64_t count, bool window);
/* Makes a call on which all ranks agree, and checks its bytes: the communicator
 * still works after a call that failed. */
void coll_expect_well(struct coll_scene *c, enum coll_kind kind, bool window);
/* Draws and checks so many calls. */
void coll_run_draws(
    struct coll_scene *c, struct test_random *random, int64_t draws);

#endif
