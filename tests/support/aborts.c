/* SPDX-License-Identifier: Apache-2.0
 *
 * See aborts.h.
 */
#include "support/aborts.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

static _Atomic int *counted;

static const char *
library_of(const void *address)
{
    Dl_info about;
    const char *name =
        dladdr(address, &about) && about.dli_fname ? about.dli_fname : "";
    return strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
}

/* The stack has the handler of this program on top, then libc's abort, then the
 * caller of abort. */
static bool
is_of_ucx(void)
{
    void *stack[32];
    int depth = backtrace(stack, 32);
    bool in_libc = false;
    for (int i = 0; i < depth; i++) {
        const char *name = library_of(stack[i]);
        bool libc = strncmp(name, "libc.", 5) == 0;
        if (in_libc && !libc)
            return strncmp(name, "libuc", 5) == 0;
        in_libc |= libc;
    }
    return false;
}

static void
note_abort(int number)
{
    if (!is_of_ucx()) {
        signal(number, SIG_DFL);
        return; /* abort ends the process */
    }
    atomic_fetch_add(counted, 1);
    _exit(0);
}

void
aborts_watch(_Atomic int *count)
{
    void *first[1];
    (void)backtrace(first, 1); /* the first call of backtrace loads a library */
    counted = count;
    signal(SIGABRT, note_abort);
}
