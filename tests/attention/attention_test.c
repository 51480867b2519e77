/* SPDX-License-Identifier: Apache-2.0
 *
 * What the public calls compute: flags of pieces, accumulation, repetition,
 * sizes that overflow 32 bits; and the dtype conversions.
 */
#include "support/test.h"
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "attention/element.h"
#include "attention/setup.h"
#include "support/random.h"

/* ---- pieces that arrive -------------------------------------------------- */

static void *
set_flag(void *flag)
{
    usleep(20000);
    __atomic_store_n((uint64_t *)flag, 9, __ATOMIC_RELEASE);
    return NULL;
}

static void
pieces_wait_and_time_out(void **state)
{
    (void)state;
    struct bench b;
    uint64_t flag = 0;
    pthread_t thread;
    bench_init(&b, 1, 1, 1, 16, 8);
    ulyx_attention_piece_t pieces[2] = {
        {.rows = 10, .base = b.data[K]}, {.row_begin = 10,
                                             .rows = 6,
                                             .base = b.data[K] + 10 * 8,
                                             .flag = &flag,
                                             .flag_value = 9}};
    b.t[K].pieces = pieces;
    b.t[K].piece_count = 2;
    b.t[K].piece_size = sizeof(pieces[0]);
    b.exec.timeout_s = 0.05;
    assert_status(forward(&b), ULYX_ERR_TIMEOUT);
    b.exec.timeout_s = 30;
    assert_int_equal(pthread_create(&thread, NULL, set_flag, &flag), 0);
    assert_status(forward(&b), ULYX_SUCCESS);
    pthread_join(thread, NULL);
    pieces[1].row_begin = 11;
    refused(&b, ULYX_ERR_INVALID_ARGUMENT, "k: piece 1");
    bench_free(&b);
}

/* ---- precision ----------------------------------------------------------- */

/* If a double 1.5 were read as a float, the result would be 0. */
static void
sinks_of_fp64_problems_are_doubles(void **state)
{
    (void)state;
    struct bench b;
    const double sink = 1.5, zero[8] = {0}, v[8] = {1};
    double out[8] = {0}, lse = 0;
    bench_init(&b, 1, 1, 1, 1, 8);
    b.problem.dtype = ULYX_DTYPE_F64;
    b.problem.sinks = &sink;
    b.problem.heads_global = 1;
    b.t[Q].base = b.t[K].base = (void *)zero;
    b.t[V].base = (void *)v;
    b.t[OUT].base = out;
    b.t[LSE].base = &lse;
    for (int n = 0; n < TENSORS; n++)
        b.t[n].row_stride = b.t[n].head_stride = b.t[n].batch_stride = 64;
    assert_status(forward(&b), ULYX_SUCCESS);
    assert_true(fabs(out[0] - 1 / (1 + exp(sink))) < 1e-14);
    assert_true(fabs(lse - log(1 + exp(sink))) < 1e-14);
    bench_free(&b);
}

/* ---- accumulation ------------------------------------------------------ */

static void
accumulation_continues_a_sum_bit_for_bit(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1, 4, 1, 150, 64);
    assert_status(forward(&b), ULYX_SUCCESS);
    assert_status(backward(&b), ULYX_SUCCESS);
    size_t bytes = (size_t)b.floats[DK] * 4;
    float *dk = malloc(bytes), *dv = malloc(bytes);
    memcpy(dk, b.data[DK], bytes);
    memcpy(dv, b.data[DV], bytes);
    memset(b.data[DK], 0, bytes);
    memset(b.data[DV], 0, bytes);
    b.problem.heads_q = 2;
    b.backward.flags = ULYX_ATTENTION_ACCUMULATE;
    for (int part = 0; part < 2; part++) {
        for (int n = 0; n < TENSORS; n++)
            if (n != K && n != V && n != DK && n != DV)
                b.t[n].base = (char *)b.data[n] + 2 * part * b.t[n].head_stride;
        assert_status(backward(&b), ULYX_SUCCESS);
    }
    assert_memory_equal(dk, b.data[DK], bytes);
    assert_memory_equal(dv, b.data[DV], bytes);
    free(dk);
    free(dv);
    bench_free(&b);
}

static void
backward_repeats_bit_for_bit(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1, 3, 1, 300, 64);
    b.problem.mask = ULYX_MASK_CAUSAL;
    b.exec.deterministic = 1;
    assert_status(forward(&b), ULYX_SUCCESS);
    float *first[3] = {NULL, NULL, NULL};
    for (int n = 0; n < 200; n++) {
        b.exec.threads = 1 + n % 4;
        for (int t = DQ; t <= DV; t++)
            memset(b.data[t], 0xFF, (size_t)b.floats[t] * 4);
        assert_status(backward(&b), ULYX_SUCCESS);
        for (int t = DQ; t <= DV; t++) {
            size_t bytes = (size_t)b.floats[t] * 4;
            if (n == 0) {
                first[t - DQ] = malloc(bytes);
                memcpy(first[t - DQ], b.data[t], bytes);
            }
            assert_memory_equal(first[t - DQ], b.data[t], bytes);
        }
    }
    for (int t = 0; t < 3; t++)
        free(first[t]);
    bench_free(&b);
}

/* ---- sizes --------------------------------------------------------------- */

static void
empty_problems_succeed(void **state)
{
    (void)state;
    const int64_t sizes[][4] = {
        {0, 2, 2, 8}, {1, 0, 0, 8}, {1, 2, 2, 0}, {1, 0, 2, 8}};
    for (int n = 0; n < 4; n++) {
        struct bench b;
        bench_init(&b, sizes[n][0], sizes[n][1], sizes[n][2], sizes[n][3], 8);
        assert_status(forward(&b), ULYX_SUCCESS);
        assert_status(backward(&b), ULYX_SUCCESS);
        for (int64_t i = 0; i < b.floats[DK]; i++)
            assert_true(b.data[DK][i] == 0 || b.problem.heads_q);
        bench_free(&b);
    }
}

static void
rows_without_keys_are_zero(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1, 1, 1, 40, 8);
    b.problem.len_k = 0;
    assert_status(forward(&b), ULYX_SUCCESS);
    assert_status(backward(&b), ULYX_SUCCESS);
    for (int64_t i = 0; i < b.floats[OUT]; i++)
        assert_true(b.data[OUT][i] == 0 && b.data[DQ][i] == 0);
    for (int64_t i = 0; i < b.floats[LSE]; i++)
        assert_true(b.data[LSE][i] == -INFINITY);
    bench_free(&b);
}

/* b * h is 70,000. Grids of 65,535 blocks were the limit of other systems. */
static void
many_batch_items(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 35000, 2, 1, 2, 8);
    b.problem.mask = ULYX_MASK_CAUSAL;
    int64_t needed;
    assert_status(
        ulyx_attention_workspace(&b.problem, BACKWARD, &b.exec, &needed),
        ULYX_SUCCESS);
    assert_true(needed <= b.bytes);
    assert_status(forward(&b), ULYX_SUCCESS);
    assert_status(backward(&b), ULYX_SUCCESS);
    /* row 0 attends to its own key only, so it returns that key's value */
    for (int64_t i = 0; i < 35000; i++)
        for (int64_t n = 0; n < 16; n++) {
            float out = b.data[OUT][(i * 2 + n / 8) * 16 + n % 8];
            float value = b.data[V][i * 16 + n % 8];
            assert_true(out == value);
        }
    bench_free(&b);
}

/* Strides make the tensors 2^33 bytes and more, over reserved address space of
 * which only the pages of the rows are touched. */
static void
strides_beyond_32_bits(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 2, 1, 1, 3, 8);
    const int64_t row = (int64_t)3 << 30, item = 4 * row;
    char *space = mmap(NULL, (size_t)(2 * item), PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED)
        skip();
    assert_status(forward(&b), ULYX_SUCCESS);
    for (int n = 0; n < 4; n++) {
        if (n < OUT)
            for (int r = 0; r < 6; r++)
                memcpy(space + r / 3 * item + r % 3 * row + n * 4096,
                    b.data[n] + r * 8, 32);
        b.t[n].base = space + n * 4096;
        b.t[n].batch_stride = item;
        b.t[n].row_stride = row;
    }
    assert_status(forward(&b), ULYX_SUCCESS);
    for (int r = 0; r < 6; r++)
        assert_memory_equal(space + r / 3 * item + r % 3 * row + OUT * 4096,
            b.data[OUT] + r * 8, 32);
    munmap(space, (size_t)(2 * item));
    bench_free(&b);
}

/* ---- what must not influence a row --------------------------------------- */

static const char *const kernels[] = {
    "amx", "avx512-bf16", "avx512", "avx2", "portable", "reference"};
#define KERNELS (int)(sizeof(kernels) / sizeof(kernels[0]))

static void
poison_rows(struct bench *b, int n, int64_t first, int64_t end)
{
    for (int64_t i = first * b->problem.dim_qk; i < end * b->problem.dim_qk;
         i++)
        b->data[n][i] = NAN;
}

/* The documents are [3, 40) and [44, 90) of 100 rows. NaN in the gaps and in
 * the second document must not change the bits of the first document's rows. */
static void
documents_do_not_touch_each_other(void **state)
{
    (void)state;
    static const int64_t begin[2] = {3, 44}, length[2] = {37, 46};
    static const int inputs[] = {Q, K, V, DOUT};
    for (int k = 0; k < KERNELS; k++) {
        struct bench clean, dirty;
        ulyx_docs_t docs = ULYX_DOCS_INIT;
        docs.count = 2, docs.begin = begin, docs.length = length;
        bench_init(&clean, 1, 1, 1, 100, 64);
        bench_init(&dirty, 1, 1, 1, 100, 64);
        clean.problem.docs_q = dirty.problem.docs_q = &docs;
        clean.problem.mask = dirty.problem.mask = ULYX_MASK_CAUSAL;
        clean.exec.kernel = dirty.exec.kernel = kernels[k];
        ulyx_status_t status = forward(&clean);
        if (status == ULYX_SUCCESS) {
            assert_status(backward(&clean), ULYX_SUCCESS);
            for (int n = 0; n < 4; n++) {
                poison_rows(&dirty, inputs[n], 0, 3);
                poison_rows(&dirty, inputs[n], 40, 100);
            }
            assert_status(forward(&dirty), ULYX_SUCCESS);
            assert_status(backward(&dirty), ULYX_SUCCESS);
            for (int n = OUT; n < TENSORS; n++)
                if (n != LSE && n != DOUT)
                    assert_memory_equal(clean.data[n] + 3 * 64,
                        dirty.data[n] + 3 * 64, 37 * 64 * 4);
            for (int n = OUT; n < TENSORS; n++)
                for (int64_t i = 0; i < 3 * 64; i++)
                    assert_true(n == LSE || n == DOUT || dirty.data[n][i] == 0);
        } else {
            assert_int_equal(status, ULYX_ERR_UNSUPPORTED);
        }
        bench_free(&clean);
        bench_free(&dirty);
    }
}

/* Rows before the first key are 0 although every value is NaN or infinite. */
static void
rows_without_keys_ignore_values(void **state)
{
    (void)state;
    for (int k = 0; k < KERNELS; k++) {
        struct bench b;
        bench_init(&b, 1, 1, 1, 40, 64);
        b.problem.mask = ULYX_MASK_CAUSAL;
        b.problem.diagonal = -5;
        b.exec.kernel = kernels[k];
        poison_rows(&b, V, 0, 40);
        ulyx_status_t status = forward(&b);
        for (int64_t i = 0; status == ULYX_SUCCESS && i < 5 * 64; i++)
            assert_true(b.data[OUT][i] == 0);
        for (int64_t i = 0; status == ULYX_SUCCESS && i < 5; i++)
            assert_true(b.data[LSE][i] == -INFINITY);
        bench_free(&b);
    }
}

/* ---- conversions --------------------------------------------------------- */

/* Returns whether the half is the one nearest to the float, by a search among
 * its neighbours. */
static bool
is_nearest(uint16_t half, float value)
{
    double error = fabs((double)uli_float_of_f16(half) - (double)value);
    for (int step = -1; step <= 1; step += 2) {
        uint16_t other = (uint16_t)(half + step);
        if ((other & 0x7fff) > 0x7c00 || ((other ^ half) & 0x8000))
            continue;
        double limit =
            (other & 0x7fff) == 0x7c00
                ? fabs(copysign(65536.0, (double)value) - (double)value)
                : fabs((double)uli_float_of_f16(other) - (double)value);
        if (limit < error || (limit == error && (half & 1)))
            return false;
    }
    return true;
}

static void
halves_convert_both_ways(void **state)
{
    (void)state;
    struct test_random random = {test_seed(3)};
    for (uint32_t h = 0; h < 65536; h++) {
        bool number = (h & 0x7fff) <= 0x7c00;
        float value = uli_float_of_f16((uint16_t)h);
        assert_true(number ? uli_f16_of_float(value) == h : isnan(value));
        assert_true(number || (uli_f16_of_float(value) & 0x7fff) > 0x7c00);
    }
    for (int n = 0; n < 300000; n++) {
        float value = (float)(test_random_normal(&random) *
                              exp2((double)test_random_in(&random, -30, 15)));
        uint16_t half = uli_f16_of_float(value);
        if (fabsf(value) < 65520)
            assert_true(is_nearest(half, value));
        else
            assert_int_equal(half & 0x7fff, 0x7c00);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(pieces_wait_and_time_out),
    cmocka_unit_test(sinks_of_fp64_problems_are_doubles),
    cmocka_unit_test(accumulation_continues_a_sum_bit_for_bit),
    cmocka_unit_test(backward_repeats_bit_for_bit),
    cmocka_unit_test(empty_problems_succeed),
    cmocka_unit_test(rows_without_keys_are_zero),
    cmocka_unit_test(many_batch_items),
    cmocka_unit_test(strides_beyond_32_bits),
    cmocka_unit_test(documents_do_not_touch_each_other),
    cmocka_unit_test(rows_without_keys_ignore_values),
    cmocka_unit_test(halves_convert_both_ways),
};

ULI_TEST_MAIN("Attention", tests)
