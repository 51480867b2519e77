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
    bool ipc; /* of cuMemAlloc */
};
bool fake_memory_find(uli_cu_ptr address, struct fake_range *range_p);
/* Objects that live: handles, ranges and mappings. */
int fake_memory_count(void);
void fake_memory_forget(void);

/* One call at a time, to the end of the block: the library calls from several
 * threads. */
#define FAKE_GUARD()                                                           \
    char guard __attribute__((cleanup(fake_let_go), unused)) = fake_hold()
char fake_hold(void);
void fake_let_go(char *guard);

/* The device of the thread's current context. */
int fake_device_now(void);

/* The process may not make memory with fabric handles. */
bool fake_no_fabric(void);

/* The result that the test has set for the call of this name; 0 = make the
 * call. */
int fake_outcome(const char *name);

/* All entry points; fake_memory.c has those of memory. */
#define FAKE_DECLARE(name, version, parameters)                                \
    uli_cu_result do_##name parameters;
ULI_CU_CALLS(FAKE_DECLARE)

#endif
