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
    EMU_FAULT_RACE, /* two accesses without an order */
    /* an access outside of shared memory or of any allocation */
    EMU_FAULT_BOUNDS,
    EMU_FAULT_PEER, /* another device's memory without peer access */
    /* all threads wait; the text names what each waits for */
    EMU_FAULT_DEADLOCK,
    EMU_FAULT_DIVERGENT,   /* lanes of a warp instruction disagree */
    EMU_FAULT_BARRIER,     /* misuse of a block barrier */
    EMU_FAULT_MBARRIER,    /* misuse of an mbarrier, bytes left over */
    EMU_FAULT_ASYNC,       /* misuse of TMA, bulk copies or cp.async */
    EMU_FAULT_WGMMA,       /* descriptors, or registers used in flight */
    EMU_FAULT_TWICE,       /* a tracked byte written a second time */
    EMU_FAULT_LAUNCH,      /* a launch that a card would refuse */
    EMU_FAULT_UNSUPPORTED, /* clusters, multicast */
    EMU_FAULT_LIMIT        /* a limit of the emulator itself is exceeded */
};

struct emu_config {
    int devices;  /* 0 = one device */
    int sm_count; /* multiprocessors per device; 0 = 4 */
    /* Shared memory that a block may have, in bytes; a multiprocessor has 1 KiB
     * more. 0 = 227 KiB, as on Hopper. */
    int shared_bytes;
    /* Registers that each thread of any kernel is assumed to take, because the
     * compiler used here does not know them. They limit the blocks that a
     * multiprocessor is reported to hold. 0 = none. */
    int registers;
    /* Number of host threads that drive devices. When so many threads wait in
     * the emulator and nothing can move, the run is in a deadlock. 0 = 1. */
    int host_threads;
    uint64_t seed; /* 0 = ULYX_TEST_SEED, else 1; printed at the first fault */
    uint64_t stall_limit_ns; /* virtual time without progress, 0 = two days */
    /* Host threads may begin, end, and wait for each other outside the
     * emulator. While nothing can move and fewer than host_threads threads wait
     * in the emulator, virtual time follows the wall clock. A run is then not a
     * function of the seed. */
    bool wall_time;
    /* Emulators of other processes share memory with this one. The order that
     * arises through other processes is not tracked, so no races are
     * reported. */
    bool processes;
    bool quiet; /* faults are recorded but not printed */
};

/* Opens the emulator anew; if it is open, closes it first. Returns 0, or -1
 * without memory. */
int emu_open(const struct emu_config *config);
/* Waits for all work, then frees everything. */
void emu_close(void);

/* Faults since emu_open. A fault also makes later synchronising calls return
 * cudaErrorLaunchFailure. Texts live until emu_close. */
size_t emu_fault_count(void);
size_t emu_fault_count_of(enum emu_fault kind);
enum emu_fault emu_fault_kind(size_t index);
const char *emu_fault_text(size_t index);

/* emu_track counts the writes to each byte of device memory from now on; a
 * second write of a byte is a fault at once. emu_track_check ends the tracking
 * and returns how many bytes were not written exactly once. Both return -1 if
 * the memory is not device memory. */
int emu_track(void *device_memory, size_t bytes);
int64_t emu_track_check(void *device_memory, size_t bytes);

/* Returns the virtual clock, which is %globaltimer's value. */
uint64_t emu_clock_ns(void);

#ifdef __cplusplus
}
#endif
#endif
