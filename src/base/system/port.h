/* SPDX-License-Identifier: Apache-2.0
 *
 * Ports that the library may listen at where the port is its own choice, for
 * sites whose firewalls open a range.
 */
#ifndef ULI_BASE_SYSTEM_PORT_H
#define ULI_BASE_SYSTEM_PORT_H

#include <stdbool.h>
#include <stdint.h>

/* Both ends included. first = 0: any port that the system gives. */
struct uli_port_range {
    uint16_t first, last;
};

/* "29600-29699", one port "29600", or "" for any. False: none of these. */
bool uli_port_range_parse(const char *text, struct uli_port_range *range_p);

/* The ports of a range, each once, beginning at a random one, so that ranks of
 * a host that look at the same time seldom try the same port. For the range
 * "any port": 0, once. */
struct uli_port_search {
    struct uli_port_range range;
    uint32_t start, tried;
};
struct uli_port_search uli_port_search(struct uli_port_range range);
/* False: all have been tried. */
bool uli_port_next(struct uli_port_search *search, uint16_t *port_p);

#endif
