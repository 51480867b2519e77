/* SPDX-License-Identifier: Apache-2.0
 *
 * A CUDA driver for tests: a shared library with the entry points that ulyx
 * looks up, over host memory, with results that the test sets.
 */
#ifndef TESTS_DEVICE_FAKE_DRIVER_H
#define TESTS_DEVICE_FAKE_DRIVER_H

#include <stdint.h>

/* Exported as fake_driver by the library. */
struct fake_driver {
    const char *missing; /* entry point that the lookup does not find */
    /* entry point that fails every time, from its next call on */
    const char *failing;
    int result;        /* result of the failing entry point */
    const char *fatal; /* entry point that kills its process */
    int devices;
    int current;  /* device of the calling thread; -1: none */
    int no_peers; /* whether devices cannot reach each other */
    int peers;    /* how many times peer access was enabled */
    /* threads whose capture mode differs from the first */
    int relaxed;
    int no_fabric;         /* whether fabric handles are not permitted */
    int depth;             /* depth of the stack of contexts */
    int retained;          /* primary contexts that are retained */
    const void *device_at; /* memory of device 1: [at, at + bytes) */
    int64_t device_bytes;
    const void *managed_at; /* one byte of managed memory */
    int capturing;
    int graphs;  /* live graphs, captured and executable */
    int pending; /* events report that they are not complete */
    int lacks;   /* attribute that the devices do not have */
    int no_ipc;  /* whether cuMemAlloc's memory is reported as stream-ordered */
    /* Sets failing, result and fatal while other threads call. */
    void (*faults)(const char *failing, int result, const char *fatal);
    int (*count)(void);   /* number of live objects of device memory */
    void (*forget)(void); /* drops all objects of device memory */
};

#endif
