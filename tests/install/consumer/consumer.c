/* SPDX-License-Identifier: Apache-2.0
 *
 * The smallest user in C: the library that runs is the one that was compiled
 * against.
 */
#include <stdio.h>
#include <string.h>
#include <ulyx/ulyx.h>

int
main(void)
{
    int32_t major, minor, patch;
    if (ulyx_get_version(&major, &minor, &patch) != ULYX_SUCCESS)
        return 1;
    printf("%d.%d.%d\n", major, minor, patch);
    if (ulyx_get_version(NULL, NULL, NULL) != ULYX_ERR_INVALID_ARGUMENT)
        return 1;
    return major != ULYX_VERSION_MAJOR || strlen(ulyx_last_error()) == 0;
}
