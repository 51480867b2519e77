/* SPDX-License-Identifier: Apache-2.0
 *
 * Log lines in NCCL's shape, "host:pid:tid [rank] ULYX INFO text", so that
 * existing log scrapers work. Levels by volume: WARN a few per process, INFO a
 * few per object, TRACE a few per operation.
 * ULYX_DEBUG=NONE|VERSION|WARN|INFO|TRACE, ULYX_DEBUG_SUBSYS=INIT,PLAN or
 * ^PLAN, ULYX_DEBUG_FILE with %h (host) and %p (pid).
 *
 * Logging never waits for a reader: a line for which there is no room is
 * dropped, and the number of dropped lines is logged before the next line that
 * is written. Lines that any other process can cause, by connecting again and
 * again, are limited per second (ULI_WARN_LIMITED).
 */
#ifndef ULI_BASE_LOG_H
#define ULI_BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum uli_log_level {
    ULI_LOG_NONE,
    ULI_LOG_VERSION,
    ULI_LOG_WARN,
    ULI_LOG_INFO,
    ULI_LOG_TRACE,
    ULI_LOG_LEVELS
};

enum uli_log_subsys {
    ULI_LOG_INIT = 1 << 0,  /* creation of communicators, bootstrap */
    ULI_LOG_ENV = 1 << 1,   /* settings */
    ULI_LOG_MEM = 1 << 2,   /* windows, arenas */
    ULI_LOG_TOPO = 1 << 3,  /* topology */
    ULI_LOG_TRANS = 1 << 4, /* transports */
    ULI_LOG_PLAN = 1 << 5,  /* plans */
    ULI_LOG_EXEC = 1 << 6,  /* operations */
    ULI_LOG_ATTN = 1 << 7,  /* attention */
    ULI_LOG_FAULT = 1 << 8, /* lost ranks, timeouts, aborts */
    ULI_LOG_ALL = (1 << 9) - 1,
};

/* rank is printed when >= 0. Saves and restores errno. */
void uli_log(enum uli_log_level level, enum uli_log_subsys subsys, int rank,
    const char *format, ...) __attribute__((format(printf, 4, 5)));

/* True where a line of that level and subsystem would be written. Reads the
 * environment on the first call of the process only. */
bool uli_log_on(enum uli_log_level level, enum uli_log_subsys subsys);

/* From now on lines up to `level` (NONE: the level of ULYX_DEBUG) go to
 * `write`; NULL: to the file or standard error. Waits until no thread is in the
 * previous function; false if that takes more than 10 s. */
bool uli_log_redirect(
    void (*write)(void *context, int32_t level, int32_t rank, const char *text),
    void *context, enum uli_log_level level);

/* Is the calling thread inside `write`? */
bool uli_log_is_inside(void);

/* A file's name from a pattern: %h becomes the host, %p the process, %r the
 * rank where it is not negative; any other % stays as it is. */
void uli_log_file_name(
    const char *pattern, int32_t rank, char *name_p, size_t name_bytes);

#define ULI_LOG(level, subsys, rank, ...)                                      \
    do {                                                                       \
        if (uli_log_on(level, subsys))                                         \
            uli_log(level, subsys, rank, __VA_ARGS__);                         \
    } while (0)
#define ULI_WARN(subsys, rank, ...)                                            \
    ULI_LOG(ULI_LOG_WARN, subsys, rank, __VA_ARGS__)
#define ULI_INFO(subsys, rank, ...)                                            \
    ULI_LOG(ULI_LOG_INFO, subsys, rank, __VA_ARGS__)
#define ULI_TRACE(subsys, rank, ...)                                           \
    ULI_LOG(ULI_LOG_TRACE, subsys, rank, __VA_ARGS__)

/* Limits how many lines one place in the code logs per second. Must be static
 * and zeroed. */
enum { ULI_LOG_LIMIT_LINES = 3 };
struct uli_log_limit {
    _Atomic int64_t since_ns, left_out;
    _Atomic int32_t lines;
};

/* True where one more line may be written now; *left_out_p is then the number
 * of lines left out since the last written one. Any thread. */
bool uli_log_admit(struct uli_log_limit *limit, int64_t *left_out_p);

/* For a warning that other processes can cause any number of times per second.
 * The number of warnings left out is logged before the next one that is
 * written. */
#define ULI_WARN_LIMITED(subsys, rank, ...)                                    \
    do {                                                                       \
        static struct uli_log_limit log_limit;                                 \
        int64_t log_left_out;                                                  \
        if (!uli_log_admit(&log_limit, &log_left_out))                         \
            break;                                                             \
        if (log_left_out > 0)                                                  \
            ULI_WARN(subsys, rank, "%lld lines like the next were left out",   \
                (long long)log_left_out);                                      \
        ULI_WARN(subsys, rank, __VA_ARGS__);                                   \
    } while (0)

#endif
