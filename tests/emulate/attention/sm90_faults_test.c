/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults planted into the Hopper kernels (sm90_plant.py). The emulator must
 * report each fault, or the result must show it, in every seed; the same
 * sources without a fault must pass.
 */
#include "sm90_case.h"
#include <string.h>
#include "cuda_runtime.h"
#include "emulate.h"
#include "sm90_planted.h"
#include "support/test.h"

int sm90_planted; /* number of the planted fault; 0 = none */

#define FAULT_NUMBER(name) name,
enum { NONE, SM90_FAULTS(FAULT_NUMBER) FAULTS_END };
#define FAULT_NAME(name) #name,
static const char *const names[] = {"NONE", SM90_FAULTS(FAULT_NAME)};

/* The cases: two documents under a window, of which the first ends inside a
 * tile (DOCS); three items per block with six key tiles each (PLAIN); a sink
 * with ALiBi beyond the diagonal (SINK); a sink alone; a softcap (CAP); a head
 * of slope 0 beside another head, without lse (FLAT); pieces that meet inside
 * tiles (PIECES). */
enum kind { DOCS, PLAIN, SINK, SINK_ALONE, CAP, FLAT, PIECES, KINDS };

static struct sm90_case
case_of(enum kind kind, uint64_t seed)
{
    struct sm90_case c = {.family = &uli_sm90_d64,
        .batch = 1,
        .heads_q = 1,
        .heads_kv = 1,
        .len_q = 300,
        .len_k = 700,
        .dim_qk = 64,
        .dim_v = 64,
        .left = INT64_MAX,
        .right = INT64_MAX,
        .pieces = 1,
        .blocks = 1,
        .seed = seed};
    if (kind == SINK) {
        c.len_q = 130, c.len_k = 200;
        c.has_sink = true, c.sink = 1.5, c.slope = 0.5;
        c.right = 0, c.diagonal = 40;
    }
    if (kind == SINK_ALONE)
        c.len_q = 70, c.len_k = 150, c.has_sink = true, c.sink = 1.5;
    if (kind == PIECES) {
        c.len_q = 70, c.len_k = 290;
        c.layout = SM90_APART, c.pieces = 3;
    }
    if (kind == CAP)
        c.len_q = 130, c.len_k = 200, c.softcap = 1;
    if (kind == FLAT) {
        c.len_q = 70, c.len_k = 150, c.heads_q = 2;
        c.slope = 0.5, c.flat_heads = c.no_lse = true;
    }
    if (kind == DOCS) {
        c.ndocs = 2, c.left = 90, c.right = 30;
        c.q_rows[0] = 100, c.k_rows[0] = 210;
        /* NaN lies between the documents */
        c.q_begin[1] = 100, c.k_begin[1] = 220;
        c.q_rows[1] = 200, c.k_rows[1] = 480;
    }
    return c;
}

/* Returns whether the result was right and no fault was reported. */
static bool
run_once(int fault, enum kind kind, uint64_t seed)
{
    struct sm90_case c = case_of(kind, seed);
    const struct emu_config config = {.seed = seed, .quiet = fault != NONE};
    assert_int_equal(emu_open(&config), 0);
    sm90_planted = fault;
    struct sm90_result result = sm90_case_run(&c);
    bool well = result.bad == 0 && emu_fault_count() == 0;
    sm90_result_free(&result);
    emu_close();
    return well;
}

static void
none_planted_passes(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        for (int kind = 0; kind < KINDS; kind++)
            assert_true(run_once(NONE, (enum kind)kind, seed));
    }
}

static void
each_fault_is_caught(void **state)
{
    (void)state;
    int missed = 0;
    for (int fault = 1; fault < FAULTS_END; fault++)
        for (uint64_t seed = 1; seed <= 3; seed++) {
            bool well = true;
            for (int kind = 0; kind < KINDS && well; kind++)
                well = run_once(fault, (enum kind)kind, seed);
            if (well) {
                print_error(
                    "%s is not caught in seed %d\n", names[fault], (int)seed);
                missed++;
            }
        }
    assert_int_equal(missed, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(none_planted_passes),
    cmocka_unit_test(each_fault_is_caught),
};

ULI_TEST_MAIN("EmulateSm90Faults", tests)
