/* SPDX-License-Identifier: Apache-2.0
 *
 * See library.h. When loaded, UCX installs handlers for fatal signals and
 * writes warnings of its own to standard output. A library should do neither:
 * the handlers are restored, and the log level is set to "fatal" unless the
 * user has set it, because errors are returned as statuses and this transport
 * reports them.
 */
#include "transport/ucx/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#include "base/status.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct uli_ucx_calls calls;
static _Atomic bool is_open;
static _Atomic int nheld; /* contexts, of the process `holder` */
static _Atomic pid_t holder;

/* A pointer to a function is copied as bytes, because ISO C does not convert
 * it. */
static bool
library_find(void *library, const char *name, void *function_p)
{
    void *found = dlsym(library, name);
    memcpy(function_p, &found, sizeof(found));
    return found != NULL;
}

/* The signals for which UCX installs handlers: its defaults of ERROR_SIGNALS
 * and DEBUG_SIGNO. */
static const int taken[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGHUP};
enum { TAKEN = sizeof(taken) / sizeof(taken[0]) };

static void *
library_load(const char *name)
{
    struct sigaction before[TAKEN];
    for (int i = 0; i < TAKEN; i++)
        sigaction(taken[i], NULL, &before[i]);
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    for (int i = 0; library && i < TAKEN; i++)
        sigaction(taken[i], &before[i], NULL);
    return library;
}

/* "warn" is UCX's default: to get UCX's lines, a user sets another level. */
static void
library_silence(void *library)
{
    ucs_status_t (*get)(const char *name, char *value, size_t max) = NULL;
    ucs_status_t (*set)(const char *name, const char *value) = NULL;
    char level[32] = "";
    if (!library_find(library, "ucs_global_opts_get_value", &get) ||
        !library_find(library, "ucs_global_opts_set_value", &set))
        return;
    if (get("LOG_LEVEL", level, sizeof(level)) == UCS_OK &&
        strcasecmp(level, "warn") == 0)
        set("LOG_LEVEL", "fatal");
}

static bool
find_all(void *library, struct uli_ucx_calls *found, char *why_p, size_t bytes)
{
#define ULI_UCX_FIND(name)                                                     \
    if (!library_find(library, "ucp_" #name, &found->name)) {                  \
        snprintf(why_p, bytes,                                                 \
            "libucp.so.0 has no ucp_" #name ": 1.13 or later is needed");      \
        return false;                                                          \
    }
    ULI_UCX_CALLS(ULI_UCX_FIND)
    if (!library_find(library, "ucs_status_string", &found->status_string)) {
        snprintf(why_p, bytes, "libucs has no ucs_status_string");
        return false;
    }
    return true;
}

static bool
open_library(char *why_p, size_t why_bytes)
{
    struct uli_ucx_calls found;
    void *library = library_load("libucp.so.0");
    if (!library) {
        snprintf(why_p, why_bytes, "%s; install UCX (libucx0) 1.13 or later",
            dlerror());
        return false;
    }
    if (!find_all(library, &found, why_p, why_bytes))
        return false;
    library_silence(library);
    calls = found;
    atomic_store_explicit(&is_open, true, memory_order_release);
    return true;
}

const struct uli_ucx_calls *
uli_ucx_open(char *why_p, size_t why_bytes)
{
    bool opened = true;
    if (atomic_load_explicit(&is_open, memory_order_acquire))
        return &calls;
    pthread_mutex_lock(&lock);
    if (!atomic_load_explicit(&is_open, memory_order_relaxed))
        opened = open_library(why_p, why_bytes);
    pthread_mutex_unlock(&lock);
    return opened ? &calls : NULL;
}

/* No lock: in a forked child a lock may be held by a thread that the child does
 * not have. */
ulyx_status_t
uli_ucx_hold(void)
{
    pid_t me = getpid(), other = atomic_load(&holder);
    if (atomic_load(&nheld) > 0 && other != me)
        return uli_error(ULYX_ERR_FORKED,
            "ucx: process %d was forked from process %d while that had UCX "
            "open, and UCX does not work in such a fork: fork first, or exec",
            (int)me, (int)other);
    atomic_store(&holder, me);
    atomic_fetch_add(&nheld, 1);
    return ULYX_SUCCESS;
}

void
uli_ucx_let_go(void)
{
    atomic_fetch_sub(&nheld, 1);
}
