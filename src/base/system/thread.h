/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads of the library: they have small stacks, and never run a signal
 * handler of the program.
 */
#ifndef ULI_BASE_SYSTEM_THREAD_H
#define ULI_BASE_SYSTEM_THREAD_H

#include <pthread.h>
#include "ulyx/types.h"

/* Starts main(context) on a thread, which the caller joins or detaches. what:
 * for the text of the error, "network".
 * Errors: SYSTEM. */
ulyx_status_t uli_thread_start(const char *what, void *(*main)(void *context),
    void *context, pthread_t *thread_p);

/* An address that identifies the calling thread. A thread of the library that
 * acts for another thread, which waits meanwhile, has the address of that
 * thread. */
const void *uli_thread_caller(void);
void uli_thread_act_for(const void *caller);

#endif
