/* SPDX-License-Identifier: Apache-2.0
 *
 * Unique ids within the library: the public struct holds an endpoint.
 */
#ifndef ULI_BOOTSTRAP_MEET_UNIQUE_ID_H
#define ULI_BOOTSTRAP_MEET_UNIQUE_ID_H

#include "base/settings.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/meet/dial.h"

/* Bytes of an id's text with its final zero: enough for 8 IPv6 addresses, and
 * fewer than a setting can hold. */
enum { ULI_ID_TEXT_BYTES = 510 };

void uli_unique_id_encode(
    const struct uli_endpoint *place, ulyx_unique_id_t *id_p);
/* returns SUCCESS, ERR_INVALID_ARGUMENT or ERR_VERSION. */
ulyx_status_t uli_unique_id_decode(
    const ulyx_unique_id_t *id, struct uli_endpoint *place_p);

/* Listens at the address of the settings, starts a root and makes its id.
 * unlink_path as in uli_root_params. ownership: *root_p is the caller's to
 * release. */
ulyx_status_t uli_unique_id_serve(const struct uli_settings *settings,
    uli_deadline_t deadline, const char *unlink_path, ulyx_unique_id_t *id_p,
    struct uli_root **root_p);

#endif
