/* SPDX-License-Identifier: Apache-2.0
 *
 * Environments for tests: a list of "NAME=value", NULL at the end.
 */
#ifndef TESTS_BOOTSTRAP_FIXTURE_ENV_H
#define TESTS_BOOTSTRAP_FIXTURE_ENV_H

#include "bootstrap/launch/launcher.h"

enum { FIXTURE_ENV_MAX = 24 };

struct fixture_env {
    const char *entries[FIXTURE_ENV_MAX];
};

/* Returns the environment, which is valid as long as the fixture. */
struct uli_env fixture_env(const struct fixture_env *fixture);

#endif
