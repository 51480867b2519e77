/* SPDX-License-Identifier: Apache-2.0
 *
 * Scenes of faults; see fault_scene.h.
 */
#include "comm/memory/fault_scene.h"

#include "support/ranks.h"

struct shared *
shared_new(int nranks)
{
    struct shared *shared = ranks_shared(sizeof(*shared));
    shared->meet = meet_new(nranks);
    return shared;
}

void
shared_free(struct shared *shared)
{
    meet_free(shared->meet);
    ranks_shared_free(shared, sizeof(*shared));
}

ulyx_mem_t *
new_window(void)
{
    ulyx_mem_t *mem = NULL;
    void *address;
    return ulyx_mem_alloc(BYTES, NULL, &mem, &address) ? NULL : mem;
}
