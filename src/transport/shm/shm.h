/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of the shm transport.
 */
#ifndef ULI_TRANSPORT_SHM_SHM_H
#define ULI_TRANSPORT_SHM_SHM_H

#include "transport/transport.h"

/* With ULYX_CMA=on: permits any process of this user to read this process's
 * memory where the Yama module forbids that (ptrace_scope 1). This also permits
 * debuggers to attach, for the life of the process, so it needs the setting. */
void uli_cma_permit(const struct uli_settings *settings);
ulyx_status_t uli_cma_probe(pid_t pid, const void *remote);
ulyx_status_t uli_cma_read(pid_t pid, const struct iovec *local,
    size_t local_count, const struct iovec *remote, size_t remote_count);

#endif
