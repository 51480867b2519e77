/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of 1 to 8 sources of ROW elements per row, out of a pitch four times as
 * wide (a shared head's gradient). Reported as traffic, bytes read and written
 * over time, beside memcpy's traffic in the same round. Medians of ROUNDS.
 */
#include "collectives/kernels/sum_bench.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/dtype.h"
#include "base/system/clock.h"
#include "collectives/kernels/copy.h"
#include "support/median.h"

enum { ROUNDS = 7, ROW = 128, PITCH = 4, MAX_SOURCES = 8 };
enum { SOURCE_BYTES = 64 << 20 };

static unsigned char *dst, *src[MAX_SOURCES];

static double
time_sum(int32_t dtype, int32_t partial_dtype, int32_t nsources, double *bytes)
{
    static const int64_t offset[MAX_SOURCES];
    int64_t stride[MAX_SOURCES][3] = {{0}};
    int32_t group[MAX_SOURCES];
    int64_t elem = uli_dtype_size(dtype);
    int64_t partial_elem = uli_dtype_size(partial_dtype);
    int64_t rows = SOURCE_BYTES / 8 / ROW / PITCH;
    for (int32_t s = 0; s < nsources; s++) {
        stride[s][2] = PITCH * ROW * partial_elem;
        group[s] = s / 2;
    }
    struct uli_sum sum = {
        .extent = {1, 1, rows},
        .run = ROW,
        .dtype = dtype,
        .partial_dtype = partial_dtype,
        .dst_stride = {0, 0, PITCH * ROW * elem},
        .nsources = nsources,
        .group = group,
        .src_offset = offset,
        .src_stride = (const int64_t(*)[3])stride,
    };
    *bytes = (double)(rows * ROW) * (double)(elem + nsources * partial_elem);
    int64_t begin = uli_clock_ns();
    uli_sum_run(
        &sum, (struct uli_box_span){0, rows}, dst, (const void *const *)src);
    return (double)(uli_clock_ns() - begin);
}

static void
types_bench(
    int32_t dtype, int32_t partial_dtype, int32_t nsources, const char *name)
{
    double gbs[ROUNDS], ratio[ROUNDS], bytes;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t begin = uli_clock_ns();
        memcpy(dst, src[0], SOURCE_BYTES);
        double copied = 2.0 * SOURCE_BYTES / (double)(uli_clock_ns() - begin);
        double ns = time_sum(dtype, partial_dtype, nsources, &bytes);
        gbs[round] = bytes / ns;
        ratio[round] = gbs[round] / copied;
    }
    printf("%-14s %7d %8.2f %7.2f\n", name, nsources, median_of(gbs, ROUNDS),
        median_of(ratio, ROUNDS));
    fflush(stdout);
}

int
sum_bench(int argc, char **argv)
{
    static const struct {
        int32_t dtype, partial_dtype;
        const char *name;
    } types[] = {
        {ULYX_DTYPE_BF16, ULYX_DTYPE_BF16, "bf16 <- bf16"},
        {ULYX_DTYPE_F16, ULYX_DTYPE_F16, "f16 <- f16"},
        {ULYX_DTYPE_BF16, ULYX_DTYPE_F32, "bf16 <- f32"},
        {ULYX_DTYPE_F32, ULYX_DTYPE_F32, "f32 <- f32"},
        {ULYX_DTYPE_F64, ULYX_DTYPE_F64, "f64 <- f64"},
        {ULYX_DTYPE_BF16, ULYX_DTYPE_F64, "bf16 <- f64"},
    };
    if (argc > 0 && !uli_copy_kernel_select(argv[0])) {
        fprintf(stderr, "this machine has no kernel %s\n", argv[0]);
        return 2;
    }
    dst = aligned_alloc(4096, SOURCE_BYTES);
    for (int s = 0; s < MAX_SOURCES; s++) {
        src[s] = aligned_alloc(4096, SOURCE_BYTES);
        if (!dst || !src[s])
            return 1;
        memset(src[s], 0x3F, SOURCE_BYTES);
    }
    memset(dst, 0, SOURCE_BYTES);
    printf("GB/s read and written; ratio against memcpy's traffic\n");
    printf("%-14s %7s %8s %7s\n", "type", "sources", "GB/s", "ratio");
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        for (int32_t n = 1; n <= MAX_SOURCES; n *= 2)
            types_bench(
                types[i].dtype, types[i].partial_dtype, n, types[i].name);
    }
    for (int s = 0; s < MAX_SOURCES; s++)
        free(src[s]);
    free(dst);
    return 0;
}
