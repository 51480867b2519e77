/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults planted into the portable backward kernels (backward_plant.py). The
 * emulator must report each fault, or kernelcheck's judge must refuse its
 * result, in every seed; the same source without a fault must pass. The suite
 * draws a few faults; ULYX_TEST_DRAWS=20 runs all of them.
 */
#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>
#include "attention/cuda/backward_gpu.h"
#include "attention/kernelcheck/kc.h"
#include "backward_planted.h"
#include "emulate.h"
#include "emulate/plant/fault_runs.h"
#include "support/test.h"

int backward_planted; /* number of the planted fault; 0 = none */
int kc_first_pass, kc_passes = 2;

#define FAULT_NUMBER(name, kernels) name,
enum { NONE, BACKWARD_FAULTS(FAULT_NUMBER) FAULTS_END };
#define FAULT_NAME(name, kernels) #name,
static const char *const names[] = {"NONE", BACKWARD_FAULTS(FAULT_NAME)};
/* A mask of the kernels that have a fault has its bits in this order. */
enum { MMA, PLAIN, WIDE, KERNELS };
#define FAULT_KERNELS(name, kernels) kernels,
static const int kernels_of[] = {7, BACKWARD_FAULTS(FAULT_KERNELS)};

/* Two documents with gaps. The first ends inside a tile of queries and of keys,
 * and has more rows than there are keys in its window. */
static const int64_t q_begin[2] = {0, 36}, q_length[2] = {33, 30};
static const int64_t k_begin[2] = {2, 20}, k_length[2] = {14, 60};

/* What a run has: no option, every feature, or every feature and a delta that
 * is given. */
enum { BARE, FEATURES, FEATURES_AND_DELTA, KINDS };

/* Both queries and keys have several tiles. */
static void
make_case(
    struct kc_case *kc, int kernel, bool features, struct test_random *random)
{
    ulyx_attention_t p = ULYX_ATTENTION_INIT;
    p.dtype = kernel == PLAIN ? ULYX_DTYPE_F32 : ULYX_DTYPE_BF16;
    p.param_dtype = ULYX_DTYPE_F32;
    p.batch = 1, p.heads_q = 4, p.heads_kv = 2;
    p.len_q = 68, p.len_k = 84;
    p.dim_qk = kernel == WIDE ? 200 : 24, p.dim_v = kernel == WIDE ? 136 : 16;
    p.mask = features ? ULYX_MASK_WINDOW : ULYX_MASK_NONE;
    p.window_left = 25, p.window_right = 3;
    p.softcap = features ? 2 : 0;
    p.heads_global = features ? 5 : 0;
    p.head_offset = features ? 1 : 0;
    kc_simple(kc, &p, random);
    if (features) {
        float *sinks = kc_alloc(4 * 5), *slopes = kc_alloc(4 * 5);
        for (int n = 0; n < 5; n++) {
            sinks[n] = 0.5f * (float)n;
            slopes[n] = n % 2 ? 0 : 0.1f * (float)(1 + n);
        }
        kc->problem.sinks = kc->sinks = sinks;
        kc->problem.alibi_slopes = kc->slopes = slopes;
        kc_set_docs(kc, false, q_begin, q_length, 2);
        kc_set_docs(kc, true, k_begin, k_length, 2);
    }
    kc_solve(kc);
}

static bool
case_passes(int kernel, int kind, uint64_t seed)
{
    struct test_random random = {seed};
    struct kc_layout layout = {.kernel = kernel == PLAIN ? "plain" : "mma",
        .threads = 3,
        .pad = 16,
        .pieces = kind == BARE ? 0 : 3,
        .give_delta = kind == FEATURES_AND_DELTA};
    struct kc_result result;
    struct kc_case kc;
    make_case(&kc, kernel, kind != BARE, &random);
    bool right = kc_run(&kc, &kc.problem, &layout, true, &result) &&
                 kc_judge(&kc, &result, true, true);
    kc_result_free(&result);
    kc_free(&kc);
    return right;
}

/* The seed selects the data and the order in which the emulator runs threads. A
 * fault must show in each kernel that has it. */
static int
run_planted(int fault, uint64_t seed)
{
    char text[32];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)seed);
    run_must(setenv("ULYX_TEST_SEED", text, 1) == 0);
    backward_planted = fault;
    for (int kernel = 0; kernel < KERNELS; kernel++) {
        bool well = true;
        if (!(kernels_of[fault] >> kernel & 1))
            continue;
        for (int kind = 0; kind < KINDS && well; kind++)
            well = case_passes(kernel, kind, seed);
        if (well != (fault == NONE))
            return well ? RUN_WELL : RUN_CAUGHT;
    }
    return fault == NONE ? RUN_WELL : RUN_CAUGHT;
}

static const struct fault_runs runs = {.names = names,
    .faults = FAULTS_END,
    .seeds = 2,
    .drawn = 5,
    .limit_s = 200,
    .run = run_planted};

/* Returns the slots of a family's streaming tiles, on a device whose blocks
 * have so much shared memory, with as many registers as ptxas gives. */
static int
slots_of(const struct uli_gpu_attn_backward *family, int shared_kib, bool keys)
{
    const struct emu_config config = {
        .shared_bytes = shared_kib * 1024, .registers = 255};
    struct uli_gpu_attn_backward_args args;
    struct uli_gpu_attn_fit fit = {0, 0};
    memset(&args, 0, sizeof(args));
    args.by_query.dtype = args.by_key.dtype = ULYX_DTYPE_BF16;
    assert_int_equal(emu_open(&config), 0);
    int error = family->fit(&args, keys, &fit);
    assert_int_equal(error == cudaSuccess, fit.slots > 0);
    emu_close();
    return fit.slots;
}

/* Slots on compute capability 8.0, and on 8.6 and 8.9, as in
 * docs/internals/gpu.md. 0: the family has one slot only, and does not fit. */
static void
slots_are_two_where_they_cost_no_block(void **state)
{
    static const struct {
        const struct uli_gpu_attn_backward *family;
        int large, small;
    } rows[] = {{&uli_gpu_attn_backward_mma64, 2, 2},
        {&uli_gpu_attn_backward_mma128, 2, 1},
        {&uli_gpu_attn_backward_mma192, 2, 2},
        {&uli_gpu_attn_backward_mma256, 2, 1},
        {&uli_gpu_attn_backward_plain128, 1, 1},
        {&uli_gpu_attn_backward_plain256, 1, 0},
        {&uli_gpu_attn_backward_plain256_small, 1, 1},
        {&uli_gpu_attn_backward_plain512, 1, 0}};
    (void)state;
    for (int n = 0; n < 8; n++)
        for (int keys = 0; keys < 2; keys++) {
            assert_int_equal(
                slots_of(rows[n].family, 163, keys), rows[n].large);
            assert_int_equal(slots_of(rows[n].family, 99, keys), rows[n].small);
        }
}

/* Two families share a kernel, so the fit of one must leave the kernel usable
 * by the other. The launches have no tiles and end at once. */
static void
a_fit_leaves_room_to_other_families(void **state)
{
    const struct uli_gpu_attn_backward *large = &uli_gpu_attn_backward_plain512;
    struct uli_gpu_attn_backward_args args;
    struct uli_gpu_attn_fit fit, other;
    (void)state;
    memset(&args, 0, sizeof(args));
    args.by_query.dim_qk = args.by_query.dim_v = large->dim_qk;
    args.by_query.tile_keys = large->tile_flow;
    assert_int_equal(emu_open(NULL), 0);
    assert_int_equal(
        cudaMalloc((void **)&args.by_query.state, sizeof(*args.by_query.state)),
        cudaSuccess);
    assert_int_equal(
        cudaMemset(args.by_query.state, 0, sizeof(*args.by_query.state)),
        cudaSuccess);
    assert_int_equal(large->fit(&args, false, &fit), cudaSuccess);
    assert_int_equal(
        uli_gpu_attn_backward_plain256.fit(&args, false, &other), cudaSuccess);
    assert_int_equal(large->launch(&args, false, &fit, 1, NULL), cudaSuccess);
    assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
    assert_int_equal(emu_fault_count(), 0);
    emu_close();
}

static void
none_planted_passes(void **state)
{
    (void)state;
    fault_runs_none_is_well(&runs);
}

static void
each_fault_is_caught(void **state)
{
    (void)state;
    fault_runs_each_is_caught(&runs);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(slots_are_two_where_they_cost_no_block),
    cmocka_unit_test(a_fit_leaves_room_to_other_families),
    cmocka_unit_test(none_planted_passes),
    cmocka_unit_test(each_fault_is_caught),
};

ULI_TEST_MAIN("EmulateBackwardFaults", tests)
