/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's identity: the description of itself that it sends to the other
 * ranks.
 */
#ifndef ULI_COMM_IDENTITY_H
#define ULI_COMM_IDENTITY_H

#include "transport/transport.h"

/* Fills everything but process and service, which uli_service_hold fills
 * (uli_service_hold(identity_p->process, identity_p->service)). The endpoint is
 * new and random. With ULYX_CMA=on this call also permits peers to read this
 * process. Errors: SYSTEM (no random bytes). */
ulyx_status_t uli_identity_fill(const struct uli_settings *settings,
    int32_t rank, int32_t memory_kind, int32_t device,
    struct uli_identity *identity_p);

#endif
