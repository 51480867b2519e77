/* SPDX-License-Identifier: Apache-2.0
 *
 * The names of the peers of a card's bench.
 */
#include <string.h>
#include "attention/kernelcheck/bench/bench_card.h"

const char *const kc_peer_names[KC_PEERS] = {"cudnn", "fa2", "fa3", "fa4"};

bool
kc_peers_known(const char *names)
{
    if (strcmp(names, "torch") == 0)
        return true;
    for (const char *at = names; *at;) {
        size_t length = strcspn(at, ",");
        bool known = false;
        for (int n = 0; n < KC_PEERS; n++)
            known = known || (strlen(kc_peer_names[n]) == length &&
                                 strncmp(at, kc_peer_names[n], length) == 0);
        if (!known)
            return false;
        at += length + (at[length] == ',');
    }
    return *names != 0;
}
