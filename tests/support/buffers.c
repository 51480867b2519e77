/* SPDX-License-Identifier: Apache-2.0
 *
 * A buffer is one allocation: slack for the alignment, guard, data, guard. The
 * guard's pattern depends on the position, so a copy of guard bytes to another
 * position shows too.
 */
#include "support/buffers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD_BYTES 512
#define ALIGN       64

static unsigned char
guard_at(size_t i)
{
    return (unsigned char)(0xA5 ^ (i * 37));
}

void
test_buffer_init(struct test_buffer *buffer, size_t bytes, size_t offset)
{
    buffer->bytes = bytes;
    buffer->base_bytes = bytes + 2 * GUARD_BYTES + 2 * ALIGN;
    buffer->base = malloc(buffer->base_bytes);
    if (!buffer->base) {
        fprintf(stderr, "no memory for a buffer of %zu bytes\n", bytes);
        abort();
    }
    uintptr_t first = (uintptr_t)buffer->base + GUARD_BYTES;
    uintptr_t aligned = (first + ALIGN - 1) / ALIGN * ALIGN;
    buffer->data = (unsigned char *)(aligned + offset % ALIGN);
    for (size_t i = 0; i < buffer->base_bytes; i++)
        buffer->base[i] = guard_at(i);
    memset(buffer->data, 0xFF, bytes);
}

static bool
guard_ok(const struct test_buffer *buffer, size_t begin, size_t end)
{
    ptrdiff_t data_at = buffer->data - buffer->base;
    for (size_t i = begin; i < end; i++) {
        if (buffer->base[i] == guard_at(i))
            continue;
        fprintf(stderr,
            "guard byte at %td of a buffer of %zu bytes is 0x%02x, "
            "was 0x%02x\n",
            (ptrdiff_t)i - data_at, buffer->bytes, buffer->base[i],
            guard_at(i));
        return false;
    }
    return true;
}

bool
test_buffer_guards_ok(const struct test_buffer *buffer)
{
    size_t begin = (size_t)(buffer->data - buffer->base);
    return guard_ok(buffer, 0, begin) &&
           guard_ok(buffer, begin + buffer->bytes, buffer->base_bytes);
}

void
test_buffer_free(struct test_buffer *buffer)
{
    free(buffer->base);
    memset(buffer, 0, sizeof(*buffer));
}
