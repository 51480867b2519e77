/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads of the library: small stacks, and no signal of the program's is ever
 * handled on one.
 */
#ifndef ULI_BASE_SYSTEM_THREAD_H
#define ULI_BASE_SYSTEM_THREAD_H

#include <pthread.h>
#include "ulyx/types.h"

/* Starts main(context), to be joined or detached. what: for the error,
 * "network". Errors: SYSTEM. */
ulyx_status_t uli_thread_start(const char *what, void *(*main)(void *context),
    void *context, pthread_t *thread_p);

/* Identifies the thread whose calls these are: an address that belongs to the
 * calling thread, or to the thread for which it acts and which meanwhile waits
 * for it. */
const void *uli_thread_caller(void);
void uli_thread_act_for(const void *caller);

#endif
