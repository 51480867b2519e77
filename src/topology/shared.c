/* SPDX-License-Identifier: Apache-2.0
 *
 * Descriptions that the process keeps: a list by topo_file ("" is this
 * machine), which only grows, so readers need no lock, and a fork finds none
 * taken. Two threads that load the same one at first keep the first.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "topology/graph.h"

struct kept {
    struct kept *next;
    struct uli_topology *topology;
    char file[ULI_SETTING_TEXT];
};

static _Atomic(struct kept *) all;

static struct kept *
shared_find(struct kept *list, const char *file)
{
    while (list && strcmp(list->file, file) != 0)
        list = list->next;
    return list;
}

const struct uli_topology *
uli_topology_shared(const struct uli_settings *settings)
{
    struct kept *list = atomic_load(&all);
    struct kept *found = shared_find(list, settings->topo_file);
    if (found)
        return found->topology;
    struct kept *mine = calloc(1, sizeof(*mine));
    if (!mine || uli_topology_load_some(settings, false, &mine->topology)) {
        free(mine);
        return NULL;
    }
    strcpy(mine->file, settings->topo_file);
    do {
        mine->next = list;
        found = shared_find(list, mine->file);
    } while (!found && !atomic_compare_exchange_weak(&all, &list, mine));
    if (!found)
        return mine->topology;
    uli_topology_free(mine->topology);
    free(mine);
    return found->topology;
}
