/* SPDX-License-Identifier: Apache-2.0
 *
 * Meeting points that an environment offers, one function each. All ranks use
 * the first meeting point that applies, so the same meeting points must apply
 * on all ranks.
 */
#ifndef ULI_BOOTSTRAP_LAUNCH_ENV_H
#define ULI_BOOTSTRAP_LAUNCH_ENV_H

#include "bootstrap/bootstrap.h"
#include "bootstrap/launch/launcher.h"

struct uli_pmix;

/* One creation by environment. `meeting` counts creations within the process:
 * the n-th creation of a rank meets the n-th of the others, also after a
 * creation that failed. */
struct uli_env_meeting {
    const struct uli_settings *settings;
    struct uli_launch launch;
    struct uli_pmix *pmix; /* open if launch.pmix is true */
    uint32_t meeting;
    uli_deadline_t deadline;
};

/* A name or secret of this meeting: H(kind, text, job, meeting). */
void uli_env_secret(const struct uli_env_meeting *env, const char *kind,
    const char *text, unsigned char *secret_p);

ulyx_status_t uli_bootstrap_open_abstract(
    const struct uli_env_meeting *env, struct uli_bootstrap **bootstrap_p);
ulyx_status_t uli_bootstrap_open_file(
    const struct uli_env_meeting *env, struct uli_bootstrap **bootstrap_p);
ulyx_status_t uli_bootstrap_open_master(
    const struct uli_env_meeting *env, struct uli_bootstrap **bootstrap_p);

/* Like open_env, with a given environment and meeting: for tests, and the body
 * of open_env. */
ulyx_status_t uli_bootstrap_open_from(const struct uli_settings *settings,
    const struct uli_env *env, uint32_t meeting, uli_deadline_t deadline,
    struct uli_bootstrap **bootstrap_p);

#endif
