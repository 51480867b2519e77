/* SPDX-License-Identifier: Apache-2.0
 *
 * The flight recorder in a control segment of another process, as ulyx_info
 * ranks reads it: all values that are copied must be valid.
 */
#include <stdlib.h>
#include <string.h>
#include "comm/record/recorder.h"
#include "fuzz/fuzz.h"

static bool
text_prints(const char text[ULI_RECORDER_TEXT])
{
    for (int i = 0; i < ULI_RECORDER_TEXT; i++) {
        if (text[i] == 0)
            return true;
        if (text[i] < ' ' || text[i] > '~')
            return false;
    }
    return false;
}

static void
copy_check(const struct uli_recorder_copy *copy)
{
    bool good = copy->nranks > 0 && copy->rank >= 0 &&
                copy->rank < copy->nranks && copy->ncalls >= 0 &&
                copy->ncalls <= ULI_RECORDED_CALLS && text_prints(copy->name) &&
                text_prints(copy->host);
    for (int32_t i = 0; good && i < copy->ncalls; i++)
        good = copy->calls[i].awaited >= -1 &&
               copy->calls[i].awaited < copy->nranks;
    if (!good)
        abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct uli_recorder_copy copy;
    size_t room = (bytes + 63) / 64 * 64 + 64;
    unsigned char *memory = aligned_alloc(64, room);
    uint64_t magic = ULI_RECORDER_MAGIC;
    memset(memory, 0, room);
    memcpy(memory, data, bytes);
    if (bytes >= sizeof(magic)) /* a fuzzer cannot guess the magic number */
        memcpy(memory, &magic, sizeof(magic));
    if (uli_recorder_read(memory, (int64_t)bytes, &copy))
        copy_check(&copy);
    free(memory);
    return 0;
}
