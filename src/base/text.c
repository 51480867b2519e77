/* SPDX-License-Identifier: Apache-2.0
 *
 * See text.h.
 */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>

void
uli_text_add(struct uli_text *text, const char *format, ...)
{
    va_list arguments;
    if (text->length >= text->bytes)
        return;
    va_start(arguments, format);
    int wrote = vsnprintf(
        text->at + text->length, text->bytes - text->length, format, arguments);
    va_end(arguments);
    text->length += wrote > 0 ? (size_t)wrote : 0;
}

const char *
uli_plural(int64_t count)
{
    return count == 1 ? "" : "s";
}
