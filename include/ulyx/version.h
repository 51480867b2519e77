/* SPDX-License-Identifier: Apache-2.0
 *
 * The version of these headers, and the one place where it is written: the
 * build, the packages and the manual pages take it from here.
 *
 * Before 1.0 a minor version may change the API and the ABI, so the library's
 * SONAME is libulyx.so.MAJOR.MINOR and find_package(ulyx 0.2) takes 0.2.x
 * alone; a patch version changes neither. ulyx_get_version gives the version
 * of the library that runs.
 */
#ifndef ULYX_VERSION_H
#define ULYX_VERSION_H

#define ULYX_VERSION_MAJOR 0
#define ULYX_VERSION_MINOR 2
#define ULYX_VERSION_PATCH 0

#endif
