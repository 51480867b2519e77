/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange by messages on emulated devices that cannot reach each other.
 * Each rank is a thread; batches go over fake_nccl, which has kernels of its
 * own. Every byte is compared with obvious placement, and sums bit for bit.
 * Also refusals, graphs, and a rank that does not come.
 */
#include "emulate/exchange/exchange_ranks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/status.h"
#include "collectives/device/messages/messages.h"
#include "emulate/messages/fake_nccl_kernels.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/test.h"

#define BATCH                       (uli_tr_nccl_ops.batch)
#define good(call)                  assert_int_equal((call), cudaSuccess)
#define expect_ok(call)             ranks_expect((call) == cudaSuccess)
#define expect_status(call, status) ranks_expect((call) == (status))

static struct fake_nccl *fake;
static struct uli_settings settings;

/* ---- the device, without a driver ---------------------------------------- */

static ulyx_status_t
status_of(cudaError_t error)
{
    return error == cudaSuccess
               ? ULYX_SUCCESS
               : uli_error(ULYX_ERR_SYSTEM, "%s", cudaGetErrorName(error));
}

static ulyx_status_t
dev_alloc(int32_t device, int64_t bytes, void **address_p)
{
    ULI_TRY(status_of(cudaSetDevice(device)));
    return status_of(cudaMalloc(address_p, (size_t)bytes));
}

static ulyx_status_t
dev_free(int32_t device, void *address)
{
    ULI_TRY(status_of(cudaSetDevice(device)));
    return status_of(cudaFree(address));
}

static ulyx_status_t
dev_host_alloc(
    int32_t device, int64_t bytes, void **address_p, void **device_address_p)
{
    ULI_TRY(status_of(cudaSetDevice(device)));
    ULI_TRY(status_of(
        cudaHostAlloc(address_p, (size_t)bytes, cudaHostAllocMapped)));
    *device_address_p = *address_p;
    return ULYX_SUCCESS;
}

static ulyx_status_t
dev_host_free(int32_t device, void *address)
{
    (void)device;
    return status_of(cudaFreeHost(address));
}

static ulyx_status_t
dev_copy(
    int32_t device, void *dst, const void *src, int64_t bytes, void *stream)
{
    ULI_TRY(status_of(cudaSetDevice(device)));
    return status_of(cudaMemcpyAsync(
        dst, src, (size_t)bytes, cudaMemcpyDefault, (cudaStream_t)stream));
}

static ulyx_status_t
dev_zero(int32_t device, void *address, int64_t bytes, void *stream)
{
    ULI_TRY(status_of(cudaSetDevice(device)));
    return status_of(
        cudaMemsetAsync(address, 0, (size_t)bytes, (cudaStream_t)stream));
}

static ulyx_status_t
dev_stream_create(int32_t device, void **stream_p)
{
    ULI_TRY(status_of(cudaSetDevice(device)));
    return status_of(cudaStreamCreateWithFlags(
        (cudaStream_t *)stream_p, cudaStreamNonBlocking));
}

static ulyx_status_t
dev_stream_destroy(int32_t device, void *stream)
{
    (void)device;
    return status_of(cudaStreamDestroy((cudaStream_t)stream));
}

static ulyx_status_t
dev_stream_wait(int32_t device, void *stream)
{
    (void)device;
    return status_of(cudaStreamSynchronize((cudaStream_t)stream));
}

static ulyx_status_t
dev_event_create(int32_t device, void **event_p)
{
    ULI_TRY(status_of(cudaSetDevice(device)));
    return status_of(cudaEventCreateWithFlags(
        (cudaEvent_t *)event_p, cudaEventDisableTiming));
}

static ulyx_status_t
dev_event_destroy(int32_t device, void *event)
{
    (void)device;
    return status_of(cudaEventDestroy((cudaEvent_t)event));
}

static ulyx_status_t
dev_event_record(int32_t device, void *event, void *stream)
{
    ULI_TRY(status_of(cudaSetDevice(device)));
    return status_of(cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream));
}

static ulyx_status_t
dev_event_order(int32_t device, void *event, void *stream)
{
    (void)device;
    return status_of(
        cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0));
}

static const struct uli_device_ops device_ops = {.name = "emulated",
    .memory_kind = ULYX_MEMORY_CUDA,
    .alloc = dev_alloc,
    .free = dev_free,
    .host_alloc = dev_host_alloc,
    .host_free = dev_host_free,
    .copy = dev_copy,
    .zero = dev_zero,
    .stream_create = dev_stream_create,
    .stream_destroy = dev_stream_destroy,
    .stream_wait = dev_stream_wait,
    .event_create = dev_event_create,
    .event_destroy = dev_event_destroy,
    .event_record = dev_event_record,
    .event_order = dev_event_order};

/* ---- a world ------------------------------------------------------------- */

static int
open_fake(void **state)
{
    (void)state;
    fake = fake_nccl_load();
    if (!fake || uli_settings_load(&settings) != ULYX_SUCCESS)
        return -1;
    snprintf(settings.nccl_lib, sizeof(settings.nccl_lib), "%s", FAKE_NCCL_OK);
    return 0;
}

/* The state that the threads of the ranks share. */
struct job {
    struct ranks_world g;
    struct world_ranks storage;
    struct world *w;
    unsigned char id[ULI_BATCH_ID_BYTES];
    int ops[16], nops; /* calls, in order */
    int refuser;       /* rank that refuses the first call, or -1 */
    int64_t chunk_bytes;
    _Atomic int aborted;
    _Atomic int met;
};

static bool
open_job(struct job *job, struct test_random *random, int32_t nranks,
    int blocks, int threads)
{
    if (!world_draw(job->w, &job->storage, random, 0))
        return false;
    struct ranks_config config = {.seed = test_random_next(random) | 1,
        .devices = (int)test_random_in(random, 1, nranks),
        .slot_bytes = 0,
        .blocks = blocks,
        .threads = threads,
        .host_threads = nranks};
    world_fill(job->w);
    ranks_open(&job->g, job->w, &config);
    for (int d = 0; d < job->g.config.devices; d++)
        for (int p = 0; p < job->g.config.devices; p++) {
            good(cudaSetDevice(d));
            if (p != d)
                good(cudaDeviceDisablePeerAccess(p));
        }
    ranks_upload(&job->g);
    job->refuser = -1;
    job->chunk_bytes =
        ULI_GPU_LINE * (test_random_in(random, 0, 3)
                               ? test_random_in(random, 1, 12)
                               : test_random_in(random, 1, 4096));
    assert_status(BATCH->make_id(&settings, job->id), ULYX_SUCCESS);
    return true;
}

static void
close_job(struct job *job)
{
    ranks_close(&job->g);
    world_free(job->w);
}

/* The objects of one rank, which its thread makes and destroys. */
struct part {
    struct job *job;
    int32_t rank;
    struct uli_batch *batch;
    struct uli_messages *packed;
    uli_strides_t *strides[RANKS_MAX];
};

static bool
open_part(struct part *part)
{
    static const int32_t nodes[RANKS_MAX] = {0, 0, 0, 0};
    struct job *job = part->job;
    struct ranks_one *one = &job->g.at[part->rank];
    struct uli_batch_params batch = {.rank = part->rank,
        .nranks = job->g.nranks,
        /* no driver context needs to be entered */
        .memory_kind = ULYX_MEMORY_HOST,
        .settings = &settings,
        .id = job->id,
        .deadline = uli_deadline_in(30)};
    for (int32_t p = 0; p < job->g.nranks; p++)
        part->strides[p] = job->w->strides[p];
    struct uli_messages_params params = {.layout = job->w->layout,
        .directions = job->w->directions,
        .rank = part->rank,
        .nodes = nodes,
        .strides = part->strides,
        .device_ops = &device_ops,
        .device = one->device,
        .blocks = job->g.config.blocks,
        .threads = job->g.config.threads,
        .chunk_bytes = job->chunk_bytes,
        .poison = one->poison,
        .batch_ops = BATCH};
    if (!expect_ok(cudaSetDevice(one->device)) ||
        !expect_status(BATCH->open(&batch, &part->batch), ULYX_SUCCESS))
        return false;
    params.batch = part->batch;
    return expect_status(
               uli_messages_create(&params, &part->packed), ULYX_SUCCESS) &&
           expect_status(uli_messages_connect(
                             part->packed, one->stream, uli_deadline_in(30)),
               ULYX_SUCCESS);
}

/* Waits for all ranks first, because a message to another rank may still be on
 * its way. */
static void
close_part(struct part *part)
{
    struct job *job = part->job;
    atomic_fetch_add(&job->met, 1);
    while (atomic_load(&job->met) % job->g.nranks)
        nanosleep(&(struct timespec){0, 100000}, NULL);
    if (part->batch)
        BATCH->close(part->batch, uli_deadline_in(30));
    uli_messages_destroy(part->packed);
}

static ulyx_status_t
part_call(struct part *part, int op, ulyx_status_t refusal)
{
    struct ranks_one *one = &part->job->g.at[part->rank];
    const struct uli_gpu_args *args = &one->args[op];
    const struct uli_messages_call call = {.direction = op,
        .src = (const void *const *)args->src,
        .dst = (void *const *)args->dst,
        .refusal = refusal,
        .reason = "it has no room",
        .stream = one->stream,
        .deadline = uli_deadline_in(30)};
    return uli_messages_execute(part->packed, &call);
}

static bool
sync_part(struct part *part)
{
    return expect_ok(cudaStreamSynchronize(part->job->g.at[part->rank].stream));
}

/* whether some call had more rounds than there are slots */
static _Atomic bool took_rounds;

/* ---- every byte ---------------------------------------------------------- */

static int
exchange_rank(int rank, int nranks, void *context)
{
    (void)nranks;
    struct part part = {.job = context, .rank = rank};
    bool well = open_part(&part);
    for (int i = 0; well && i < part.job->nops; i++)
        well =
            expect_status(part_call(&part, part.job->ops[i], 0), ULYX_SUCCESS);
    well = well && sync_part(&part);
    for (int i = 0; well && i < part.job->nops; i++)
        if (uli_messages_rounds(part.packed, part.job->ops[i]) > 2)
            atomic_store(&took_rounds, true);
    if (well) {
        struct uli_gpu_report *words = uli_messages_report(part.packed);
        well = ranks_expect(words->begun == (uint64_t)part.job->nops) &&
               ranks_expect(words->ended == (uint64_t)part.job->nops) &&
               ranks_expect(words->outcome == 0);
    }
    close_part(&part);
    return !well;
}

static void
run_job(struct job *job)
{
    struct world *w = job->w;
    w->norder = 0;
    for (int op = 0; op < ULYX_DIRECTIONS; op++)
        if (w->directions >> op & 1)
            w->order[w->norder++] = op;
    /* each operation once with all writes counted, then all of them back to
     * back */
    for (int i = 0; i < w->norder; i++) {
        job->ops[0] = w->order[i];
        job->nops = 1;
        ranks_track(&job->g, w->order[i]);
        assert_int_equal(
            ranks_run_threads(job->g.nranks, exchange_rank, job, 60), 0);
        assert_true(ranks_track_check(&job->g, w->order[i]));
        assert_status(BATCH->make_id(&settings, job->id), ULYX_SUCCESS);
    }
    for (job->nops = 0; job->nops < 6; job->nops++)
        job->ops[job->nops] = w->order[job->nops % w->norder];
    assert_int_equal(
        ranks_run_threads(job->g.nranks, exchange_rank, job, 60), 0);
    assert_int_equal(emu_fault_count(), 0);
    ranks_download(&job->g);
    assert_true(world_check(w));
}

static void
run_draws(uint64_t seed, int64_t draws, bool balanced)
{
    struct test_random random = {test_seed(seed)};
    for (int64_t i = 0; i < draws; i++) {
        struct job *job = calloc(1, sizeof(*job));
        job->w = ranks_new_world(RANKS_MAX, &job->storage);
        case_random(&job->w->c, &random, RANKS_MAX, balanced);
        int32_t nranks = job->w->c.shape.nranks;
        job->storage.nranks = nranks;
        job->w->salt = i;
        if (open_job(job, &random, nranks, (int)test_random_in(&random, 1, 3),
                32 * (int)test_random_in(&random, 1, 3))) {
            if (job->w->directions)
                run_job(job);
            close_job(job);
        }
        free(job->w);
        free(job);
    }
    assert_int_equal(fake->aborts, 0);
    assert_int_equal(fake->alive, 0);
    assert_true(atomic_load(&took_rounds));
}

static void
whole_heads(void **state)
{
    (void)state;
    run_draws(401, test_draws(6), false);
}

static void
balanced(void **state)
{
    (void)state;
    run_draws(402, test_draws(5), true);
}

/* ---- a plain world ------------------------------------------------------- */

enum { P = 3 };

static struct job *
plain_job(uint64_t seed)
{
    struct test_random random = {seed};
    struct job *job = calloc(1, sizeof(*job));
    job->w = ranks_new_world(P, &job->storage);
    world_plain_case(job->w, P, 24, 4, 2, 8, ULYX_DTYPE_F16);
    assert_true(open_job(job, &random, P, 2, 64));
    job->chunk_bytes = ULI_GPU_LINE; /* so that a call has several rounds */
    return job;
}

static void
end_plain(struct job *job)
{
    assert_int_equal(fake->alive, 0);
    assert_int_equal(emu_fault_count(), 0);
    close_job(job);
    free(job->w);
    free(job);
}

/* Rank 0 refuses the first call. */
static int
refusing_rank(int rank, int nranks, void *context)
{
    (void)nranks;
    struct part part = {.job = context, .rank = rank};
    bool refuses = rank == part.job->refuser;
    bool well = open_part(&part);
    well = well && expect_status(part_call(&part, ULYX_SEQ_TO_HEAD,
                                     refuses ? ULYX_ERR_INVALID_ARGUMENT : 0),
                       ULYX_SUCCESS);
    well = well && sync_part(&part);
    struct uli_gpu_report *words =
        well ? uli_messages_report(part.packed) : NULL;
    if (well)
        well = ranks_expect(words->outcome ==
                            (refuses ? 0
                                     : ULI_GPU_CAUSE(-ULYX_ERR_INVALID_ARGUMENT,
                                           ULI_GPU_REFUSED, 0, 1)));
    if (well)
        words->outcome = 0;
    well = well &&
           expect_status(part_call(&part, ULYX_HEAD_TO_SEQ, 0), ULYX_SUCCESS);
    well = well && sync_part(&part) && ranks_expect(words->outcome == 0);
    close_part(&part);
    return !well;
}

static void
a_refusal_names_the_rank_and_the_next_call_is_well(void **state)
{
    (void)state;
    struct job *job = plain_job(11);
    struct world *w = job->w;
    job->refuser = 0;
    assert_int_equal(ranks_run_threads(P, refusing_rank, job, 60), 0);
    ranks_download(&job->g);
    /* no byte of the refusing rank's tensors was written */
    for (int32_t t = 0; t < 3; t++) {
        struct image *dst = &w->dst[ULYX_SEQ_TO_HEAD][0][t];
        for (int64_t i = 0; i < dst->bytes; i++)
            assert_int_equal(dst->base[i], dst->base[0]);
    }
    w->norder = 1;
    w->order[0] = ULYX_HEAD_TO_SEQ;
    assert_true(world_check_rank(w, ULYX_HEAD_TO_SEQ, 1));
    end_plain(job);
}

/* ---- graphs -------------------------------------------------------------- */

static int
replaying_rank(int rank, int nranks, void *context)
{
    (void)nranks;
    enum { REPLAYS = 5 };
    struct part part = {.job = context, .rank = rank};
    struct ranks_one *one = &part.job->g.at[rank];
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    bool well = open_part(&part);
    well = well && expect_ok(cudaStreamBeginCapture(
                       one->stream, cudaStreamCaptureModeThreadLocal));
    well = well &&
           expect_status(part_call(&part, ULYX_SEQ_TO_HEAD, 0), ULYX_SUCCESS);
    well = well && expect_ok(cudaStreamEndCapture(one->stream, &graph)) &&
           expect_ok(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; well && i < REPLAYS; i++)
        well = expect_ok(cudaGraphLaunch(exec, one->stream));
    well = well && sync_part(&part);
    well = well &&
           ranks_expect(uli_messages_report(part.packed)->ended == REPLAYS) &&
           ranks_expect(uli_messages_rounds(part.packed, ULYX_SEQ_TO_HEAD) > 2);
    if (exec)
        cudaGraphExecDestroy(exec);
    if (graph)
        cudaGraphDestroy(graph);
    close_part(&part);
    return !well;
}

static void
a_captured_call_replays(void **state)
{
    (void)state;
    struct job *job = plain_job(12);
    assert_int_equal(ranks_run_threads(P, replaying_rank, job, 60), 0);
    ranks_download(&job->g);
    for (int32_t r = 0; r < P; r++)
        assert_true(world_check_rank(job->w, ULYX_SEQ_TO_HEAD, r));
    end_plain(job);
}

/* ---- a rank that does not come ------------------------------------------- */

/* All ranks except the last make a call. Their flags show that the calls have
 * begun and not ended. Poison and an abort end the work on their streams. */
static int
lonely_rank(int rank, int nranks, void *context)
{
    struct part part = {.job = context, .rank = rank};
    struct job *job = context;
    bool well = open_part(&part);
    if (well && rank < nranks - 1) {
        struct uli_gpu_report *words = uli_messages_report(part.packed);
        well =
            expect_status(part_call(&part, ULYX_SEQ_TO_HEAD, 0), ULYX_SUCCESS);
        while (well && __atomic_load_n(&words->begun, __ATOMIC_ACQUIRE) == 0)
            nanosleep(&(struct timespec){0, 100000}, NULL);
        well = well && ranks_expect(words->ended == 0);
        __atomic_store_n(job->g.at[rank].poison, 1, __ATOMIC_RELEASE);
        BATCH->abort(part.batch);
        well = well && sync_part(&part) && ranks_expect(words->ended == 0);
        well = well && expect_status(part_call(&part, ULYX_SEQ_TO_HEAD, 0),
                           ULYX_ERR_ABORTED);
        sync_part(&part);
        atomic_fetch_add(&job->aborted, 1);
    }
    while (atomic_load(&job->aborted) < nranks - 1)
        nanosleep(&(struct timespec){0, 100000}, NULL);
    close_part(&part);
    return !well;
}

static void
a_missing_rank_shows_in_the_words_and_an_abort_ends_the_others(void **state)
{
    (void)state;
    struct job *job = plain_job(13);
    assert_int_equal(ranks_run_threads(P, lonely_rank, job, 60), 0);
    assert_int_equal(fake->aborts, P - 1);
    end_plain(job);
}

#define CASE(name) cmocka_unit_test_setup(name, open_fake)
static const struct CMUnitTest tests[] = {
    CASE(whole_heads),
    CASE(balanced),
    CASE(a_refusal_names_the_rank_and_the_next_call_is_well),
    CASE(a_captured_call_replays),
    CASE(a_missing_rank_shows_in_the_words_and_an_abort_ends_the_others),
};

ULI_TEST_MAIN("EmulatePacked", tests)
