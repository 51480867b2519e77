/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulator reports each planted fault in every one of many seeds, with the
 * kind that faults.h lists. For the correct kernels it reports nothing, and
 * their results are right.
 */
#include "support/test.h"
#include "emulate/self/fixture.h"
#include "support/random.h"
#include "emulate.h"
#include "faults.h"
#include <stdlib.h>
#include <string.h>

#define good(call) assert_int_equal((call), cudaSuccess)

enum { SEEDS = 20, EMU_FAULT_WRONG = -1, EMU_FAULT_RING_BROKEN = -2 };

struct fault {
    const char *name;
    int number, kind;
};

#define FAULT_ROW(name, kind) {#name, name, EMU_FAULT_##kind},
static const struct fault ring_faults[] = {FAULTS_RING(FAULT_ROW)};
static const struct fault wgmma_faults[] = {FAULTS_WGMMA(FAULT_ROW)};
static const struct fault flag_faults[] = {FAULTS_FLAG(FAULT_ROW)};
static const struct fault block_faults[] = {FAULTS_BLOCK(FAULT_ROW)};

static void *
to_device(const void *host, size_t bytes)
{
    void *p = NULL;
    good(cudaMalloc(&p, bytes));
    if (host)
        good(cudaMemcpy(p, host, bytes, cudaMemcpyHostToDevice));
    return p;
}

/* Each of these functions runs one kernel and returns how many results are
 * wrong. */
static int
run_ring(int fault)
{
    static int in[RING_TILES * RING_TILE + 4], out[RING_TILES];
    int wrong = 0;
    for (int i = 0; i < RING_TILES * RING_TILE; i++)
        in[i] = i * 31 % 1009;
    int *d_in = to_device(in, sizeof in), *d_out = to_device(NULL, sizeof out);
    good(cudaMemset(d_out, 0, sizeof out));
    good(ring_launch(fault, d_in, d_out));
    cudaMemcpy(out, d_out, sizeof out, cudaMemcpyDeviceToHost);
    for (int t = 0; t < RING_TILES; t++) {
        int sum = 0;
        for (int i = 0; i < RING_TILE; i++)
            sum += in[t * RING_TILE + i];
        wrong += out[t] != sum;
    }
    return wrong;
}

static int
run_wgmma(int fault)
{
    static uint16_t a[64 * 32], b[64 * 32];
    static float d[64 * 64];
    static const uint16_t numbers[] = {0x3f80, 0x4000, 0xbf80, 0};
    static const int values[] = {1, 2, -1, 0};
    static uint8_t pick_a[64 * 32], pick_b[64 * 32];
    struct test_random random = {5};
    int wrong = 0;
    for (int i = 0; i < 64 * 32; i++) {
        a[i] = numbers[pick_a[i] = (uint8_t)test_random_in(&random, 0, 3)];
        b[i] = numbers[pick_b[i] = (uint8_t)test_random_in(&random, 0, 3)];
    }
    uint16_t *d_a = to_device(a, sizeof a), *d_b = to_device(b, sizeof b);
    float *d_d = to_device(NULL, sizeof d);
    good(wgmma_launch(fault, d_a, d_b, d_d));
    cudaMemcpy(d, d_d, sizeof d, cudaMemcpyDeviceToHost);
    for (int m = 0; m < 64; m++)
        for (int n = 0; n < 64; n++) {
            int sum = 0;
            for (int k = 0; k < 32; k++)
                sum += values[pick_a[m * 32 + k]] * values[pick_b[n * 32 + k]];
            wrong += d[m * 64 + n] != (float)sum;
        }
    return wrong;
}

static int
run_flag_as(int fault, int bulk, int bulk_take)
{
    static int in[FLAG_COUNT], out[FLAG_COUNT];
    int wrong = 0;
    for (int i = 0; i < FLAG_COUNT; i++)
        in[i] = i * 3;
    good(cudaSetDevice(1));
    int *data = to_device(NULL, sizeof out);
    int *d_out = to_device(NULL, sizeof out);
    unsigned *flag = to_device(NULL, sizeof *flag);
    good(cudaMemset(flag, 0, sizeof *flag));
    assert_int_equal(emu_track(data, sizeof out), 0);
    good(flag_take_launch(fault, bulk_take, data, flag, d_out));
    good(cudaSetDevice(0));
    int *d_in = to_device(in, sizeof in);
    /* an error is ignored, because the access may be enabled already */
    cudaDeviceEnablePeerAccess(1, 0);
    good(flag_put_launch(fault, bulk, d_in, data, flag));
    good(cudaSetDevice(1));
    cudaMemcpy(out, d_out, sizeof out, cudaMemcpyDeviceToHost);
    for (int i = 0; i < FLAG_COUNT; i++)
        wrong += out[i] != in[i] + 1;
    wrong += emu_track_check(data, sizeof out) != 0;
    return wrong;
}

static int
run_flag(int fault)
{
    if (fault == FLAG_RIGHT)
        return run_flag_as(fault, 0, 0) + run_flag_as(fault, 1, 0) +
               run_flag_as(fault, 0, 1);
    return run_flag_as(fault, fault <= FLAG_STAGE_OVERWRITTEN,
        fault == FLAG_LOAD_NO_PROXY_FENCE ||
            fault == FLAG_LOAD_FENCE_OF_OTHER_SPACE);
}

static int
run_block(int fault)
{
    static int in[BLOCK_COUNT], out[BLOCK_COUNT];
    int wrong = 0;
    for (int i = 0; i < BLOCK_COUNT; i++)
        in[i] = i * 11;
    int *d_in = to_device(in, sizeof in), *d_out = to_device(NULL, sizeof out);
    good(block_launch(fault, d_in, d_out));
    cudaMemcpy(out, d_out, sizeof out, cudaMemcpyDeviceToHost);
    for (int i = 0; i < BLOCK_COUNT; i++)
        wrong += out[i] != in[BLOCK_COUNT - 1 - i] + i;
    return wrong;
}

static void
open_with(uint64_t seed, bool quiet)
{
    const struct emu_config config = {
        .devices = 2, .seed = seed, .quiet = quiet};
    assert_int_equal(emu_open(&config), 0);
}

static void
check_twin(int (*run)(int fault))
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        open_with(seed, false);
        int wrong = run(0);
        if (wrong || emu_fault_count())
            print_error("seed %d: %d wrong, %d faults, first: %s\n", (int)seed,
                wrong, (int)emu_fault_count(), emu_fault_text(0));
        assert_int_equal(wrong, 0);
        assert_int_equal(emu_fault_count(), 0);
        emu_close();
    }
}

static bool
fault_reported(int kind, int wrong)
{
    if (kind == EMU_FAULT_WRONG)
        return wrong > 0;
    if (kind == EMU_FAULT_RING_BROKEN)
        return emu_fault_count_of(EMU_FAULT_RACE) +
                   emu_fault_count_of(EMU_FAULT_MBARRIER) >
               0;
    return emu_fault_count_of((enum emu_fault)kind) > 0;
}

static void
check_faults(const struct fault *faults, size_t count, int (*run)(int fault))
{
    int failures = 0;
    for (size_t i = 0; i < count; i++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            open_with(seed, true);
            int wrong = run(faults[i].number);
            bool found = fault_reported(faults[i].kind, wrong);
            if (!found)
                print_error("%s, seed %d: not reported (%d wrong, %d other "
                            "faults, first: %s)\n",
                    faults[i].name, (int)seed, wrong, (int)emu_fault_count(),
                    emu_fault_text(0));
            failures += !found;
            emu_close();
        }
    assert_int_equal(failures, 0);
}

#define FAMILY(name)                                                           \
    static void name##_twin_is_clean(void **state)                             \
    {                                                                          \
        (void)state;                                                           \
        check_twin(run_##name);                                                \
    }                                                                          \
    static void name##_faults_are_reported(void **state)                       \
    {                                                                          \
        (void)state;                                                           \
        check_faults(name##_faults,                                            \
            sizeof name##_faults / sizeof name##_faults[0], run_##name);       \
    }
FAMILY(ring)
FAMILY(wgmma)
FAMILY(flag)
FAMILY(block)

#define CASE(name) cmocka_unit_test_teardown(name, close_all)

static const struct CMUnitTest tests[] = {
    CASE(ring_twin_is_clean),
    CASE(ring_faults_are_reported),
    CASE(wgmma_twin_is_clean),
    CASE(wgmma_faults_are_reported),
    CASE(flag_twin_is_clean),
    CASE(flag_faults_are_reported),
    CASE(block_twin_is_clean),
    CASE(block_faults_are_reported),
};

ULI_TEST_MAIN("EmulateFaults", tests)
