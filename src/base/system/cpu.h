/* SPDX-License-Identifier: Apache-2.0
 *
 * Which processor this is.
 */
#ifndef ULI_BASE_SYSTEM_CPU_H
#define ULI_BASE_SYSTEM_CPU_H

#include <stdbool.h>
#include <stdint.h>

enum { ULI_CPU_NAME = 48 };

/* Maker, family, model and stepping, "GenuineIntel-6-207-2": equal where
 * processors behave alike. Letters, digits, '-', '.' and '_' only. On other
 * architectures: uname's name of the machine. */
const char *uli_cpu_name(void);

bool uli_cpu_is_intel(void);

/* Does the processor convert between fp16 and fp32 (x86)? Not every compiler's
 * __builtin_cpu_supports takes "f16c". */
bool uli_cpu_has_f16c(void);

/* To be called between two reads of a flag that another core will write. */
static inline void
uli_cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Takes memory out of all caches, so that the next access to it is one of
 * memory. Does nothing on architectures without such an instruction. */
static inline void
uli_cpu_flush(const void *memory, int64_t bytes)
{
#if defined(__x86_64__)
    for (int64_t i = 0; i < bytes; i += 64)
        __builtin_ia32_clflush((const char *)memory + i);
    __builtin_ia32_mfence();
#else
    (void)memory;
    (void)bytes;
#endif
}

#endif
