/* SPDX-License-Identifier: Apache-2.0
 *
 * The portable forward kernels (mma.sync and plain) on the emulator, where
 * kernelcheck's families do not reach: flags that are set late or never, any
 * number of blocks, pieces and strides of every kind, all pairs of head
 * dimensions; and none of these may change a bit.
 */
#include "support/test.h"
#include "sm90_case.h"
#include "cuda_runtime.h"
#include "emulate.h"
#include <string.h>

#define ALL INT64_MAX

static const struct uli_gpu_attn_forward *const families[] = {
    &uli_gpu_attn_mma64, &uli_gpu_attn_mma96, &uli_gpu_attn_mma128,
    &uli_gpu_attn_mma192, &uli_gpu_attn_mma256, &uli_gpu_attn_plain};
enum { FAMILIES = 6, PLAIN = 5 };

static int64_t
random_draw(struct test_random *random, int64_t low, int64_t high)
{
    return test_random_in(random, low, high);
}

static struct sm90_result
case_run(const struct sm90_case *c)
{
    const struct emu_config config = {.seed = c->seed, .sm_count = 4};
    assert_int_equal(emu_open(&config), 0);
    struct sm90_result result = sm90_case_run(c);
    assert_int_equal(emu_fault_count(), 0);
    emu_close();
    return result;
}

/* Runs the case, compares the result with the definition, and returns the
 * result. */
static struct sm90_result
case_judged(const struct sm90_case *c)
{
    struct sm90_result result = case_run(c);
    if (result.bad)
        print_error("%s, seed %llu: %lld values wrong, worst %g bounds, cause "
                    "%llx\n",
            c->portable->name, (unsigned long long)c->seed,
            (long long)result.bad, result.worst,
            (unsigned long long)result.failed);
    assert_int_equal(result.bad, 0);
    return result;
}

static void
case_judge(const struct sm90_case *c)
{
    struct sm90_result result = case_judged(c);
    sm90_result_free(&result);
}

static struct sm90_case
case_simple(int family, int64_t q, int64_t k)
{
    const struct uli_gpu_attn_forward *f = families[family];
    return (struct sm90_case){.portable = f,
        .batch = 1,
        .heads_q = 1,
        .heads_kv = 1,
        .len_q = q,
        .len_k = k,
        .dim_qk = family == PLAIN ? 40 : f->dim_qk,
        .dim_v = family == PLAIN ? 24 : f->dim_v,
        .left = ALL,
        .right = ALL,
        .pieces = 1,
        .blocks = 2,
        .seed = test_seed(1)};
}

/* Pieces of every layout, whose flags are set in reverse order. */
static void
late_pieces_are_waited_for(void **state)
{
    (void)state;
    for (int layout = SM90_CONTINUING; layout <= SM90_APART; layout++)
        for (int f = 0; f < FAMILIES; f += PLAIN) {
            struct sm90_case c = case_simple(f, 180, 270);
            c.layout = (enum sm90_layout)layout;
            c.pieces = 3; /* 3 divides 180 and 270, as EVENLY requires */
            c.flags = true;
            c.right = 0;
            c.seed += (uint64_t)layout;
            case_judge(&c);
        }
}

/* The cause names the tensor and one of its pieces, and no kernel still
 * waits. */
static void
piece_that_never_comes_is_named(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f += PLAIN)
        for (int missing = 1; missing <= 3; missing++) {
            struct sm90_case c = case_simple(f, 150, 200);
            c.layout = SM90_APART;
            c.pieces = 3;
            c.flags = true;
            c.missing = missing;
            struct sm90_result result = case_run(&c);
            assert_int_equal(result.failed & 0xff, -ULYX_ERR_TIMEOUT);
            assert_int_equal(
                result.failed >> 8 & 0xff, ULI_GPU_ATTN_FLAG_Q + missing - 1);
            assert_true(result.failed >> 16 < 3);
            /* out's flags were not set, and counts as wrong */
            assert_true(result.bad > 0);
            sm90_result_free(&result);
        }
}

static void
same_bits(const struct sm90_case *c, const struct sm90_result *a,
    const struct sm90_result *b)
{
    size_t rows = (size_t)(c->batch * c->heads_q * c->len_q);
    assert_memory_equal(a->out, b->out, rows * (size_t)c->dim_v * 4);
    assert_memory_equal(a->lse, b->lse, rows * 4);
    assert_memory_equal(a->max_logit, b->max_logit, (size_t)c->heads_q * 4);
}

/* max_sms sets the number of blocks. */
static void
blocks_change_no_bit(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f += PLAIN) {
        struct sm90_case c = case_simple(f, 140, 150);
        c.heads_q = 4, c.heads_kv = 2, c.right = 0;
        c.blocks = 1;
        struct sm90_result first = case_judged(&c);
        for (c.blocks = 2; c.blocks <= 9; c.blocks += 7) {
            struct sm90_result other = case_judged(&c);
            same_bits(&c, &first, &other);
            sm90_result_free(&other);
        }
        sm90_result_free(&first);
    }
}

/* Rows begin at 2 modulo 16 bytes, and pieces end anywhere: the bits stay the
 * same. */
static void
layouts_change_no_bit(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f++) {
        struct sm90_case c = case_simple(f, 90, 131);
        c.dim_qk -= 8, c.dim_v -= 8;
        c.left = 70, c.right = 20;
        struct sm90_result first = case_judged(&c);
        for (int n = 0; n < 4; n++) {
            c.layout = n % 2 ? SM90_APART : SM90_STRIDED;
            c.pieces = n % 2 ? 4 : 1;
            c.odd = n / 2 ? 2 + 16 * n : 0;
            struct sm90_result other = case_judged(&c);
            same_bits(&c, &first, &other);
            sm90_result_free(&other);
        }
        sm90_result_free(&first);
    }
}

/* A document has the same bits wherever it lies in a pack. */
static void
place_in_a_pack_changes_no_bit(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f += PLAIN) {
        struct sm90_case c = case_simple(f, 200, 230);
        size_t row = (size_t)c.dim_v * sizeof(float);
        c.right = 0;
        c.ndocs = 2;
        c.q_rows[0] = 137, c.k_rows[0] = 151;
        c.q_begin[1] = 150, c.k_begin[1] = 160;
        c.q_rows[1] = 50, c.k_rows[1] = 70;
        struct sm90_result first = case_judged(&c);
        c.q_begin[0] = 3, c.k_begin[0] = 2;
        c.q_begin[1] = 141, c.k_begin[1] = 153;
        struct sm90_result other = case_judged(&c);
        assert_memory_equal(first.out, other.out + 3 * c.dim_v, 137 * row);
        assert_memory_equal(
            first.out + 150 * c.dim_v, other.out + 141 * c.dim_v, 50 * row);
        assert_memory_equal(first.lse, other.lse + 3, 137 * sizeof(float));
        assert_memory_equal(
            first.lse + 150, other.lse + 141, 50 * sizeof(float));
        sm90_result_free(&first);
        sm90_result_free(&other);
    }
}

/* Returns the narrowest family of the table that takes the dimensions. */
static const struct uli_gpu_attn_forward *
family_of(int64_t dim_qk, int64_t dim_v)
{
    for (int f = 0; f < PLAIN; f++)
        if (dim_qk <= families[f]->dim_qk && dim_v <= families[f]->dim_v)
            return families[f];
    return &uli_gpu_attn_plain;
}

static void
draw_features(struct sm90_case *c, struct test_random *random)
{
    int64_t kind = random_draw(random, 0, 3);
    c->left = kind < 2 ? ALL : random_draw(random, 0, 90);
    c->right = kind == 0 ? ALL : kind == 1 ? 0 : random_draw(random, 0, 60);
    c->diagonal = random_draw(random, 0, 3) ? 0 : random_draw(random, -70, 70);
    c->top_left = random_draw(random, 0, 1);
    c->softcap = random_draw(random, 0, 3) ? 0 : 1 + test_random_unit(random);
    c->slope = random_draw(random, 0, 3) ? 0 : test_random_unit(random);
    c->has_sink = random_draw(random, 0, 2) == 0;
    c->sink = test_random_normal(random);
    c->flat_heads = random_draw(random, 0, 1);
    c->no_lse = random_draw(random, 0, 2) == 0;
    c->no_max = random_draw(random, 0, 2) == 0;
    c->layout = (enum sm90_layout)random_draw(random, 0, 3);
    c->pieces = random_draw(random, 1, 5);
    if (c->layout == SM90_EVENLY) {
        c->len_q += c->pieces - c->len_q % c->pieces;
        c->len_k += c->pieces - c->len_k % c->pieces;
    }
    c->flags = c->layout != SM90_STRIDED && random_draw(random, 0, 1);
    c->odd = 2 * random_draw(random, 0, 8) * random_draw(random, 0, 1);
    c->blocks = (int)random_draw(random, 1, 5);
}

/* Head dimensions from 8 to 512, different for keys and values, and 1 to 16
 * query heads per KV head. */
static void
all_dimensions_and_groups(void **state)
{
    uint64_t seed = test_seed(1);
    (void)state;
    for (int64_t n = 0; n < test_draws(10); n++) {
        struct test_random random = {seed * 1000 + (uint64_t)n};
        struct sm90_case c = case_simple(0, random_draw(&random, 1, 140), 1);
        int64_t most = n % 4 ? 32 : 64;
        c.dim_qk = 8 * random_draw(&random, 1, most);
        c.dim_v = 8 * random_draw(&random, 1, most);
        c.portable = family_of(c.dim_qk, c.dim_v);
        c.len_k = random_draw(&random, 1, 200);
        c.f16 = random_draw(&random, 0, 1);
        c.heads_kv = random_draw(&random, 1, 2);
        c.heads_q = c.heads_kv * random_draw(&random, 1, n % 3 ? 2 : 16);
        c.len_q = c.heads_q > 4 ? 1 + c.len_q % 20 : c.len_q;
        c.seed = random.state;
        draw_features(&c, &random);
        case_judge(&c);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(late_pieces_are_waited_for),
    cmocka_unit_test(piece_that_never_comes_is_named),
    cmocka_unit_test(blocks_change_no_bit),
    cmocka_unit_test(layouts_change_no_bit),
    cmocka_unit_test(place_in_a_pack_changes_no_bit),
    cmocka_unit_test(all_dimensions_and_groups),
};

ULI_TEST_MAIN("EmulateMma", tests)
