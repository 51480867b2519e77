/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of 64 B to 64 KiB out of and into a pitch eight times as wide (one of
 * eight heads), and the transposed case [head][row] <- [row][head]; working
 * sets beyond any cache. Each figure is the median of ROUNDS; in each round all
 * contestants copy the same number of bytes, one after another, so that other
 * load on the machine affects all alike. Ratios are medians of per-round
 * ratios.
 *
 *   gather:    contiguous <- strided
 *   scatter:   strided <- contiguous
 *   transpose: [8][n] rows <- [n][8] rows
 *   back:      [n][8] rows <- [8][n] rows
 *   turns:     8 x [n] rows <- [n][8] rows, one peer's box after another's
 *   fan:       the same in one pass over the source rows
 */
#include "collectives/kernels/copy_bench.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/system/clock.h"
#include "collectives/kernels/copy_choice.h"
#include "support/median.h"

enum { ROUNDS = 7, HEADS = 8, CONTESTANTS = 5 };

static unsigned char *dst, *src;
static int64_t total_bytes;

static struct uli_box
make_box(const char *shape, int64_t row)
{
    int64_t rows = total_bytes / row / HEADS;
    struct uli_box box = {
        .extent = {1, HEADS, rows},
        .run_bytes = row,
        .dst_stride = {0, rows * row, row},
        .src_stride = {0, row, HEADS * row},
    };
    if (strcmp(shape, "scatter") == 0 || strcmp(shape, "back") == 0) {
        memcpy(box.dst_stride, (int64_t[3]){0, row, HEADS * row}, 24);
        memcpy(box.src_stride, (int64_t[3]){0, rows * row, row}, 24);
    }
    if (strcmp(shape, "transpose") && strcmp(shape, "back"))
        box.extent[1] = 1;
    return box;
}

/* Makes the box of each of HEADS peers; in the source they lie side by side. */
static void
copy_peers(const struct uli_box *box, const struct uli_copy_way *way)
{
    struct uli_box_span rows = {0, box->extent[2]};
    for (int n = 0; n < HEADS; n++)
        uli_box_copy(box, rows, dst + n * uli_box_bytes(box),
            src + n * box->run_bytes, way);
}

static void
fan_peers(const struct uli_box *box, const struct uli_copy_way *way)
{
    struct uli_box_span rows = {0, box->extent[2]};
    struct uli_box boxes[HEADS];
    struct uli_fan_part parts[HEADS];
    for (int n = 0; n < HEADS; n++) {
        boxes[n] = *box;
        boxes[n].src_offset = n * box->run_bytes;
        parts[n] =
            (struct uli_fan_part){&boxes[n], dst + n * uli_box_bytes(box)};
    }
    uli_boxes_copy(parts, HEADS, rows, src, way);
}

static bool
is_fan(const char *shape)
{
    return strcmp(shape, "fan") == 0;
}

static bool
is_peers(const char *shape)
{
    return strcmp(shape, "turns") == 0 || is_fan(shape);
}

static double
time_box(const struct uli_box *box, const char *shape,
    const struct uli_copy_way *way)
{
    int64_t runs = box->extent[0] * box->extent[1] * box->extent[2];
    int64_t begin = uli_clock_ns();
    if (is_fan(shape))
        fan_peers(box, way);
    else if (is_peers(shape))
        copy_peers(box, way);
    else
        uli_box_copy(box, (struct uli_box_span){0, runs}, dst, src, way);
    return (double)(uli_clock_ns() - begin);
}

/* Contiguous copies of the same bytes: memcpy, and the library's streaming
 * copies, line after line and several pages side by side. */
static double
time_memcpy(int64_t bytes)
{
    int64_t begin = uli_clock_ns();
    memcpy(dst, src, (size_t)bytes);
    return (double)(uli_clock_ns() - begin);
}

static double
time_streaming(int64_t bytes, struct uli_copy_way way)
{
    struct uli_box box = {.extent = {1, 1, 1}, .run_bytes = bytes};
    way.stream = true;
    return time_box(&box, "", &way);
}

static void
bench_row(const char *shape, int64_t row)
{
    struct uli_box box = make_box(shape, row);
    const struct uli_box run = {.extent = {1, 1, 1}};
    uli_box_normalize(&box);
    int64_t bytes = uli_box_bytes(&box) * (is_peers(shape) ? HEADS : 1);
    const struct uli_copy_call call =
        uli_copy_call_of(uli_copy_defaults(), bytes);
    struct uli_copy_way plain =
        is_fan(shape) ? uli_copy_way_from(&call, &box, ULI_ROWS_FANNED)
                      : uli_copy_way_of(&call, &box);
    struct uli_copy_way stream = plain;
    struct uli_copy_way lanes = uli_copy_way_of(&call, &run);
    plain.stream = false;
    stream.stream = true;
    double gbs[CONTESTANTS][ROUNDS], ratio[2][ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        double ns[CONTESTANTS] = {time_memcpy(bytes),
            time_streaming(bytes, uli_copy_plain), time_streaming(bytes, lanes),
            time_box(&box, shape, &plain), time_box(&box, shape, &stream)};
        for (int i = 0; i < CONTESTANTS; i++)
            gbs[i][round] = (double)bytes / ns[i];
        double best = fmin(ns[0], fmin(ns[1], ns[2]));
        ratio[0][round] = best / ns[3];
        ratio[1][round] = best / ns[4];
    }
    printf("%-10s %6lld", shape, (long long)row);
    for (int i = 0; i < CONTESTANTS; i++)
        printf(" %8.2f", median_of(gbs[i], ROUNDS));
    printf(" %7.2f %7.2f %s\n", median_of(ratio[0], ROUNDS),
        median_of(ratio[1], ROUNDS),
        uli_copy_streams_whole(&box) ? "stream" : "plain");
    fflush(stdout);
}

/* Returns shared memory with ordinary pages, like a window. */
static unsigned char *
pages_map(int64_t bytes)
{
    int fd = memfd_create("copy_bench", MFD_CLOEXEC);
    if (fd < 0)
        return NULL;
    void *memory = MAP_FAILED;
    if (ftruncate(fd, bytes) == 0)
        memory = mmap(
            NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory == MAP_FAILED)
        return NULL;
    memset(memory, 1, (size_t)bytes);
    return memory;
}

int
copy_bench(int argc, char **argv)
{
    static const char *const shapes[] = {
        "gather", "scatter", "transpose", "back", "turns", "fan"};
    enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };
    total_bytes = (argc > 0 ? atoll(argv[0]) : 512) << 20;
    if (argc > 1 && !uli_copy_kernel_select(argv[1])) {
        fprintf(stderr, "this machine has no kernel %s\n", argv[1]);
        return 2;
    }
    dst = pages_map(total_bytes);
    src = pages_map(total_bytes);
    if (!dst || !src)
        return 1;
    printf("GB/s copied, %lld MiB span; ratios against the fastest of memcpy "
           "and the streaming copies\n",
        (long long)(total_bytes >> 20));
    printf("%-10s %6s %8s %8s %8s %8s %8s %7s %7s %s\n", "shape", "row",
        "memcpy", "streamed", "lanes", "plain", "stream",
        "plain:", "stream:", "large");
    for (int shape = 0; shape < SHAPES; shape++) {
        for (int64_t row = 64; row <= 65536; row *= 2)
            bench_row(shapes[shape], row);
    }
    munmap(dst, (size_t)total_bytes);
    munmap(src, (size_t)total_bytes);
    return 0;
}
