/* SPDX-License-Identifier: Apache-2.0
 *
 * Products by tiles, compared with three loops in doubles: every start value, A
 * as it lies and A transposed, widths with and without a single tile at the
 * end, between guards. Emulated tiles are tested everywhere; the CPU's tiles,
 * where it has them, must give the same bits.
 */
#include "support/test.h"
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "attention/element.h"
#include "attention/kernels/amx_state.h"
#include "attention/setup.h"
#include "attention/tiles/emulated_fault.h"
#include "attention/tiles/gemm_probe.h"
#include "support/random.h"

enum { GUARD = 64, ROWS_MOST = 128, UNITS_MOST = 64 };
enum { PANEL = 32, PANELS_MOST = 4, PANEL_MOST = UNITS_MOST * PANEL + 16 };
#define A_FLOATS ((ROWS_MOST + UNITS_MOST) * 144)
#define B_FLOATS (PANELS_MOST * PANEL_MOST)
#define C_FLOATS (ROWS_MOST * 128)

/* A product with memory for its operands. a[m][k] is at m * a_row + k * a_col.
 * b[k][n] lies in panels of PANEL columns, which are b_panel apart. */
struct product {
    struct probe probe;
    bool turned;
    _Alignas(64) float a[A_FLOATS], b[B_FLOATS], factor[ROWS_MOST];
    _Alignas(64) float c[GUARD + C_FLOATS + GUARD], start[C_FLOATS];
};

static void
skip_without_tiles(void)
{
    if (uli_amx_refusal())
        test_skip("kernel amx: %s", uli_amx_refusal());
}

/* Runs in a process that may not use tiles yet and whose signal stack is too
 * small for their state. Returns whether all is as it should be. */
static bool
small_stack_refuses(void)
{
    static char memory[2048];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof(memory)};
    char text[1000];
    struct bench b;
    bench_init(&b, 1, 1, 1, 20, 8);
    b.problem.dtype = ULYX_DTYPE_BF16;
    b.exec.kernel = "amx";
    if (sigaltstack(&stack, NULL) != 0 || forward(&b) != ULYX_ERR_UNSUPPORTED ||
        !error_has("kernel amx: the system does not permit tiles of AMX") ||
        !error_has("signal stack is too small"))
        return false;
    b.exec.kernel = NULL;
    return !ulyx_attention_describe(
               &b.problem, FORWARD, &b.exec, text, sizeof(text)) &&
           strstr(text, "; not amx: the system");
}

/* This test is the first, because a child has the permissions that its parent
 * has. */
static void
a_small_signal_stack_refuses_tiles(void **state)
{
    (void)state;
    int status = 0;
    pid_t child = fork();
    if (child == 0)
        _exit(!small_stack_refuses());
    waitpid(child, &status, 0);
    skip_without_tiles();
    assert_int_equal(status, 0);
}

static float
unit_random(struct test_random *random)
{
    uint32_t low = uli_bf16_of_float((float)test_random_normal(random));
    uint32_t high = uli_bf16_of_float((float)test_random_normal(random));
    uint32_t unit = low | high << 16;
    float value;
    memcpy(&value, &unit, sizeof(value));
    return value;
}

/* Returns half h (0: low) of a unit. */
static double
unit_half(float unit, int h)
{
    uint32_t bits;
    memcpy(&bits, &unit, sizeof(bits));
    return uli_float_of_bf16((uint16_t)(bits >> 16 * h));
}

static int64_t
b_at(const struct probe *probe, int64_t k, int64_t n)
{
    return n / PANEL * probe->b_panel + k * PANEL + n % PANEL;
}

static struct product *
product_create(enum probe_init init, bool turned, int64_t rows, int64_t columns,
    int64_t depth)
{
    struct test_random random = {(uint64_t)(rows + columns * 7 + depth * 31)};
    struct product *p = aligned_alloc(64, sizeof(*p));
    memset(p, 0xff, sizeof(*p)); /* NaN beside the values that are used */
    p->turned = turned;
    p->probe = (struct probe){.init = init,
        .rows = rows,
        .columns = columns,
        .depth = depth,
        .a_row = turned ? 1 : depth + 16,
        .a_col = turned ? rows + 16 : 1,
        .b_panel = depth * PANEL + 16,
        .c_ld = columns + 16};
    p->probe.a = p->a, p->probe.b = p->b, p->probe.factor = p->factor;
    p->probe.c = p->c + GUARD;
    for (int64_t k = 0; k < depth; k++) {
        for (int64_t m = 0; m < rows; m++)
            p->a[m * p->probe.a_row + k * p->probe.a_col] =
                unit_random(&random);
        for (int64_t n = 0; n < columns; n++)
            p->b[b_at(&p->probe, k, n)] = unit_random(&random);
    }
    for (int64_t m = 0; m < rows; m++) {
        p->factor[m] = m % 3 ? (float)test_random_normal(&random) : 1;
        for (int64_t n = 0; n < columns && init != PROBE_ZERO; n++)
            p->probe.c[m * p->probe.c_ld + n] =
                (float)test_random_normal(&random);
    }
    memcpy(p->start, p->probe.c, sizeof(p->start));
    return p;
}

static double
wanted_value(const struct product *p, int64_t m, int64_t n)
{
    const struct probe *probe = &p->probe;
    double sum = probe->init == PROBE_ZERO ? 0 : p->start[m * probe->c_ld + n];
    if (probe->init == PROBE_SCALE)
        sum *= p->factor[m];
    for (int64_t k = 0; k < probe->depth; k++)
        for (int h = 0; h < 2; h++)
            sum += unit_half(p->a[m * probe->a_row + k * probe->a_col], h) *
                   unit_half(p->b[b_at(probe, k, n)], h);
    return sum;
}

/* Returns whether every element is right within rounding and no byte beside
 * them has changed. */
static bool
product_holds(const struct product *p)
{
    const struct probe *probe = &p->probe;
    const float *c = p->c;
    for (int64_t n = 0; n < GUARD + C_FLOATS + GUARD; n++) {
        int64_t m = (n - GUARD) / probe->c_ld, at = (n - GUARD) % probe->c_ld;
        bool inside = n >= GUARD && m < probe->rows && at < probe->columns;
        uint32_t bits;
        memcpy(&bits, &c[n], sizeof(bits));
        /* depth sums of products of about 1, each rounded */
        double error = inside ? fabs(c[n] - wanted_value(p, m, at)) : 0;
        if (inside ? !(error <= 2e-5) : bits != 0xffffffff)
            return false;
    }
    return true;
}

typedef bool (*product_check)(struct product *p, probe_run run);

/* Returns how many products, of the kernel's kinds and ragged ones, fail the
 * check. */
static int
products_failing(product_check check, probe_run run)
{
    static const int64_t sizes[][3] = {
        {32, 32, 16}, {32, 112, 64}, {64, 32, 48}, {128, 80, 32}, {96, 16, 16}};
    int failing = 0;
    for (int n = 0; n < 5; n++)
        for (int init = PROBE_ZERO; init <= PROBE_SCALE; init++)
            for (int turned = 0; turned < 2; turned++) {
                struct product *p = product_create((enum probe_init)init,
                    turned, sizes[n][0], sizes[n][1], sizes[n][2]);
                failing += !check(p, run);
                free(p);
            }
    return failing;
}

static bool
run_holds(struct product *p, probe_run run)
{
    run(&p->probe);
    return product_holds(p);
}

static void
emulated_products_hold(void **state)
{
    (void)state;
    assert_int_equal(products_failing(run_holds, probe_emulated), 0);
}

static void
planted_faults_are_detected(void **state)
{
    (void)state;
    for (int fault = FAULT_NONE + 1; fault < FAULTS; fault++) {
        emulated_fault = (enum emulated_fault)fault;
        int failing = products_failing(run_holds, probe_emulated);
        emulated_fault = FAULT_NONE;
        assert_int_not_equal(failing, 0);
    }
}

static bool
run_agrees(struct product *p, probe_run run)
{
    static float c[GUARD + C_FLOATS + GUARD];
    memcpy(c, p->c, sizeof(c));
    run(&p->probe);
    struct probe again = p->probe;
    again.c = c + GUARD;
    probe_emulated(&again);
    return memcmp(c, p->c, sizeof(c)) == 0;
}

static void
the_cpus_products_have_the_same_bits(void **state)
{
    (void)state;
    skip_without_tiles();
    assert_int_equal(products_failing(run_holds, probe_amx), 0);
    assert_int_equal(products_failing(run_agrees, probe_amx), 0);
}

static void
a_call_leaves_no_tiles(void **state)
{
    (void)state;
    struct bench b;
    skip_without_tiles();
    bench_init(&b, 1, 2, 1, 130, 64);
    b.problem.dtype = ULYX_DTYPE_BF16;
    b.exec.kernel = "amx";
    for (int threads = 1; threads <= 2; threads++) {
        b.exec.threads = threads;
        assert_status(forward(&b), ULYX_SUCCESS);
        assert_int_equal(probe_palette(), 0);
        assert_status(backward(&b), ULYX_SUCCESS);
        assert_int_equal(probe_palette(), 0);
    }
    bench_free(&b);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_small_signal_stack_refuses_tiles),
    cmocka_unit_test(emulated_products_hold),
    cmocka_unit_test(planted_faults_are_detected),
    cmocka_unit_test(the_cpus_products_have_the_same_bits),
    cmocka_unit_test(a_call_leaves_no_tiles),
};

ULI_TEST_MAIN("AttentionTiles", tests)
