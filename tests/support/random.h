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

/* Returns the seed: ULYX_TEST_SEED, or fallback where it is not set. The first
 * call prints the seed. */
uint64_t test_seed(uint64_t fallback);
uint64_t test_random_next(struct test_random *random);
/* Uniform in [low, high], both included. */
int64_t test_random_in(struct test_random *random, int64_t low, int64_t high);
/* The first is uniform in [0, 1); the second is normal with mean 0 and standard
 * deviation 1. */
double test_random_unit(struct test_random *random);
double test_random_normal(struct test_random *random);
/* Returns how many random draws a test makes: the default, scaled by
 * ULYX_TEST_DRAWS. */
int64_t test_draws(int64_t fallback);

#endif
