/* SPDX-License-Identifier: Apache-2.0
 *
 * See thread.h. A new thread inherits the signal mask of the thread that starts
 * it, so all signals are blocked meanwhile.
 */
#include "base/system/thread.h"

#include <signal.h>
#include <string.h>
#include "base/status.h"

enum { STACK_BYTES = 512 << 10 };

ulyx_status_t
uli_thread_start(const char *what, void *(*main)(void *context), void *context,
    pthread_t *thread_p)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(thread_p, &attributes, main, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (failed)
        return uli_error(
            ULYX_ERR_SYSTEM, "%s: no thread: %s", what, strerror(failed));
    return ULYX_SUCCESS;
}

static _Thread_local char mark;
static _Thread_local const void *acts_for;

const void *
uli_thread_caller(void)
{
    return acts_for ? acts_for : &mark;
}

void
uli_thread_act_for(const void *caller)
{
    acts_for = caller;
}
