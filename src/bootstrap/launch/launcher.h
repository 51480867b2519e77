/* SPDX-License-Identifier: Apache-2.0
 *
 * What started this process: rank, size and job name, from the variables that
 * launchers set. There is one table, in order of trust: if two launchers have
 * set their variables (torchrun within srun, mpirun within a Slurm job), the
 * first row is taken, because the inner launcher counts all processes, and the
 * outer launcher only those that it started itself.
 */
#ifndef ULI_BOOTSTRAP_LAUNCH_LAUNCHER_H
#define ULI_BOOTSTRAP_LAUNCH_LAUNCHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/settings.h"
#include "ulyx/types.h"

/* The environment of this process, or that of a test. */
struct uli_env {
    const char *(*get)(const void *context, const char *name);
    const void *context;
};
const char *uli_env_get(const struct uli_env *env, const char *name);
extern const struct uli_env uli_env_process;

struct uli_launch {
    const char *launcher; /* "torchrun": a static name */
    int32_t rank, nranks; /* nranks 0: only the launcher's library has the
                           * number */
    int32_t local_rank;   /* on this node; -1: not given */
    int32_t local_nranks; /* 0: not given */
    bool one_node;        /* by the launcher's variables all ranks are on this
                           * node */
    char job[256];        /* job, step and restart; "" when not known */
    char master[256];     /* MASTER_ADDR, or "" */
    char master_port[16]; /* MASTER_PORT, or ""; ulyx does not listen on it */
    bool pmix;            /* there is a PMIx server */
    int pmi_fd;           /* of PMI-1, or -1 */
    bool pmi_chosen;      /* the first message on it chooses PMI-1 or PMI-2 */
    char overruled[128];  /* other launchers whose variables are set */
};

/* Reads the variables by the table; launcher is NULL if no row applies.
 * returns SUCCESS; ERR_INVALID_ARGUMENT if a launcher's values are no rank and
 * size; if there is a rank of 1 or more without a size; and if the size is 1
 * but an outer launcher has several ranks, each of which would then run the
 * whole job. The text names the variables to set. */
ulyx_status_t uli_launcher_query(const struct uli_settings *settings,
    const struct uli_env *env, struct uli_launch *launch_p);

/* As uli_launcher_query, but if no row applies: ERR_INVALID_ARGUMENT, and the
 * text lists the variables that were looked for. */
ulyx_status_t uli_launcher_find(const struct uli_settings *settings,
    const struct uli_env *env, struct uli_launch *launch_p);

/* "PMI_RANK and PMI_SIZE; ...": the variables that are looked for. */
void uli_launcher_list(char *text_p, size_t bytes);

#endif
