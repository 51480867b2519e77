/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions that all commands of ulyx_info with --json share.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "info.h"
#include "ulyx/ulyx.h"

const char *
info_version(void)
{
    static char text[32];

    snprintf(text, sizeof(text), "%d.%d.%d", ULYX_VERSION_MAJOR,
        ULYX_VERSION_MINOR, ULYX_VERSION_PATCH);
    return text;
}

int
info_write_json(json_t *root)
{
    int code = root == NULL;

    if (!root)
        fprintf(stderr, "ulyx_info: no memory for the JSON\n");
    else if (json_dumpf(root, stdout, JSON_COMPACT) != 0 ||
             putchar('\n') == EOF || fflush(stdout) != 0) {
        fprintf(stderr, "ulyx_info: the JSON cannot be written: %s\n",
            strerror(errno));
        code = 1;
    }
    json_decref(root);
    return code;
}
