/* SPDX-License-Identifier: Apache-2.0
 *
 * splitmix64: 64 bits of state, any seed.
 */
#include "support/random.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

uint64_t
test_seed(uint64_t fallback)
{
    const char *text = getenv("ULYX_TEST_SEED");
    uint64_t seed = text && *text ? strtoull(text, NULL, 0) : fallback;
    printf("ULYX_TEST_SEED=%" PRIu64 "\n", seed);
    return seed;
}

uint64_t
test_random_next(struct test_random *random)
{
    uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

int64_t
test_random_in(struct test_random *random, int64_t low, int64_t high)
{
    uint64_t span = (uint64_t)high - (uint64_t)low + 1;
    if (span == 0)
        return (int64_t)test_random_next(random);
    /* a multiple of span: no bias */
    uint64_t limit = UINT64_MAX - UINT64_MAX % span;
    uint64_t draw;
    do
        draw = test_random_next(random);
    while (draw >= limit);
    return (int64_t)((uint64_t)low + draw % span);
}

double
test_random_unit(struct test_random *random)
{
    return (double)(test_random_next(random) >> 11) * 0x1p-53;
}

double
test_random_normal(struct test_random *random)
{
    double radius = sqrt(-2.0 * log(1.0 - test_random_unit(random)));
    return radius * cos(6.283185307179586 * test_random_unit(random));
}

int64_t
test_draws(int64_t fallback)
{
    const char *text = getenv("ULYX_TEST_DRAWS");
    if (!text || !*text)
        return fallback;
    double scaled = (double)fallback * strtod(text, NULL);
    return scaled < 1 ? 1 : (int64_t)scaled;
}
