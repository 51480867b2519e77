/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors of distributed attentions on emulated devices or cards: each rank has
 * a window, with a copy of every buffer at its own offset, and a stream.
 */
#ifndef TESTS_EMULATE_DIST_ATTENTION_DEVICE_PLACE_H
#define TESTS_EMULATE_DIST_ATTENTION_DEVICE_PLACE_H

#include "attention/dist_attention/dist_world.h"

/* Rank r is on device r mod DEVICE_PLACE_DEVICES, or mod the number of devices
 * if there are fewer. */
enum { DEVICE_PLACE_DEVICES = 2 };

extern const struct case_place device_place;
/* As device_place, with plain device memory in place of the window, for devices
 * that cannot map each other's memory. */
extern const struct case_place device_place_apart;

/* Replaces the options of a case that device memory refuses by options that it
 * takes. */
void device_place_adapt(struct dist_case *c, const struct case_place *place);
/* Returns query rows times keys, over all heads. An emulated score costs some
 * microseconds. */
int64_t device_place_scores(const struct dist_case *c);
/* Stores whether the gradients have the bits that one rank computes, by the
 * rule of the host (dist_random_test.c): dq has them unless dout is summed; dk
 * and dv have them if, in addition, keys are not replicated. */
void device_place_bits(const struct dist_case *c, bool *dq_p, bool *dk_p);

#endif
