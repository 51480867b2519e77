/* SPDX-License-Identifier: Apache-2.0
 *
 * Monotonic time and deadlines.
 */
#include "base/system/clock.h"

#include <math.h>
#include <time.h>
#include "base/size.h"

#define NS_PER_S  1000000000
#define NS_PER_MS 1000000
#define DEFAULT_S 600.0

int64_t
uli_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

uli_deadline_t
uli_deadline_from(int64_t now_ns, double seconds)
{
    if (!(seconds > 0))
        return now_ns;
    double ns = seconds * NS_PER_S;
    if (ns >= (double)INT64_MAX)
        return INT64_MAX;
    return uli_sat_add(now_ns, (int64_t)ns);
}

uli_deadline_t
uli_deadline_in(double seconds)
{
    return uli_deadline_from(uli_clock_ns(), seconds);
}

void
uli_clock_sleep_ns(int64_t ns)
{
    struct timespec time = {ns / NS_PER_S, ns % NS_PER_S};
    nanosleep(&time, NULL);
}

bool
uli_deadline_over(uli_deadline_t deadline)
{
    return deadline != INT64_MAX && uli_clock_ns() >= deadline;
}

int
uli_deadline_poll_ms(uli_deadline_t deadline, int slice_ms)
{
    if (deadline == INT64_MAX)
        return slice_ms;
    int64_t left_ns = uli_sat_sub(deadline, uli_clock_ns());
    if (left_ns <= 0)
        return 0;
    int64_t left_ms = (left_ns - 1) / NS_PER_MS + 1;
    return (int)uli_min(left_ms, slice_ms);
}

double
uli_timeout_or(double seconds, double default_seconds)
{
    if (!(seconds > 0))
        seconds = default_seconds > 0 ? default_seconds : DEFAULT_S;
    return fmin(seconds, ULI_TIMEOUT_MAX_S);
}
