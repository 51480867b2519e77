/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the tests of boxes: random boxes, a byte-by-byte oracle, random
 * cuts, and a loop over the kernels of this machine.
 */
#ifndef TESTS_COLLECTIVES_KERNELS_COPY_CASES_H
#define TESTS_COLLECTIVES_KERNELS_COPY_CASES_H

#include <stdint.h>
#include "collectives/kernels/copy.h"
#include "support/random.h"

/* The test seeds it. */
extern struct test_random case_rng;

struct case_box {
    struct uli_box box, normal;   /* the box as drawn, and normalized */
    int64_t dst_bytes, src_bytes; /* bytes that each side spans from its base */
};

/* Extents from 1, strides nested in any order and of either sign, with and
 * without gaps, offsets of any alignment; at most 400,000 bytes copied. */
struct case_box case_draw(void);

int64_t case_runs(const struct uli_box *box);

/* Returns the offsets on both sides of run n, in loop order. */
void case_locate(
    const struct uli_box *box, int64_t n, int64_t *dst, int64_t *src);

/* Copies byte by byte; writes zeros where src is NULL. */
void case_oracle(
    const struct uli_box *box, unsigned char *dst, const unsigned char *src);

/* Takes a piece of random size from the front of [*begin, end). */
struct uli_box_span case_cut(int64_t *begin, int64_t end);

/* Draws a way of copying. */
struct uli_copy_way case_way(void);

/* Runs body once per kernel, and leaves the best kernel selected. */
void case_each_kernel(void (*body)(void));

#endif
