/* SPDX-License-Identifier: Apache-2.0
 *
 * The variables of launchers, as lines NAME=VALUE: they must give a rank below
 * the number of ranks, or be refused.
 */
#include <stdlib.h>
#include <string.h>
#include "bootstrap/launch/launcher.h"
#include "fuzz/fuzz.h"

/* Lines, each ended by a zero. */
struct lines {
    const char *text;
    size_t bytes;
};

static const char *
find_line(const void *context, const char *name)
{
    const struct lines *lines = context;
    size_t length = strlen(name);
    const char *end = lines->text + lines->bytes;
    for (const char *at = lines->text; at < end; at += strlen(at) + 1)
        if (!strncmp(at, name, length) && at[length] == '=')
            return at + length + 1;
    return NULL;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct uli_settings settings;
    char *text = calloc(1, bytes + 1);
    struct lines lines = {text, bytes};
    const struct uli_env env = {find_line, &lines};
    struct uli_launch launch;
    memcpy(text, data, bytes);
    for (size_t i = 0; i < bytes; i++)
        if (text[i] == '\n')
            text[i] = 0;
    uli_settings_load_files(NULL, NULL, &settings);
    if (uli_launcher_query(&settings, &env, &launch) == ULYX_SUCCESS &&
        launch.launcher && launch.nranks &&
        (launch.rank < 0 || launch.rank >= launch.nranks))
        abort();
    free(text);
    return 0;
}
