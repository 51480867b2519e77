/* SPDX-License-Identifier: Apache-2.0
 *
 * The cases of plans of every mode, in a scene whose plans are made.
 */
#ifndef TESTS_EMULATE_PLAN_PLAYS_H
#define TESTS_EMULATE_PLAN_PLAYS_H

#include "emulate/plan/plan_scene.h"

/* Brings back what one operation has left: every byte. */
void plan_expect(struct plan_scene *s, int op);

/* Three ranks: rank 0 refuses call 1, because its tensors are in no window; its
 * peers get the refusal from their next call. */
void plan_play_refusal(struct plan_scene *s);
/* Three ranks: rank 0 refuses a call with so many times creation's strides,
 * with these words; its peers learn of it. */
void plan_play_strides(struct plan_scene *s, int64_t times,
    ulyx_status_t status, const char *words);
/* Two ranks execute different operations. */
void plan_play_mismatch(struct plan_scene *s);
/* Rank 1 of two destroys its plan, and refuses all later calls of its peer. */
void plan_play_destroyed(struct plan_scene *s);
/* Calls of two operations, captured, replayed so many times with new data. */
void plan_play_capture(struct plan_scene *s, int first, int second, int times);
/* Two ranks of one device enqueue calls of two plans in different orders, on
 * two streams each, which b has not yet. */
void plan_play_two(struct plan_scene *a, struct plan_scene *b, int times);
/* Rank 1 of two does not come. */
void plan_play_late(struct plan_scene *s);
/* Of failed communicators: everything except windows in quarantine. */
void plan_destroy_all(struct plan_scene *s);

#endif
