/* SPDX-License-Identifier: Apache-2.0
 *
 * The public query whether a launcher has started this process.
 */
#include <stdlib.h>
#include "api/params.h"
#include "base/settings.h"
#include "base/status.h"
#include "bootstrap/launch/launcher.h"
#include "ulyx/comm.h"

ulyx_status_t
ulyx_launch_query(ulyx_launch_t *launch_p)
{
    struct uli_launch found;
    ULI_TRY(uli_api_enter());
    ULI_CHECK_POINTER(launch_p);
    struct uli_settings *settings = malloc(sizeof(*settings));
    if (!settings)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for settings");
    ulyx_status_t status = uli_settings_load(settings);
    if (status == ULYX_SUCCESS)
        status = uli_launcher_query(settings, &uli_env_process, &found);
    free(settings);
    ULI_TRY(status);
    const ulyx_launch_t launch = {.size = sizeof(launch),
        .rank = found.rank,
        .nranks = found.nranks,
        .local_rank = found.local_rank,
        .local_nranks = found.local_nranks,
        .launcher = found.launcher};
    return uli_struct_give(&uli_structs[ULI_STRUCT_LAUNCH], &launch, launch_p);
}
