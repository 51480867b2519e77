/* SPDX-License-Identifier: Apache-2.0
 *
 * The linker puts this before ulyx_reshuffle_execute (--wrap) in a second
 * ulyx_perf. After the real call it does what PERF_TEST_FAULT says, at call
 * PERF_TEST_CALL (0: at each call). So the tool that users run has no such
 * hook.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "ulyx/ulyx.h"

ulyx_status_t __real_ulyx_reshuffle_execute(ulyx_plan_t *plan,
    ulyx_direction_t direction, const void *const src[], void *const dst[],
    void *stream);
ulyx_status_t __wrap_ulyx_reshuffle_execute(ulyx_plan_t *plan,
    ulyx_direction_t direction, const void *const src[], void *const dst[],
    void *stream);

static void
bytes_spoil(const char *kind, unsigned char *dst)
{
    const char *rank = getenv("ULYX_RANK");

    if (rank != NULL && strcmp(rank, "1") != 0)
        return;
    if (strcmp(kind, "element") == 0)
        dst[1] ^= 0x10;
    else if (strcmp(kind, "guard") == 0)
        dst[-1] ^= 1;
    else if (strcmp(kind, "kill") == 0)
        raise(SIGKILL);
    else if (strcmp(kind, "stop") == 0)
        raise(SIGSTOP);
}

ulyx_status_t
__wrap_ulyx_reshuffle_execute(ulyx_plan_t *plan, ulyx_direction_t direction,
    const void *const src[], void *const dst[], void *stream)
{
    static int calls;
    ulyx_status_t status =
        __real_ulyx_reshuffle_execute(plan, direction, src, dst, stream);
    const char *kind = getenv("PERF_TEST_FAULT");
    const char *call = getenv("PERF_TEST_CALL");

    calls++;
    if (kind != NULL && (call == NULL || atoi(call) == calls))
        bytes_spoil(kind, dst[0]);
    return status;
}
