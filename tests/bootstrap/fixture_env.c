/* SPDX-License-Identifier: Apache-2.0
 *
 * Environments for tests.
 */
#include "bootstrap/fixture_env.h"

#include <string.h>

static const char *
fixture_env_get(const void *context, const char *name)
{
    const struct fixture_env *fixture = context;
    size_t length = strlen(name);
    for (int i = 0; i < FIXTURE_ENV_MAX && fixture->entries[i]; i++)
        if (strncmp(fixture->entries[i], name, length) == 0 &&
            fixture->entries[i][length] == '=')
            return fixture->entries[i] + length + 1;
    return NULL;
}

struct uli_env
fixture_env(const struct fixture_env *fixture)
{
    return (struct uli_env){fixture_env_get, fixture};
}
