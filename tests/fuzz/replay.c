/* SPDX-License-Identifier: Apache-2.0
 *
 * replay FOLDER: passes every file of the folder to a target, and randomly
 * damaged copies of each: bytes changed, cut short, a piece repeated. For
 * compilers without libFuzzer, and for the test suite.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fuzz/fuzz.h"
#include "support/random.h"

enum { BYTES_MAX = 1 << 18, DAMAGES = 200 };

static size_t
data_damage(uint8_t *data, size_t bytes, struct test_random *random)
{
    int64_t last = (int64_t)bytes - 1;
    for (int64_t n = test_random_in(random, 1, 4); bytes && n > 0; n--)
        data[test_random_in(random, 0, last)] =
            (uint8_t)test_random_in(random, 0, 255);
    if (bytes && test_random_in(random, 0, 3) == 0)
        bytes = (size_t)test_random_in(random, 0, last);
    if (bytes && test_random_in(random, 0, 3) == 0) {
        size_t from = (size_t)test_random_in(random, 0, (int64_t)bytes - 1);
        size_t count = bytes - from;
        if (bytes + count <= BYTES_MAX) {
            memmove(data + bytes, data + from, count);
            bytes += count;
        }
    }
    return bytes;
}

static void
file_give(const char *path, struct test_random *random)
{
    static uint8_t stored[BYTES_MAX], data[BYTES_MAX];
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(1);
    }
    size_t bytes = fread(stored, 1, sizeof(stored), file);
    fclose(file);
    LLVMFuzzerTestOneInput(stored, bytes);
    for (int64_t i = 0, n = test_draws(DAMAGES); i < n; i++) {
        memcpy(data, stored, bytes);
        LLVMFuzzerTestOneInput(data, data_damage(data, bytes, random));
    }
}

int
main(int argc, char **argv)
{
    struct test_random random = {test_seed(1)};
    int files = 0;
    for (int i = 1; i < argc; i++) {
        struct dirent **entries;
        int count = scandir(argv[i], &entries, NULL, alphasort);
        for (int n = 0; n < count; n++) {
            char path[4096];
            snprintf(path, sizeof(path), "%s/%s", argv[i], entries[n]->d_name);
            if (entries[n]->d_name[0] != '.') {
                file_give(path, &random);
                files++;
            }
            free(entries[n]);
        }
        if (count >= 0)
            free(entries);
    }
    printf("%d inputs\n", files);
    return files == 0;
}
