/* SPDX-License-Identifier: Apache-2.0
 *
 * Unique ids, as bytes and as text: text that is accepted must give the same id
 * after it is written and read again.
 */
#include <stdlib.h>
#include <string.h>
#include "bootstrap/meet/unique_id.h"
#include "fuzz/fuzz.h"
#include "ulyx/ulyx.h"

static void
as_text(const uint8_t *data, size_t bytes)
{
    ulyx_unique_id_t id, again;
    char text[600];
    char *given = calloc(1, bytes + 1);
    memcpy(given, data, bytes);
    if (ulyx_unique_id_from_string(given, &id) == ULYX_SUCCESS &&
        (ulyx_unique_id_to_string(&id, text, sizeof(text)) != ULYX_SUCCESS ||
            ulyx_unique_id_from_string(text, &again) != ULYX_SUCCESS ||
            memcmp(&id, &again, sizeof(id)) != 0))
        abort();
    free(given);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ulyx_unique_id_t id = {{0}};
    struct uli_endpoint place;
    memcpy(&id, data, bytes < sizeof(id) ? bytes : sizeof(id));
    uli_unique_id_decode(&id, &place);
    as_text(data, bytes);
    return 0;
}
