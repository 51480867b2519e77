/* SPDX-License-Identifier: Apache-2.0
 *
 * Monotonic time and deadlines, in nanoseconds.
 */
#ifndef ULI_BASE_SYSTEM_CLOCK_H
#define ULI_BASE_SYSTEM_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

int64_t uli_clock_ns(void);

/* A point in time; INT64_MAX never comes. */
typedef int64_t uli_deadline_t;

/* The point `seconds` from now; 0 or less: already over. */
uli_deadline_t uli_deadline_in(double seconds);
/* As above, with the time that the caller has just read. */
uli_deadline_t uli_deadline_from(int64_t now_ns, double seconds);
bool uli_deadline_over(uli_deadline_t deadline);

/* Milliseconds left, rounded up, at most slice_ms, at least 0: for poll(). */
int uli_deadline_poll_ms(uli_deadline_t deadline, int slice_ms);

/* Sleeps for about ns nanoseconds; may return early. */
void uli_clock_sleep_ns(int64_t ns);

/* The timeout for a value of the public API or of a setting: 0 or less means
 * default_seconds (of the communicator or the setting) and, if that is 0 or
 * less too, 600 s; more than one day means one day. Every such value must go
 * through this function, because uli_deadline_in(0) would be over at once. */
enum { ULI_TIMEOUT_MAX_S = 86400 };
double uli_timeout_or(double seconds, double default_seconds);

#endif
