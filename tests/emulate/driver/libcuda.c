/* SPDX-License-Identifier: Apache-2.0
 *
 * The library that a program with the emulated API opens as libcuda.so.1: its
 * lookup is that of the program.
 */
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

int emu_driver_lookup(const char *name, void **function, int version);
int cuGetProcAddress_v2(const char *name, void **function, int version,
    uint64_t flags, int *status);

EXPORT int
cuGetProcAddress_v2(
    const char *name, void **function, int version, uint64_t flags, int *status)
{
    if (flags)
        return 1;
    *status = emu_driver_lookup(name, function, version);
    return *status ? 500 : 0;
}
