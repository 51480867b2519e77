/* SPDX-License-Identifier: Apache-2.0
 *
 * The movers of this build. Messages come first: they serve plans whose memory
 * is not mapped, or that name a batch transport.
 */
#include "collectives/device/movers.h"

const struct uli_mover_ops *const uli_movers[] = {
#ifdef ULYX_HAVE_CUDA
    &uli_mover_messages, &uli_mover_engine, &uli_mover_mapped,
#endif
    &uli_mover_host, NULL};
