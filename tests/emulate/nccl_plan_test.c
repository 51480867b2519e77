/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans by NCCL through the public calls, on emulated devices whose memory
 * cannot be mapped: a thread a rank, an NCCL with kernels of its own. Every
 * byte against obvious placement; a rank that does not come, refusals, a
 * library that is not there.
 */
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/status.h"
#include "collectives/reshuffle_world.h"
#include "emulate.h"
#include "emulate/driver/driver.h"
#include "emulate/fake_nccl_kernels.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/test.h"

enum { RANKS = 3 };
#define LATE_S 6.0 /* and for the plan to be made */

static struct fake_nccl *fake;

struct job {
    struct world *w;
    struct world_ranks storage;
    ulyx_unique_id_t id;
    double timeout_s;
    int devices;
    int (*play)(struct job *job, int rank);
    _Atomic int met;
    cudaStream_t streams[RANKS];
    unsigned char *src[ULYX_OPERATIONS][RANKS][ULI_TENSORS];
    unsigned char *dst[ULYX_OPERATIONS][RANKS][ULI_TENSORS];
};

#define well(call)    ranks_expect((call) == ULYX_SUCCESS)
#define well_cu(call) ranks_expect((call) == cudaSuccess)

static void
sleep_ms(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static bool
says(const char *part)
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

static int
set_up(void **state)
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

static int
tear_down(void **state)
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
static void
meet(struct job *job)
{
    int n = job->w->c.shape.nranks;
    int now = atomic_fetch_add(&job->met, 1) + 1;
    int all = (now + n - 1) / n * n;
    while (atomic_load(&job->met) < all)
        sleep_ms(1);
}

static bool
make_images(struct job *job, int rank)
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
                good = well_cu(cudaMalloc(
                           (void **)to[i], (size_t)from[i]->bytes + 1)) &&
                       well_cu(cudaMemcpy(*to[i], from[i]->base,
                           (size_t)from[i]->bytes, cudaMemcpyHostToDevice));
        }
    return good;
}

static bool
bring_back(struct job *job, int rank, bool release)
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

static ulyx_status_t
execute(struct job *job, int rank, int op)
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

static bool
sync(struct job *job, int rank)
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
    good = good && make_images(job, rank);
    good = good && job->play(job, rank) == 0;
    meet(job);
    good = bring_back(job, rank, true) && good;
    if (job->streams[rank])
        cudaStreamDestroy(job->streams[rank]);
    if (job->w->plans[rank])
        good = well(ulyx_plan_destroy(job->w->plans[rank])) && good;
    job->w->plans[rank] = NULL;
    meet(job);
    return !(well(ulyx_comm_destroy(job->storage.comms[rank])) && good);
}

static void
run(struct job *job, int (*play)(struct job *job, int rank))
{
    job->play = play;
    assert_status(ulyx_unique_id_create(&job->id), ULYX_SUCCESS);
    world_fill(job->w);
    assert_int_equal(
        ranks_run_threads(job->w->c.shape.nranks, rank_main, job, 90), 0);
}

static struct job *
new_job(double timeout_s)
{
    struct job *job = calloc(1, sizeof(*job));
    job->w = calloc(1, sizeof(*job->w));
    job->w->ranks = &job->storage;
    job->storage.only = -1;
    job->timeout_s = timeout_s;
    job->devices = RANKS;
    return job;
}

static void
plain(struct job *job, uint64_t seed)
{
    struct test_random random = {seed};
    job->storage.nranks = RANKS;
    world_plain_case(job->w, RANKS, 24, 4, 2, 8, ULYX_DTYPE_F16);
    assert_true(world_draw(job->w, &job->storage, &random, 0));
}

static void
end_job(struct job *job)
{
    world_free(job->w);
    free(job->w);
    free(job);
}

/* ---- every byte ---------------------------------------------------------- */

static int
play_all(struct job *job, int rank)
{
    char text[1024] = "";
    bool good = well(world_create(job->w, rank));
    good = good &&
           well(ulyx_plan_describe(job->w->plans[rank], text, sizeof(text)));
    good = good && ranks_expect(strstr(text, "nccl 2.28.9") != NULL) &&
           ranks_expect(job->w->c.shape.nranks == 1 || job->devices == 1 ||
                        strstr(text, "cannot be mapped") != NULL);
    for (int round = 0; good && round < 2; round++)
        for (int op = 0; good && op < ULYX_OPERATIONS; op++)
            if (job->w->operations >> op & 1)
                good = well(execute(job, rank, op));
    return !(good && sync(job, rank));
}

static void
every_byte_of_every_operation(void **state)
{
    (void)state;
    struct test_random random = {test_seed(501)};
    for (int64_t draw = 0; draw < test_draws(3); draw++) {
        struct job *job = new_job(30);
        case_random(&job->w->c, &random, RANKS, draw % 3 == 2);
        job->storage.nranks = job->w->c.shape.nranks;
        job->w->salt = draw;
        /* one device for all: mapped, and asked for all the same */
        job->devices = draw % 3 == 1 || job->storage.nranks == 1 ? 1 : RANKS;
        job->w->algo = job->devices == 1 ? "nccl" : NULL;
        if (world_draw(job->w, &job->storage, &random, 0)) {
            job->w->algo = job->devices == 1 ? "nccl" : NULL;
            run(job, play_all);
            job->w->norder = 0;
            for (int op = 0; op < ULYX_OPERATIONS; op++)
                if (job->w->operations >> op & 1)
                    job->w->order[job->w->norder++] = op;
            assert_true(world_check(job->w));
            world_free(job->w);
        }
        free(job->w);
        free(job);
    }
}

/* ---- a rank that does not come ------------------------------------------- */

static int
play_late(struct job *job, int rank)
{
    ulyx_comm_t *comm = job->storage.comms[rank];
    ulyx_status_t now = ULYX_SUCCESS;
    bool good = well(world_create(job->w, rank));
    meet(job);
    if (!good || rank == RANKS - 1) {
        meet(job);
        return !good;
    }
    good = well(execute(job, rank, ULYX_HEAD_TO_SEQ));
    for (int i = 0; i < 30000 && now == ULYX_SUCCESS; i++) {
        ulyx_comm_get_async_error(comm, &now);
        sleep_ms(1);
    }
    good = good && ranks_expect(now == ULYX_ERR_TIMEOUT) && sync(job, rank);
    good = good &&
           ranks_expect(
               execute(job, rank, ULYX_HEAD_TO_SEQ) == ULYX_ERR_TIMEOUT) &&
           says("call 1: not ended after 6 s: rank 2 has not reached it");
    meet(job);
    return !good;
}

static void
a_missing_rank_is_named_and_streams_end(void **state)
{
    (void)state;
    struct job *job = new_job(LATE_S);
    plain(job, 3);
    run(job, play_late);
    end_job(job);
}

/* ---- refusals ------------------------------------------------------------ */

static int
play_refusal(struct job *job, int rank)
{
    const void *none[ULI_TENSORS] = {NULL};
    void *nowhere[ULI_TENSORS] = {NULL};
    bool good = well(world_create(job->w, rank));
    if (good && rank == 0)
        good = ranks_expect(
            ulyx_reshuffle_execute(job->w->plans[0], ULYX_SEQ_TO_HEAD, none,
                nowhere, job->streams[0]) == ULYX_ERR_INVALID_ARGUMENT);
    else if (good)
        good = well(execute(job, rank, ULYX_SEQ_TO_HEAD));
    good = good && sync(job, rank);
    meet(job);
    ulyx_status_t next = good ? execute(job, rank, ULYX_HEAD_TO_SEQ) : 0;
    good =
        good &&
        ranks_expect(next == (rank ? ULYX_ERR_PEER_REFUSED : ULYX_SUCCESS)) &&
        (rank == 0 || says("call 1: rank 0 refused"));
    return !(good && sync(job, rank));
}

static void
a_refusal_is_told_and_the_next_call_is_well(void **state)
{
    (void)state;
    struct job *job = new_job(30);
    plain(job, 4);
    run(job, play_refusal);
    job->w->norder = 1;
    job->w->order[0] = ULYX_HEAD_TO_SEQ;
    for (int32_t r = 0; r < RANKS; r++)
        assert_true(world_check_rank(job->w, ULYX_HEAD_TO_SEQ, r));
    end_job(job);
}

static int
play_without(struct job *job, int rank)
{
    return !(ranks_expect(world_create(job->w, rank) == ULYX_ERR_UNSUPPORTED) &&
             says("rank 0: nccl: /nowhere/libnccl.so"));
}

static void
without_the_library_no_plan_is_made(void **state)
{
    (void)state;
    struct job *job = new_job(30);
    plain(job, 5);
    job->w->algo = "nccl";
    setenv("ULYX_NCCL_LIB", "/nowhere/libnccl.so", 1);
    run(job, play_without);
    end_job(job);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
static const struct CMUnitTest tests[] = {
    CASE(every_byte_of_every_operation),
    CASE(a_missing_rank_is_named_and_streams_end),
    CASE(a_refusal_is_told_and_the_next_call_is_well),
    CASE(without_the_library_no_plan_is_made),
};

ULI_TEST_MAIN("EmulateNcclPlan", tests)
