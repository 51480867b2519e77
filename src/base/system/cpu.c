/* SPDX-License-Identifier: Apache-2.0
 *
 * The processor is identified once: in a virtual machine cpuid is slow.
 */
#include "base/system/cpu.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

static char name[ULI_CPU_NAME];
static bool f16c;

#ifdef __x86_64__
/* Family and model as their makers count them, including the extended
 * fields. */
static void
name_fill(void)
{
    unsigned a = 0, b, c, d, part[3] = {0};
    char maker[13] = "";
    __get_cpuid(0, &a, &part[0], &part[2], &part[1]);
    memcpy(maker, part, sizeof(part));
    a = 0;
    c = 0;
    __get_cpuid(1, &a, &b, &c, &d);
    unsigned family = a >> 8 & 15, model = a >> 4 & 15;
    f16c = (c & bit_F16C) != 0;
    if (family == 6 || family == 15)
        model += (a >> 16 & 15) << 4;
    if (family == 15)
        family += a >> 20 & 255;
    snprintf(name, sizeof(name), "%s-%u-%u-%u", maker, family, model, a & 15);
}
#else
static void
name_fill(void)
{
    struct utsname system;
    snprintf(name, sizeof(name), "%.40s",
        uname(&system) == 0 ? system.machine : "unknown");
}
#endif

static void
name_settle(void)
{
    name_fill();
    for (char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("-._", *c))
            *c = '_';
}

const char *
uli_cpu_name(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, name_settle);
    return name;
}

bool
uli_cpu_has_f16c(void)
{
    (void)uli_cpu_name(); /* reads the processor once */
    return f16c;
}

bool
uli_cpu_is_intel(void)
{
    return !strncmp(uli_cpu_name(), "GenuineIntel-", 13);
}
