/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends a value from rank 0 to all ranks through a launcher's key-value store.
 */
#ifndef ULI_BOOTSTRAP_LAUNCH_PMI1_H
#define ULI_BOOTSTRAP_LAUNCH_PMI1_H

#include <stdbool.h>
#include <stdint.h>
#include "base/system/clock.h"
#include "ulyx/types.h"

/* value[bytes] is text, read at rank 0 and written at the others. Collective
 * over the launcher's ranks; key is the same on all and used once.
 * returns SUCCESS; ERR_UNSUPPORTED (the server has another protocol);
 * ERR_TIMEOUT; ERR_SYSTEM. */
ulyx_status_t uli_pmi1_share(int fd, int32_t rank, const char *key, char *value,
    size_t bytes, uli_deadline_t deadline);

/* Has an MPI library of this process sent init to the launcher? */
bool uli_pmi1_mpi_initialized(void);

#endif
