/* SPDX-License-Identifier: Apache-2.0
 *
 * Setting files: every number that is accepted must lie in its range.
 */
#include <stdlib.h>
#include "base/settings.h"
#include "fuzz/fuzz.h"

static double
setting_number(
    const struct uli_settings *settings, const struct uli_setting_row *row)
{
    const char *at = (const char *)settings + row->offset;
    return row->type == ULI_SETTING_SECONDS
               ? *(const double *)(const void *)at
               : (double)*(const int64_t *)(const void *)at;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct uli_settings settings;
    size_t count;
    const struct uli_setting_row *rows = uli_settings_rows(&count);
    if (uli_settings_load_files(NULL, fuzz_file(data, bytes), &settings) !=
        ULYX_SUCCESS)
        return 0;
    for (size_t i = 0; i < count; i++)
        if (rows[i].type == ULI_SETTING_INT ||
            rows[i].type == ULI_SETTING_BYTES ||
            rows[i].type == ULI_SETTING_SECONDS) {
            double value = setting_number(&settings, &rows[i]);
            if (!(value >= rows[i].min && value <= rows[i].max))
                abort();
        }
    return 0;
}
