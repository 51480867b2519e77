/* SPDX-License-Identifier: Apache-2.0
 *
 * See port.h.
 */
#include "base/system/port.h"

#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "base/system/random.h"

/* Reads a decimal number from 1 to 65535; *end_p is where it ends. */
static bool
port_parse(const char *text, uint16_t *port_p, const char **end_p)
{
    size_t digits = strspn(text, "0123456789");
    long value = digits > 0 && digits <= 5 ? strtol(text, NULL, 10) : 0;

    *port_p = (uint16_t)value;
    *end_p = text + digits;
    return value >= 1 && value <= UINT16_MAX;
}

bool
uli_port_range_parse(const char *text, struct uli_port_range *range_p)
{
    struct uli_port_range range = {0};
    const char *end = text;

    if (*text && !port_parse(text, &range.first, &end))
        return false;
    range.last = range.first;
    if (*end == '-' && !port_parse(end + 1, &range.last, &end))
        return false;
    if (*end || range.last < range.first)
        return false;
    *range_p = range;
    return true;
}

struct uli_port_search
uli_port_search(struct uli_port_range range)
{
    struct uli_port_search search = {.range = range};

    /* Without randomness the search begins at the first port. */
    if (uli_random_bytes(&search.start, sizeof(search.start)) != ULYX_SUCCESS)
        search.start = 0;
    return search;
}

bool
uli_port_next(struct uli_port_search *search, uint16_t *port_p)
{
    uint32_t count = (uint32_t)(search->range.last - search->range.first) + 1;

    if (search->tried == count)
        return false;
    *port_p = (uint16_t)(search->range.first +
                         (search->start % count + search->tried) % count);
    search->tried++;
    return true;
}
