/* SPDX-License-Identifier: Apache-2.0
 *
 * Tuning files: every accepted value must lie within the tables.
 */
#include <stdlib.h>
#include "fuzz/fuzz.h"
#include "topology/choose/tuning.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct uli_model model;
    static struct uli_tuning tuning;
    ulyx_status_t status =
        uli_tuning_read(fuzz_file(data, bytes), &model, &tuning, NULL, NULL);
    if (status == ULYX_SUCCESS &&
        (tuning.nrules < 0 || tuning.nrules > ULI_TUNING_RULES))
        abort();
    return 0;
}
