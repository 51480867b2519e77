/* SPDX-License-Identifier: Apache-2.0
 *
 * The movers of device memory.
 */
#ifndef ULI_COLLECTIVES_DEVICE_MOVERS_H
#define ULI_COLLECTIVES_DEVICE_MOVERS_H

#include "collectives/exchange/mover.h"

extern const struct uli_mover_ops uli_mover_mapped;   /* plan_mapped.c */
extern const struct uli_mover_ops uli_mover_engine;   /* plan_engine.c */
extern const struct uli_mover_ops uli_mover_messages; /* plan_messages.c */

#endif
