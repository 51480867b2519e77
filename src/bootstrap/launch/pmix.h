/* SPDX-License-Identifier: Apache-2.0
 *
 * PMIx, opened at run time: the launcher's rank and size, and a value from rank
 * 0 to all ranks. Only this module uses PMIx types; if the library was built
 * without the headers of PMIx, open fails with that reason.
 */
#ifndef ULI_BOOTSTRAP_LAUNCH_PMIX_H
#define ULI_BOOTSTRAP_LAUNCH_PMIX_H

#include <stddef.h>
#include <stdint.h>
#include "base/system/clock.h"
#include "ulyx/types.h"

struct uli_pmix;

/* Opens the library and connects to the server, once per process and until the
 * process exits; any thread. Logs nothing above INFO, because processes without
 * PMIx continue without PMIx.
 * returns SUCCESS, or ERR_UNSUPPORTED with the reason as the last error. */
ulyx_status_t uli_pmix_open(struct uli_pmix **pmix_p);

/* This process's rank and the number of ranks of its job. */
ulyx_status_t uli_pmix_size(
    struct uli_pmix *pmix, int32_t *rank_p, int32_t *nranks_p);

/* As uli_pmi1_share: collective over the ranks of the job.
 * returns SUCCESS, ERR_TIMEOUT, ERR_SYSTEM, ERR_NO_MEMORY. */
ulyx_status_t uli_pmix_share(struct uli_pmix *pmix, int32_t rank,
    const char *key, char *value, size_t bytes, uli_deadline_t deadline);

#endif
