/* SPDX-License-Identifier: Apache-2.0
 *
 * launched_rank MEETINGS [EXPECTED_SIZE]: one rank of a job under a launcher.
 * Meets the other ranks MEETINGS times, gathers each time, and prints "rank 2
 * of 4 met 3 times"; or prints the error and ends with 1.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/status.h"
#include "bootstrap/bootstrap.h"

enum { NRANKS_MAX = 64 };

static ulyx_status_t
ranks_meet(const struct uli_settings *settings, int *rank_p, int *nranks_p)
{
    struct uli_bootstrap *bootstrap;
    int32_t all[NRANKS_MAX];
    uli_deadline_t deadline = uli_deadline_in(settings->timeout_s);
    ULI_TRY(uli_bootstrap_open_env(
        settings, uli_bootstrap_count_env(), deadline, &bootstrap));
    *rank_p = bootstrap->rank;
    *nranks_p = bootstrap->nranks;
    int32_t mine = bootstrap->rank * 7 + 1;
    ulyx_status_t status = ULYX_ERR_INTERNAL;
    if (bootstrap->nranks <= NRANKS_MAX)
        status = bootstrap->ops->gather(
            bootstrap, &mine, sizeof(mine), all, deadline);
    for (int r = 0; r < bootstrap->nranks && !status; r++)
        if (all[r] != r * 7 + 1)
            status = uli_error(ULYX_ERR_INTERNAL, "wrong table");
    bootstrap->ops->close(bootstrap);
    return status;
}

int
main(int argc, char **argv)
{
    struct uli_settings settings;
    int meetings = argc > 1 ? atoi(argv[1]) : 1, rank = -1, nranks = 0;
    ulyx_status_t status = uli_settings_load(&settings);
    for (int i = 0; i < meetings && !status; i++)
        status = ranks_meet(&settings, &rank, &nranks);
    if (!status && argc > 2 && atoi(argv[2]) != nranks)
        status = uli_error(ULYX_ERR_MISMATCH, "%d ranks", nranks);
    /* Each line is one write, because the ranks share the output. */
    char line[1200];
    int length =
        status ? snprintf(line, sizeof(line), "failed: %s: %s\n",
                     uli_status_name(status), uli_error_text())
               : snprintf(line, sizeof(line), "rank %d of %d met %d times\n",
                     rank, nranks, meetings);
    ssize_t wrote = write(STDOUT_FILENO, line, (size_t)length);
    return status || wrote != length;
}
