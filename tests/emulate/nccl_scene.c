/* SPDX-License-Identifier: Apache-2.0
 *
 * See nccl_scene.h.
 */
#include "emulate/nccl_scene.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/status.h"
#include "emulate.h"
#include "emulate/driver/driver.h"
#include "emulate/fake_nccl_kernels.h"

static struct fake_nccl *fake;

void
scene_sleep_ms(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

bool
scene_says(const char *part)
{
    bool does = strstr(ulyx_last_error(), part) != NULL;
    if (!does)
        fprintf(stderr, "\"%s\" is not in \"%s\"\n", part, ulyx_last_error());
    return does;
}

/* ---- the machine --------------------------------------------------------- */

static void *
host_room(size_t bytes)
{
    void *memory = NULL;
    return cudaHostAlloc(&memory, bytes, cudaHostAllocMapped) == cudaSuccess
               ? memory
               : NULL;
}

static void
host_release(void *memory)
{
    cudaFreeHost(memory);
}

int
scene_set_up(void **state)
{
    const struct emu_config config = {
        .devices = RANKS, .host_threads = RANKS, .wall_time = true};
    void *library = dlopen(FAKE_NCCL_OK, RTLD_NOW);
    (void)state;
    fake = library ? dlsym(library, "fake_nccl") : NULL;
    if (!fake || emu_open(&config))
        return -1;
    *fake = (struct fake_nccl){.version = 22809,
        .alloc = host_room,
        .release = host_release,
        .launch = fake_nccl_kernels_launch};
    emu_driver_no_peers(true);
    return setenv("ULYX_NCCL_LIB", FAKE_NCCL_OK, 1);
}

int
scene_tear_down(void **state)
{
    (void)state;
    size_t faults = emu_fault_count();
    emu_driver_no_peers(false);
    emu_close();
    if (faults || fake->alive || emu_driver_live())
        fprintf(stderr, "left: %zu faults, %d NCCL communicators, %d objects\n",
            faults, fake->alive, emu_driver_live());
    return faults || fake->alive || emu_driver_live();
}

/* ---- ranks --------------------------------------------------------------- */

/* All ranks are here, or one has given up. */
void
scene_meet(struct job *job)
{
    int n = job->w->c.shape.nranks;
    int now = atomic_fetch_add(&job->met, 1) + 1;
    int all = (now + n - 1) / n * n;
    while (atomic_load(&job->met) < all)
        scene_sleep_ms(1);
}

/* Sources and poisoned destinations; the first time with their memory. */
bool
scene_put_images(struct job *job, int rank)
{
    bool good = true;
    for (int op = 0; op < ULYX_OPERATIONS; op++)
        for (int32_t t = 0; good && t < job->w->c.shape.ntensors; t++) {
            struct image *src = &job->w->src[op][rank][t];
            struct image *dst = &job->w->dst[op][rank][t];
            unsigned char **to[2] = {
                &job->src[op][rank][t], &job->dst[op][rank][t]};
            const struct image *from[2] = {src, dst};
            for (int i = 0; good && i < 2; i++)
                good = (*to[i] || well_cu(cudaMalloc((void **)to[i],
                                      (size_t)from[i]->bytes + 1))) &&
                       well_cu(cudaMemcpy(*to[i], from[i]->base,
                           (size_t)from[i]->bytes, cudaMemcpyHostToDevice));
        }
    return good;
}

bool
scene_bring_back(struct job *job, int rank, bool release)
{
    bool good = true;
    for (int op = 0; op < ULYX_OPERATIONS; op++)
        for (int32_t t = 0; t < job->w->c.shape.ntensors; t++) {
            struct image *dst = &job->w->dst[op][rank][t];
            good = well_cu(cudaMemcpy(dst->base, job->dst[op][rank][t],
                       (size_t)dst->bytes, cudaMemcpyDeviceToHost)) &&
                   good;
            if (release) {
                cudaFree(job->src[op][rank][t]);
                cudaFree(job->dst[op][rank][t]);
            }
        }
    return good;
}

ulyx_status_t
scene_execute(struct job *job, int rank, int op)
{
    const void *src[ULI_TENSORS] = {NULL};
    void *dst[ULI_TENSORS] = {NULL};
    for (int32_t t = 0; t < job->w->c.shape.ntensors; t++) {
        struct image *from = &job->w->src[op][rank][t];
        struct image *to = &job->w->dst[op][rank][t];
        src[t] = from->data ? job->src[op][rank][t] + from->at : NULL;
        dst[t] = to->data ? job->dst[op][rank][t] + to->at : NULL;
    }
    return ulyx_reshuffle_execute(
        job->w->plans[rank], op, src, dst, job->streams[rank]);
}

bool
scene_sync(struct job *job, int rank)
{
    return well_cu(cudaStreamSynchronize(job->streams[rank]));
}

/* Communicator, plan, what the case plays, and their ends. */
static int
rank_main(int rank, int nranks, void *context)
{
    struct job *job = context;
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    params.memory_kind = ULYX_MEMORY_CUDA;
    params.device = rank % job->devices + 1;
    params.timeout_s = job->timeout_s;
    cudaSetDevice(rank % job->devices);
    bool good = well(ulyx_comm_create(
        &job->id, nranks, rank, &params, &job->storage.comms[rank]));
    good = good && well_cu(cudaStreamCreateWithFlags(
                       &job->streams[rank], cudaStreamNonBlocking));
    good = good && scene_put_images(job, rank);
    good = good && job->play(job, rank) == 0;
    scene_meet(job);
    good = scene_bring_back(job, rank, true) && good;
    scene_meet(job);
    if (rank == 0 && job->whole && good)
        good = ranks_expect(world_check(job->w));
    if (job->streams[rank])
        cudaStreamDestroy(job->streams[rank]);
    if (job->w->plans[rank])
        good = well(ulyx_plan_destroy(job->w->plans[rank])) && good;
    job->w->plans[rank] = NULL;
    scene_meet(job);
    good = well(ulyx_comm_destroy(job->storage.comms[rank])) && good;
    job->storage.comms[rank] = NULL;
    return !good;
}

void
scene_run(struct job *job, int (*play)(struct job *job, int rank))
{
    job->play = play;
    assert_status(ulyx_unique_id_create(&job->id), ULYX_SUCCESS);
    world_fill(job->w);
    assert_int_equal(
        ranks_run_threads(job->w->c.shape.nranks, rank_main, job, 90), 0);
}

struct job *
scene_new_job(double timeout_s)
{
    struct job *job = calloc(1, sizeof(*job));
    job->w = calloc(1, sizeof(*job->w));
    job->w->ranks = &job->storage;
    job->storage.only = -1;
    job->timeout_s = timeout_s;
    job->devices = RANKS;
    return job;
}

void
scene_plain(struct job *job, uint64_t seed)
{
    struct test_random random = {seed};
    job->storage.nranks = RANKS;
    world_plain_case(job->w, RANKS, 24, 4, 2, 8, ULYX_DTYPE_F16);
    assert_true(world_draw(job->w, &job->storage, &random, 0));
}

void
scene_end_job(struct job *job)
{
    world_free(job->w);
    free(job->w);
    free(job);
}

void
scene_list_operations(struct world *w)
{
    w->norder = 0;
    for (int op = 0; op < ULYX_OPERATIONS; op++)
        if (w->operations >> op & 1)
            w->order[w->norder++] = op;
}
