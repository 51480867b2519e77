/* SPDX-License-Identifier: Apache-2.0
 *
 * Thousands of exchanges. Several communicators share the devices, and each has
 * several plans on streams of their own. A host thread per rank enqueues the
 * plans' calls, in an order of its own and with random delays. Then the same
 * calls run as graphs, replayed with other data.
 *
 * So that 100,000 calls are cheap enough, what a call needs and what it must
 * leave is computed once, for a few versions of the data: all images of an
 * operation at a rank, before and after, lie in one piece of memory, as they do
 * on the device. A call is then one copy to the device (sources and poison),
 * the exchange, one copy back, and a memcmp over every byte of every image and
 * everything between them. ULYX_TEST_DRAWS=N makes the test N times as long.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/status.h"
#include "emulate/plan/plan_scene.h"
#include "support/ranks.h"
#include "support/test.h"

enum {
    COMMS = 3,
    PLANS = 2,
    VERSIONS = 3,
    DEVICES = 3,
    MULTIPROCESSORS = 4,
    BATCH = 8, /* calls of a plan between two waits of the host */
    BATCHES = 20,
    /* in bytes; keeps any one case from taking most of the time */
    REGION_LIMIT = 6000,
    DELAY_US = 200,
    REPLAYS = 25,
};

/* The images of one operation at one rank, as they lie one after another in the
 * window. */
struct region {
    int64_t bytes;
    unsigned char *there, *before[VERSIONS], *after[VERSIONS];
};

struct many_plan {
    struct plan_scene s; /* each plan has its own world and streams */
    struct region regions[ULYX_DIRECTIONS][PLAN_RANKS_MAX];
};

struct call {
    int op, version;
};

/* The results of a rank between two waits, one per call. */
struct batch {
    struct call calls[PLANS][BATCH];
    unsigned char *results[PLANS][BATCH];
};

struct many_comm {
    int32_t nranks, devices;
    uint64_t seed;
    struct plan_scene s;
    struct many_plan plans[PLANS];
    struct batch batches[PLAN_RANKS_MAX];
    atomic_llong calls; /* exchanges, each of which all ranks make */
};

struct many {
    struct many_comm comms[COMMS];
    int comm_of[COMMS * PLAN_RANKS_MAX], rank_of[COMMS * PLAN_RANKS_MAX];
    int threads;
    atomic_int wrong;
};

static void
random_delay(struct test_random *random)
{
    struct timespec nap = {0, 1000 * test_random_in(random, 0, DELAY_US)};
    if (test_random_in(random, 0, 4) == 0)
        nanosleep(&nap, NULL);
}

/* ---- expected images ---------------------------------------------------- */

static void
region_keep(struct region *region, const struct image *image,
    const unsigned char *where, int version)
{
    int64_t at = where - region->there;
    memcpy(region->before[version] + at, image->base, (size_t)image->bytes);
    memcpy(region->after[version] + at, image->expected, (size_t)image->bytes);
}

static void
make_region(struct many_plan *p, int op, int32_t r)
{
    struct world *w = p->s.w;
    struct region *region = &p->regions[op][r];
    int32_t last = w->c.shape.ntensors - 1;
    region->there = p->s.src[op][r][0];
    region->bytes =
        p->s.dst[op][r][last] + w->dst[op][r][last].bytes - region->there;
    for (int v = 0; v < VERSIONS; v++) {
        region->before[v] = plan_pinned_take(region->bytes);
        region->after[v] = plan_pinned_take(region->bytes);
    }
}

static void
make_regions(struct many_plan *p)
{
    struct world *w = p->s.w;
    for (int op = 0; op < ULYX_DIRECTIONS; op++)
        for (int32_t r = 0; r < p->s.nranks; r++)
            make_region(p, op, r);
    for (int v = 0; v < VERSIONS; v++) {
        w->salt = 1000 + v;
        world_fill(w);
        for (int op = 0; op < ULYX_DIRECTIONS; op++)
            for (int32_t r = 0; r < p->s.nranks; r++)
                for (int32_t t = 0; t < w->c.shape.ntensors; t++) {
                    struct region *region = &p->regions[op][r];
                    region_keep(
                        region, &w->src[op][r][t], p->s.src[op][r][t], v);
                    region_keep(
                        region, &w->dst[op][r][t], p->s.dst[op][r][t], v);
                }
    }
}

static void
free_regions(struct many_plan *p)
{
    for (int op = 0; op < ULYX_DIRECTIONS; op++)
        for (int32_t r = 0; r < p->s.nranks; r++)
            for (int v = 0; v < VERSIONS; v++) {
                plan_pinned_free(p->regions[op][r].before[v]);
                plan_pinned_free(p->regions[op][r].after[v]);
            }
}

static int64_t
largest_region(const struct many_plan *p)
{
    int64_t largest = 0;
    for (int op = 0; op < ULYX_DIRECTIONS; op++)
        for (int32_t r = 0; r < p->s.nranks; r++)
            if (p->regions[op][r].bytes > largest)
                largest = p->regions[op][r].bytes;
    return largest;
}

/* Estimates the bytes of one rank's tensors before anything is made for the
 * case. */
static bool
small_case(const struct oracle_case *c)
{
    int64_t bytes = 0;
    for (int32_t t = 0; t < c->shape.ntensors; t++) {
        const struct uli_shape_tensor *tensor = &c->shape.tensors[t];
        bytes += c->shape.batch * c->shape.parts[tensor->part].rows *
                 tensor->heads * tensor->dim * tensor->elem_bytes;
    }
    return bytes > 0 && bytes < REGION_LIMIT;
}

/* Places the images behind those of the plans before. */
static void
add_plan(struct many_comm *c, int n, struct test_random *random)
{
    struct many_plan *p = &c->plans[n];
    memcpy(
        p->s.used, n ? c->plans[n - 1].s.used : p->s.used, sizeof(p->s.used));
    if (!n)
        memset(p->s.used, 0, sizeof(p->s.used));
    for (;;) {
        struct world *w = calloc(1, sizeof(*w));
        assert_non_null(w);
        do
            case_random(&w->c, random, c->nranks, n == 1);
        while (w->c.shape.nranks != c->nranks || !small_case(&w->c));
        w->max_sms = test_random_in(random, 0, 7) == 0 ? 2 : 1;
        /* the first plan goes by slots where it may */
        w->fixed_limits = n == 0;
        w->slot_bytes = 1 << 16;
        p->s.keep = true;
        if (plan_draw(&p->s, w, random))
            break;
        free(w);
    }
    assert_status(plan_create(&p->s, p->s.w), ULYX_SUCCESS);
    make_regions(p);
}

/* ---- a rank -------------------------------------------------------------- */

/* Draws the same calls on all ranks of a communicator. */
static void
draw_calls(const struct many_comm *c, struct test_random *same, struct batch *b)
{
    for (int p = 0; p < PLANS; p++)
        for (int i = 0; i < BATCH; i++) {
            uint64_t all = c->plans[p].s.w->directions;
            do
                b->calls[p][i].op =
                    (int)test_random_in(same, 0, ULYX_DIRECTIONS - 1);
            while (!(all >> b->calls[p][i].op & 1));
            b->calls[p][i].version = (int)test_random_in(same, 0, VERSIONS - 1);
        }
}

/* Enqueues one call: the copy to the device, the exchange, the copy back. */
static bool
many_plan_enqueue(struct many_plan *p, int32_t rank, const struct call *call,
    unsigned char *result, struct test_random *own)
{
    const struct region *region = &p->regions[call->op][rank];
    size_t bytes = (size_t)region->bytes;
    cudaStream_t stream = p->s.streams[rank];
    bool good = cudaMemcpyAsync(region->there, region->before[call->version],
                    bytes, cudaMemcpyDefault, stream) == cudaSuccess;
    random_delay(own);
    good = good && plan_execute(&p->s, rank, call->op) == ULYX_SUCCESS;
    random_delay(own);
    return good && cudaMemcpyAsync(result, region->there, bytes,
                       cudaMemcpyDefault, stream) == cudaSuccess;
}

static bool
many_plan_is_right(const struct many_plan *p, int32_t rank,
    const struct call *call, const unsigned char *result)
{
    const struct region *region = &p->regions[call->op][rank];
    const unsigned char *want = region->after[call->version];
    if (memcmp(result, want, (size_t)region->bytes) == 0)
        return true;
    int64_t at = 0;
    while (result[at] == want[at])
        at++;
    fprintf(stderr,
        "%d ranks, rank %d, operation %d, version %d: byte %lld of %lld is "
        "%02x, not %02x\n",
        p->s.nranks, rank, call->op, call->version, (long long)at,
        (long long)region->bytes, result[at], want[at]);
    return false;
}

/* The calls of each plan are in order. Which plan is next differs from rank to
 * rank. */
static bool
run_batch(
    struct many_comm *c, int32_t rank, struct batch *b, struct test_random *own)
{
    int next[PLANS] = {0}, left = PLANS * BATCH;
    bool good = true;
    while (left > 0 && good) {
        int p = (int)test_random_in(own, 0, PLANS - 1);
        if (next[p] == BATCH)
            continue;
        good = many_plan_enqueue(&c->plans[p], rank, &b->calls[p][next[p]],
            b->results[p][next[p]], own);
        next[p]++;
        left--;
    }
    for (int p = 0; p < PLANS; p++)
        good =
            cudaStreamSynchronize(c->plans[p].s.streams[rank]) == cudaSuccess &&
            good;
    for (int p = 0; p < PLANS && good; p++)
        for (int i = 0; i < BATCH && good; i++)
            good = many_plan_is_right(
                &c->plans[p], rank, &b->calls[p][i], b->results[p][i]);
    return good;
}

/* Runs before any rank makes calls: taking pinned memory may wait for a device,
 * and so for a rank that waits for this one. */
static void
make_results(const struct many_comm *c, struct batch *b)
{
    for (int p = 0; p < PLANS; p++)
        for (int i = 0; i < BATCH; i++)
            b->results[p][i] = plan_pinned_take(largest_region(&c->plans[p]));
}

static void
free_results(struct batch *b)
{
    for (int p = 0; p < PLANS; p++)
        for (int i = 0; i < BATCH; i++)
            plan_pinned_free(b->results[p][i]);
}

static int
exchange_thread(int thread, int nthreads, void *context)
{
    struct many *m = context;
    struct many_comm *c = &m->comms[m->comm_of[thread]];
    int32_t rank = m->rank_of[thread];
    struct test_random same = {c->seed};
    struct test_random own = {c->seed * 31 + (uint64_t)rank + 1};
    struct batch *b = &c->batches[rank];
    (void)nthreads;
    bool good = ranks_expect(cudaSetDevice(rank % c->devices) == cudaSuccess);
    for (int n = 0; n < BATCHES && good && !m->wrong; n++) {
        draw_calls(c, &same, b);
        good = ranks_expect(run_batch(c, rank, b, &own));
        if (good && rank == 0)
            c->calls += PLANS * BATCH;
    }
    if (!good)
        m->wrong = 1;
    return !good;
}

/* ---- the communicators --------------------------------------------------- */

static void
many_connect(struct many *m, int32_t devices)
{
    static const int32_t sizes[COMMS] = {2, 4, 3};
    for (int i = 0; i < COMMS; i++) {
        struct many_comm *c = &m->comms[i];
        c->nranks = sizes[i];
        c->devices = i + 1 < devices ? i + 1 : devices;
        plan_connect(&c->s, c->nranks, c->devices, 0);
        for (int32_t r = 0; r < c->nranks; r++) {
            m->comm_of[m->threads] = i;
            m->rank_of[m->threads++] = r;
        }
        for (int p = 0; p < PLANS; p++) {
            c->plans[p].s = c->s;
            for (int32_t r = 0; r < c->nranks && p > 0; r++) {
                cudaSetDevice(r % c->devices);
                assert_int_equal(
                    cudaStreamCreateWithFlags(
                        &c->plans[p].s.streams[r], cudaStreamNonBlocking),
                    cudaSuccess);
            }
        }
    }
}

static void
many_disconnect(struct many *m)
{
    for (int i = 0; i < COMMS; i++) {
        struct many_comm *c = &m->comms[i];
        for (int p = 1; p < PLANS; p++)
            for (int32_t r = 0; r < c->nranks; r++)
                assert_int_equal(
                    cudaStreamDestroy(c->plans[p].s.streams[r]), cudaSuccess);
        plan_disconnect(&c->s);
    }
}

static void
add_plans(struct many *m, struct test_random *random)
{
    for (int i = 0; i < COMMS; i++) {
        for (int p = 0; p < PLANS; p++)
            add_plan(&m->comms[i], p, random);
        for (int32_t r = 0; r < m->comms[i].nranks; r++)
            make_results(&m->comms[i], &m->comms[i].batches[r]);
        m->comms[i].seed = test_random_next(random);
    }
}

static void
drop_plans(struct many *m)
{
    for (int i = 0; i < COMMS; i++) {
        for (int32_t r = 0; r < m->comms[i].nranks; r++)
            free_results(&m->comms[i].batches[r]);
        for (int p = 0; p < PLANS; p++) {
            free_regions(&m->comms[i].plans[p]);
            plan_drop(&m->comms[i].plans[p].s);
        }
    }
}

static int64_t
calls_of(const struct many *m)
{
    int64_t calls = 0;
    for (int i = 0; i < COMMS; i++)
        calls += m->comms[i].calls;
    return calls;
}

static struct many *
open_many(void)
{
    struct many *m = calloc(1, sizeof(*m));
    assert_non_null(m);
    many_connect(
        m, plan_machine(DEVICES, MULTIPROCESSORS, COMMS * PLAN_RANKS_MAX));
    return m;
}

static void
close_many(struct many *m)
{
    many_disconnect(m);
    plan_machine_close();
    free(m);
}

static void
many_exchanges_of_many_communicators(void **state)
{
    struct test_random random = {test_seed(601)};
    int64_t draws = test_draws(1);
    struct many *m = open_many();
    (void)state;
    for (int64_t i = 0; i < draws; i++) {
        add_plans(m, &random);
        assert_int_equal(
            ranks_run_threads(m->threads, exchange_thread, m, 300), 0);
        assert_int_equal(emu_fault_count(), 0);
        drop_plans(m);
        if (i % 10 == 9)
            printf("%lld exchanges\n", (long long)calls_of(m)), fflush(stdout);
    }
    printf("%lld exchanges, every byte checked at all ranks\n",
        (long long)calls_of(m));
    close_many(m);
}

/* ---- graphs -------------------------------------------------------------- */

struct replay {
    struct many_plan *p;
    int64_t replays;
    uint64_t seed;
    unsigned char *data[PLAN_RANKS_MAX][ULYX_DIRECTIONS];
    unsigned char *results[PLAN_RANKS_MAX][ULYX_DIRECTIONS];
};

/* Captures all operations of the plan, each with its copies to and from the
 * device, as one graph. */
static bool
many_plan_capture(struct many_plan *p, int32_t rank, unsigned char *data[],
    unsigned char *results[], cudaGraphExec_t *exec_p)
{
    cudaStream_t stream = p->s.streams[rank];
    cudaGraph_t graph;
    bool good = cudaStreamBeginCapture(
                    stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
    for (int op = 0; op < ULYX_DIRECTIONS && good; op++) {
        const struct region *region = &p->regions[op][rank];
        if (!(p->s.w->directions >> op & 1))
            continue;
        good =
            cudaMemcpyAsync(region->there, data[op], (size_t)region->bytes,
                cudaMemcpyDefault, stream) == cudaSuccess &&
            plan_execute(&p->s, rank, op) == ULYX_SUCCESS &&
            cudaMemcpyAsync(results[op], region->there, (size_t)region->bytes,
                cudaMemcpyDefault, stream) == cudaSuccess;
    }
    good = cudaStreamEndCapture(stream, &graph) == cudaSuccess && good;
    return good && cudaGraphInstantiate(exec_p, graph, 0) == cudaSuccess &&
           cudaGraphDestroy(graph) == cudaSuccess;
}

static bool
replay_once(struct many_plan *p, int32_t rank, unsigned char *data[],
    unsigned char *results[], cudaGraphExec_t exec, int version)
{
    bool good = true;
    for (int op = 0; op < ULYX_DIRECTIONS; op++)
        memcpy(data[op], p->regions[op][rank].before[version],
            (size_t)p->regions[op][rank].bytes);
    good = cudaGraphLaunch(exec, p->s.streams[rank]) == cudaSuccess &&
           cudaStreamSynchronize(p->s.streams[rank]) == cudaSuccess;
    for (int op = 0; op < ULYX_DIRECTIONS && good; op++) {
        struct call call = {op, version};
        if (p->s.w->directions >> op & 1)
            good = many_plan_is_right(p, rank, &call, results[op]);
    }
    return good;
}

static int
many_replay(int rank, int nranks, void *context)
{
    struct replay *k = context;
    struct test_random same = {k->seed}, own = {k->seed + 77 + (uint64_t)rank};
    unsigned char **data = k->data[rank], **results = k->results[rank];
    cudaGraphExec_t exec = NULL;
    (void)nranks;
    bool good =
        ranks_expect(cudaSetDevice(rank % k->p->s.devices) == cudaSuccess) &&
        ranks_expect(many_plan_capture(k->p, rank, data, results, &exec));
    for (int64_t i = 0; i < k->replays && good; i++) {
        int version = (int)test_random_in(&same, 0, VERSIONS - 1);
        random_delay(&own);
        good =
            ranks_expect(replay_once(k->p, rank, data, results, exec, version));
    }
    if (exec)
        cudaGraphExecDestroy(exec);
    return !good;
}

static void
replay_of_plan(struct many_plan *p, struct replay *k)
{
    for (int32_t r = 0; r < p->s.nranks; r++)
        for (int op = 0; op < ULYX_DIRECTIONS; op++) {
            k->data[r][op] = plan_pinned_take(p->regions[op][r].bytes);
            k->results[r][op] = plan_pinned_take(p->regions[op][r].bytes);
        }
    assert_int_equal(
        ranks_run_threads(p->s.nranks, many_replay, k, 30 + (double)k->replays),
        0);
    for (int32_t r = 0; r < p->s.nranks; r++)
        for (int op = 0; op < ULYX_DIRECTIONS; op++) {
            plan_pinned_free(k->data[r][op]);
            plan_pinned_free(k->results[r][op]);
        }
}

static void
graphs_are_replayed_with_other_data(void **state)
{
    struct test_random random = {test_seed(602)};
    struct many *m = open_many();
    int64_t replays = test_draws(REPLAYS);
    (void)state;
    add_plans(m, &random);
    for (int i = 0; i < COMMS; i++) {
        struct replay k = {.p = &m->comms[i].plans[i % PLANS],
            .replays = replays,
            .seed = test_random_next(&random)};
        replay_of_plan(k.p, &k);
        assert_int_equal(emu_fault_count(), 0);
    }
    printf("%lld replays on %d, %d and %d ranks, every byte checked\n",
        (long long)replays, m->comms[0].nranks, m->comms[1].nranks,
        m->comms[2].nranks);
    drop_plans(m);
    close_many(m);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(many_exchanges_of_many_communicators),
    cmocka_unit_test(graphs_are_replayed_with_other_data),
};

ULI_TEST_MAIN("EmulateMany", tests)
