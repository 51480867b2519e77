/* SPDX-License-Identifier: Apache-2.0
 *
 * Instruction families that facts_test.c does not cover, each compared with
 * plain arithmetic; and what the emulator refuses, by name.
 */
#include "support/test.h"
#include "emulate/self/fixture.h"
#include "support/random.h"
#include "emulate.h"
#include "units_kernels.h"
#include <math.h>
#include <string.h>

#define good(call) assert_int_equal((call), cudaSuccess)

static void *
to_device(const void *host, size_t bytes)
{
    void *p = NULL;
    good(cudaMalloc(&p, bytes));
    good(cudaMemcpy(p, host, bytes, cudaMemcpyHostToDevice));
    return p;
}

static void
from_device(void *host, const void *p, size_t bytes)
{
    good(cudaMemcpy(host, p, bytes, cudaMemcpyDeviceToHost));
    assert_int_equal(emu_fault_count(), 0);
}

/* Small integers as 16-bit floats. */
static uint16_t
value_16bit(int v, int f16)
{
    union {
        float f;
        uint32_t bits;
    } w = {(float)v};
    if (!f16)
        return (uint16_t)(w.bits >> 16);
    if (v == 0)
        return 0;
    return (uint16_t)((w.bits >> 16 & 0x8000) |
                      ((w.bits >> 23 & 255) - 112) << 10 |
                      (w.bits >> 13 & 1023));
}

static void
check_mma(int f16, int trans)
{
    struct test_random random = {test_seed(3)};
    int a[16][16], b[8][16];
    uint16_t ha[16 * 16], hb[16 * 8];
    float d[16 * 8] = {0};
    for (int i = 0; i < 256; i++)
        a[i / 16][i % 16] = (int)test_random_in(&random, -9, 9);
    for (int i = 0; i < 128; i++)
        b[i / 16][i % 16] = (int)test_random_in(&random, -9, 9);
    for (int i = 0; i < 256; i++)
        ha[i] = value_16bit(a[i / 16][i % 16], f16);
    for (int i = 0; i < 128; i++)
        hb[i] = value_16bit(trans ? b[i % 8][i / 8] : b[i / 16][i % 16], f16);
    void *da = to_device(ha, sizeof ha), *db = to_device(hb, sizeof hb);
    void *dd = to_device(d, sizeof d);
    good(trans ? units_mma_trans_launch(da, db, dd)
               : units_mma_launch(f16, da, db, dd));
    from_device(d, dd, sizeof d);
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 8; n++) {
            int sum = 0;
            for (int k = 0; k < 16; k++)
                sum += a[m][k] * b[n][k];
            assert_true(d[m * 8 + n] == (float)sum);
        }
}

static void
mma_multiplies(void **state)
{
    (void)state;
    check_mma(0, 0);
    check_mma(1, 0);
    check_mma(0, 1);
}

static void
tf32_drops_the_low_bits(void **state)
{
    float a[16 * 8], b[8 * 8], d[16 * 8] = {0};
    (void)state;
    for (int i = 0; i < 128; i++)
        /* the last bits are lost in tf32 */
        a[i] = (float)(i % 13 - 6) + 0x1p-20f;
    for (int i = 0; i < 64; i++)
        b[i] = (float)(i % 7 - 3);
    void *da = to_device(a, sizeof a), *db = to_device(b, sizeof b);
    void *dd = to_device(d, sizeof d);
    good(units_tf32_launch(da, db, dd));
    from_device(d, dd, sizeof d);
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 8; n++) {
            float sum = 0;
            for (int k = 0; k < 8; k++)
                sum += (a[m * 8 + k] < 0 ? ceilf(a[m * 8 + k] - 0.5f)
                                         : floorf(a[m * 8 + k])) *
                       b[n * 8 + k];
            assert_true(fabsf(d[m * 8 + n] - sum) < 0.1f);
        }
}

static void
stmatrix_transposes(void **state)
{
    uint16_t in[64], out[64];
    (void)state;
    for (int i = 0; i < 64; i++)
        in[i] = (uint16_t)(i * 5);
    void *di = to_device(in, sizeof in), *d = to_device(in, sizeof in);
    good(units_stmatrix_launch(di, d));
    from_device(out, d, sizeof out);
    for (int i = 0; i < 64; i++)
        assert_int_equal(out[i], in[i % 8 * 8 + i / 8]);
}

static void
warp_instructions_match_their_definition(void **state)
{
    uint32_t out[12 * 32] = {0}, max = 0;
    (void)state;
    void *d = to_device(out, sizeof out);
    good(units_warp_launch(d));
    from_device(out, d, sizeof out);
    for (uint32_t l = 0; l < 32; l++)
        max = l * 7 % 31 > max ? l * 7 % 31 : max;
    for (uint32_t l = 0; l < 32; l++) {
        assert_int_equal(out[l], 0x49249249);
        assert_int_equal(out[1 * 32 + l], 1);
        assert_int_equal(out[2 * 32 + l], 0);
        assert_int_equal(out[3 * 32 + l], 70);
        assert_int_equal(out[4 * 32 + l], l >= 3 ? l - 3 : l);
        assert_int_equal(out[5 * 32 + l], l % 8 < 3 ? l + 5 : l);
        assert_int_equal(out[6 * 32 + l], l ^ 9);
        assert_int_equal(out[7 * 32 + l], 496);
        assert_int_equal(out[8 * 32 + l], max);
        assert_int_equal(out[9 * 32 + l], l < 16 ? l ^ 1 : l ^ 2);
        assert_int_equal(out[10 * 32 + l], 1);
        assert_int_equal(out[11 * 32 + l], 20);
    }
}

static void
copies_arrive_on_an_mbarrier(void **state)
{
    enum { N = 256 };
    uint32_t in[N], out[N];
    (void)state;
    for (uint32_t i = 0; i < N; i++)
        in[i] = i + 1;
    for (int valid = N; valid > 0; valid -= 51) {
        void *di = to_device(in, ((size_t)valid * 4 + 12) & ~(size_t)15);
        void *d = to_device(in, sizeof in);
        good(units_copy_launch(di, d, N, valid));
        from_device(out, d, sizeof out);
        for (int i = 0; i < N; i++)
            assert_int_equal(out[N - 1 - i], i < valid ? in[i] : 0);
    }
}

static void
named_barriers_hand_over(void **state)
{
    uint32_t out[20] = {0};
    (void)state;
    void *d = to_device(out, sizeof out);
    good(units_named_launch(d, 20));
    from_device(out, d, sizeof out);
    for (uint32_t r = 0; r < 20; r++)
        assert_int_equal(out[r], r * 100 + 31);
}

static void
conversions_round_to_even(void **state)
{
    static const struct {
        float f;
        uint16_t bf16, f16;
    } cases[] = {
        {0.0f, 0x0000, 0x0000},
        {1.0f, 0x3f80, 0x3c00},
        {1.00390625f, 0x3f80, 0x3c04},    /* bf16: a tie, to even */
        {1.01171875f, 0x3f82, 0x3c0c},    /* bf16: a tie, to even */
        {1.00048828125f, 0x3f80, 0x3c00}, /* f16: a tie, to even */
        {1.00146484375f, 0x3f80, 0x3c02}, /* f16: a tie, to even */
        {65504.0f, 0x4780, 0x7bff},
        {65519.0f, 0x4780, 0x7bff},
        {65520.0f, 0x4780, 0x7c00},
        {0x1p-24f, 0x3380, 0x0001},
        {0x1p-25f, 0x3300, 0x0000},
        {0x1.8p-24f, 0x33c0, 0x0002},
        {0x1p-14f, 0x3880, 0x0400},
        {INFINITY, 0x7f80, 0x7c00},
    };
    enum { N = sizeof cases / sizeof cases[0] };
    float in[N];
    uint32_t bf16[N] = {0}, f16[N] = {0};
    (void)state;
    for (int i = 0; i < N; i++)
        in[i] = cases[i].f;
    void *di = to_device(in, sizeof in), *db = to_device(bf16, sizeof bf16);
    void *df = to_device(f16, sizeof f16);
    good(units_convert_launch(di, db, df, N));
    from_device(bf16, db, sizeof bf16);
    from_device(f16, df, sizeof f16);
    for (int i = 0; i < N; i++) {
        assert_int_equal(bf16[i] & 0xffff, cases[i].bf16);
        assert_int_equal(bf16[i] >> 16, cases[i].bf16 | 0x8000);
        assert_int_equal(f16[i] & 0xffff, cases[i].f16);
        assert_int_equal(f16[i] >> 16, cases[i].f16 | 0x8000);
    }
}

/* Relaxed accesses and fences order the work of many blocks. */
static void
fences_order_a_chain_of_blocks(void **state)
{
    uint32_t words[2] = {0, 0};
    (void)state;
    uint32_t *turn = to_device(words, 4), *value = to_device(words, 4);
    good(units_turns_launch(turn, value, 40));
    from_device(words, value, 4);
    assert_int_equal(words[0], 40);
}

/* Values are small integers, so scores and sums are exact in bf16 and fp32. */
static void
check_overlap(uint64_t seed)
{
    enum { TILES = 3, N = 64 * 64 };
    static uint16_t q[N], k[TILES * N], v[TILES * N];
    static float o[N], want[N];
    struct test_random random = {seed};
    for (int i = 0; i < N; i++)
        q[i] = value_16bit((int)test_random_in(&random, -1, 1), 0);
    for (int i = 0; i < TILES * N; i++) {
        k[i] = value_16bit((int)test_random_in(&random, -1, 1), 0);
        v[i] = value_16bit((int)test_random_in(&random, -2, 2), 0);
    }
    memset(want, 0, sizeof want);
    for (int i = 0; i < 64; i++)
        for (int j = 0; j < TILES * 64; j++) {
            float s = 0;
            for (int d = 0; d < 64; d++)
                s += bf16_value(q[i * 64 + d]) * bf16_value(k[j * 64 + d]);
            for (int d = 0; d < 64; d++)
                want[i * 64 + d] += s / 8 * bf16_value(v[j * 64 + d]);
        }
    void *dq = to_device(q, sizeof q), *dk = to_device(k, sizeof k);
    void *dv = to_device(v, sizeof v), *d = to_device(o, sizeof o);
    good(units_overlap_launch(dq, dk, dv, d, TILES));
    from_device(o, d, sizeof o);
    assert_memory_equal(o, want, sizeof o);
}

static void
products_overlap_as_in_attention(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        const struct emu_config config = {.seed = seed};
        assert_int_equal(emu_open(&config), 0);
        check_overlap(seed);
    }
}

static void
open_quiet(void)
{
    const struct emu_config config = {.quiet = true};
    assert_int_equal(emu_open(&config), 0);
}

static void
clusters_and_multicast_are_refused_by_name(void **state)
{
    (void)state;
    open_quiet();
    assert_int_equal(units_cluster_launch(), cudaErrorNotSupported);
    assert_int_equal(emu_fault_kind(0), EMU_FAULT_UNSUPPORTED);
    assert_non_null(strstr(emu_fault_text(0), "clusters"));
    open_quiet();
    good(units_multicast_launch());
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    assert_int_equal(emu_fault_kind(0), EMU_FAULT_UNSUPPORTED);
    assert_non_null(strstr(emu_fault_text(0), "multicast"));
}

static void
shared_memory_limits_are_the_cards(void **state)
{
    (void)state;
    open_quiet();
    good(units_shared_launch(49152, 0));
    assert_int_equal(units_shared_launch(49153, 0), cudaErrorInvalidValue);
    assert_int_equal(emu_fault_kind(0), EMU_FAULT_LAUNCH);
    open_quiet();
    good(units_shared_launch(232448, 1));
    assert_int_equal(units_shared_launch(232449, 1), cudaErrorInvalidValue);
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, open_default, close_all)

static const struct CMUnitTest tests[] = {
    CASE(mma_multiplies),
    CASE(tf32_drops_the_low_bits),
    CASE(stmatrix_transposes),
    CASE(warp_instructions_match_their_definition),
    CASE(copies_arrive_on_an_mbarrier),
    CASE(named_barriers_hand_over),
    CASE(conversions_round_to_even),
    CASE(fences_order_a_chain_of_blocks),
    CASE(products_overlap_as_in_attention),
    CASE(clusters_and_multicast_are_refused_by_name),
    CASE(shared_memory_limits_are_the_cards),
};

ULI_TEST_MAIN("EmulateUnits", tests)
