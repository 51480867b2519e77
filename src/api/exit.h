/* SPDX-License-Identifier: Apache-2.0
 *
 * The farewell of a process that exits with communicators that it has not
 * destroyed.
 */
#ifndef ULI_API_EXIT_H
#define ULI_API_EXIT_H

/* From here on, once a process. Before a communicator is made. */
void uli_exit_watch(void);

#endif
