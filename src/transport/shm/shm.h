/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the files of the shm transport.
 */
#ifndef ULI_TRANSPORT_SHM_SHM_H
#define ULI_TRANSPORT_SHM_SHM_H

#include "transport/transport.h"

/* With ULYX_CMA=on: lets any process of this user read this process's memory
 * where the Yama module forbids it (ptrace_scope 1). It widens what a debugger
 * may do, for the life of the process, so it never happens by itself. */
void uli_cma_permit(const struct uli_settings *settings);
ulyx_status_t uli_cma_probe(pid_t pid, const void *remote);
ulyx_status_t uli_cma_read(pid_t pid, const struct iovec *local,
    size_t local_count, const struct iovec *remote, size_t remote_count);

#endif
