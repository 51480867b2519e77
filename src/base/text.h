/* SPDX-License-Identifier: Apache-2.0
 *
 * Text that is made piece by piece in a buffer of the caller.
 */
#ifndef ULI_BASE_TEXT_H
#define ULI_BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* length also counts characters that did not fit: length >= bytes means that
 * the text was cut, and needs length + 1 bytes. The text always ends in a 0. */
struct uli_text {
    char *at;
    size_t bytes, length;
};

__attribute__((format(printf, 2, 3))) void uli_text_add(
    struct uli_text *text, const char *format, ...);

/* Makes a text that was cut end in "... (needs 1234)", the bytes for the whole
 * text, or in as much of "..." as fits. To be called last. */
void uli_text_mark_cut(struct uli_text *text);

/* The ending of a noun after its number: "%d rank%s". */
const char *uli_plural(int64_t count);

#endif
