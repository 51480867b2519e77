/* SPDX-License-Identifier: Apache-2.0
 *
 * The small kernels of distributed attention are compared with the host's
 * routine and with plain loops, over random strides, poison and guard bytes.
 * dist_plant.py plants faults into them, each of which must be found in every
 * seed. Values are small integers, so sums are exact in any order.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "attention/cuda/dist_rows_gpu.h"
#include "attention/element.h"
#include "attention/statistics.h"
#include "base/dtype.h"
#include "cuda_runtime.h"
#include "dist_planted.h"
#include "emulate/plant/fault_runs.h"
#include "emulate.h"
#include "support/random.h"
#include "support/test.h"

int dist_planted;

enum { DOUT, OUT, DLSE, DELTA, TENSORS, GUARD = 64, SEEDS = 3 };

#define NAME(name) #name,
static const char *const names[] = {"NONE", DIST_FAULTS(NAME)};
enum { FAULTS = sizeof(names) / sizeof(names[0]) };

/* A tensor on the host, and the same bytes on the device. */
struct tensor {
    unsigned char *host, *there;
    int64_t bytes, strides[3];
};

struct rows {
    struct test_random random;
    int64_t sizes[4]; /* batch, rows, heads, dim */
    ulyx_dtype_t dtype;
    struct tensor t[TENSORS];
};

/* Makes a tensor whose batch items, rows and heads are in one of two orders,
 * with gaps. */
static void
tensor_make(struct rows *w, int n)
{
    struct tensor *t = &w->t[n];
    int64_t run = n >= DLSE ? 4 : w->sizes[3] * uli_dtype_size(w->dtype);
    int64_t gap = 4 * test_random_in(&w->random, 0, 3);
    bool by_head = test_random_in(&w->random, 0, 1);
    int inner = by_head ? 1 : 2, outer = by_head ? 2 : 1;
    t->strides[inner] = run + gap;
    t->strides[outer] = t->strides[inner] * w->sizes[inner] + gap;
    t->strides[0] = t->strides[outer] * w->sizes[outer];
    t->bytes = t->strides[0] * w->sizes[0] + 2 * GUARD;
    t->host = malloc((size_t)t->bytes);
    memset(t->host, 0xA5, (size_t)t->bytes);
    run_must(cudaMalloc((void **)&t->there, (size_t)t->bytes) == 0);
}

static void *
element_at(struct rows *w, int n, const int64_t at[3])
{
    const struct tensor *t = &w->t[n];
    return t->host + GUARD + at[0] * t->strides[0] + at[1] * t->strides[1] +
           at[2] * t->strides[2];
}

/* Some rows of out are zeros, and their dout may be anything. Some other rows
 * have a dout that is not a number. */
static void
fill_row(struct rows *w, const int64_t at[3], int64_t number)
{
    bool zero = number % 5 == 1, odd = number % 5 == 1 || number % 7 == 3;
    float dlse = (float)test_random_in(&w->random, 1, 9);
    for (int64_t c = 0; c < w->sizes[3]; c++) {
        double out = (double)test_random_in(&w->random, 1, 7);
        double dout = (double)test_random_in(&w->random, 1, 7);
        uli_element_store(element_at(w, OUT, at), w->dtype, c, zero ? 0 : out);
        uli_element_store(
            element_at(w, DOUT, at), w->dtype, c, odd && !c ? NAN : dout);
    }
    memcpy(element_at(w, DLSE, at), &dlse, sizeof(dlse));
}

static void
rows_draw(struct rows *w, uint64_t seed)
{
    static const ulyx_dtype_t dtypes[] = {
        ULYX_DTYPE_F32, ULYX_DTYPE_BF16, ULYX_DTYPE_F16};
    int64_t number = 0;
    memset(w, 0, sizeof(*w));
    w->random.state = seed;
    w->dtype = dtypes[seed % 3];
    w->sizes[0] = 2;
    w->sizes[1] = test_random_in(&w->random, 5, 40);
    w->sizes[2] = test_random_in(&w->random, 2, 5);
    w->sizes[3] = 8 * test_random_in(&w->random, 1, 3);
    for (int n = 0; n < TENSORS; n++)
        tensor_make(w, n);
    for (int64_t b = 0; b < w->sizes[0]; b++)
        for (int64_t s = 0; s < w->sizes[1]; s++)
            for (int64_t h = 0; h < w->sizes[2]; h++)
                fill_row(w, (int64_t[]){b, s, h}, number++);
    for (int n = 0; n < TENSORS; n++)
        run_must(cudaMemcpy(w->t[n].there, w->t[n].host, (size_t)w->t[n].bytes,
                     cudaMemcpyHostToDevice) == 0);
}

static struct uli_gpu_strided
strided_there(const struct tensor *t)
{
    return (struct uli_gpu_strided){
        t->there + GUARD, {t->strides[0], t->strides[1], t->strides[2]}};
}

static struct uli_attn_strided
strided_here(const struct tensor *t)
{
    return (struct uli_attn_strided){
        (char *)t->host + GUARD, {t->strides[0], t->strides[1], t->strides[2]}};
}

/* Compares every byte of delta's memory, guards and gaps included. Two NaNs are
 * equal whatever their bits. */
static bool
delta_agrees(struct rows *w)
{
    struct tensor *t = &w->t[DELTA];
    unsigned char *found = malloc((size_t)t->bytes);
    bool good = true;
    run_must(cudaMemcpy(found, t->there, (size_t)t->bytes,
                 cudaMemcpyDeviceToHost) == 0);
    for (int64_t i = 0; i < t->bytes; i += 4) {
        float here, there;
        memcpy(&here, t->host + i, 4);
        memcpy(&there, found + i, 4);
        good = good &&
               (!memcmp(&here, &there, 4) || (isnan(here) && isnan(there)));
    }
    free(found);
    return good;
}

static bool
delta_is_the_hosts(uint64_t seed)
{
    struct rows w;
    rows_draw(&w, seed);
    struct tensor *t = w.t;
    struct uli_attn_strided dout = strided_here(&t[DOUT]);
    struct uli_attn_strided out = strided_here(&t[OUT]);
    struct uli_attn_strided dlse = strided_here(&t[DLSE]);
    struct uli_gpu_delta_args args = {.dout = strided_there(&t[DOUT]),
        .out = strided_there(&t[OUT]),
        .dlse = strided_there(&t[DLSE]),
        .delta = t[DELTA].there + GUARD,
        .batch = w.sizes[0],
        .rows = w.sizes[1],
        .heads = w.sizes[2],
        .dim = (int32_t)w.sizes[3],
        .dtype = w.dtype};
    memcpy(args.delta_strides, t[DELTA].strides, sizeof(args.delta_strides));
    uli_attn_delta(w.dtype, w.sizes, &dout, &out, &dlse, t[DELTA].host + GUARD,
        t[DELTA].strides);
    run_must(uli_gpu_dist_load() == 0);
    bool good = uli_gpu_dist_delta(&args, NULL) == 0 &&
                cudaDeviceSynchronize() == cudaSuccess && delta_agrees(&w);
    for (int n = 0; n < TENSORS; n++) {
        free(t[n].host);
        run_must(cudaFree(t[n].there) == 0);
    }
    return good;
}

/* Runs a check on a cause that holds `before`. Returns the cause that it
 * leaves. */
static uint64_t
check_leaves(const uint64_t saved[3], bool given, uint64_t tables,
    uint64_t before, uint64_t *memory)
{
    const uint64_t words[5] = {saved[0], saved[1], saved[2], tables, before};
    const struct uli_gpu_dist_check_args args = {.saved = given ? memory : NULL,
        .expected = {11, 12, 13},
        .tables = memory + 3,
        .cause = memory + 4};
    uint64_t cause = 99;
    run_must(
        cudaMemcpy(memory, words, sizeof(words), cudaMemcpyHostToDevice) == 0);
    run_must(uli_gpu_dist_check(&args, NULL) == 0);
    (void)cudaDeviceSynchronize();
    run_must(cudaMemcpy(&cause, memory + 4, 8, cudaMemcpyDeviceToHost) == 0);
    return cause;
}

static bool
checks_are_right(void)
{
    static const uint64_t own[3] = {11, 12, 13}, magic[3] = {1, 12, 13},
                          shape[3] = {11, 1, 13}, docs[3] = {11, 12, 1};
    uint64_t *memory;
    run_must(cudaMalloc((void **)&memory, 64) == 0);
    bool good =
        check_leaves(own, true, 0, 0, memory) == ULI_GPU_DIST_FINE &&
        check_leaves(own, true, 13, 0, memory) == ULI_GPU_DIST_FINE &&
        check_leaves(magic, false, 13, 0, memory) == ULI_GPU_DIST_FINE &&
        check_leaves(magic, true, 0, 0, memory) ==
            ULI_GPU_DIST_SAVED_IS_OTHER &&
        check_leaves(shape, true, 0, 0, memory) ==
            ULI_GPU_DIST_SAVED_IS_OTHER &&
        check_leaves(docs, true, 0, 0, memory) ==
            ULI_GPU_DIST_SAVED_HAS_OTHER_TABLES &&
        check_leaves(own, true, 14, 0, memory) == ULI_GPU_DIST_STALE &&
        check_leaves(magic, true, 0, ULI_GPU_DIST_STALE, memory) ==
            ULI_GPU_DIST_STALE;
    run_must(cudaFree(memory) == 0);
    return good;
}

static int
run_here(int fault, uint64_t seed)
{
    const struct emu_config machine = {.seed = seed, .quiet = true};
    run_must(emu_open(&machine) == 0);
    dist_planted = fault;
    bool good = delta_is_the_hosts(seed) && checks_are_right() &&
                emu_fault_count() == 0;
    return good ? RUN_WELL : RUN_CAUGHT;
}

static const struct fault_runs runs = {
    names, FAULTS, SEEDS, 60, .astray = true, .run = run_here};

static void
the_kernels_do_what_the_host_does(void **state)
{
    (void)state;
    fault_runs_none_is_well(&runs);
}

static void
each_planted_fault_is_caught(void **state)
{
    (void)state;
    fault_runs_each_is_caught(&runs);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_kernels_do_what_the_host_does),
    cmocka_unit_test(each_planted_fault_is_caught),
};

ULI_TEST_MAIN("EmulateOperatorRows", tests)
