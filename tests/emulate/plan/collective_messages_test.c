/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of collectives by messages, alone: marks are compared with the
 * numbers that they keep, and sums with the host's, bit for bit. The source
 * also has faults planted into it (collective_messages_plant.py); with none
 * active all must pass, and each fault must be reported by the emulator or show
 * in a result, in every seed.
 */
#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>
#include "base/dtype.h"
#include "collective_messages_planted.h"
#include "collectives/device/collective/collective_messages_gpu.h"
#include "collectives/kernels/copy.h"
#include "emulate.h"
#include "emulate/plant/fault_runs.h"
#include "support/random.h"
#include "support/test.h"

int collective_messages_planted; /* number of the planted fault; 0 = none */

#define FAULT_NAME(name) #name,
static const char *const names[] = {
    "NONE", COLLECTIVE_MESSAGES_FAULTS(FAULT_NAME)};
enum { FAULTS = sizeof(names) / sizeof(names[0]) };

enum { SEEDS = 3, DRAWS = 40, RANKS_MOST = 6, POISON = 0xEE };
enum { SHARE_BYTES = 8 * 1600, AREA = SHARE_BYTES + 64 };

#define good(call) run_must((call) == cudaSuccess)

/* ---- marks --------------------------------------------------------------- */

/* Runs marks of consecutive calls, from a drawn number on, and compares what
 * they keep with the host's account. */
static bool
marks_are_right(struct test_random *random)
{
    uint64_t n = test_random_next(random) >> 1;
    struct uli_gpu_state *state, first = {.call = n};
    struct uli_gpu_report *report;
    good(cudaMalloc((void **)&state, sizeof(*state)));
    good(cudaMemcpy(state, &first, sizeof(first), cudaMemcpyHostToDevice));
    good(cudaHostAlloc((void **)&report, sizeof(*report), cudaHostAllocMapped));
    memset(report, 0, sizeof(*report));
    bool well = true;
    for (int call = 0; call < 3 && well; call++) {
        struct uli_messages_mark mark = {
            .state = state, .report = report, .call = test_random_next(random)};
        uint64_t ended = report->ended;
        good(uli_messages_mark_launch(&mark, NULL));
        well = cudaDeviceSynchronize() == cudaSuccess &&
               report->call == mark.call && report->begun == n + 1 &&
               report->ended == ended;
        mark.ends = true;
        good(uli_messages_mark_launch(&mark, NULL));
        well = cudaDeviceSynchronize() == cudaSuccess && well &&
               report->begun == n + 1 && report->ended == n + 1;
        n++;
    }
    good(cudaFree(state));
    good(cudaFreeHost(report));
    return well;
}

/* ---- sums ---------------------------------------------------------------- */

struct sum_case {
    struct uli_messages_sum sum; /* its pointers are of the device */
    int64_t elem, own_at, dst_at;
    bool in_place;
    /* dst: the sum that the host computes */
    unsigned char own[AREA], dst[AREA];
    unsigned char shares[RANKS_MOST][SHARE_BYTES];
};

/* Draws random bits, or zeros of either sign. */
static void
draw_bits(struct test_random *random, unsigned char *at, int64_t bytes,
    int64_t elem, bool zeros)
{
    for (int64_t i = 0; i < bytes; i += 8) {
        uint64_t word = test_random_next(random);
        uint64_t signs = elem == 8   ? UINT64_C(0x8000000000000000)
                         : elem == 4 ? UINT64_C(0x8000000080000000)
                                     : UINT64_C(0x8000800080008000);
        word &= zeros ? signs : UINT64_MAX;
        memcpy(at + i, &word, 8);
    }
}

static void
draw_sum(struct sum_case *c, struct test_random *random)
{
    bool zeros = test_random_in(random, 0, 3) == 0;
    memset(&c->sum, 0, sizeof(c->sum));
    c->sum.dtype = (int32_t)test_random_in(random, 1, 4);
    c->elem = uli_dtype_size(c->sum.dtype);
    c->sum.count = test_random_in(random, 1, SHARE_BYTES / c->elem);
    c->sum.share_bytes = SHARE_BYTES;
    c->sum.nranks = (int32_t)test_random_in(random, 2, RANKS_MOST);
    c->sum.rank = (int32_t)test_random_in(random, 0, c->sum.nranks - 1);
    c->in_place = test_random_in(random, 0, 2) == 0;
    c->own_at = c->elem * (test_random_in(random, 0, 2) ? 0 : 1);
    c->dst_at = c->elem * (test_random_in(random, 0, 2) ? 0 : 1);
    draw_bits(random, c->own, AREA, c->elem, zeros);
    draw_bits(random, c->shares[0], (int64_t)sizeof(c->shares), c->elem, zeros);
    if (c->in_place)
        c->dst_at = c->own_at;
}

/* Computes the same sum on the host, into dst. */
static void
add_on_host(struct sum_case *c)
{
    static unsigned char own[AREA];
    int32_t group[RANKS_MOST] = {0};
    int64_t offset[RANKS_MOST] = {0}, stride[RANKS_MOST][3] = {{0}};
    const void *base[RANKS_MOST];
    struct uli_sum sum = {.extent = {1, 1, 1},
        .run = c->sum.count,
        .dtype = c->sum.dtype,
        .partial_dtype = c->sum.dtype,
        .nsources = c->sum.nranks,
        .group = group,
        .src_offset = offset,
        .src_stride = (const int64_t(*)[3])stride};
    memcpy(own, c->own, AREA);
    for (int32_t p = 0; p < c->sum.nranks; p++)
        base[p] = p == c->sum.rank ? own + c->own_at : c->shares[p];
    if (c->in_place)
        memcpy(c->dst, c->own, AREA);
    else
        memset(c->dst, POISON, AREA);
    uli_sum_run(&sum, (struct uli_box_span){0, 1}, c->dst + c->dst_at, base);
}

static bool
sum_is_right(struct test_random *random)
{
    static struct sum_case c;
    static unsigned char seen[AREA];
    unsigned char *own, *dst, *shares;
    draw_sum(&c, random);
    good(cudaMalloc((void **)&own, AREA));
    good(cudaMalloc((void **)&dst, AREA));
    good(cudaMalloc((void **)&shares, sizeof(c.shares)));
    good(cudaMemcpy(own, c.own, AREA, cudaMemcpyHostToDevice));
    good(cudaMemset(dst, POISON, AREA));
    good(
        cudaMemcpy(shares, c.shares, sizeof(c.shares), cudaMemcpyHostToDevice));
    unsigned char *to = c.in_place ? own : dst;
    int64_t bytes = c.sum.count * c.elem;
    c.sum.own = own + c.own_at;
    c.sum.dst = to + c.dst_at;
    c.sum.shares = shares;
    run_must(emu_track(to, AREA) == 0);
    int32_t blocks = (int32_t)test_random_in(random, 1, 4);
    bool well = uli_messages_sum_launch(&c.sum, blocks, NULL) == 0 &&
                cudaDeviceSynchronize() == cudaSuccess;
    well = emu_track_check(to, AREA) == AREA - bytes && well &&
           cudaMemcpy(seen, to, AREA, cudaMemcpyDeviceToHost) == cudaSuccess;
    add_on_host(&c);
    good(cudaFree(own));
    good(cudaFree(dst));
    good(cudaFree(shares));
    return well && memcmp(seen, c.dst, AREA) == 0;
}

/* ---- tests --------------------------------------------------------------- */

static int
run_here(int fault, uint64_t seed)
{
    const struct emu_config config = {.seed = seed, .quiet = fault != 0};
    struct test_random random = {seed};
    collective_messages_planted = fault;
    run_must(emu_open(&config) == 0);
    for (int i = 0; i < DRAWS; i++)
        if (!marks_are_right(&random) || !sum_is_right(&random) ||
            emu_fault_count())
            return RUN_CAUGHT;
    return RUN_WELL;
}

static const struct fault_runs runs = {
    names, FAULTS, SEEDS, 60, .astray = true, .run = run_here};

static void
marks_and_sums_are_right(void **state)
{
    (void)state;
    fault_runs_none_is_well(&runs);
}

static void
each_planted_fault_is_caught(void **state)
{
    (void)state;
    fault_runs_each_is_caught(&runs);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(marks_and_sums_are_right),
    cmocka_unit_test(each_planted_fault_is_caught),
};

ULI_TEST_MAIN("EmulateCollectiveMessages", tests)
