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

/* What lies at an address. */
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

/* The result that the test wants of the call of this name; 0 = do it. */
int fake_outcome(const char *name);

/* All entry points; fake_memory.c has those of memory. */
#define FAKE_DECLARE(name, version, parameters)                                \
    uli_cu_result do_##name parameters;
ULI_CU_CALLS(FAKE_DECLARE)

#endif
