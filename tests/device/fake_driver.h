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
    const char *missing; /* entry point that it denies */
    const char *failing; /* entry point that fails next, every time */
    int result;          /* with this */
    const char *fatal;   /* entry point that kills its process */
    int devices;
    int current;           /* device of the calling thread; -1: none */
    int no_peers;          /* devices cannot reach each other */
    int peers;             /* times that one was let */
    int relaxed;           /* threads whose mode of capture was changed */
    int no_fabric;         /* fabric handles are not permitted */
    int depth;             /* of the stack of contexts */
    int retained;          /* primary contexts taken */
    const void *device_at; /* memory of device 1: [at, at + bytes) */
    int64_t device_bytes;
    const void *managed_at; /* one byte of managed memory */
    int capturing;
    int graphs;  /* graphs, captured and launchable, that live */
    int pending; /* events are not there yet */
    int lacks;   /* attribute that devices do not have */
    int no_ipc;  /* cuMemAlloc's memory as stream-ordered memory is */
    /* Sets failing, result and fatal while other threads call. */
    void (*faults)(const char *failing, int result, const char *fatal);
    int (*count)(void);   /* objects of device memory that live */
    void (*forget)(void); /* drops them all */
};

#endif
