/* SPDX-License-Identifier: Apache-2.0
 *
 * Text that is put together piece by piece in a buffer of the caller.
 */
#ifndef ULI_BASE_TEXT_H
#define ULI_BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* length also counts what did not fit: length >= bytes means that the text was
 * cut, and that it needs length + 1. The text is always terminated. */
struct uli_text {
    char *at;
    size_t bytes, length;
};

__attribute__((format(printf, 2, 3))) void uli_text_add(
    struct uli_text *text, const char *format, ...);

/* A text that was cut ends in "... (needs 1234)", the bytes for all of it, or
 * in what fits of "...". Called last. */
void uli_text_mark_cut(struct uli_text *text);

/* Ends a noun after its number: "%d rank%s". */
const char *uli_plural(int64_t count);

#endif
