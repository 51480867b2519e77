/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles need three things: a CPU that has them, a system that saves their state
 * (by its mask XCR0), and the system's permission for this process.
 */
#include "attention/kernels/amx_state.h"
#include <cpuid.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARCH_REQ_XCOMP_PERM 0x1023 /* <asm/prctl.h> of Linux 5.16 */
#define XFEATURE_XTILEDATA  18

static const char *refusal;

static bool
cpu_has_tiles(void)
{
    unsigned a, b, c, d;
    const unsigned bf16 = 1U << 22, tile = 1U << 24;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & bf16) &&
           (d & tile) && __builtin_cpu_supports("avx512bf16") &&
           __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
}

/* Whether a switch of threads saves tile configuration (bit 17) and tile data
 * (bit 18). The CPU has AVX-512 here, and so xgetbv. */
static bool
system_saves_tiles(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low >> 17 & 3) == 3;
}

/* ENOSPC: tiles do not fit on the signal stack of some thread. */
static const char *
permission_text(int error)
{
    static char text[120];
    snprintf(text, sizeof(text),
        "the system does not permit tiles of AMX to this process "
        "(arch_prctl: %s)",
        error == ENOSPC ? "a signal stack is too small" : strerror(error));
    return text;
}

static void
refusal_settle(void)
{
    if (!cpu_has_tiles())
        refusal = "this CPU lacks its instructions";
    else if (!system_saves_tiles())
        refusal = "the system does not save tiles of AMX";
    else if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) !=
             0)
        refusal = permission_text(errno);
}

const char *
uli_amx_refusal(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, refusal_settle);
    return refusal;
}
