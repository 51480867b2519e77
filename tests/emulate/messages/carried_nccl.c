/* SPDX-License-Identifier: Apache-2.0
 *
 * See carried_nccl.h.
 */
#include "emulate/messages/carried_nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include "emulate/messages/fake_nccl_kernels.h"
#include "support/test.h"

static struct fake_nccl *fake;

int
carried_nccl_set_up(void **state)
{
    (void)state;
    fake = fake_nccl_load();
    if (!fake || !carried_open(RANKS, RANKS))
        return -1;
    return setenv("ULYX_NCCL_LIB", FAKE_NCCL_OK, 1);
}

int
carried_nccl_tear_down(void **state)
{
    (void)state;
    if (fake->alive)
        fprintf(stderr, "left: %d NCCL communicators\n", fake->alive);
    return carried_close() || fake->alive;
}

void
carried_nccl_run(struct job *job, int (*play)(struct job *job, int rank))
{
    int failed = carried_run(job, play, 90, -1);
    carried_end(job);
    assert_int_equal(failed, 0);
}
