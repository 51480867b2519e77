/* SPDX-License-Identifier: Apache-2.0
 *
 * The version of these headers. It is written here only: the build, the
 * packages and the manual pages read it from this file.
 *
 * Before 1.0 a minor version may change the API and the ABI, so the library's
 * SONAME is libulyx.so.MAJOR.MINOR and find_package(ulyx 0.2) accepts only
 * 0.2.x. A patch version changes neither. ulyx_get_version gives the version of
 * the library that the program runs with.
 */
#ifndef ULYX_VERSION_H
#define ULYX_VERSION_H

#define ULYX_VERSION_MAJOR 0
#define ULYX_VERSION_MINOR 2
#define ULYX_VERSION_PATCH 0

#endif
