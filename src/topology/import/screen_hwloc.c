/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks hwloc's XML before hwloc reads it. hwloc trusts its files: a NUMA node
 * without its set, a set of a million words or an object in the wrong place
 * ends the process. So the file must be well-formed, objects must nest as hwloc
 * nests them, each object must have the sets and indices that hwloc relies on,
 * and numbers must be numbers.
 */
#include "topology/graph.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/list.h"
#include "base/status.h"
#include "topology/import/xml.h"

enum { DEPTH_MAX = 280, SET_TEXT_MAX = 11 * (ULI_GRAPH_CORES_MAX / 32 / 8) };

/* Which elements may contain which. */
enum group {
    NOTHING,
    FILE_ROOT,
    NORMAL,
    MEMORY,
    LEAF,
    BRIDGE,
    PCI,
    OSDEV,
    MISC
};

static const struct {
    const char *type;
    enum group group;
    bool has_sets, has_index;
} types[] = {
    {"Machine", NORMAL, true, false},
    {"Package", NORMAL, true, false},
    {"Die", NORMAL, true, false},
    {"Group", NORMAL, true, false},
    {"Core", NORMAL, true, false},
    {"L1Cache", NORMAL, true, false},
    {"L2Cache", NORMAL, true, false},
    {"L3Cache", NORMAL, true, false},
    {"L4Cache", NORMAL, true, false},
    {"L5Cache", NORMAL, true, false},
    {"L1iCache", NORMAL, true, false},
    {"L2iCache", NORMAL, true, false},
    {"L3iCache", NORMAL, true, false},
    {"PU", LEAF, true, true},
    {"NUMANode", LEAF, true, true},
    {"MemCache", MEMORY, true, false},
    {"Bridge", BRIDGE, false, false},
    {"PCIDev", PCI, false, false},
    {"OSDev", OSDEV, false, false},
    {"Misc", MISC, false, false},
};
enum { TYPES = sizeof(types) / sizeof(types[0]) };

struct screen {
    struct uli_xml xml;
    enum group stack[DEPTH_MAX];
    int machines;
};

static void
screen_refuse(struct screen *s, const char *what, const char *text)
{
    uli_xml_refuse(&s->xml, "%s%.60s", what, text);
}

/* ---- values -------------------------------------------------------------- */

/* The length of the word of a set at the beginning of a text: "0x" and 1 to 8
 * digits. 0: there is no such word. */
static size_t
word_length(const char *text)
{
    if (text[0] != '0' || text[1] != 'x')
        return 0;
    size_t digits = strspn(text + 2, "0123456789abcdef");
    return digits >= 1 && digits <= 8 ? digits + 2 : 0;
}

/* "0x0000000f,,0xffffffff": words between commas. hwloc writes a word that is
 * zero as an empty text, unless it is the first or the last word. hwloc counts
 * the words before it reads them, and counts wrong if the first or the last
 * word is empty. Infinite sets ("0xf...f") and huge sets are refused. */
static bool
is_set(const char *text)
{
    size_t length = word_length(text);
    if (length == 0 || strlen(text) > SET_TEXT_MAX)
        return false;
    for (text += length; *text == ','; text += length) {
        text++;
        length = word_length(text);
        if (length == 0 && *text != ',')
            return false;
    }
    return !*text;
}

/* The only bit of a set, or -1. */
static int64_t
only_bit(const char *text)
{
    int64_t words = 1, found = -1;
    for (const char *at = text; *at; at++)
        words += *at == ',';
    for (; *text; text += strcspn(text, ","), text += *text == ',') {
        unsigned long long word = strtoull(text, NULL, 16);
        words--;
        if (word == 0)
            continue;
        if (found >= 0 || (word & (word - 1)))
            return -1;
        found = 32 * words + __builtin_ctzll(word);
    }
    return found;
}

static bool
is_number(const char *text, unsigned long long limit)
{
    char *end;
    if (!*text || strspn(text, "0123456789") != strlen(text))
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    return !errno && value <= limit;
}

/* ---- objects ------------------------------------------------------------- */

static bool
may_contain(enum group outer, enum group inner)
{
    switch (outer) {
    case FILE_ROOT:
        return inner == NORMAL;
    case NORMAL:
        return true;
    case MEMORY:
        return inner == MEMORY || inner == LEAF;
    case BRIDGE:
        return inner == BRIDGE || inner == PCI || inner == OSDEV ||
               inner == MISC;
    case PCI:
    case OSDEV:
        return inner == OSDEV || inner == MISC;
    case LEAF:
    case MISC:
        return inner == MISC;
    default:
        return false;
    }
}

static bool
ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* Checks the sets of any element: of an object, a CPU kind, an initiator. */
static void
check_sets(struct screen *s, const char **attributes)
{
    for (; *attributes; attributes += 2)
        if ((ends_with(attributes[0], "cpuset") ||
                ends_with(attributes[0], "nodeset")) &&
            !is_set(attributes[1]))
            screen_refuse(s, "not a set of words: ", attributes[0]);
}

static void
check_object_sets(struct screen *s, const char **attributes, bool required)
{
    static const char *const names[] = {"cpuset", "complete_cpuset", "nodeset",
        "complete_nodeset", "allowed_cpuset", "allowed_nodeset"};
    for (int i = 0; i < 6; i++) {
        const char *text = uli_xml_attribute(attributes, names[i]);
        if (!text && required && i < 4)
            screen_refuse(s, "an object without ", names[i]);
        if (text && !required)
            screen_refuse(s, "an I/O object with ", names[i]);
    }
}

/* A bridge connects the host (0-1) or PCI (1-1) above it to PCI below it. hwloc
 * has no other bridges, but accepts any number. */
static void
check_bridge(struct screen *s, const char **attributes)
{
    const char *type = uli_xml_attribute(attributes, "bridge_type");
    if (!type || (strcmp(type, "0-1") != 0 && strcmp(type, "1-1") != 0))
        screen_refuse(
            s, "a bridge that is neither 0-1 nor 1-1: ", type ? type : "");
}

/* The cpuset of a PU, and the nodeset of a NUMA node, must be the bit of its
 * own index. */
static void
check_index(struct screen *s, const char **attributes, bool is_pu)
{
    const char *index = uli_xml_attribute(attributes, "os_index");
    const char *set =
        uli_xml_attribute(attributes, is_pu ? "cpuset" : "nodeset");
    if (!index || !set || only_bit(set) != strtoll(index, NULL, 10))
        screen_refuse(
            s, "os_index and set disagree: os_index=", index ? index : "");
}

static void
check_numbers(struct screen *s, const char **attributes)
{
    static const struct {
        const char *name;
        unsigned long long limit;
    } rows[] = {{"os_index", ULI_GRAPH_CORES_MAX - 1}, {"gp_index", INT64_MAX},
        {"local_memory", INT64_MAX}, {"depth", 256}, {"nbobjs", 4096},
        {"kind", UINT32_MAX}, {"length", 64 << 20}, {"osdev_type", 255},
        {"cache_size", INT64_MAX}, {"cache_linesize", 1 << 20}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *text = uli_xml_attribute(attributes, rows[i].name);
        if (text && !is_number(text, rows[i].limit))
            screen_refuse(s, "not a number in range: ", rows[i].name);
    }
}

/* hwloc makes these two attributes of each node itself and never writes them;
 * if a file has them, hwloc ends the process. */
static void
check_memattr(struct screen *s, const char **attributes)
{
    const char *name = uli_xml_attribute(attributes, "name");
    if (name &&
        (strcmp(name, "Capacity") == 0 || strcmp(name, "Locality") == 0))
        screen_refuse(s, "a memory attribute that files do not have: ", name);
}

static void
on_object(struct screen *s, const char **attributes)
{
    const char *type = uli_xml_attribute(attributes, "type");
    int row = 0;
    while (type && row < TYPES && strcmp(types[row].type, type) != 0)
        row++;
    if (!type || row == TYPES) {
        screen_refuse(s, "object of an unknown type ", type ? type : "");
        return;
    }
    if (!may_contain(s->stack[s->xml.depth - 1], types[row].group) ||
        (row == 0) != (s->xml.depth == 1) || (row == 0 && s->machines++))
        screen_refuse(s, "object in the wrong place: ", type);
    check_object_sets(s, attributes, types[row].has_sets);
    if (types[row].group == BRIDGE)
        check_bridge(s, attributes);
    if (types[row].has_index && s->xml.status == ULYX_SUCCESS)
        check_index(s, attributes, strcmp(type, "PU") == 0);
    s->stack[s->xml.depth] = types[row].group;
}

static void
on_start(struct uli_xml *xml, const char *element, const char **attributes)
{
    struct screen *s = ULI_CONTAINER_OF(xml, struct screen, xml);
    s->stack[s->xml.depth] = s->xml.depth == 0 ? FILE_ROOT : NOTHING;
    check_numbers(s, attributes);
    check_sets(s, attributes);
    if (strcmp(element, "object") == 0 && s->xml.depth > 0)
        on_object(s, attributes);
    else if (strcmp(element, "memattr") == 0)
        check_memattr(s, attributes);
}

ulyx_status_t
uli_hwloc_screen(const char *text, size_t bytes, const char *name)
{
    struct screen s = {
        .xml = {
            .name = name, .on_start = on_start, .depth_max = DEPTH_MAX - 1}};
    ULI_TRY(uli_xml_read(&s.xml, text, bytes));
    if (s.machines == 0)
        return uli_error(
            ULYX_ERR_INVALID_ARGUMENT, "%s: no object of type Machine", name);
    return ULYX_SUCCESS;
}
