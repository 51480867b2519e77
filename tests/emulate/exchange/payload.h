/* SPDX-License-Identifier: Apache-2.0
 *
 * How many bytes of its destination a call of a rank writes.
 */
#ifndef TESTS_EMULATE_EXCHANGE_PAYLOAD_H
#define TESTS_EMULATE_EXCHANGE_PAYLOAD_H

#include "collectives/exchange/reshuffle_world.h"

int64_t payload_bytes(struct world *w, int32_t rank, int op, int32_t tensor);

#endif
