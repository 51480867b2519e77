/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors of distributed attentions on emulated devices or cards: each rank has
 * a window, with a copy of every buffer at its own offset, and a stream.
 */
#ifndef TESTS_EMULATE_DIST_ATTENTION_DEVICE_PLACE_H
#define TESTS_EMULATE_DIST_ATTENTION_DEVICE_PLACE_H

#include "attention/dist_attention/dist_world.h"

/* Rank r is on device r mod so many, or as many as there are. */
enum { DEVICE_PLACE_DEVICES = 2 };

extern const struct case_place device_place;
/* Plain device memory in place of the window, for devices that cannot map each
 * other's. */
extern const struct case_place device_place_apart;

/* What device memory refuses by name becomes what it takes. */
void device_place_adapt(struct dist_case *c, const struct case_place *place);
/* Query rows times keys, of all heads: an emulated one costs some
 * microseconds. */
int64_t device_place_scores(const struct dist_case *c);
/* Whether all gradients have one rank's bits, as on the host
 * (dist_random_test.c): dq unless dout is summed, dk and dv neither where keys
 * are replicated. */
void device_place_bits(const struct dist_case *c, bool *dq_p, bool *dk_p);

#endif
