/* SPDX-License-Identifier: Apache-2.0
 *
 * An NCCL for tests: a shared library with the calls that ulyx asks for, over
 * host memory, which does what the test tells it. Ranks are threads or
 * processes that meet in a file of shared memory; bytes travel through one
 * ring a pair, moved by a thread of each communicator, or by kernels that the
 * test brings.
 *
 * Like the real one: communicators that do not block; a group is enqueued only
 * when all its peers have asked for the connection; a rank that waits for a
 * peer that does not come hangs until it is aborted; nobody is told of an
 * abort.
 */
#ifndef TESTS_TRANSPORT_FAKE_NCCL_H
#define TESTS_TRANSPORT_FAKE_NCCL_H

#include <stddef.h>
#include <stdint.h>

enum { FAKE_NCCL_RING = 8192 };

/* One direction of a pair. Words only grow; each has one writer. */
struct fake_nccl_channel {
    uint64_t written, pad[7];
    uint64_t read, pad2[7];
    unsigned char ring[FAKE_NCCL_RING];
};

struct fake_nccl_op {
    unsigned char *data;
    uint64_t bytes;
    struct fake_nccl_channel *channel;
    int send;
};

/* Words that a launch looks at and writes. */
struct fake_nccl_words {
    uint32_t aborted; /* leave */
    uint32_t ended;   /* launches that have left */
};

/* Exported as fake_nccl by the library. */
struct fake_nccl {
    int version;
    const char *failing; /* call, after "nccl", that fails every time */
    int result;          /* with this */
    int async;           /* not 0: what ncclCommGetAsyncError finds */
    int stuck;           /* ncclCommGetAsyncError: in progress for ever */
    int slow_ms;         /* the mover rests so long before each group */
    int alive;           /* communicators of this process */
    int aborts;          /* of them, by ncclCommAbort */
    int hold_aborts;     /* ncclCommAbort: stays inside while this is set */
    int aborting;        /* threads that are held there */
    int64_t groups;      /* enqueued */
    int64_t ended;       /* of those, moved or aborted, by the thread */
    int current_device;  /* as the call before the last saw it */
    /* With kernels: memory of the ranks' rings and words, in this process, and
     * a launch; NULL = the thread. One op a pair and direction a launch. */
    void *(*alloc)(size_t bytes);
    void (*release)(void *memory);
    int (*launch)(const struct fake_nccl_op *ops, int count,
        struct fake_nccl_words *words, void *stream);
};

#endif
