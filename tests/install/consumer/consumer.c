/* SPDX-License-Identifier: Apache-2.0
 *
 * A small user in C. The running library is the one against which it was
 * compiled. A communicator of two ranks is made and destroyed, for which the
 * linker takes most of a static library.
 */
#include <stdio.h>
#include <ulyx/ulyx.h>

static int
call_failed(const char *call)
{
    fprintf(stderr, "%s: %s\n", call, ulyx_last_error());
    return 1;
}

int
main(void)
{
    int32_t major, minor, patch, nranks = 0;
    ulyx_comm_t *comms[2];
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    if (ulyx_get_version(&major, &minor, &patch) != ULYX_SUCCESS)
        return call_failed("ulyx_get_version");
    if (ulyx_comm_create_local(2, &params, comms) != ULYX_SUCCESS)
        return call_failed("ulyx_comm_create_local");
    if (ulyx_comm_get_nranks(comms[1], &nranks) != ULYX_SUCCESS)
        return call_failed("ulyx_comm_get_nranks");
    for (int r = 0; r < 2; r++) {
        if (ulyx_comm_destroy(comms[r]) != ULYX_SUCCESS)
            return call_failed("ulyx_comm_destroy");
    }
    printf("%d.%d.%d\n", major, minor, patch);
    return nranks != 2 || major != ULYX_VERSION_MAJOR;
}
