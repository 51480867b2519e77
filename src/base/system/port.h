/* SPDX-License-Identifier: Apache-2.0
 *
 * The ports at which the library may listen when it chooses the port itself,
 * for sites whose firewalls open a range.
 */
#ifndef ULI_BASE_SYSTEM_PORT_H
#define ULI_BASE_SYSTEM_PORT_H

#include <stdbool.h>
#include <stdint.h>

/* Both ends included. first = 0: any port that the system gives. */
struct uli_port_range {
    uint16_t first, last;
};

/* Reads "29600-29699", one port "29600", or "" for any port. False: text is
 * none of these. */
bool uli_port_range_parse(const char *text, struct uli_port_range *range_p);

/* A search that yields each port of a range once, beginning at a random port,
 * so that ranks of a host that search at the same time seldom try the same
 * port. For the range "any port" it yields 0, once. */
struct uli_port_search {
    struct uli_port_range range;
    uint32_t start, tried;
};
struct uli_port_search uli_port_search(struct uli_port_range range);
/* The next port of the search. False: all have been tried. */
bool uli_port_next(struct uli_port_search *search, uint16_t *port_p);

#endif
