/* SPDX-License-Identifier: Apache-2.0
 *
 * What the exchange kernels guarantee beyond right bytes: a stopped rank,
 * poison and refusals end calls with a cause, and no call hangs; a captured
 * graph replays with new data; every alignment works; the tree of sums over
 * nodes has the bits of the host.
 */
#include "exchange_ranks.h"

#include <stdlib.h>
#include <string.h>
#include "emulate/exchange/exchange_items.h"
#include "emulate/self/fixture.h"
#include "support/random.h"
#include "support/test.h"

#define good(call) assert_int_equal((call), cudaSuccess)

enum { P = 3 };

struct fixture {
    struct world_ranks storage;
    struct ranks_world g;
    struct world *w;
};

static void
fixture_open(struct fixture *f, uint64_t seed, int64_t slot_bytes, bool split)
{
    struct test_random random = {seed};
    f->w = ranks_new_world(P, &f->storage);
    world_plain_case(f->w, P, 24, 4, 2, 8, ULYX_DTYPE_F16);
    assert_true(world_draw(f->w, &f->storage, &random, 0));
    struct ranks_config config = {.seed = seed,
        .devices = 2,
        .slot_bytes = slot_bytes,
        .split = split,
        .blocks = 2,
        .threads = 64,
        .timeout_ns = UINT64_C(5000000000)};
    world_fill(f->w);
    ranks_open(&f->g, f->w, &config);
    ranks_upload(&f->g);
}

static void
fixture_close(struct fixture *f)
{
    ranks_close(&f->g);
    world_free(f->w);
    free(f->w);
}

/* Three variants: direct, direct in three launches, and by slots. */
#define EACH_WAY(i, slots, split)                                              \
    for (int i = 0; i < 3; i++)                                                \
        for (int64_t slots = i == 2 ? RANKS_SLOT_BYTES : 0, once = 1; once;    \
             once = 0)                                                         \
            for (bool split = i == 1, more = true; more; more = false)

static void
a_stopped_rank_ends_the_others(void **state)
{
    (void)state;
    EACH_WAY(i, slots, split)
    {
        struct fixture f;
        fixture_open(&f, 7 + (uint64_t)i, slots, split);
        for (int32_t r = 0; r < P - 1; r++)
            ranks_enqueue(&f.g, r, ULYX_SEQ_TO_HEAD);
        uint64_t before = emu_clock_ns();
        assert_true(ranks_sync(&f.g));
        /* several kernels may each wait for their deadline */
        assert_true(emu_clock_ns() - before < UINT64_C(20000000000));
        for (int32_t r = 0; r < P - 1; r++) {
            struct uli_gpu_state s = ranks_state(&f.g, r);
            assert_int_equal(s.failed & 0xFF, -ULYX_ERR_TIMEOUT);
            assert_int_equal(s.failed >> 16 & 0xFFFF, P - 1);
            assert_int_equal(s.call, 0);
            /* later calls end at once */
            ranks_enqueue(&f.g, r, ULYX_SEQ_TO_HEAD);
        }
        before = emu_clock_ns();
        assert_true(ranks_sync(&f.g));
        assert_true(emu_clock_ns() - before < UINT64_C(1000000000));
        assert_int_equal(emu_fault_count(), 0);
        fixture_close(&f);
    }
}

static void
poison_ends_a_wait(void **state)
{
    (void)state;
    EACH_WAY(i, slots, split)
    {
        struct fixture f;
        fixture_open(&f, 17 + (uint64_t)i, slots, split);
        *f.g.at[0].poison = 1;
        ranks_enqueue(&f.g, 0, ULYX_SEQ_TO_HEAD);
        uint64_t before = emu_clock_ns();
        assert_true(ranks_sync(&f.g));
        assert_true(emu_clock_ns() - before < UINT64_C(1000000000));
        assert_int_equal(ranks_state(&f.g, 0).call, 0);
        assert_int_equal(ranks_state(&f.g, 0).failed, 0);
        fixture_close(&f);
    }
}

/* The other ranks end their part and wait for rank 0 until their deadline,
 * while rank 0 has not loaded the shares of its sums. Then their callers have
 * the tensors back and overwrite them. Sums that rank 0 computes from these are
 * no result, although every DONE has arrived. */
static void
shares_read_after_a_failure_are_no_result(void **state)
{
    const int op = ULYX_SEQ_TO_HEAD_ADJOINT;
    struct test_random random = {67};
    struct world_ranks storage;
    struct ranks_world g;
    struct world *w = ranks_new_world(P, &storage);
    (void)state;
    world_plain_case(w, P, 24, 4, 1, 8, ULYX_DTYPE_BF16);
    assert_true(world_draw(w, &storage, &random, 0));
    struct ranks_config config = {.seed = 67,
        .devices = 2,
        .split = true,
        .blocks = 2,
        .threads = 64,
        .timeout_ns = UINT64_C(1000000000)};
    world_fill(w);
    ranks_open(&g, w, &config);
    ranks_upload(&g);
    assert_true(g.at[0].args[op].sums);
    ranks_enqueue_step(&g, 0, op, ULI_GPU_OPEN);
    for (int32_t r = 1; r < P; r++)
        ranks_enqueue(&g, r, op);
    assert_true(ranks_sync(&g));
    for (int32_t r = 1; r < P; r++) {
        assert_int_equal(
            ranks_state(&g, r).failed >> 8 & 0xFF, ULI_GPU_AWAITS_DONE);
        for (int32_t t = 0; t < w->c.shape.ntensors; t++)
            good(cudaMemset(
                g.at[r].src[op][t], 0x5A, (size_t)w->src[op][r][t].bytes));
    }
    ranks_enqueue_step(&g, 0, op, ULI_GPU_MOVE);
    ranks_enqueue_step(&g, 0, op, ULI_GPU_CLOSE);
    assert_true(ranks_sync(&g));
    struct uli_gpu_state mine = ranks_state(&g, 0);
    assert_int_equal(mine.failed >> 8 & 0xFF, ULI_GPU_GIVEN_UP);
    assert_in_range(mine.failed >> 16 & 0xFFFF, 1, P - 1);
    assert_int_equal(mine.call, 0);
    assert_int_equal(emu_fault_count(), 0);
    ranks_close(&g);
    world_free(w);
    free(w);
}

/* ---- refusals ------------------------------------------------------------ */

/* Rank 0 refuses a call: the other ranks receive the refusal and name rank 0,
 * rank 0's tensors are unchanged, and the next call succeeds. */
static void
a_refusal_names_the_rank_and_the_next_call_is_well(void **state)
{
    (void)state;
    EACH_WAY(i, slots, split)
    {
        struct fixture f;
        fixture_open(&f, 27 + (uint64_t)i, slots, split);
        struct uli_gpu_args args = f.g.at[0].args[ULYX_SEQ_TO_HEAD];
        args.record[ULI_GPU_RECORD_CALL] |= -ULYX_ERR_INVALID_ARGUMENT;
        args.steps = ULI_GPU_OPEN | ULI_GPU_CLOSE;
        good(cudaSetDevice(f.g.at[0].device));
        good(uli_gpu_exchange_launch(&args, 1, 32, f.g.at[0].stream));
        for (int32_t r = 1; r < P; r++)
            ranks_enqueue(&f.g, r, ULYX_SEQ_TO_HEAD);
        assert_true(ranks_sync(&f.g));
        assert_int_equal(ranks_state(&f.g, 0).outcome, 0);
        for (int32_t r = 1; r < P; r++)
            assert_int_equal(ranks_state(&f.g, r).outcome,
                ULI_GPU_CAUSE(
                    -ULYX_ERR_INVALID_ARGUMENT, ULI_GPU_REFUSED, 0, 1));
        for (int32_t t = 0; t < 3; t++) {
            struct image *dst = &f.w->dst[ULYX_SEQ_TO_HEAD][0][t];
            unsigned char *now = malloc((size_t)dst->bytes);
            good(cudaMemcpy(now, f.g.at[0].dst[ULYX_SEQ_TO_HEAD][t],
                (size_t)dst->bytes, cudaMemcpyDeviceToHost));
            assert_memory_equal(now, dst->base, (size_t)dst->bytes);
            free(now);
        }
        ranks_enqueue_all(&f.g, ULYX_SEQ_TO_HEAD);
        assert_true(ranks_sync(&f.g));
        ranks_download(&f.g);
        for (int32_t r = 0; r < P; r++) {
            assert_int_equal(ranks_state(&f.g, r).call, 2);
            assert_true(world_check_rank(f.w, ULYX_SEQ_TO_HEAD, r));
        }
        assert_int_equal(emu_fault_count(), 0);
        fixture_close(&f);
    }
}

/* One rank calls another operation: all ranks report the difference, in each
 * direction. */
static void
different_operations_are_reported(void **state)
{
    (void)state;
    EACH_WAY(i, slots, split)
    {
        struct fixture f;
        fixture_open(&f, 37 + (uint64_t)i, slots, split);
        ranks_enqueue(&f.g, 0, ULYX_HEAD_TO_SEQ);
        ranks_enqueue(&f.g, 1, ULYX_SEQ_TO_HEAD);
        ranks_enqueue(&f.g, 2, ULYX_SEQ_TO_HEAD);
        assert_true(ranks_sync(&f.g));
        for (int32_t r = 0; r < P; r++) {
            struct uli_gpu_state s = ranks_state(&f.g, r);
            assert_int_equal(s.outcome >> 8 & 0xFF, ULI_GPU_DISAGREES);
            assert_int_equal(s.call, 1);
            assert_int_equal(s.failed, 0);
        }
        assert_int_equal(emu_fault_count(), 0);
        fixture_close(&f);
    }
}

/* ---- graphs -------------------------------------------------------------- */

/* One graph a rank: a call of every operation, replayed with other data. */
static void
graphs_replay_with_new_data(void **state)
{
    (void)state;
    EACH_WAY(i, slots, split)
    {
        struct fixture f;
        cudaGraph_t graph;
        cudaGraphExec_t exec[P];
        fixture_open(&f, 47 + (uint64_t)i, slots, split);
        for (int32_t r = 0; r < P; r++) {
            good(cudaSetDevice(f.g.at[r].device));
            good(cudaStreamBeginCapture(
                f.g.at[r].stream, cudaStreamCaptureModeThreadLocal));
            for (int op = 0; op < ULYX_DIRECTIONS; op++)
                ranks_enqueue(&f.g, r, op);
            good(cudaStreamEndCapture(f.g.at[r].stream, &graph));
            good(cudaGraphInstantiate(&exec[r], graph, 0));
            good(cudaGraphDestroy(graph));
        }
        for (int replay = 0; replay < 4; replay++) {
            f.w->salt = 100 + replay;
            world_fill(f.w);
            ranks_upload(&f.g);
            for (int32_t r = 0; r < P; r++) {
                good(cudaSetDevice(f.g.at[r].device));
                good(cudaGraphLaunch(exec[r], f.g.at[r].stream));
            }
            assert_true(ranks_sync(&f.g));
            ranks_download(&f.g);
            for (int op = 0; op < ULYX_DIRECTIONS; op++)
                for (int32_t r = 0; r < P; r++)
                    assert_true(world_check_rank(f.w, op, r));
        }
        assert_int_equal(ranks_state(&f.g, 0).call, 4 * ULYX_DIRECTIONS);
        assert_int_equal(emu_fault_count(), 0);
        for (int32_t r = 0; r < P; r++)
            good(cudaGraphExecDestroy(exec[r]));
        fixture_close(&f);
    }
}

/* ---- one rank alone ------------------------------------------------------ */

/* Copies rows of 48 bytes at all 256 pairs of offsets. */
static void
every_pair_of_alignments(void **state)
{
    enum { RUN = 48, ROWS = 9, BYTES = 2048 };
    static unsigned char src[BYTES], dst[BYTES], expected[BYTES];
    const struct emu_config config = {.seed = 3};
    unsigned char *from, *to;
    (void)state;
    assert_int_equal(emu_open(&config), 0);
    for (int i = 0; i < BYTES; i++)
        src[i] = (unsigned char)(i * 37 + i / 251);
    good(cudaMalloc((void **)&from, BYTES));
    good(cudaMalloc((void **)&to, BYTES));
    good(cudaMemcpy(from, src, BYTES, cudaMemcpyHostToDevice));
    for (int pair = 0; pair < 256; pair++) {
        int a = pair / 16, b = pair % 16;
        struct uli_gpu_item item = {.extent = {1, 1, ROWS},
            .run = RUN,
            .dst_stride = {0, 0, 64},
            .src_stride = {0, 0, 80},
            .align = 16,
            .kind = ULI_GPU_COPY};
        memset(expected, 0xEE, BYTES);
        good(cudaMemset(to, 0xEE, BYTES));
        for (int row = 0; row < ROWS; row++)
            memcpy(expected + a + row * 64, src + b + row * 80, RUN);
        struct item_launch launch = {.item = item,
            .dst = to + a,
            .src = from + b,
            .tile_bytes = ULI_GPU_TILE_MIN,
            .blocks = 1,
            .threads = 32};
        assert_true(item_run(&launch));
        good(cudaMemcpy(dst, to, BYTES, cudaMemcpyDeviceToHost));
        assert_memory_equal(dst, expected, BYTES);
    }
    assert_int_equal(emu_fault_count(), 0);
}

/* Runs drawn extents, strides and tiles, for both kinds of loop. */
static void
run_items(
    uint64_t seed, int64_t draws, bool (*is_right)(struct test_random *random))
{
    struct test_random random = {test_seed(seed)};
    const struct emu_config config = {.seed = 5};
    assert_int_equal(emu_open(&config), 0);
    for (int64_t i = 0; i < test_draws(draws); i++)
        assert_true(is_right(&random));
}

static void
copies_of_any_rectangle_are_right(void **state)
{
    (void)state;
    run_items(62, 300, item_copy_is_right);
}

static void
sums_over_nodes_have_the_hosts_bits(void **state)
{
    (void)state;
    run_items(61, 300, item_sum_is_right);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_stopped_rank_ends_the_others),
    cmocka_unit_test(poison_ends_a_wait),
    cmocka_unit_test(shares_read_after_a_failure_are_no_result),
    cmocka_unit_test(a_refusal_names_the_rank_and_the_next_call_is_well),
    cmocka_unit_test(different_operations_are_reported),
    cmocka_unit_test(graphs_replay_with_new_data),
    cmocka_unit_test_teardown(every_pair_of_alignments, close_all),
    cmocka_unit_test_teardown(copies_of_any_rectangle_are_right, close_all),
    cmocka_unit_test_teardown(sums_over_nodes_have_the_hosts_bits, close_all),
};

ULI_TEST_MAIN("EmulateExchangeProtocol", tests)
