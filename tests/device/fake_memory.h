/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory of the test's driver: memfds. What a process exports, another
 * maps, so that sharing is tested with the bytes themselves.
 */
#ifndef TESTS_DEVICE_FAKE_MEMORY_H
#define TESTS_DEVICE_FAKE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include "device/cuda_driver.h"

enum { FAKE_GRANULARITY = 1 << 16 };

/* The allocation at an address. */
struct fake_range {
    uli_cu_ptr base;
    size_t bytes;
    unsigned long long id;
    int device;
    bool ipc; /* whether the memory is of cuMemAlloc */
};
bool fake_memory_find(uli_cu_ptr address, struct fake_range *range_p);
/* Returns the number of live handles, ranges and mappings. */
int fake_memory_count(void);
void fake_memory_forget(void);

/* Locks the driver to the end of the block, because the library calls from
 * several threads. */
#define FAKE_GUARD()                                                           \
    char guard __attribute__((cleanup(fake_let_go), unused)) = fake_hold()
char fake_hold(void);
void fake_let_go(char *guard);

/* Returns the device of the thread's current context. */
int fake_device_now(void);

/* Returns whether the process may not make memory with fabric handles. */
bool fake_no_fabric(void);

/* Returns the result that the test has set for the call of this name; 0 = make
 * the call. */
int fake_outcome(const char *name);

/* All entry points; fake_memory.c has those of memory. */
#define FAKE_DECLARE(name, version, parameters)                                \
    uli_cu_result do_##name parameters;
ULI_CU_CALLS(FAKE_DECLARE)

#endif
