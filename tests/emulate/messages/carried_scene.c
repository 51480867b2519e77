/* SPDX-License-Identifier: Apache-2.0
 *
 * See carried_scene.h.
 */
#include "emulate/messages/carried_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/status.h"
#include "device/pinned.h"
#include "emulate.h"
#include "emulate/driver/driver.h"
#include "support/test.h"

void
carried_sleep(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

bool
carried_has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fprintf(stderr, "\"%s\" is not in \"%s\"\n", part, text);
    return strstr(text, part) != NULL;
}

bool
carried_error_has(const char *part)
{
    return carried_has(ulyx_last_error(), part);
}

/* ---- the machine --------------------------------------------------------- */

bool
carried_open(int devices, int host_threads)
{
    const struct emu_config config = {
        .devices = devices, .host_threads = host_threads, .wall_time = true};
    if (emu_open(&config))
        return false;
    emu_driver_no_peers(true);
    return true;
}

int
carried_close(void)
{
    size_t faults = emu_fault_count();
    emu_driver_no_peers(false);
    emu_close();
    int left = emu_driver_live(), pinned = uli_pinned_count();
    if (faults || left || pinned)
        fprintf(stderr, "left: %zu faults, %d objects, %d pinned ranges\n",
            faults, left, pinned);
    return faults || left || pinned;
}

/* ---- jobs ---------------------------------------------------------------- */

struct job *
carried_new(double timeout_s, int devices)
{
    struct job *job = calloc(1, sizeof(*job));
    job->w = calloc(1, sizeof(*job->w));
    job->w->ranks = &job->storage;
    job->storage.only = -1;
    job->timeout_s = timeout_s;
    job->devices = devices;
    return job;
}

void
carried_plain(struct job *job, int nranks, uint64_t seed)
{
    struct test_random random = {seed};
    job->storage.nranks = nranks;
    world_plain_case(job->w, nranks, 24, 4, 2, 8, ULYX_DTYPE_F16);
    assert_true(world_draw(job->w, &job->storage, &random, 0));
}

void
carried_end(struct job *job)
{
    world_free(job->w);
    carried_forget(job);
}

void
carried_forget(struct job *job)
{
    free(job->w);
    free(job);
}

void
carried_meet(struct job *job)
{
    int n = job->w->c.shape.nranks;
    int now = atomic_fetch_add(&job->met, 1) + 1;
    int all = (now + n - 1) / n * n;
    while (!job->processes && atomic_load(&job->met) < all)
        carried_sleep(1);
}

/* ---- images -------------------------------------------------------------- */

/* Returns the slot for the device address of a tensor's source or
 * destination. */
static unsigned char **
place_of(struct job *job, int op, int rank, int32_t t, bool dst)
{
    return dst ? &job->dst[op][rank][t] : &job->src[op][rank][t];
}

static struct image *
image_of(struct job *job, int op, int rank, int32_t t, bool dst)
{
    return dst ? &job->w->dst[op][rank][t] : &job->w->src[op][rank][t];
}

#define EACH_IMAGE(job, op, t, d)                                              \
    for (int op = 0; op < ULYX_DIRECTIONS; op++)                               \
        for (int32_t t = 0; t < (job)->w->c.shape.ntensors; t++)               \
            for (int d = 0; d < 2; d++)

static bool
make_images(struct job *job, int rank)
{
    bool good = true;
    EACH_IMAGE(job, op, t, d)
    good = good && well_cu(cudaMalloc((void **)place_of(job, op, rank, t, d),
                       (size_t)image_of(job, op, rank, t, d)->bytes + 1));
    return good && carried_upload(job, rank);
}

static void
free_images(struct job *job, int rank)
{
    EACH_IMAGE(job, op, t, d)
    cudaFree(*place_of(job, op, rank, t, d));
}

bool
carried_upload(struct job *job, int rank)
{
    bool good = true;
    EACH_IMAGE(job, op, t, d)
    {
        const struct image *image = image_of(job, op, rank, t, d);
        good = good && well_cu(cudaMemcpyAsync(*place_of(job, op, rank, t, d),
                           image->base, (size_t)image->bytes,
                           cudaMemcpyHostToDevice, job->streams[rank]));
    }
    return good && carried_sync(job, rank);
}

bool
carried_check(struct job *job, int rank, uint64_t directions)
{
    bool good = true;
    EACH_IMAGE(job, op, t, d)
    {
        struct image *image = image_of(job, op, rank, t, d);
        good = good && well_cu(cudaMemcpyAsync(image->base,
                           *place_of(job, op, rank, t, d), (size_t)image->bytes,
                           cudaMemcpyDeviceToHost, job->streams[rank]));
    }
    good = good && carried_sync(job, rank);
    for (int op = 0; good && op < ULYX_DIRECTIONS; op++)
        if (directions >> op & 1)
            good = world_check_rank(job->w, op, rank);
    return good;
}

/* ---- ranks --------------------------------------------------------------- */

ulyx_status_t
carried_execute(struct job *job, int rank, int op)
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
carried_sync(struct job *job, int rank)
{
    return well_cu(cudaStreamSynchronize(job->streams[rank]));
}

static bool
open_rank(struct job *job, int rank, int nranks)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    params.memory_kind = ULYX_MEMORY_CUDA;
    params.device = rank % job->devices;
    params.timeout_s = job->timeout_s;
    cudaSetDevice(params.device);
    return well(ulyx_comm_create(
               &job->id, nranks, rank, &params, &job->storage.comms[rank])) &&
           well_cu(cudaStreamCreateWithFlags(
               &job->streams[rank], cudaStreamNonBlocking));
}

/* The expected sums depend on the nodes, which the communicators have found. */
static bool
bring_images(struct job *job, int rank)
{
    carried_meet(job);
    /* the nodes are those of this rank's own communicator */
    if (job->processes)
        job->storage.only = rank;
    if (rank == 0 || job->processes)
        world_fill(job->w);
    carried_meet(job);
    return make_images(job, rank);
}

/* Makes the communicator, runs the case's play, and destroys everything. */
static int
rank_main(int rank, int nranks, void *context)
{
    struct job *job = context;
    if (job->processes && !carried_open(job->devices, 2))
        return 1;
    bool good = open_rank(job, rank, nranks);
    good = bring_images(job, rank) && good;
    good = good && job->play(job, rank) == 0;
    carried_meet(job);
    if (job->streams[rank])
        cudaStreamDestroy(job->streams[rank]);
    free_images(job, rank);
    if (job->w->plans[rank])
        good = well(ulyx_plan_destroy(job->w->plans[rank])) && good;
    job->w->plans[rank] = NULL;
    carried_meet(job);
    good = well(ulyx_comm_destroy(job->storage.comms[rank])) && good;
    if (job->processes)
        good = carried_close() == 0 && good;
    return !good;
}

int
carried_run(struct job *job, int (*play)(struct job *job, int rank),
    double limit_s, int victim)
{
    int nranks = job->w->c.shape.nranks, failed;
    job->play = play;
    assert_status(ulyx_unique_id_create(&job->id), ULYX_SUCCESS);
    if (!job->processes)
        return ranks_run_threads(nranks, rank_main, job, limit_s);
    if (victim < 0)
        return ranks_run_processes(nranks, rank_main, job, limit_s);
    pid_t *pids = ranks_shared(RANKS * sizeof(*pids));
    failed = ranks_run_processes_victim(
        nranks, rank_main, job, limit_s, victim, pids);
    ranks_shared_free(pids, RANKS * sizeof(*pids));
    return failed;
}

/* ---- what all batch transports' tests play ------------------------------- */

bool
carried_execute_all(struct job *job, int rank)
{
    bool good = true;
    for (int op = 0; good && op < ULYX_DIRECTIONS; op++)
        if (job->w->directions >> op & 1)
            good = well(carried_execute(job, rank, op));
    return good;
}

ulyx_status_t
carried_failure(struct job *job, int rank)
{
    ulyx_status_t now = ULYX_SUCCESS;
    for (int i = 0; i < 30000 && now == ULYX_SUCCESS; i++) {
        ulyx_comm_get_async_error(job->storage.comms[rank], &now);
        carried_sleep(1);
    }
    return now;
}

bool
carried_fails(struct job *job, int rank, ulyx_status_t wanted, const char *part)
{
    return ranks_expect(carried_failure(job, rank) == wanted) &&
           carried_sync(job, rank) &&
           ranks_expect(
               carried_execute(job, rank, ULYX_HEAD_TO_SEQ) == wanted) &&
           ranks_expect(carried_error_has(part));
}

int
carried_play_late(struct job *job, int rank, const char *part)
{
    bool good = well(world_create(job->w, rank));
    carried_meet(job);
    if (good && rank != job->w->c.shape.nranks - 1)
        good = well(carried_execute(job, rank, ULYX_HEAD_TO_SEQ)) &&
               carried_fails(job, rank, ULYX_ERR_TIMEOUT, part);
    carried_meet(job);
    return !good;
}

/* Checks that rank 0's call with strides other than those of creation is
 * refused. */
static bool
strides_refused(struct job *job, int rank)
{
    const void *none[ULI_TENSORS] = {NULL};
    void *nowhere[ULI_TENSORS] = {NULL};
    int64_t strides[ULI_TENSORS][3];
    bool good = true;
    for (int32_t t = 0; t < job->w->c.shape.ntensors; t++)
        for (int d = 0; d < 3; d++)
            strides[t][d] = job->w->strides[0][t][ULI_SIDE_SEQ][d] * 2;
    if (rank == 0)
        good = ranks_expect(ulyx_reshuffle_execute_strided(job->w->plans[0],
                                ULYX_SEQ_TO_HEAD, none,
                                (const int64_t(*)[3])strides, nowhere, NULL,
                                job->streams[0]) == ULYX_ERR_UNSUPPORTED) &&
               ranks_expect(carried_error_has("not those of creation"));
    else
        good = well(carried_execute(job, rank, ULYX_SEQ_TO_HEAD));
    good = good && carried_sync(job, rank);
    carried_meet(job);
    ulyx_status_t next =
        good ? carried_execute(job, rank, ULYX_HEAD_TO_SEQ) : ULYX_SUCCESS;
    return good &&
           ranks_expect(
               next == (rank ? ULYX_ERR_PEER_REFUSED : ULYX_SUCCESS)) &&
           carried_sync(job, rank);
}

int
carried_play_refusal(struct job *job, int rank)
{
    const void *none[ULI_TENSORS] = {NULL};
    void *nowhere[ULI_TENSORS] = {NULL};
    bool good = well(world_create(job->w, rank));
    if (good && rank == 0)
        good = ranks_expect(
            ulyx_reshuffle_execute(job->w->plans[0], ULYX_SEQ_TO_HEAD, none,
                nowhere, job->streams[0]) == ULYX_ERR_INVALID_ARGUMENT);
    else if (good)
        good = well(carried_execute(job, rank, ULYX_SEQ_TO_HEAD));
    good = good && carried_sync(job, rank);
    carried_meet(job);
    ulyx_status_t next =
        good ? carried_execute(job, rank, ULYX_HEAD_TO_SEQ) : ULYX_SUCCESS;
    good =
        good &&
        ranks_expect(next == (rank ? ULYX_ERR_PEER_REFUSED : ULYX_SUCCESS)) &&
        (rank == 0 ||
            (ranks_expect(carried_error_has("call 1: rank 0 refused")) &&
                ranks_expect(carried_error_has("src[0] is NULL"))));
    return !(good && carried_check(job, rank, 1u << ULYX_HEAD_TO_SEQ) &&
             strides_refused(job, rank));
}
