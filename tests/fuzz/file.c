/* SPDX-License-Identifier: Apache-2.0
 *
 * The file of fuzz targets that read a file; see fuzz.h.
 */
#include "fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

const char *
fuzz_file(const uint8_t *data, size_t bytes)
{
    static char path[64];
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("fuzz", 0);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    }
    if (ftruncate(fd, 0) || pwrite(fd, data, bytes, 0) != (ssize_t)bytes) {
        perror(path);
        abort();
    }
    return path;
}
