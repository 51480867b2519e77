/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers with guard bands, for tests.
 */
#ifndef TESTS_SUPPORT_BUFFERS_H
#define TESTS_SUPPORT_BUFFERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct test_buffer {
    unsigned char *data; /* `bytes` bytes; the address is `offset` modulo 64 */
    size_t bytes;
    unsigned char *base;
    size_t base_bytes;
};

/* data is filled with 0xFF (NaN in every float type), guards with a pattern. */
void test_buffer_init(struct test_buffer *buffer, size_t bytes, size_t offset);
/* Returns whether all guard bytes are unchanged; prints the first that is
 * not. */
bool test_buffer_guards_ok(const struct test_buffer *buffer);
void test_buffer_free(struct test_buffer *buffer);

#endif
