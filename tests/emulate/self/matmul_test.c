/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiled matrix product is compared with a plain one: on the emulator with
 * several seeds and, built by nvcc, on a card (else the test is skipped).
 */
#include "support/test.h"
#include "emulate/self/fixture.h"
#include "support/random.h"
#include "matmul.h"
#include <math.h>
#include <stdlib.h>
#ifdef ULI_EMULATE
#include "emulate.h"
#endif

#define good(call) assert_int_equal((call), cudaSuccess)

static uint16_t *
make_operand(struct test_random *random, size_t count, void **device)
{
    uint16_t *host = malloc(count * sizeof *host);
    for (size_t i = 0; i < count; i++) {
        union {
            float f;
            uint32_t bits;
        } w = {(float)test_random_normal(random)};
        host[i] = (uint16_t)(w.bits >> 16);
    }
    good(cudaMalloc(device, count * sizeof *host));
    good(cudaMemcpy(
        *device, host, count * sizeof *host, cudaMemcpyHostToDevice));
    return host;
}

/* The result is rounded to bf16 (2^-9 of the value). Sums may differ by the
 * order of the k additions. */
static void
product_check(const uint16_t *a, const uint16_t *b, const uint16_t *c, int m,
    int n, int k)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0, size = 0;
            for (int x = 0; x < k; x++) {
                double p = (double)bf16_value(a[(size_t)i * k + x]) *
                           (double)bf16_value(b[(size_t)j * k + x]);
                sum += p;
                size += fabs(p);
            }
            double got = (double)bf16_value(c[(size_t)i * n + j]);
            double limit = fabs(sum) * 0x1p-8 + size * 0x1p-20;
            if (!(fabs(got - sum) <= limit))
                fail_msg("c[%d][%d] = %g, not %g", i, j, got, sum);
        }
}

static void
product_run(int m, int n, int k, uint64_t seed)
{
    struct test_random random = {seed};
    void *a, *b, *c;
    uint16_t *host_a = make_operand(&random, (size_t)m * k, &a);
    uint16_t *host_b = make_operand(&random, (size_t)n * k, &b);
    uint16_t *host_c = malloc((size_t)m * n * 2);
    good(cudaMalloc(&c, (size_t)m * n * 2));
#ifdef ULI_EMULATE
    assert_int_equal(emu_track(c, (size_t)m * n * 2), 0);
#endif
    good(matmul_launch(a, b, c, m, n, k, NULL));
    good(cudaDeviceSynchronize());
    good(cudaMemcpy(host_c, c, (size_t)m * n * 2, cudaMemcpyDeviceToHost));
#ifdef ULI_EMULATE
    assert_int_equal(emu_track_check(c, (size_t)m * n * 2), 0);
    assert_int_equal(emu_fault_count(), 0);
#endif
    product_check(host_a, host_b, host_c, m, n, k);
    free(host_a);
    free(host_b);
    free(host_c);
    good(cudaFree(a));
    good(cudaFree(b));
    good(cudaFree(c));
}

static void
need_device(uint64_t seed)
{
#ifdef ULI_EMULATE
    const struct emu_config config = {.seed = seed};
    assert_int_equal(emu_open(&config), 0);
#else
    int count = 0, major = 0;
    (void)seed;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0 ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) !=
            cudaSuccess ||
        major != 9)
        test_skip("no device of compute capability 9.0");
#endif
}

static void
whole_tiles(void **state)
{
    (void)state;
    need_device(test_seed(1));
    product_run(256, 128, 256, test_seed(1));
}

static void
ragged_edges(void **state)
{
    static const int shapes[][3] = {{1, 8, 8}, {130, 200, 72}, {64, 136, 328}};
    (void)state;
    for (int i = 0; i < 3; i++)
        for (uint64_t seed = 1; seed <= 3; seed++) {
            need_device(seed);
            product_run(shapes[i][0], shapes[i][1], shapes[i][2], seed);
        }
}

#define CASE(name) cmocka_unit_test_teardown(name, close_all)

static const struct CMUnitTest tests[] = {
    CASE(whole_tiles),
    CASE(ragged_edges),
};

#ifdef ULI_EMULATE
ULI_TEST_MAIN("EmulateMatmul", tests)
#else
ULI_TEST_MAIN("CardMatmul", tests)
#endif
