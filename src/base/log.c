/* SPDX-License-Identifier: Apache-2.0
 *
 * Each line is one write(), so that lines of threads and processes that share a
 * file never mix; no write waits (log_sink.h). A line for which there is no
 * room is dropped, and the number of dropped lines is logged before the next
 * line that is written. The level, the filter and the file are read once per
 * process; a forked child whose file name has %p opens a file of its own.
 */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "base/log_sink.h"
#include "base/settings.h"
#include "base/system/clock.h"

#define LINE_BYTES 2048
#define HOST_BYTES 256
#define LIMIT_NS   INT64_C(1000000000)
#define REDIRECT_S 10

static struct {
    enum uli_log_level level;
    unsigned subsystems;
    int fd;
    bool per_process; /* the file's name has %p */
    pid_t pid;        /* the process in the file's name */
    char pattern[ULI_SETTING_TEXT];
    char host[HOST_BYTES];
} state;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const struct {
    const char *name;
    unsigned bits;
} subsystem_names[] = {
    {"INIT", ULI_LOG_INIT},
    {"ENV", ULI_LOG_ENV},
    {"MEM", ULI_LOG_MEM},
    {"TOPO", ULI_LOG_TOPO},
    {"TRANS", ULI_LOG_TRANS},
    {"PLAN", ULI_LOG_PLAN},
    {"EXEC", ULI_LOG_EXEC},
    {"ATTN", ULI_LOG_ATTN},
    {"FAULT", ULI_LOG_FAULT},
    {"ALL", ULI_LOG_ALL},
};

static const char *const level_names[ULI_LOG_LEVELS] = {
    "NONE", "VERSION", "WARN", "INFO", "TRACE"};

/* A log function of the caller. There are two of these structs, so that a
 * thread can read one while the next is being set. redirection_users counts the
 * threads that are in either function. */
struct redirection {
    void (*write)(void *context, int32_t level, int32_t rank, const char *text);
    void *context;
};
static _Atomic(const struct redirection *) redirection;
static _Atomic int32_t redirection_level; /* NONE: the level of the settings */
static _Atomic int32_t redirection_users;
static _Thread_local int redirection_depth; /* of the calling thread */

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void
expand_name(const char *pattern, const char *host, int32_t rank, char *name_p,
    size_t name_bytes)
{
    size_t used = 0;
    for (const char *at = pattern; *at && used + 1 < name_bytes; at++) {
        char *out = name_p + used;
        size_t room = name_bytes - used;
        int wrote = 1;
        if (at[0] == '%' && at[1] == 'h')
            wrote = snprintf(out, room, "%s", host);
        else if (at[0] == '%' && at[1] == 'p')
            wrote = snprintf(out, room, "%d", (int)getpid());
        else if (at[0] == '%' && at[1] == 'r' && rank >= 0)
            wrote = snprintf(out, room, "%d", rank);
        else {
            *out = *at;
            used++;
            continue;
        }
        at++;
        used += (size_t)wrote < room ? (size_t)wrote : room - 1;
    }
    name_p[used] = 0;
}

void
uli_log_file_name(
    const char *pattern, int32_t rank, char *name_p, size_t name_bytes)
{
    char host[256] = "unknown";
    (void)gethostname(host, sizeof(host) - 1);
    expand_name(pattern, host, rank, name_p, name_bytes);
}

static int
open_file(void)
{
    char name[2 * ULI_SETTING_TEXT];
    expand_name(state.pattern, state.host, -1, name, sizeof(name));
    return uli_log_sink_open(name);
}

/* Bits of a comma separated list; names that do not exist are skipped and
 * set *bad_p. */
static unsigned
parse_subsystems(const char *text, bool *bad_p)
{
    bool exclude = text[0] == '^';
    unsigned bits = 0;
    char copy[ULI_SETTING_TEXT];
    snprintf(copy, sizeof(copy), "%s", text + exclude);
    char *rest = NULL;
    for (char *word = strtok_r(copy, ", ", &rest); word;
         word = strtok_r(NULL, ", ", &rest)) {
        size_t i = 0;
        while (i < COUNT(subsystem_names) &&
               strcasecmp(word, subsystem_names[i].name))
            i++;
        if (i < COUNT(subsystem_names))
            bits |= subsystem_names[i].bits;
        else
            *bad_p = true;
    }
    return exclude ? ULI_LOG_ALL & ~bits : bits;
}

static bool
parse_level(const char *text, enum uli_log_level *level_p)
{
    for (size_t i = 0; i < COUNT(level_names); i++) {
        if (strcasecmp(text, level_names[i]) == 0) {
            *level_p = (enum uli_log_level)i;
            return true;
        }
    }
    return false;
}

static bool
put_line(const char *level, int rank, const char *text)
{
    char line[LINE_BYTES];
    char tag[16] = "";
    if (rank >= 0)
        snprintf(tag, sizeof(tag), " [%d]", rank);
    int length = snprintf(line, sizeof(line) - 1, "%s:%d:%ld%s ULYX %s %s",
        state.host, (int)getpid(), syscall(SYS_gettid), tag, level, text);
    if (length > (int)sizeof(line) - 2)
        length = (int)sizeof(line) - 2;
    line[length++] = '\n';
    return uli_log_sink_write(
        state.fd, state.fd == STDERR_FILENO, line, (size_t)length);
}

/* Writes the number of dropped lines first: these lines are missing before this
 * one. */
static void
write_line(const char *level, int rank, const char *text)
{
    static _Atomic int64_t dropped;
    char note[64];
    int64_t missing = atomic_exchange(&dropped, 0);
    snprintf(note, sizeof(note), "%" PRId64 " log lines dropped", missing);
    if ((missing && !put_line("WARN", -1, note)) ||
        !put_line(level, rank, text))
        atomic_fetch_add(&dropped, missing + 1);
}

/* Passes the line to the caller's function; false if there is none. */
static bool
redirect_line(enum uli_log_level level, int rank, const char *text)
{
    atomic_fetch_add(&redirection_users, 1);
    const struct redirection *to = atomic_load(&redirection);
    redirection_depth++;
    if (to)
        to->write(to->context, (int32_t)level, rank, text);
    redirection_depth--;
    atomic_fetch_sub(&redirection_users, 1);
    return to != NULL;
}

bool
uli_log_is_inside(void)
{
    return redirection_depth > 0;
}

bool
uli_log_redirect(
    void (*write)(void *context, int32_t level, int32_t rank, const char *text),
    void *context, enum uli_log_level level)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct redirection two[2];
    static int last;
    struct timespec nap = {0, 100000};
    uli_deadline_t deadline = uli_deadline_in(REDIRECT_S);
    pthread_mutex_lock(&lock);
    const struct redirection *before = atomic_exchange(&redirection, NULL);
    while (before && atomic_load(&redirection_users) > 0 &&
           !uli_deadline_over(deadline))
        nanosleep(&nap, NULL);
    bool idle = !before || atomic_load(&redirection_users) == 0;
    if (write) {
        last = !last;
        two[last] = (struct redirection){write, context};
        atomic_store(&redirection, &two[last]);
    }
    atomic_store(&redirection_level, write ? (int32_t)level : ULI_LOG_NONE);
    pthread_mutex_unlock(&lock);
    return idle;
}

static void
warn_setting(
    const char *name, const char *value, const char *source, const char *why)
{
    char text[2 * ULI_SETTING_TEXT];
    snprintf(text, sizeof(text), "%s=\"%s\" (%s)%s", name, value, source, why);
    write_line("WARN", -1, text);
}

static void
warn_file(const char *source)
{
    char why[128];
    snprintf(why, sizeof(why), " cannot be written: %s",
        errno == ENXIO ? "a pipe that nobody reads" : strerror(errno));
    warn_setting("ULYX_DEBUG_FILE", state.pattern, source, why);
}

static void
log_start(void)
{
    char level[ULI_SETTING_TEXT] = "", filter[ULI_SETTING_TEXT] = "";
    char level_source[ULI_SETTING_TEXT] = "", source[ULI_SETTING_TEXT] = "";
    state.fd = STDERR_FILENO;
    state.level = ULI_LOG_WARN;
    state.pid = getpid();
    if (gethostname(state.host, sizeof(state.host) - 1) != 0)
        strcpy(state.host, "unknown");
    state.host[strcspn(state.host, ".")] = 0;

    uli_settings_explain("ULYX_DEBUG_FILE", state.pattern,
        sizeof(state.pattern), source, sizeof(source));
    if (state.pattern[0]) {
        int fd = open_file();
        if (fd >= 0)
            state.fd = fd;
        else
            warn_file(source);
        state.per_process = fd >= 0 && strstr(state.pattern, "%p");
    }
    uli_settings_explain(
        "ULYX_DEBUG", level, sizeof(level), level_source, sizeof(level_source));
    if (!parse_level(level, &state.level))
        warn_setting("ULYX_DEBUG", level, level_source, " is not understood");
    bool bad = false;
    uli_settings_explain(
        "ULYX_DEBUG_SUBSYS", filter, sizeof(filter), source, sizeof(source));
    state.subsystems = parse_subsystems(filter, &bad);
    if (bad)
        warn_setting("ULYX_DEBUG_SUBSYS", filter, source, " is not understood");
}

/* In a forked child: opens the child's own file, under the number of the
 * inherited descriptor. If two threads do this at once, both open the same
 * file. */
static void
follow_fork(void)
{
    if (!state.per_process || state.pid == getpid())
        return;
    int fd = open_file();
    if (fd < 0)
        return;
    dup3(fd, state.fd, O_CLOEXEC);
    close(fd);
    __atomic_store_n(&state.pid, getpid(), __ATOMIC_RELAXED);
}

bool
uli_log_on(enum uli_log_level level, enum uli_log_subsys subsys)
{
    pthread_once(&once, log_start);
    int32_t redirected = atomic_load(&redirection_level);
    int32_t most = redirected ? redirected : (int32_t)state.level;
    if ((int32_t)level > most || level == ULI_LOG_NONE)
        return false;
    return level <= ULI_LOG_WARN || (state.subsystems & subsys);
}

void
uli_log(enum uli_log_level level, enum uli_log_subsys subsys, int rank,
    const char *format, ...)
{
    int saved = errno;
    if (uli_log_on(level, subsys)) {
        char text[LINE_BYTES];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        if (!redirect_line(level, rank, text)) {
            follow_fork();
            write_line(level_names[level], rank, text);
        }
    }
    errno = saved;
}

bool
uli_log_admit(struct uli_log_limit *limit, int64_t *left_out_p)
{
    int64_t now = uli_clock_ns();
    int64_t since = atomic_load(&limit->since_ns);
    /* The thread that begins an interval resets the count of the last one. */
    if ((since == 0 || now - since > LIMIT_NS) &&
        atomic_compare_exchange_strong(&limit->since_ns, &since, now))
        atomic_store(&limit->lines, 0);
    if (atomic_fetch_add(&limit->lines, 1) >= ULI_LOG_LIMIT_LINES) {
        atomic_fetch_add(&limit->left_out, 1);
        return false;
    }
    *left_out_p = atomic_exchange(&limit->left_out, 0);
    return true;
}
