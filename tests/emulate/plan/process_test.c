/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans on device memory between processes, each with an emulator of its own.
 * Device memory is memfds, so kernels of one process read what those of another
 * have stored. Every byte of a rank's images is checked. A rank that is killed
 * in the middle of an exchange, or stopped, is named by the others. Races
 * across processes are not detected, and waiting kernels poll every 0.2 ms.
 */
#include <cuda_runtime.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/status.h"
#include "collectives/exchange/reshuffle_world.h"
#include "comm/meet.h"
#include "emulate.h"
#include "emulate/driver/driver.h"
#include "support/ranks.h"
#include "support/test.h"

enum { RANKS = 4, WINDOW_BYTES = 1 << 20, VICTIM = 1 };

#define well(call)    ranks_expect((call) == ULYX_SUCCESS)
#define well_cu(call) ranks_expect((call) == cudaSuccess)

/* Shared by all ranks. */
struct job {
    struct meet *meet;
    int devices; /* rank r is on device r mod devices */
    int64_t draws;
    uint64_t seed;
    double timeout_s;
    int signal;  /* the signal that the victim raises */
    pid_t *pids; /* process ids of the ranks */
    /* shared: survivors that have not found the failure yet */
    _Atomic int *left;
};

/* The state of one process. */
struct rank {
    int32_t me, nranks, device;
    struct world_ranks ranks;
    struct world *w;
    ulyx_mem_t *mem;
    unsigned char *window;
    int64_t used;
    cudaStream_t stream;
    unsigned char *src[ULYX_DIRECTIONS][ULI_TENSORS];
    unsigned char *dst[ULYX_DIRECTIONS][ULI_TENSORS];
};

/* ---- a rank -------------------------------------------------------------- */

static bool
open_rank(struct rank *k, const struct job *job, int me, int nranks)
{
    const struct emu_config config = {.devices = job->devices,
        .sm_count = 4,
        /* one more than here: time must pass as in the other processes */
        .host_threads = 2,
        .wall_time = true,
        .processes = true};
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    ulyx_mem_params_t memory = ULYX_MEM_PARAMS_INIT;
    void *address = NULL;
    memset(k, 0, sizeof(*k));
    k->me = k->ranks.only = me;
    k->nranks = k->ranks.nranks = nranks;
    k->device = me % job->devices;
    params.memory_kind = memory.memory_kind = ULYX_MEMORY_CUDA;
    params.device = memory.device = k->device;
    params.timeout_s = job->timeout_s;
    if (!ranks_expect(emu_open(&config) == 0) ||
        !well(meet_comm_by(job->meet, me, &params, &k->ranks.comms[me])) ||
        !well(ulyx_mem_alloc(WINDOW_BYTES, &memory, &k->mem, &address)) ||
        !well(ulyx_mem_attach(k->ranks.comms[me], k->mem)))
        return false;
    k->window = address;
    return well_cu(cudaSetDevice(k->device)) &&
           well_cu(
               cudaStreamCreateWithFlags(&k->stream, cudaStreamNonBlocking));
}

static bool
close_rank(struct rank *k)
{
    ulyx_comm_t *comm = k->ranks.comms[k->me];
    bool good = well_cu(cudaStreamDestroy(k->stream)) &
                well(ulyx_mem_detach(comm, k->mem)) &
                well(ulyx_mem_free(k->mem)) & well(ulyx_comm_destroy(comm));
    good = ranks_expect(emu_driver_live() == 0) && good;
    good = ranks_expect(emu_fault_count() == 0) && good;
    emu_close();
    return good;
}

static unsigned char *
rank_place(struct rank *k, const struct image *image)
{
    unsigned char *at = k->window + k->used;
    k->used += (image->bytes + 63) / 64 * 64;
    return at;
}

/* Makes the world of the case, which is the same in all processes, and this
 * rank's plan. */
static bool
rank_create(struct rank *k, struct test_random *random)
{
    struct world *w = k->w;
    if (!world_draw(w, &k->ranks, random, 0)) {
        uli_layout_destroy(w->layout);
        return false;
    }
    k->used = 0;
    for (int op = 0; op < ULYX_DIRECTIONS; op++)
        for (int32_t t = 0; t < w->c.shape.ntensors; t++) {
            k->src[op][t] = rank_place(k, &w->src[op][k->me][t]);
            k->dst[op][t] = rank_place(k, &w->dst[op][k->me][t]);
        }
    return ranks_expect(k->used <= WINDOW_BYTES) &&
           well(world_create(w, k->me));
}

static bool
rank_drop(struct rank *k)
{
    bool good = well(ulyx_plan_destroy(k->w->plans[k->me]));
    world_free(k->w);
    return good;
}

static bool
rank_move(struct rank *k, int op, bool up)
{
    bool good = true;
    for (int32_t t = 0; t < k->w->c.shape.ntensors; t++) {
        struct image *images[2] = {
            &k->w->src[op][k->me][t], &k->w->dst[op][k->me][t]};
        unsigned char *there[2] = {k->src[op][t], k->dst[op][t]};
        for (int i = 0; i < 2; i++)
            good =
                well_cu(cudaMemcpyAsync(up ? there[i] : images[i]->base,
                    up ? images[i]->base : there[i], (size_t)images[i]->bytes,
                    cudaMemcpyDefault, k->stream)) &&
                good;
    }
    return good;
}

static ulyx_status_t
rank_execute(struct rank *k, int op)
{
    const void *src[ULI_TENSORS];
    void *dst[ULI_TENSORS];
    for (int32_t t = 0; t < k->w->c.shape.ntensors; t++) {
        const struct image *from = &k->w->src[op][k->me][t];
        const struct image *to = &k->w->dst[op][k->me][t];
        src[t] = from->data ? k->src[op][t] + from->at : NULL;
        dst[t] = to->data ? k->dst[op][t] + to->at : NULL;
    }
    return ulyx_reshuffle_execute(k->w->plans[k->me], op, src, dst, k->stream);
}

static bool
rank_exchange(struct rank *k, int op)
{
    return rank_move(k, op, true) && well(rank_execute(k, op)) &&
           rank_move(k, op, false) &&
           well_cu(cudaStreamSynchronize(k->stream)) &&
           ranks_expect(world_check_rank(k->w, op, k->me));
}

/* ---- every byte ---------------------------------------------------------- */

/* Draws a case for all ranks whose images fit into the window. */
static void
draw_case(struct oracle_case *c, struct test_random *random, int32_t nranks)
{
    do
        case_random(c, random, nranks, test_random_in(random, 0, 2) == 0);
    while (c->shape.nranks != nranks);
}

static int
rank_play(int me, int nranks, void *context)
{
    const struct job *job = context;
    struct test_random random = {job->seed};
    struct world *w = calloc(1, sizeof(*w));
    struct rank k;
    bool good = ranks_expect(w != NULL) && open_rank(&k, job, me, nranks);
    for (int64_t i = 0; i < job->draws && good;) {
        memset(w, 0, sizeof(*w));
        k.w = w;
        draw_case(&w->c, &random, nranks);
        w->salt = i;
        w->max_sms = 1;
        if (!rank_create(&k, &random))
            continue; /* the layout refuses the case, in all processes alike */
        world_fill(w);
        for (int turn = 0; turn < 2; turn++)
            for (int op = 0; op < ULYX_DIRECTIONS && good; op++)
                if (w->directions >> op & 1)
                    good = rank_exchange(&k, op);
        good = rank_drop(&k) && good;
        i++;
    }
    free(w);
    return !(good && close_rank(&k));
}

static void
every_byte_arrives_in_processes(void **state)
{
    (void)state;
    for (int nranks = 2; nranks <= RANKS; nranks += 2)
        for (int devices = 1; devices <= nranks; devices += nranks - 1) {
            struct job job = {.meet = meet_new(nranks),
                .devices = devices,
                .timeout_s = 60,
                .draws = test_draws(3),
                .seed = test_seed(701) + (uint64_t)(nranks + devices)};
            assert_int_equal(
                ranks_run_processes(nranks, rank_play, &job, 100), 0);
            meet_free(job.meet);
        }
}

/* ---- a rank that ends or stands still ------------------------------------ */

static bool
plain_plan(struct rank *k, struct world *w)
{
    struct test_random random = {702};
    world_plain_case(w, k->nranks, 37, 8, 4, 5, ULYX_DTYPE_BF16);
    w->fixed_limits = true;
    w->slot_bytes = -1;
    k->w = w;
    if (!rank_create(k, &random))
        return false;
    world_fill(w);
    return true;
}

/* Checks the state of a survivor when its call with the victim has ended. */
static bool
is_named(struct rank *k, ulyx_status_t expected, const char *words)
{
    ulyx_status_t status = ULYX_SUCCESS;
    bool good =
        well_cu(cudaStreamSynchronize(k->stream)) &&
        well(ulyx_comm_get_async_error(k->ranks.comms[k->me], &status)) &&
        ranks_expect(status == expected) &&
        ranks_expect(strstr(ulyx_last_error(), words) != NULL);
    if (!good)
        fprintf(stderr, "rank %d: %s: %s\n", k->me, ulyx_status_name(status),
            ulyx_last_error());
    return good && ranks_expect(rank_execute(k, 0) == expected);
}

/* The victim takes part in call 1. It raises its signal in the middle of call
 * 2, while the kernels of its peers wait. */
static int
rank_lose(int me, int nranks, void *context)
{
    const struct job *job = context;
    struct world *w = calloc(1, sizeof(*w));
    struct rank k;
    bool good = ranks_expect(w != NULL) && open_rank(&k, job, me, nranks) &&
                plain_plan(&k, w) && rank_exchange(&k, 0) &&
                rank_move(&k, 0, true);
    if (me == VICTIM) {
        raise(job->signal);
        _exit(0); /* resumed: no rank waits for it any more */
    }
    /* The death may be detected before this call begins. */
    ulyx_status_t begun = good ? rank_execute(&k, 0) : ULYX_SUCCESS;
    good =
        good &&
        ranks_expect(begun == ULYX_SUCCESS ||
                     (job->signal == SIGKILL && begun == ULYX_ERR_RANK_LOST)) &&
        (job->signal == SIGKILL ? is_named(&k, ULYX_ERR_RANK_LOST, "rank 1")
                                : is_named(&k, ULYX_ERR_TIMEOUT,
                                      "timed out waiting for rank 1 ("));
    good = well(ulyx_plan_destroy(w->plans[me])) && good;
    /* A survivor that left now would count as a second lost rank. */
    atomic_fetch_sub(job->left, 1);
    for (int i = 0; i < 3000 && atomic_load(job->left) > 0; i++)
        usleep(10000);
    if (job->signal == SIGSTOP)
        kill(ranks_pid(job->pids, VICTIM), SIGCONT);
    return !good;
}

static void
run_loss(int signal, double timeout_s)
{
    enum { LOSS_RANKS = 3 };
    size_t bytes = sizeof(pid_t) * (LOSS_RANKS + 1);
    struct job job = {.meet = meet_new(LOSS_RANKS),
        .devices = 1,
        .timeout_s = timeout_s,
        .signal = signal,
        .pids = ranks_shared(bytes),
        .left = ranks_shared(sizeof(int))};
    atomic_store(job.left, LOSS_RANKS - 1);
    assert_int_equal(ranks_run_processes_victim(
                         LOSS_RANKS, rank_lose, &job, 100, VICTIM, job.pids),
        0);
    ranks_shared_free(job.pids, bytes);
    ranks_shared_free(job.left, sizeof(int));
    meet_free(job.meet);
}

static void
a_killed_rank_is_named(void **state)
{
    (void)state;
    run_loss(SIGKILL, 60);
}

static void
a_stopped_rank_is_named_at_the_deadline(void **state)
{
    (void)state;
    run_loss(SIGSTOP, 3);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_byte_arrives_in_processes),
    cmocka_unit_test(a_killed_rank_is_named),
    cmocka_unit_test(a_stopped_rank_is_named_at_the_deadline),
};

ULI_TEST_MAIN("EmulateProcesses", tests)
