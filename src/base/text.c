/* SPDX-License-Identifier: Apache-2.0
 *
 * See text.h.
 */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void
uli_text_add(struct uli_text *text, const char *format, ...)
{
    va_list arguments;
    size_t room = text->length < text->bytes ? text->bytes - text->length : 0;
    va_start(arguments, format);
    int wrote = vsnprintf(
        room ? text->at + text->length : NULL, room, format, arguments);
    va_end(arguments);
    text->length += wrote > 0 ? (size_t)wrote : 0;
}

void
uli_text_mark_cut(struct uli_text *text)
{
    char mark[48];
    if (text->length < text->bytes || text->bytes == 0)
        return;
    size_t length = (size_t)snprintf(
        mark, sizeof(mark), "... (needs %zu)", text->length + 1);
    if (length >= text->bytes)
        length = 3;
    if (length >= text->bytes)
        length = text->bytes - 1;
    char *end = text->at + text->bytes - 1 - length;
    memcpy(end, mark, length);
    end[length] = 0;
}

const char *
uli_plural(int64_t count)
{
    return count == 1 ? "" : "s";
}
