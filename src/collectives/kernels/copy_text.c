/* SPDX-License-Identifier: Apache-2.0
 *
 * A choice of copies as text, written and read. Nothing in a text is trusted:
 * words must be in the tables, numbers in their ranges, and each way must be
 * there once.
 */
#include "collectives/kernels/copy_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/system/cpu.h"
#include "base/text.h"
#include "ulyx/version.h"

#define HEAD "ulyx-copies 2"

enum { AHEAD_MAX = 256, LINE_MAX_BYTES = 96 };

static const char *const sizes[ULI_COPY_SIZES] = {"small", "medium", "large"};
static const char *const sources[ULI_COPY_SOURCES] = {"apart", "on", "fan"};
static const char *const hints[ULI_HINTS] = {"none", "once", "l2", "l1"};

static const char *
library_version(char text_p[32])
{
    snprintf(text_p, 32, "%d.%d.%d", ULYX_VERSION_MAJOR, ULYX_VERSION_MINOR,
        ULYX_VERSION_PATCH);
    return text_p;
}

/* ---- writing ------------------------------------------------------------- */

/* Bytes from which calls do something. */
static void
add_bound(struct uli_text *text, const char *word, int64_t bytes)
{
    if (bytes == INT64_MAX)
        uli_text_add(text, "%s never\n", word);
    else
        uli_text_add(text, "%s %" PRId64 "\n", word, bytes);
}

size_t
uli_copy_text_write(
    const struct uli_copy_choice *choice, char text_p[ULI_COPY_TEXT])
{
    struct uli_text text = {text_p, ULI_COPY_TEXT, 0};
    char version[32];
    uli_text_add(&text,
        HEAD "\ncpu %s\nversion %s\nkernel %s\n"
             "# GB/s measured, and by the default\n",
        uli_cpu_name(), library_version(version), uli_copy_kernel_name());
    for (int n = 0; n < ULI_COPY_SIZES * ULI_COPY_SOURCES; n++) {
        int size = n / ULI_COPY_SOURCES, source = n % ULI_COPY_SOURCES;
        const struct uli_copy_way *way = &choice->ways[size][source];
        const struct uli_copy_figure *figure = &choice->figures[size][source];
        uli_text_add(&text, "%s %s %s %d %d %.2f %.2f\n", sizes[size],
            sources[source], hints[way->hint], way->lanes, way->ahead,
            figure->chosen, figure->usual);
    }
    add_bound(&text, "stream", choice->stream_bytes);
    add_bound(&text, "fan", choice->fan_bytes);
    return text.length;
}

/* ---- reading ------------------------------------------------------------- */

/* Index of the word in the list, or -1. */
static int
word_find(const char *word, const char *const *list, int count)
{
    int i = 0;
    while (i < count && strcmp(list[i], word))
        i++;
    return i < count ? i : -1;
}

struct reading {
    struct uli_copy_choice choice;
    bool seen[ULI_COPY_SIZES][ULI_COPY_SOURCES], stream, fan;
    bool here, cpu, version, kernel;
};

static bool
read_way(struct reading *r, const char *line)
{
    char words[3][16];
    int lanes, ahead, end = 0;
    struct uli_copy_figure figure;
    if (sscanf(line, "%15s %15s %15s %d %d %lf %lf%n", words[0], words[1],
            words[2], &lanes, &ahead, &figure.chosen, &figure.usual,
            &end) != 7 ||
        line[end])
        return false;
    int size = word_find(words[0], sizes, ULI_COPY_SIZES);
    int source = word_find(words[1], sources, ULI_COPY_SOURCES);
    int hint = word_find(words[2], hints, ULI_HINTS);
    if (size < 0 || source < 0 || hint < 0 || r->seen[size][source] ||
        (lanes != 1 && lanes != 2 && lanes != 4 && lanes != 8) || ahead < 0 ||
        ahead > AHEAD_MAX || !(figure.chosen >= 0 && figure.chosen < 1e6) ||
        !(figure.usual >= 0 && figure.usual < 1e6))
        return false;
    r->seen[size][source] = true;
    r->choice.ways[size][source] =
        (struct uli_copy_way){(enum uli_copy_hint)hint, lanes, ahead, false};
    r->choice.figures[size][source] = figure;
    return true;
}

/* *seen_p: has the text had this line before? least: of the bytes. */
static bool
read_bound(bool *seen_p, const char *value, int64_t least, int64_t *bytes_p)
{
    char *end;
    long long bytes = strtoll(value, &end, 10);
    if (*seen_p)
        return false;
    *seen_p = true;
    *bytes_p = bytes;
    if (!strcmp(value, "never"))
        *bytes_p = INT64_MAX;
    else if (end == value || *end || bytes < least)
        return false;
    return true;
}

/* Reads a line that names the owner of the text. A line that names another
 * owner is well-formed too. */
static bool
read_owner(bool *same_p, const char *value, const char *mine)
{
    *same_p = !strcmp(value, mine);
    return *value != 0;
}

static bool
read_line(struct reading *r, const char *line)
{
    char version[32];
    if (!strncmp(line, "cpu ", 4))
        return read_owner(&r->cpu, line + 4, uli_cpu_name());
    if (!strncmp(line, "version ", 8))
        return read_owner(&r->version, line + 8, library_version(version));
    if (!strncmp(line, "kernel ", 7))
        return read_owner(&r->kernel, line + 7, uli_copy_kernel_name());
    if (!strncmp(line, "stream ", 7))
        return read_bound(&r->stream, line + 7, 0, &r->choice.stream_bytes);
    if (!strncmp(line, "fan ", 4))
        return read_bound(
            &r->fan, line + 4, ULI_COPY_MEDIUM_BYTES, &r->choice.fan_bytes);
    return read_way(r, line);
}

/* Copies the next line into line_p. False at the end; also where the line does
 * not fit, and then *text_p is NULL. */
static bool
text_line(const char **text_p, const char *end, char line_p[LINE_MAX_BYTES])
{
    const char *from = *text_p;
    if (from == end)
        return false;
    const char *newline = memchr(from, '\n', (size_t)(end - from));
    size_t bytes = (size_t)((newline ? newline : end) - from);
    *text_p = newline ? newline + 1 : end;
    if (bytes >= LINE_MAX_BYTES || memchr(from, 0, bytes)) {
        *text_p = NULL;
        return false;
    }
    memcpy(line_p, from, bytes);
    line_p[bytes] = 0;
    return true;
}

static bool
is_whole(const struct reading *r, char why_p[ULI_COPY_WHY])
{
    bool whole = r->stream && r->fan;
    for (int n = 0; n < ULI_COPY_SIZES * ULI_COPY_SOURCES; n++)
        whole = whole && r->seen[n / ULI_COPY_SOURCES][n % ULI_COPY_SOURCES];
    if (!whole)
        snprintf(why_p, ULI_COPY_WHY,
            "expected nine ways, a line stream and a line fan");
    else if (r->here && !(r->cpu && r->version && r->kernel))
        snprintf(
            why_p, ULI_COPY_WHY, "of another processor, version or kernel");
    return whole && (!r->here || (r->cpu && r->version && r->kernel));
}

bool
uli_copy_text_read(const char *text, size_t bytes, bool here,
    struct uli_copy_choice *choice_p, char why_p[ULI_COPY_WHY])
{
    struct reading r = {.here = here};
    char line[LINE_MAX_BYTES];
    const char *end = text + bytes;
    int number = 1;
    if (!text_line(&text, end, line) || strcmp(line, HEAD)) {
        snprintf(why_p, ULI_COPY_WHY, "line 1: expected " HEAD);
        return false;
    }
    for (number = 2; text_line(&text, end, line); number++) {
        if (line[0] == '#' || !line[0] || read_line(&r, line))
            continue;
        snprintf(why_p, ULI_COPY_WHY, "line %d: \"%.60s\" is not understood",
            number, line);
        return false;
    }
    if (!text) {
        snprintf(why_p, ULI_COPY_WHY, "line %d: too long", number);
        return false;
    }
    if (!is_whole(&r, why_p))
        return false;
    *choice_p = r.choice;
    return true;
}
