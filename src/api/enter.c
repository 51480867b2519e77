/* SPDX-License-Identifier: Apache-2.0
 *
 * The fork check of the calls that use communicators. It is not in params.c,
 * because that file also serves calls that use no communicator.
 */
#include "api/params.h"

#include "base/status.h"
#include "comm/service/service.h"

ulyx_status_t
uli_api_enter(void)
{
    if (!uli_service_forked())
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_FORKED,
        "this process was forked after ulyx was started: only its parent may "
        "call the library; start ulyx in the child before its parent does, or "
        "exec");
}
