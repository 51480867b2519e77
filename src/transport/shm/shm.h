/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the files of the shm transport.
 */
#ifndef ULI_TRANSPORT_SHM_SHM_H
#define ULI_TRANSPORT_SHM_SHM_H

#include "transport/transport.h"

/* The seals of every segment: nobody can shrink it under a peer that has it
 * mapped, grow it, or lift these rules. */
#define ULI_SHM_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

ulyx_status_t uli_cma_probe(pid_t pid, const void *remote);
ulyx_status_t uli_cma_read(pid_t pid, const struct iovec *local,
    size_t local_count, const struct iovec *remote, size_t remote_count);

#endif
