/* SPDX-License-Identifier: Apache-2.0
 *
 * A small reproducible generator (splitmix64). The seed of every random test
 * is printed and can be set by ULYX_TEST_SEED.
 */
#ifndef TESTS_SUPPORT_RANDOM_H
#define TESTS_SUPPORT_RANDOM_H

#include <stdint.h>

struct test_random {
    uint64_t state;
};

/* The seed: ULYX_TEST_SEED, or fallback. Printed once. */
uint64_t test_seed(uint64_t fallback);
uint64_t test_random_next(struct test_random *random);
/* Uniform in [low, high], both included. */
int64_t test_random_in(struct test_random *random, int64_t low, int64_t high);
/* Uniform in [0, 1), and normal with mean 0 and deviation 1. */
double test_random_unit(struct test_random *random);
double test_random_normal(struct test_random *random);
/* The number of random draws of a test: ULYX_TEST_DRAWS scales the default. */
int64_t test_draws(int64_t fallback);

#endif
