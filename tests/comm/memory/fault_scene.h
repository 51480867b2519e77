/* SPDX-License-Identifier: Apache-2.0
 *
 * The state that the processes of a fault scene share.
 */
#ifndef TESTS_COMM_MEMORY_FAULT_SCENE_H
#define TESTS_COMM_MEMORY_FAULT_SCENE_H

#include <sys/types.h>
#include "comm/meet.h"
#include "comm/memory/mem.h"

enum { RANKS = 3, VICTIM = 1, BYTES = 1 << 16 };

struct shared {
    pid_t pids[16];
    struct meet *meet;
    _Atomic int cycles; /* of attach and detach, all ranks */
    _Atomic int stage;  /* scenes that go step by step */
    int64_t kill_after_us;
    bool no_peerpidfd; /* as on kernels before 6.5 */
    _Atomic int64_t killed_ns;
};

struct shared *shared_new(int nranks);
void shared_free(struct shared *shared);

/* A window of BYTES bytes; NULL on failure. */
ulyx_mem_t *new_window(void);

#endif
