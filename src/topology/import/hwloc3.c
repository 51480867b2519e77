/* SPDX-License-Identifier: Apache-2.0
 *
 * Rewrites hwloc's XML of version 3 as version 2, which hwloc 2 and 3 read.
 * Objects are written in the same way, except for the type of an OS device,
 * which is a set of kinds in version 3 and one kind in version 2. Beside the
 * objects, version 3 has elements that version 2 does not have; the graph does
 * not need them, and they are left out.
 *
 * Space between elements is kept, so that line numbers in errors are those of
 * the file.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/list.h"
#include "base/status.h"
#include "topology/graph.h"
#include "topology/import/xml.h"

enum { DEPTH_MAX = 280 };

struct rewrite {
    struct uli_xml xml;
    FILE *out;
    int dropped_depth; /* of the element that is left out with all its children;
                        * 0: none */
};

/* Does hwloc 2 read this child of the root element? */
static bool
element_is_kept(const char *element)
{
    static const char *const names[] = {"object", "distances2",
        "distances2hetero", "memattr", "cpukind", "support"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(element, names[i]) == 0)
            return true;
    return false;
}

static void
text_write(FILE *out, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];

        if (strchr("&<>\"", c) && c != 0)
            fprintf(out, "&#%d;", c);
        else
            putc(c, out);
    }
}

/* Translates a set of kinds of version 3 (1 storage, 2 memory, 4 GPU, 8
 * coprocessor, 16 network, 32 OpenFabrics, 64 DMA) into the one kind of version
 * 2 (0 block, 1 GPU, 2 network, 3 OpenFabrics, 4 DMA, 5 coprocessor), with the
 * precedence of hwloc's own export. Any other text is kept; uli_hwloc_screen
 * refuses it. */
static const char *
osdev_type_of(const char *text, const char *name)
{
    static const struct {
        unsigned long long kinds;
        const char *type;
    } rows[] = {
        {1 | 2, "0"}, {32, "3"}, {16, "2"}, {64, "4"}, {8, "5"}, {4, "1"}};
    char *end;
    unsigned long long kinds;

    errno = 0;
    kinds = strtoull(text, &end, 10);
    if (errno || *end || text[strspn(text, "0123456789")] || kinds > 127)
        return text;
    /* Devices of NVIDIA's and AMD's management libraries have two kinds in
     * version 3; in version 2 they are GPUs. */
    if ((kinds & 4) && name &&
        (strncmp(name, "nvml", 4) == 0 || strncmp(name, "rsmi", 4) == 0))
        return "1";
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (kinds & rows[i].kinds)
            return rows[i].type;
    return text;
}

static void
rewrite_start(struct uli_xml *xml, const char *element, const char **attributes)
{
    struct rewrite *w = ULI_CONTAINER_OF(xml, struct rewrite, xml);

    if (xml->depth == 1 && !element_is_kept(element))
        w->dropped_depth = 1;
    if (w->dropped_depth)
        return;
    fprintf(w->out, "<%s", element);
    for (const char **at = attributes; *at; at += 2) {
        const char *value = at[1];

        if (xml->depth == 0 && strcmp(at[0], "version") == 0)
            value = "2.0";
        else if (strcmp(at[0], "osdev_type") == 0)
            value = osdev_type_of(value, uli_xml_attribute(attributes, "name"));
        fprintf(w->out, " %s=\"", at[0]);
        text_write(w->out, value, strlen(value));
        putc('"', w->out);
    }
    putc('>', w->out);
}

static void
rewrite_end(struct uli_xml *xml, const char *element)
{
    struct rewrite *w = ULI_CONTAINER_OF(xml, struct rewrite, xml);

    if (!w->dropped_depth)
        fprintf(w->out, "</%s>", element);
    else if (xml->depth == w->dropped_depth)
        w->dropped_depth = 0;
}

static void
rewrite_text(struct uli_xml *xml, const char *text, size_t length)
{
    struct rewrite *w = ULI_CONTAINER_OF(xml, struct rewrite, xml);

    if (!w->dropped_depth)
        text_write(w->out, text, length);
}

ulyx_status_t
uli_hwloc3_rewrite(const char *text, size_t bytes, const char *name,
    char **text_p, size_t *bytes_p)
{
    struct rewrite w = {.xml = {.name = name,
                            .on_start = rewrite_start,
                            .on_end = rewrite_end,
                            .on_text = rewrite_text,
                            .depth_max = DEPTH_MAX}};
    char *out = NULL;
    size_t out_bytes = 0;
    ulyx_status_t status;
    bool whole;

    w.out = open_memstream(&out, &out_bytes);
    if (!w.out)
        return uli_error(ULYX_ERR_NO_MEMORY, "%s: no memory", name);
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
          "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n",
        w.out);
    status = uli_xml_read(&w.xml, text, bytes);
    whole = !ferror(w.out);
    if (fclose(w.out) != 0 || !whole)
        status = status != ULYX_SUCCESS
                     ? status
                     : uli_error(ULYX_ERR_NO_MEMORY, "%s: no memory", name);
    if (status != ULYX_SUCCESS) {
        free(out);
        return status;
    }
    *text_p = out;
    *bytes_p = out_bytes;
    return ULYX_SUCCESS;
}
