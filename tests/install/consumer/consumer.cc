/* SPDX-License-Identifier: Apache-2.0
 *
 * The smallest user in C++.
 */
#include <cstdio>
#include <string>
#include <ulyx/ulyx.h>

int
main()
{
    int32_t major, minor, patch;
    if (ulyx_get_version(&major, &minor, &patch) != ULYX_SUCCESS)
        return 1;
    std::printf("%d.%d.%d\n", major, minor, patch);
    std::string name = ulyx_status_name(ULYX_ERR_TIMEOUT);
    return name != "ULYX_ERR_TIMEOUT" || minor != ULYX_VERSION_MINOR;
}
