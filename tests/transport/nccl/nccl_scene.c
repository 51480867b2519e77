/* SPDX-License-Identifier: Apache-2.0
 *
 * See nccl_scene.h.
 */
#include "transport/nccl/nccl_scene.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "support/ranks.h"
#include "transport/batch_conformance.h"
#include "transport/nccl/fake_nccl.h"

enum { MOST = 256 };

static struct fake_nccl *fake;
static struct uli_settings settings;
static void *memory[BATCH_RANKS][MOST];
static int used[BATCH_RANKS];

int
nccl_scene_open(void)
{
    void *library = dlopen(FAKE_NCCL_OK, RTLD_NOW);
    fake = library ? dlsym(library, "fake_nccl") : NULL;
    if (!fake)
        return -1;
    *fake = (struct fake_nccl){.version = 22809};
    setenv("ULYX_NCCL_LIB", FAKE_NCCL_OK, 1);
    return (int)uli_settings_load(&settings);
}

int
nccl_scene_close(void)
{
    return fake->alive;
}

bool
nccl_scene_begin(int rank, int nranks, struct uli_batch_params *params_p)
{
    *params_p = (struct uli_batch_params){.rank = rank,
        .nranks = nranks,
        .memory_kind = ULYX_MEMORY_HOST,
        .settings = &settings};
    return true;
}

bool
nccl_scene_end(int rank)
{
    while (used[rank] > 0)
        free(memory[rank][--used[rank]]);
    return true;
}

void *
nccl_scene_alloc(int rank, size_t bytes)
{
    void *made = used[rank] < MOST ? malloc(bytes) : NULL;
    if (made)
        memory[rank][used[rank]++] = made;
    return made;
}

bool
nccl_scene_copy(int rank, void *dst, const void *src, size_t bytes)
{
    (void)rank;
    memcpy(dst, src, bytes);
    return true;
}

void *
nccl_scene_stream(int rank)
{
    (void)rank;
    return NULL;
}

/* Waits for all ranks, because the library counts their groups together. */
bool
nccl_scene_settle(int rank)
{
    const struct timespec look = {0, 100000};
    (void)rank;
    for (int i = 0; i < 200000; i++) {
        if (__atomic_load_n(&fake->ended, __ATOMIC_ACQUIRE) ==
            __atomic_load_n(&fake->groups, __ATOMIC_ACQUIRE))
            return true;
        nanosleep(&look, NULL);
    }
    return ranks_expect(!"what was enqueued has ended");
}
