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

/* Seeded by the test. */
extern struct test_random case_rng;

struct case_box {
    struct uli_box box, normal;   /* as drawn, and normalized */
    int64_t dst_bytes, src_bytes; /* spans of the sides from their bases */
};

/* Extents from 1, strides nested in any order and of either sign, with and
 * without gaps, offsets of any alignment; at most 400,000 bytes copied. */
struct case_box case_draw(void);

int64_t case_runs(const struct uli_box *box);

/* The run numbered n in loop order: its offsets on the two sides. */
void case_locate(
    const struct uli_box *box, int64_t n, int64_t *dst, int64_t *src);

/* Copies byte by byte; zeros where src is NULL. */
void case_oracle(
    const struct uli_box *box, unsigned char *dst, const unsigned char *src);

/* Takes a random piece off the front of [*begin, end). */
struct uli_box_span case_cut(int64_t *begin, int64_t end);

/* A random way of a copy. */
struct uli_copy_way case_way(void);

/* Runs body once per kernel; leaves the best kernel selected. */
void case_each_kernel(void (*body)(void));

#endif
