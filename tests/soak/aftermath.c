/* SPDX-License-Identifier: Apache-2.0
 *
 * See aftermath.h.
 */
#include "soak/aftermath.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/system/clock.h"
#include "support/ranks.h"

void
aftermath_note(_Atomic int64_t *longest_ns, int64_t since_ns)
{
    int64_t took = uli_clock_ns() - since_ns;
    int64_t longest = atomic_load(longest_ns);
    while (took > longest &&
           !atomic_compare_exchange_weak(longest_ns, &longest, took))
        ;
}

int32_t
aftermath_go_on(
    ulyx_comm_t *comm, enum scene_path path, int64_t rows, int calls)
{
    ulyx_comm_t *fewer = NULL;
    struct scene s;
    int32_t nranks = 0;
    if (!ranks_expect(ulyx_comm_shrink(comm, NULL, &fewer) == ULYX_SUCCESS)) {
        fprintf(stderr, "shrink: %s\n", ulyx_last_error());
        return 0;
    }
    ulyx_comm_get_nranks(fewer, &nranks);
    bool good = ranks_expect(scene_open(fewer, path, rows, &s) == 0);
    for (int i = 0; good && i < calls; i++) {
        ulyx_direction_t op =
            i % 2 ? ULYX_SEQ_TO_HEAD_ADJOINT : ULYX_SEQ_TO_HEAD;
        good = ranks_expect(scene_execute(&s, op) == ULYX_SUCCESS) &&
               ranks_expect(scene_check(&s, op));
    }
    good = good && ranks_expect(scene_close(&s, 10));
    /* No rank leaves while another rank still sends to it. */
    good = good && ranks_expect(ulyx_comm_barrier(fewer) == ULYX_SUCCESS);
    good = ranks_expect(ulyx_comm_destroy(fewer) == ULYX_SUCCESS) && good;
    return good ? nranks : 0;
}
