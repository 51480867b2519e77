/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults planted into the portable forward kernels (mma_plant.py). The emulator
 * must report each fault, or the result must show it, in every seed and in each
 * kernel that has it; the same sources without a fault must pass.
 */
#include "sm90_case.h"
#include <string.h>
#include "cuda_runtime.h"
#include "emulate.h"
#include "mma_planted.h"
#include "support/test.h"

int mma_planted; /* number of the planted fault; 0 = none */

#define FAULT_NUMBER(name, kernels) name,
enum { NONE, MMA_FAULTS(FAULT_NUMBER) FAULTS_END };
#define FAULT_NAME(name, kernels) {#name, kernels},
static const struct {
    const char *name;
    int kernels; /* kernels that have the fault. 1: mma, 2: plain, 3: both */
} faults[] = {{"NONE", 3}, MMA_FAULTS(FAULT_NAME)};

/* Without features: several tiles of queries and of keys. With features: two
 * documents with NaN between them, the first of which ends inside a tile of
 * keys; a window; sinks; ALiBi for half of the heads; fewer columns than the
 * family has; pieces that arrive late. */
static struct sm90_case
case_of(bool plain, bool features, uint64_t seed)
{
    struct sm90_case c = {
        .portable = plain ? &uli_gpu_attn_plain : &uli_gpu_attn_mma64,
        .batch = 1,
        .heads_q = features ? 4 : 1,
        .heads_kv = features ? 2 : 1,
        .len_q = features ? 90
                 : plain  ? 70
                          : 150,
        .len_k = features ? 230
                 : plain  ? 100
                          : 270,
        .dim_qk = plain      ? 24
                  : features ? 56
                             : 64,
        .dim_v = plain      ? 16
                 : features ? 40
                            : 64,
        .left = INT64_MAX,
        .right = INT64_MAX,
        .pieces = features ? 3 : 1,
        .layout = features ? SM90_APART : SM90_STRIDED,
        .flags = features,
        .blocks = 1,
        .seed = seed};
    if (features) {
        c.left = 90, c.right = 30;
        c.slope = 0.5, c.flat_heads = true;
        c.has_sink = true, c.sink = 0.3;
        c.ndocs = 2;
        c.q_rows[0] = 40, c.k_rows[0] = 70;
        c.q_begin[1] = 41, c.k_begin[1] = 80;
        c.q_rows[1] = 45, c.k_rows[1] = 149;
    }
    return c;
}

/* One document lies between two others, in pieces of equal rows. Its last tile
 * of keys is copied whole, and the rows of the neighbours in that copy must not
 * influence the result. lse is not requested. */
static struct sm90_case
even_case(bool plain, uint64_t seed)
{
    struct sm90_case c = case_of(plain, true, seed);
    c.pieces = 1;
    c.layout = SM90_STRIDED;
    c.flags = false;
    c.slope = 0;
    c.no_lse = true;
    return c;
}

/* Returns whether the result was right and no fault was reported. */
static bool
run_case(int fault, const struct sm90_case *c)
{
    const struct emu_config config = {.seed = c->seed, .quiet = fault != NONE};
    assert_int_equal(emu_open(&config), 0);
    mma_planted = fault;
    struct sm90_result result = sm90_case_run(c);
    bool well = result.bad == 0 && emu_fault_count() == 0;
    sm90_result_free(&result);
    emu_close();
    return well;
}

/* Returns whether the call waits until its deadline for keys whose flags are
 * never set. */
static bool
fault_waits(int fault, bool plain, uint64_t seed)
{
    struct sm90_case c = case_of(plain, true, seed);
    const struct emu_config config = {.seed = seed, .quiet = fault != NONE};
    assert_int_equal(emu_open(&config), 0);
    c.missing = 2;
    mma_planted = fault;
    struct sm90_result result = sm90_case_run(&c);
    bool well = (result.failed >> 8 & 0xff) == ULI_GPU_ATTN_FLAG_K;
    sm90_result_free(&result);
    emu_close();
    return well;
}

static bool
run_all(int fault, bool plain, uint64_t seed)
{
    struct sm90_case full = case_of(plain, true, seed);
    struct sm90_case bare = case_of(plain, false, seed);
    struct sm90_case even = even_case(plain, seed);
    return run_case(fault, &full) && run_case(fault, &even) &&
           run_case(fault, &bare) && fault_waits(fault, plain, seed);
}

static void
none_planted_passes(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        assert_true(run_all(NONE, false, seed));
        assert_true(run_all(NONE, true, seed));
    }
}

static void
each_fault_is_caught(void **state)
{
    (void)state;
    int missed = 0;
    uint64_t seeds = (uint64_t)test_draws(2);
    for (int fault = 1; fault < FAULTS_END; fault++)
        for (int kernel = 1; kernel <= 2; kernel++)
            for (uint64_t seed = 1; seed <= seeds; seed++)
                if (faults[fault].kernels & kernel &&
                    run_all(fault, kernel == 2, seed)) {
                    print_error("%s is not caught in %s, seed %d\n",
                        faults[fault].name, kernel == 2 ? "plain" : "mma",
                        (int)seed);
                    missed++;
                }
    assert_int_equal(missed, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(none_planted_passes),
    cmocka_unit_test(each_fault_is_caught),
};

ULI_TEST_MAIN("EmulateMmaFaults", tests)
