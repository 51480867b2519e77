/* SPDX-License-Identifier: Apache-2.0
 *
 * What was measured on an H100 about wgmma's operand layouts and TMA's boxes,
 * row by row: the emulator must do what the card did, also where the card's
 * result was wrong. Host code lays the operands out by the card's formulas,
 * independently of the emulator's own. The same test, built by nvcc, runs on a
 * card.
 */
#include "support/test.h"
#include "emulate/self/fixture.h"
#include "attention/element.h"
#include "support/random.h"
#include "facts_kernels.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define good(call) assert_int_equal((call), cudaSuccess)

#ifdef ULI_EMULATE
#include "emulate.h"
#define assert_no_faults() assert_int_equal(emu_fault_count(), 0)
#else
#define assert_no_faults() good(cudaDeviceSynchronize())
#endif

enum { M = 64, K = 64, MAX_N = 256 };

/* Values are small integers, so products and sums are exact. */
static struct {
    uint16_t a[M * K], b[MAX_N * K];     /* bf16 */
    uint16_t a16[M * K], b16[MAX_N * K]; /* the same in fp16 */
    unsigned char images[FACTS_A_BYTES + FACTS_B_BYTES];
    float d[M * MAX_N];
} f;

static uint16_t
bf16_from_int(int v)
{
    union {
        float f;
        uint32_t bits;
    } w = {(float)v};
    return (uint16_t)(w.bits >> 16);
}

static void
make_operands(void)
{
    struct test_random random = {test_seed(11)};
    for (int i = 0; i < M * K; i++)
        f.a[i] = bf16_from_int((int)test_random_in(&random, -8, 8));
    for (int i = 0; i < MAX_N * K; i++)
        f.b[i] = bf16_from_int((int)test_random_in(&random, -8, 8));
    for (int i = 0; i < M * K; i++)
        f.a16[i] = uli_f16_of_float(bf16_value(f.a[i]));
    for (int i = 0; i < MAX_N * K; i++)
        f.b16[i] = uli_f16_of_float(bf16_value(f.b[i]));
    memset(f.images, 0, sizeof f.images);
}

static int
open_quiet(void **state)
{
    (void)state;
    make_operands();
#ifdef ULI_EMULATE
    const struct emu_config config = {.quiet = true};
    return emu_open(&config);
#else
    return 0;
#endif
}

/* Every test allocates device memory first; without a device, this skips the
 * test. */
static void
memory_allocate(void **p, size_t bytes)
{
#ifndef ULI_EMULATE
    int count = 0, major = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0)
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    if (major != 9)
        test_skip("no device of compute capability 9.0");
#endif
    good(cudaMalloc(p, bytes));
}

/* ---- wgmma ---- */
static void
image_put(unsigned char *image, uint32_t at, uint16_t v)
{
    memcpy(image + at, &v, sizeof v);
}

/* Panels have rows of `width` bytes. Element (row, column) is at byte
 * row * width + ((2 * column) ^ x), where x depends on the row. */
static uint32_t
in_panel(uint32_t row, uint32_t column, uint32_t width)
{
    uint32_t x = width == 128  ? (row & 7) << 4
                 : width == 64 ? (row >> 1 & 3) << 4
                               : (row >> 2 & 1) << 4;
    return row * width + ((2 * column) ^ x);
}

static void
lay_k_major(unsigned char *image, const uint16_t *rows, int count,
    uint32_t width, struct facts_operand *o)
{
    uint32_t columns = width / 2, panel = (uint32_t)count * width;
    for (uint32_t r = 0; r < (uint32_t)count; r++)
        for (uint32_t k = 0; k < K; k++)
            image_put(image,
                k / columns * panel + in_panel(r, k % columns, width),
                rows[r * K + k]);
    for (uint32_t s = 0; s < FACTS_STEPS; s++)
        o->step[s] = s * 32 % width + s * 32 / width * panel;
    o->stride_bytes = 8 * width;
    o->swizzle_bytes = width;
    o->leading_bytes = 16;
}

/* Core matrices of 8 rows x 16 bytes, 128 bytes each; the next one in K is LBO
 * bytes further. */
static void
lay_cores(unsigned char *image, const uint16_t *rows, int count,
    struct facts_operand *o)
{
    uint32_t next_rows = 128, next_k = (uint32_t)count / 8 * 128;
    for (uint32_t r = 0; r < (uint32_t)count; r++)
        for (uint32_t k = 0; k < K; k++)
            image_put(image,
                r / 8 * next_rows + k / 8 * next_k + r % 8 * 16 + k % 8 * 2,
                rows[r * K + k]);
    for (uint32_t s = 0; s < FACTS_STEPS; s++)
        o->step[s] = s * 2 * next_k;
    o->leading_bytes = next_k;
    o->stride_bytes = next_rows;
}

/* A row of a panel holds the values of 64 rows for one k. */
static void
lay_mn_major(unsigned char *image, const uint16_t *rows, int count,
    struct facts_operand *o)
{
    for (uint32_t r = 0; r < (uint32_t)count; r++)
        for (uint32_t k = 0; k < K; k++)
            image_put(image, r / 64 * K * 128 + in_panel(k, r % 64, 128),
                rows[r * K + k]);
    for (uint32_t s = 0; s < FACTS_STEPS; s++)
        o->step[s] = s * 2048;
    o->leading_bytes = K * 128;
    o->stride_bytes = 1024;
    o->swizzle_bytes = 128;
    o->trans = 1;
}

/* As above, with panels that are further apart than the bytes of their rows, as
 * for tiles of 80 keys. */
static void
lay_apart(unsigned char *image, const uint16_t *rows, int count, uint32_t panel,
    struct facts_operand *o)
{
    lay_mn_major(image, rows, count, o);
    for (uint32_t n = (uint32_t)(count - 1) / 64; n > 0; n--)
        memmove(image + n * panel, image + n * K * 128, K * 128);
    o->leading_bytes = panel;
}

/* Runs the product and counts wrong elements. */
static int
wrong_elements(const struct facts_product *p)
{
    void *images, *rows, *d;
    int wrong = 0;
    memory_allocate(&images, sizeof f.images);
    memory_allocate(&rows, sizeof f.a);
    memory_allocate(&d, sizeof f.d);
    good(cudaMemcpy(images, f.images, sizeof f.images, cudaMemcpyHostToDevice));
    good(cudaMemcpy(
        rows, p->f16 ? f.a16 : f.a, sizeof f.a, cudaMemcpyHostToDevice));
    good(facts_wgmma_launch(p, images, rows, d, NULL));
    cudaMemcpy(f.d, d, sizeof f.d, cudaMemcpyDeviceToHost);
    for (int m = 0; m < M; m++)
        for (int n = 0; n < p->n; n++) {
            float sum = 0;
            for (int k = 0; k < K; k++)
                sum += bf16_value(f.a[m * K + k]) * bf16_value(f.b[n * K + k]);
            wrong += f.d[m * p->n + n] != sum;
        }
    return wrong;
}

static const int widths[] = {64, 80, 128};

static void
k_major_swizzled_is_exact(void **state)
{
    static const uint32_t swizzles[] = {128, 64, 32};
    (void)state;
    for (int w = 0; w < 3; w++)
        for (int s = 0; s < 3; s++) {
            struct facts_product p = {.n = widths[w]};
            lay_k_major(f.images, f.a, M, swizzles[s], &p.a);
            lay_k_major(f.images + FACTS_A_BYTES, f.b, p.n, swizzles[s], &p.b);
            assert_int_equal(wrong_elements(&p), 0);
            p.a.leading_bytes = p.b.leading_bytes = 4096; /* must be ignored */
            assert_int_equal(wrong_elements(&p), 0);
        }
    assert_no_faults();
}

static void
k_major_core_matrices_are_exact(void **state)
{
    (void)state;
    for (int w = 0; w < 3; w++) {
        struct facts_product p = {.n = widths[w]};
        lay_cores(f.images, f.a, M, &p.a);
        lay_cores(f.images + FACTS_A_BYTES, f.b, p.n, &p.b);
        assert_int_equal(wrong_elements(&p), 0);
    }
    assert_no_faults();
}

static void
b_mn_major_is_exact(void **state)
{
    (void)state;
    for (int n = 64; n <= 128; n += 64) {
        struct facts_product p = {.n = n};
        lay_k_major(f.images, f.a, M, 128, &p.a);
        lay_mn_major(f.images + FACTS_A_BYTES, f.b, n, &p.b);
        if (n == 64)
            p.b.leading_bytes = 16; /* must be ignored */
        assert_int_equal(wrong_elements(&p), 0);
    }
    assert_no_faults();
}

/* V as the attention kernels have it: one and a half, three or four panels of
 * 64 columns, with 64 or 80 keys. A is in shared memory or in registers. */
static void
values_of_wide_heads_are_exact(void **state)
{
    static const int heads[] = {96, 192, 256};
    (void)state;
    for (int n = 0; n < 3; n++)
        for (int form = 0; form < 8; form++) {
            struct facts_product p = {
                .n = heads[n], .registers = form & 1, .f16 = form >> 1 & 1};
            memset(f.images, 0, sizeof f.images);
            lay_k_major(f.images, p.f16 ? f.a16 : f.a, M, 128, &p.a);
            lay_apart(f.images + FACTS_A_BYTES, p.f16 ? f.b16 : f.b, p.n,
                form & 4 ? 10240 : K * 128, &p.b);
            assert_int_equal(wrong_elements(&p), 0);
        }
    assert_no_faults();
}

static void
lbo_and_sbo_exchanged_is_wrong(void **state)
{
    struct facts_product p = {.n = 128};
    (void)state;
    lay_k_major(f.images, f.a, M, 128, &p.a);
    lay_mn_major(f.images + FACTS_A_BYTES, f.b, 128, &p.b);
    uint32_t leading = p.b.leading_bytes;
    p.b.leading_bytes = p.b.stride_bytes;
    p.b.stride_bytes = leading;
    /* On the card, 7604 of 8192 elements were wrong, with its data. */
    assert_in_range(wrong_elements(&p), 6500, 8192);
}

static void
a_mn_major_is_exact(void **state)
{
    struct facts_product p = {.n = 128};
    (void)state;
    lay_mn_major(f.images, f.a, M, &p.a);
    lay_k_major(f.images + FACTS_A_BYTES, f.b, 128, 128, &p.b);
    assert_int_equal(wrong_elements(&p), 0);
    assert_no_faults();
}

static void
a_in_registers_is_exact(void **state)
{
    (void)state;
    for (int w = 0; w < 3; w++) {
        struct facts_product p = {.n = widths[w], .registers = 1};
        lay_k_major(f.images + FACTS_A_BYTES, f.b, p.n, 128, &p.b);
        assert_int_equal(wrong_elements(&p), 0);
        if (p.n == 80)
            continue;
        lay_mn_major(f.images + FACTS_A_BYTES, f.b, p.n, &p.b);
        assert_int_equal(wrong_elements(&p), 0);
    }
    assert_no_faults();
}

/* The tile begins 256 bytes after a multiple of 1024 and is swizzled by address
 * bits. The base offset should account for the 256 bytes, but half of the rows
 * come out wrong. */
static void
wrong_base_offset_is_named(void **state)
{
    struct facts_product p = {.n = 64};
    (void)state;
    lay_k_major(f.images + FACTS_A_BYTES, f.b, 64, 128, &p.b);
    lay_k_major(f.images, f.a, M, 128, &p.a);
    memset(f.images, 0, FACTS_A_BYTES);
    for (uint32_t r = 0; r < M; r++)
        for (uint32_t k = 0; k < K; k++)
            image_put(f.images, in_panel(r + 2, k, 128), f.a[r * K + k]);
    for (int s = 0; s < FACTS_STEPS; s++)
        p.a.step[s] += 256;
    p.a.base_offset = 2;
    assert_in_range(wrong_elements(&p), M * 64 * 4 / 10, M * 64 / 2);
#ifdef ULI_EMULATE
    assert_int_equal(emu_fault_count_of(EMU_FAULT_WGMMA), 1);
    assert_non_null(strstr(emu_fault_text(0), "multiples of 1024"));
#endif
}

/* ---- TMA ---- */
/* Returns a tensor whose element i is i mod 60000 + 1, which is never 0. */
static uint16_t *
make_tensor(size_t elements, void **device)
{
    uint16_t *host = malloc(elements * sizeof *host);
    for (size_t i = 0; i < elements; i++)
        host[i] = (uint16_t)(i % 60000 + 1);
    memory_allocate(device, elements * sizeof *host);
    good(cudaMemcpy(
        *device, host, elements * sizeof *host, cudaMemcpyHostToDevice));
    return host;
}

/* Loads the box and compares it with the tensor, element by element. */
static void
check_box(
    const struct uli_tensor_map_spec *spec, const uint16_t *host, const int *at)
{
    static uint16_t got[65536];
    CUtensorMap map __attribute__((aligned(64)));
    uint32_t rows = 1, columns = spec->box[0];
    void *out;
    for (uint32_t d = 1; d < spec->rank; d++)
        rows *= spec->box[d];
    uint32_t bytes = rows * columns * 2;
    good(uli_tensor_map_encode(&map, spec));
    memory_allocate(&out, bytes);
    good(facts_load_launch(&map, (int)spec->rank, at, bytes, out, NULL));
    good(cudaMemcpy(got, out, bytes, cudaMemcpyDeviceToHost));
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < columns; c++) {
            int64_t x = at[0] + (int64_t)c, offset = x;
            bool inside = x >= 0 && x < (int64_t)spec->extents[0];
            for (uint32_t d = 1, rest = r; d < spec->rank; d++) {
                int64_t i = at[d] + (int64_t)(rest % spec->box[d]);
                rest /= spec->box[d];
                inside = inside && i >= 0 && i < (int64_t)spec->extents[d];
                offset += i * (int64_t)spec->strides[d - 1] / 2;
            }
            uint32_t place = spec->swizzle_bytes
                                 ? in_panel(r, c, spec->swizzle_bytes) / 2
                                 : r * columns + c;
            assert_int_equal(got[place], inside ? host[offset] : 0);
        }
    assert_no_faults();
}

static void
boxes_lie_where_the_formula_puts_them(void **state)
{
    enum { ROWS = 300, COLUMNS = 128 };
    static const uint32_t swizzles[] = {128, 64, 32, 0};
    void *tensor;
    uint16_t *host = make_tensor(ROWS * COLUMNS, &tensor);
    (void)state;
    for (int s = 0; s < 4; s++) {
        uint32_t width = swizzles[s] ? swizzles[s] : 128;
        struct uli_tensor_map_spec spec = {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
            tensor, {COLUMNS, ROWS}, {COLUMNS * 2}, {width / 2, 64},
            swizzles[s]};
        check_box(&spec, host, (int[]){0, 0});
        check_box(&spec, host, (int[]){(int)width / 2, 33});
    }
    struct uli_tensor_map_spec tall = {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
        tensor, {COLUMNS, ROWS}, {COLUMNS * 2}, {64, 256}, 128};
    tall.box[1] = 256;
    tall.box[0] = 16;
    tall.swizzle_bytes = 32;
    check_box(&tall, host, (int[]){16, 3});
    free(host);
}

static void
outside_of_the_tensor_is_zero(void **state)
{
    enum { ROWS = 100, COLUMNS = 64 };
    void *tensor;
    uint16_t *host = make_tensor(ROWS * COLUMNS, &tensor);
    struct uli_tensor_map_spec spec = {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
        tensor, {COLUMNS, ROWS}, {COLUMNS * 2}, {64, 64}, 128};
    (void)state;
    check_box(&spec, host, (int[]){0, 64});
    check_box(&spec, host, (int[]){0, -10});
    check_box(&spec, host, (int[]){-8, 90});
    check_box(&spec, host, (int[]){0, 100});
    free(host);
}

/* Memory [b][s][h][d], described as {d, s, h, b} and as {d, h, s, b}. */
static void
four_dimensions_clip_per_sequence(void **state)
{
    enum { B = 2, S = 70, H = 3, D = 64 };
    void *tensor;
    uint16_t *host = make_tensor(B * S * H * D, &tensor);
    struct uli_tensor_map_spec by_s = {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4,
        tensor, {D, S, H, B}, {H * D * 2, D * 2, S * H * D * 2}, {64, 64, 1, 1},
        128};
    struct uli_tensor_map_spec by_h = {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4,
        tensor, {D, H, S, B}, {D * 2, H * D * 2, S * H * D * 2}, {64, 1, 64, 1},
        128};
    (void)state;
    for (int h = 0; h < H; h++) {
        check_box(&by_s, host, (int[]){0, 0, h, 0});
        check_box(&by_s, host, (int[]){0, 64, h, 1});
        check_box(&by_h, host, (int[]){0, h, 64, 1});
    }
    free(host);
}

/* The receive buffer [P][b][t][h][d], described as {d, h, t, b, p}. */
static void
five_dimensions_clip_at_the_chunk(void **state)
{
    enum { P = 3, B = 2, T = 40, H = 2, D = 64 };
    void *tensor;
    uint16_t *host = make_tensor(P * B * T * H * D, &tensor);
    struct uli_tensor_map_spec spec = {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 5,
        tensor, {D, H, T, B, P},
        {D * 2, H * D * 2, T * H * D * 2, B * T * H * D * 2}, {64, 1, 64, 1, 1},
        128};
    (void)state;
    check_box(&spec, host, (int[]){0, 1, 0, 1, 1});
    check_box(&spec, host, (int[]){0, 0, 24, 0, 2});
    spec.box[4] = 2; /* two chunks per box */
    check_box(&spec, host, (int[]){0, 1, 0, 1, 1});
    check_box(&spec, host, (int[]){0, 1, 0, 1, 2});
    free(host);
}

static void
eighty_columns_have_a_zero_tail(void **state)
{
    enum { ROWS = 64, COLUMNS = 80 };
    void *tensor;
    uint16_t *host = make_tensor(ROWS * COLUMNS, &tensor);
    struct uli_tensor_map_spec spec = {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
        tensor, {COLUMNS, ROWS}, {160}, {64, 64}, 128};
    (void)state;
    check_box(&spec, host, (int[]){64, 0});
    free(host);
}

static void
encoder_refuses_invalid_values(void **state)
{
    void *tensor;
    CUtensorMap map __attribute__((aligned(64)));
    const struct uli_tensor_map_spec right = {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        2, NULL, {64, 64}, {128}, {64, 64}, 128};
    struct uli_tensor_map_spec spec = right;
    (void)state;
    memory_allocate(&tensor, 64 * 128);
    spec.base = tensor;
    good(uli_tensor_map_encode(&map, &spec));
    spec.strides[0] = 136;
    assert_int_equal(uli_tensor_map_encode(&map, &spec), cudaErrorInvalidValue);
    spec.strides[0] = 128;
    spec.extents[1] = 0;
    assert_int_equal(uli_tensor_map_encode(&map, &spec), cudaErrorInvalidValue);
    spec.extents[1] = 64;
    spec.box[1] = 257;
    assert_int_equal(uli_tensor_map_encode(&map, &spec), cudaErrorInvalidValue);
}

static void
stores_skip_what_is_outside(void **state)
{
    enum { ROWS = 50, COLUMNS = 64, BYTES = 64 * 128 };
    static uint16_t host[ROWS * COLUMNS], box[64 * 64], swizzled[64 * 64];
    CUtensorMap map __attribute__((aligned(64)));
    void *tensor, *in;
    (void)state;
    for (uint32_t i = 0; i < 64 * 64; i++) {
        box[i] = (uint16_t)(i + 1);
        swizzled[in_panel(i / 64, i % 64, 128) / 2] = box[i];
    }
    memory_allocate(&tensor, sizeof host);
    memory_allocate(&in, BYTES);
    good(cudaMemcpy(in, swizzled, BYTES, cudaMemcpyHostToDevice));
#ifdef ULI_EMULATE
    assert_int_equal(emu_track(tensor, sizeof host), 0);
#endif
    struct uli_tensor_map_spec spec = {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
        tensor, {COLUMNS, ROWS}, {COLUMNS * 2}, {64, 64}, 128};
    good(uli_tensor_map_encode(&map, &spec));
    good(facts_store_launch(&map, 2, (int[]){0, 0}, BYTES, in, NULL));
    good(cudaMemcpy(host, tensor, sizeof host, cudaMemcpyDeviceToHost));
#ifdef ULI_EMULATE
    assert_int_equal(emu_track_check(tensor, sizeof host), 0);
#endif
    assert_memory_equal(host, box, sizeof host);
}

static void
bulk_reductions_of_64_blocks_are_exact(void **state)
{
    static float host[1024];
    void *sum;
    (void)state;
    memory_allocate(&sum, sizeof host);
    good(cudaMemset(sum, 0, sizeof host));
    good(facts_reduce_launch(sum, 64, NULL));
    good(cudaMemcpy(host, sum, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 1024; i++)
        assert_true(host[i] == (float)(64 * i + 63 * 32));
    assert_no_faults();
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_quiet, close_all)

static const struct CMUnitTest tests[] = {
    CASE(k_major_swizzled_is_exact),
    CASE(k_major_core_matrices_are_exact),
    CASE(b_mn_major_is_exact),
    CASE(values_of_wide_heads_are_exact),
    CASE(lbo_and_sbo_exchanged_is_wrong),
    CASE(a_mn_major_is_exact),
    CASE(a_in_registers_is_exact),
    CASE(wrong_base_offset_is_named),
    CASE(boxes_lie_where_the_formula_puts_them),
    CASE(outside_of_the_tensor_is_zero),
    CASE(four_dimensions_clip_per_sequence),
    CASE(five_dimensions_clip_at_the_chunk),
    CASE(eighty_columns_have_a_zero_tail),
    CASE(encoder_refuses_invalid_values),
    CASE(stores_skip_what_is_outside),
    CASE(bulk_reductions_of_64_blocks_are_exact),
};

#ifdef ULI_EMULATE
ULI_TEST_MAIN("EmulateFacts", tests)
#else
ULI_TEST_MAIN("CardFacts", tests)
#endif
