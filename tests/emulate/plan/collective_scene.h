/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives on device memory beside the same calls on host memory: for each
 * rank a source and a destination of one size on its device, in its window or
 * outside, and two images of the destination on the host: the device's result,
 * and the result of the host's call. All of a destination is compared, so the
 * bytes between and around the pieces guard them.
 */
#ifndef TESTS_EMULATE_PLAN_COLLECTIVE_SCENE_H
#define TESTS_EMULATE_PLAN_COLLECTIVE_SCENE_H

#include "emulate/plan/plan_scene.h"
#include "ulyx/collective.h"

enum { COLL_BYTES = 1 << 17 }; /* of a source or destination */

struct coll_rank {
    unsigned char *outside;   /* device memory in no window: both areas */
    unsigned char *src, *dst; /* on the device, of this call */
    unsigned char *src_host, *dst_host; /* what the host's call gets */
    unsigned char *seen;                /* dst, back from the device */
};

struct coll_scene {
    struct plan_scene s;
    ulyx_comm_t *hosts[PLAN_RANKS_MAX];
    struct coll_rank at[PLAN_RANKS_MAX];
};

/* A call of either world: its pointers are src + src_at and dst + dst_at. */
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
    int64_t count; /* bytes of a piece, elements */
    ulyx_dtype_t dtype;
    int32_t root;
    bool in_place; /* ALLREDUCE, ALLGATHER: src lies in dst */
    bool in_window[PLAN_RANKS_MAX][2]; /* src, dst */
    int64_t src_at[PLAN_RANKS_MAX], dst_at[PLAN_RANKS_MAX];
    /* ALLTOALLV: bytes[r][p] from r to p, and where, at r */
    int64_t bytes[PLAN_RANKS_MAX][PLAN_RANKS_MAX];
    int64_t come[PLAN_RANKS_MAX][PLAN_RANKS_MAX]; /* as r expects of p */
    int64_t from[PLAN_RANKS_MAX][PLAN_RANKS_MAX];
    int64_t to[PLAN_RANKS_MAX][PLAN_RANKS_MAX];
};

void coll_open(
    struct coll_scene *c, int32_t nranks, int32_t devices, double timeout_s);
void coll_close(struct coll_scene *c);
/* What they do besides plan_open and plan_close, for a scene that is connected
 * in another way: s has ranks, streams and windows of 2 * COLL_BYTES. */
void coll_prepare(struct coll_scene *c);
void coll_release(struct coll_scene *c);

void coll_draw(const struct coll_scene *c, struct coll_call *call,
    struct test_random *random);
/* New data everywhere, the same on host and device; destinations poisoned. */
void coll_fill(struct coll_scene *c, const struct coll_call *call,
    struct test_random *random);
/* The call of one rank, on its device. */
ulyx_status_t coll_run(
    struct coll_scene *c, const struct coll_call *call, int32_t r);
/* Call `which` of rank 0 with a wrong argument; the text that its error must
 * have. */
enum { COLL_WRONG = 9 };
const char *coll_wrong(
    struct coll_scene *c, int which, ulyx_status_t *status_p);
/* The call of all ranks, in a group; all must succeed. */
void coll_run_all(struct coll_scene *c, const struct coll_call *call);
/* Each byte of each destination against the host's, which are as they were
 * filled until its call: then nothing has come anywhere. */
void coll_compare(struct coll_scene *c, const struct coll_call *call);
/* The host's call. */
void coll_host(struct coll_scene *c, const struct coll_call *call);
/* Runs the call and compares. */
void coll_check(struct coll_scene *c, const struct coll_call *call);

/* A call of fp32, of tensors in windows or outside. */
struct coll_call coll_plain(enum coll_kind kind, int64_t count, bool window);
/* A call that all make alike, and its bytes: the channel is in order. */
void coll_expect_well(struct coll_scene *c, enum coll_kind kind, bool window);
/* So many drawn calls, each checked. */
void coll_run_draws(
    struct coll_scene *c, struct test_random *random, int64_t draws);

#endif
