/* SPDX-License-Identifier: Apache-2.0
 *
 * The Hopper forward kernels on the emulator.
 */
#include "support/test.h"
#include "sm90_case.h"
#include "cuda_runtime.h"
#include "emulate.h"

#define ALL INT64_MAX

static void
case_judge(struct sm90_case c)
{
    const struct emu_config config = {.seed = c.seed, .sm_count = 4};
    assert_int_equal(emu_open(&config), 0);
    struct sm90_result result = sm90_case_run(&c);
    if (result.bad || emu_fault_count())
        print_error("seed %llu: %lld values wrong, worst %g bounds, cause %llx"
                    ", faults %zu\n",
            (unsigned long long)c.seed, (long long)result.bad, result.worst,
            (unsigned long long)result.failed, emu_fault_count());
    assert_int_equal(emu_fault_count(), 0);
    assert_int_equal(result.bad, 0);
    sm90_result_free(&result);
    emu_close();
}

static struct sm90_case
family_case(const struct uli_sm90_family *family, int64_t q, int64_t k)
{
    return (struct sm90_case){.family = family,
        .batch = 1,
        .heads_q = 1,
        .heads_kv = 1,
        .len_q = q,
        .len_k = k,
        .dim_qk = family->dim_qk,
        .dim_v = family->dim_v,
        .left = ALL,
        .right = ALL,
        .pieces = 1,
        .blocks = 2,
        .seed = 1};
}

static int64_t
random_draw(struct test_random *random, int64_t low, int64_t high)
{
    return test_random_in(random, low, high);
}

static void
draw_docs(struct sm90_case *c, struct test_random *random)
{
    int64_t q = 0, k = 0;
    c->ndocs = random_draw(random, 1, 4);
    for (int64_t n = 0; n < c->ndocs; n++) {
        if (random_draw(random, 0, 2) == 0)
            q += random_draw(random, 0, 40), k += random_draw(random, 0, 40);
        int64_t b = q / c->len_q > k / c->len_k ? q / c->len_q : k / c->len_k;
        if (b >= c->batch) {
            c->ndocs = n;
            break;
        }
        q = q < b * c->len_q ? b * c->len_q : q;
        k = k < b * c->len_k ? b * c->len_k : k;
        c->q_begin[n] = q, c->k_begin[n] = k;
        q += c->q_rows[n] = random_draw(random, 0, (b + 1) * c->len_q - q);
        k += c->k_rows[n] = random_draw(random, 0, (b + 1) * c->len_k - k);
    }
}

static void
draw_mask(struct sm90_case *c, struct test_random *random)
{
    int64_t kind = random_draw(random, 0, 3);
    c->left = kind < 2 ? ALL : random_draw(random, 0, 150);
    c->right = kind == 0 ? ALL : kind == 1 ? 0 : random_draw(random, 0, 60);
    c->diagonal = random_draw(random, 0, 3) ? 0 : random_draw(random, -70, 70);
    c->top_left = random_draw(random, 0, 1);
}

static void
draw_layout(struct sm90_case *c, struct test_random *random)
{
    c->layout = (enum sm90_layout)random_draw(random, 0, 3);
    c->pieces = random_draw(random, 1, 4);
    if (c->layout == SM90_EVENLY) {
        c->len_q = (c->len_q + c->pieces - 1) / c->pieces * c->pieces;
        c->len_k = (c->len_k + c->pieces - 1) / c->pieces * c->pieces;
    }
    c->flags = c->layout != SM90_STRIDED && random_draw(random, 0, 1);
}

/* Draws a case in which every feature may be on. */
static struct sm90_case
draw_case(const struct uli_sm90_family *family, uint64_t seed)
{
    struct test_random random = {seed};
    struct sm90_case c = family_case(
        family, random_draw(&random, 1, 280), random_draw(&random, 1, 400));
    c.seed = seed;
    c.f16 = random_draw(&random, 0, 1);
    c.batch = random_draw(&random, 1, 2);
    c.heads_kv = random_draw(&random, 1, 2);
    c.heads_q = c.heads_kv * random_draw(&random, 1, 2);
    c.dim_qk -= 8 * random_draw(&random, 0, 3);
    c.dim_v -= 8 * random_draw(&random, 0, 3);
    draw_mask(&c, &random);
    c.softcap = random_draw(&random, 0, 3) ? 0 : 1 + test_random_unit(&random);
    c.slope = random_draw(&random, 0, 3) ? 0 : test_random_unit(&random);
    c.has_sink = random_draw(&random, 0, 2) == 0;
    c.sink = test_random_normal(&random);
    c.flat_heads = random_draw(&random, 0, 1);
    c.no_lse = random_draw(&random, 0, 2) == 0;
    c.no_max = random_draw(&random, 0, 2) == 0;
    draw_layout(&c, &random);
    if (random_draw(&random, 0, 1))
        draw_docs(&c, &random);
    c.blocks = (int)random_draw(&random, 1, 3);
    return c;
}

static void
any_features(const struct uli_sm90_family *family, int64_t usual)
{
    uint64_t seed = test_seed(1);
    for (int64_t n = 0; n < test_draws(usual); n++)
        case_judge(draw_case(family, seed * 1000 + (uint64_t)n));
}

static void
full_d128(void **state)
{
    (void)state;
    case_judge(family_case(&uli_sm90_d128, 130, 300));
}

static void
causal_d128(void **state)
{
    struct sm90_case c = family_case(&uli_sm90_d128, 300, 300);
    (void)state;
    c.right = 0;
    c.heads_q = 2;
    case_judge(c);
}

static void
d64_takes_every_feature(void **state)
{
    (void)state;
    any_features(&uli_sm90_d64, 6);
}

static void
d96_takes_every_feature(void **state)
{
    (void)state;
    any_features(&uli_sm90_d96, 4);
}

static void
d128_takes_every_feature(void **state)
{
    (void)state;
    any_features(&uli_sm90_d128, 8);
}

static void
d192_takes_every_feature(void **state)
{
    (void)state;
    any_features(&uli_sm90_d192, 4);
}

static void
d256_takes_every_feature(void **state)
{
    (void)state;
    any_features(&uli_sm90_d256, 4);
}

/* The family of head dimension 96 as it is built for cards that do not take one
 * and a half panels. */
static void
d96_of_whole_panels_takes_every_feature(void **state)
{
    extern const struct uli_sm90_family uli_sm90_d96_wide;
    struct sm90_case c = family_case(&uli_sm90_d96_wide, 130, 300);
    (void)state;
    c.dim_v = 96;
    case_judge(c);
    any_features(&uli_sm90_d96_wide, 3);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(full_d128),
    cmocka_unit_test(causal_d128),
    cmocka_unit_test(d64_takes_every_feature),
    cmocka_unit_test(d96_takes_every_feature),
    cmocka_unit_test(d96_of_whole_panels_takes_every_feature),
    cmocka_unit_test(d128_takes_every_feature),
    cmocka_unit_test(d192_takes_every_feature),
    cmocka_unit_test(d256_takes_every_feature),
};

ULI_TEST_MAIN("EmulateSm90", tests)
