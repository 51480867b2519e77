/* SPDX-License-Identifier: Apache-2.0
 *
 * Cases that hold for plans of every mover, in a scene whose plans exist.
 */
#ifndef TESTS_EMULATE_PLAN_PLAYS_H
#define TESTS_EMULATE_PLAN_PLAYS_H

#include "emulate/plan/plan_scene.h"

/* Copies the results of one operation back and checks every byte. */
void plan_expect(struct plan_scene *s, int op);

/* Three ranks. Rank 0 refuses call 1, because its tensors are in no window. The
 * next call of each peer returns the refusal. */
void plan_play_refusal(struct plan_scene *s);
/* Three ranks. Rank 0 refuses, with these words, a call whose strides are
 * `times` those of creation, and its peers return the refusal. */
void plan_play_strides(struct plan_scene *s, int64_t times,
    ulyx_status_t status, const char *words);
/* Two ranks make calls of different operations. */
void plan_play_mismatch(struct plan_scene *s);
/* Two ranks. Rank 1 destroys its plan, which refuses all later calls of its
 * peer. */
void plan_play_destroyed(struct plan_scene *s);
/* Calls of two operations are captured, and replayed so many times with new
 * data. */
void plan_play_capture(struct plan_scene *s, int first, int second, int times);
/* Two ranks on one device enqueue calls of two plans in different orders. Each
 * plan has a stream per rank; this function makes those of b. */
void plan_play_two(struct plan_scene *a, struct plan_scene *b, int times);
/* Two ranks, of which rank 1 does not come. */
void plan_play_late(struct plan_scene *s);
/* Destroys everything of failed communicators except windows in quarantine. */
void plan_destroy_all(struct plan_scene *s);

#endif
