/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls that a soak repeats on a communicator. Each checks the data that it
 * received.
 */
#ifndef TESTS_SOAK_CALLS_H
#define TESTS_SOAK_CALLS_H

#include "soak/attention.h"
#include "soak/scene.h"

enum call {
    CALL_PLAN,
    CALL_ATTACH,
    CALL_SPLIT,
    CALL_ALLTOALL,
    CALL_EXECUTE,
    CALL_ADJOINT,
    CALL_ALLREDUCE,
    CALL_ATTENTION,
    CALLS
};
extern const char *const call_names[CALLS];

enum { CALLS_RANKS = 8 };

struct calls {
    ulyx_comm_t *comm;
    enum call call;
    enum scene_path path;
    int64_t rows;
    int32_t rank, nranks;
    struct scene scene;         /* EXECUTE and ADJOINT */
    struct attention attention; /* ATTENTION */
    ulyx_mem_t *mem;            /* ATTACH */
    unsigned char *src, *dst;   /* ALLTOALL, ALLREDUCE */
    size_t bytes;
    bool right;     /* false once wrong data was read */
    char text[256]; /* the error text of the call that failed */
};

/* timeout_s is the timeout of attention's calls. */
ulyx_status_t calls_open(ulyx_comm_t *comm, enum call call,
    enum scene_path path, int64_t rows, double timeout_s, struct calls *c);
/* Makes one call. If it fails, overwrites at once the tensors that it read. */
ulyx_status_t calls_once(struct calls *c);
/* Destroys everything. Prints the reason and returns false if something is
 * left. */
bool calls_close(struct calls *c);

#endif
