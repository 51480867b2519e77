/* SPDX-License-Identifier: Apache-2.0
 *
 * values.h for host memory.
 */
#include "values.h"

#include <stdlib.h>
#include <string.h>

int
values_open(void)
{
    return 0;
}

void
values_close(void)
{
}

void *
values_stream(void)
{
    return NULL;
}

int
values_wait(void)
{
    return 0;
}

void *
values_alloc(int64_t bytes)
{
    return calloc(1, (size_t)bytes + 1);
}

void
values_free(void *memory)
{
    free(memory);
}

void
values_clear(void *memory, int64_t bytes)
{
    if (bytes > 0)
        memset(memory, 0, (size_t)bytes);
}

void
values_upload(void *to, const void *host, int64_t bytes)
{
    if (bytes > 0)
        memcpy(to, host, (size_t)bytes);
}

void
values_download(void *host, const void *from, int64_t bytes)
{
    if (bytes > 0)
        memcpy(host, from, (size_t)bytes);
}
