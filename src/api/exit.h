/* SPDX-License-Identifier: Apache-2.0
 *
 * What a process does when it exits with communicators that it has not
 * destroyed.
 */
#ifndef ULI_API_EXIT_H
#define ULI_API_EXIT_H

/* Registers the exit handler once per process. To be called before a
 * communicator is made. */
void uli_exit_watch(void);

#endif
