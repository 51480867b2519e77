/* SPDX-License-Identifier: Apache-2.0
 *
 * An NCCL for tests: a shared library with the calls that ulyx uses, over host
 * memory, controlled by the test. Ranks are threads or processes that meet in a
 * file of shared memory; bytes go through one ring per pair, moved by a thread
 * of each communicator, or by kernels that the test provides.
 *
 * Like the real NCCL: communicators do not block; a group is enqueued only when
 * all its peers have requested the connection; a rank that waits for a peer
 * that does not come hangs until it is aborted; other ranks do not learn of an
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

/* Words that a launch reads and writes. */
struct fake_nccl_words {
    uint32_t aborted; /* 1: launches end */
    uint32_t ended;   /* launches that have ended */
};

/* Exported as fake_nccl by the library. */
struct fake_nccl {
    int version;
    const char *failing; /* call, after "nccl", that fails every time */
    int result;          /* the result of the failing call */
    int async;           /* not 0: the error that ncclCommGetAsyncError gives */
    int stuck;           /* ncclCommGetAsyncError: in progress for ever */
    int slow_ms;         /* the mover's pause before each group */
    int alive;           /* communicators of this process */
    int aborts;          /* communicators ended by ncclCommAbort */
    int hold_aborts;     /* ncclCommAbort: stays inside while this is set */
    int aborting;        /* threads held inside ncclCommAbort */
    int64_t groups;      /* groups enqueued */
    int64_t ended;       /* groups moved or aborted, by the thread */
    int current_device;  /* the device during the call before the last */
    /* With kernels: memory for the ranks' rings and words, in this process, and
     * a launch with one op per pair and direction. NULL = the thread moves
     * bytes. */
    void *(*alloc)(size_t bytes);
    void (*release)(void *memory);
    int (*launch)(const struct fake_nccl_op *ops, int count,
        struct fake_nccl_words *words, void *stream);
};

#endif
