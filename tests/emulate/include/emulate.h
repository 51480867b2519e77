/* SPDX-License-Identifier: Apache-2.0
 *
 * Control of the emulator, for tests: what to emulate, what went wrong. The
 * tests themselves use it through the CUDA runtime's names (the stand-in
 * cuda_runtime.h), so that the same source runs on a card. docs/EMULATOR.md
 * says what a pass proves.
 *
 * Any host thread may call; the emulator's own scheduler thread runs all
 * blocks of all devices. Without emu_open the first CUDA call opens with the
 * defaults below.
 */
#ifndef EMULATE_EMULATE_H
#define EMULATE_EMULATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum emu_fault {
    EMU_FAULT_RACE,        /* two accesses that nothing orders */
    EMU_FAULT_BOUNDS,      /* outside of shared memory or of any allocation */
    EMU_FAULT_PEER,        /* another device's memory without peer access */
    EMU_FAULT_DEADLOCK,    /* all wait; the text names each wait */
    EMU_FAULT_DIVERGENT,   /* lanes of a collective disagree */
    EMU_FAULT_BARRIER,     /* misuse of a block barrier */
    EMU_FAULT_MBARRIER,    /* misuse of an mbarrier, bytes left over */
    EMU_FAULT_ASYNC,       /* misuse of TMA, bulk copies or cp.async */
    EMU_FAULT_WGMMA,       /* descriptors, or registers used in flight */
    EMU_FAULT_TWICE,       /* a tracked byte written a second time */
    EMU_FAULT_LAUNCH,      /* a launch that a card would refuse */
    EMU_FAULT_UNSUPPORTED, /* clusters, multicast */
    EMU_FAULT_LIMIT        /* the emulator's own limits */
};

struct emu_config {
    int devices;  /* 0 = 1 */
    int sm_count; /* multiprocessors a device, 0 = 4 */
    /* Shared memory that a block may have, in bytes; a multiprocessor has 1 KiB
     * more. 0 = 227 KiB, a Hopper's. */
    int shared_bytes;
    /* Registers of a thread of any kernel, for the number of blocks that a
     * multiprocessor is said to hold, since the compiler here does not know
     * them. 0 = none. */
    int registers;
    /* Host threads that drive devices: once so many wait in the emulator and
     * nothing can move, that is a deadlock. 0 = 1. */
    int host_threads;
    uint64_t seed; /* 0 = ULYX_TEST_SEED, else 1; printed at the first fault */
    uint64_t stall_limit_ns; /* virtual time without progress, 0 = two days */
    /* Host threads come and go, and wait for each other elsewhere, too: while
     * nothing can move and fewer than host_threads wait in the emulator, time
     * passes as on the wall. Not a function of the seed. */
    bool wall_time;
    /* Other processes' emulators share memory with this one. The order of
     * accesses that comes about through them is not tracked here, so no race is
     * reported. */
    bool processes;
    bool quiet; /* faults are recorded but not printed */
};

/* Opens afresh; closes what was open. Returns 0, or -1 without memory. */
int emu_open(const struct emu_config *config);
/* Waits for all work, then frees everything. */
void emu_close(void);

/* Faults since emu_open. A fault also makes later synchronising calls return
 * cudaErrorLaunchFailure. Texts live until emu_close. */
size_t emu_fault_count(void);
size_t emu_fault_count_of(enum emu_fault kind);
enum emu_fault emu_fault_kind(size_t index);
const char *emu_fault_text(size_t index);

/* Counts writes to each byte of device memory; a second write of a byte is a
 * fault at once. The check returns how many bytes were not written exactly
 * once and ends the tracking. -1 = not device memory. */
int emu_track(void *device_memory, size_t bytes);
int64_t emu_track_check(void *device_memory, size_t bytes);

/* The virtual clock that %globaltimer shows. */
uint64_t emu_clock_ns(void);

#ifdef __cplusplus
}
#endif
#endif
