/* SPDX-License-Identifier: Apache-2.0
 *
 * See exchange_items.h.
 */
#include "emulate/exchange/exchange_items.h"

#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>
#include "base/dtype.h"
#include "base/size.h"
#include "collectives/device/mapped/exchange_table.h"
#include "collectives/kernels/copy.h"
#include "emulate.h"

enum { POISON = 0xEE, SHARES_MOST = 7 };

/* ---- a launch ------------------------------------------------------------ */

/* Returns device memory with a copy of these bytes, or NULL on failure. */
static void *
device_copy(const void *host, size_t bytes)
{
    void *p = NULL;
    if (cudaMalloc(&p, bytes) != cudaSuccess ||
        cudaMemcpy(p, host, bytes, cudaMemcpyHostToDevice) != cudaSuccess)
        return NULL;
    return p;
}

static int64_t
item_tiles(const struct item_launch *launch)
{
    const struct uli_gpu_item *item = &launch->item;
    bool sum = item->kind == ULI_GPU_SUM;
    int64_t each = sum ? launch->tile_bytes / 4 : launch->tile_bytes;
    int64_t length =
        item->extent[0] * item->extent[1] * item->extent[2] * item->run;
    return (length + each - 1) / each;
}

bool
item_run(const struct item_launch *launch)
{
    const struct uli_gpu_item *item = &launch->item;
    const struct uli_gpu_state state = {0};
    const struct uli_gpu_peer peer = {0};
    const struct uli_gpu_source none = {0};
    const struct uli_gpu_rect no_rect = {{0}};
    const struct uli_gpu_index no_index = {{0}};
    size_t shares = (size_t)item->nsources;
    int64_t tiles = item_tiles(launch);
    void *at[] = {device_copy(item, sizeof(*item)),
        device_copy(shares ? launch->sources : &none,
            sizeof(none) * (shares ? shares : 1)),
        device_copy(&state, sizeof(state)), device_copy(&peer, sizeof(peer)),
        device_copy(launch->rect ? launch->rect : &no_rect, sizeof(no_rect)),
        device_copy(launch->indices ? launch->indices : &no_index,
            sizeof(no_index) * (launch->indices ? shares : 1))};
    struct uli_gpu_args args = {.items = at[0],
        .sources = at[1],
        .rects = at[4],
        .indices = at[5],
        .nitems = 1,
        .nfirst = 1,
        .ntiles = tiles,
        .nfirst_tiles = tiles,
        .tile_bytes = launch->tile_bytes,
        .state = at[2],
        .peers = at[3],
        .nranks = 1,
        .timeout_ns = UINT64_C(1000000000),
        .steps = ULI_GPU_ALL,
        .sums = item->kind == ULI_GPU_SUM};
    args.dst[0] = (unsigned char *)launch->dst + launch->dst_at;
    args.src[0] = (unsigned char *)(uintptr_t)launch->src + launch->src_at;
    args.record[ULI_GPU_RECORD_USUAL] = launch->rect ? 0 : ULI_GPU_USUAL_ALL;
    args.strides = launch->strides;
    bool well = true;
    for (int i = 0; i < 6; i++)
        well = well && at[i];
    well = well && uli_gpu_exchange_launch(
                       &args, launch->blocks, launch->threads, NULL) == 0;
    well = cudaDeviceSynchronize() == cudaSuccess && well;
    for (int i = 0; i < 6; i++)
        (void)cudaFree(at[i]);
    return well;
}

/* Runs the kernel over a poisoned destination. Checks that each byte of the
 * item was written once and no other byte at all, and that all bytes are as
 * expected. got: memory of `bytes` bytes for the result. */
static bool
run_is_right(struct item_launch *launch, int64_t bytes, int64_t payload,
    const unsigned char *expected, unsigned char *got)
{
    void *to = NULL;
    if (cudaMalloc(&to, (size_t)bytes) != cudaSuccess ||
        cudaMemset(to, POISON, (size_t)bytes) != cudaSuccess ||
        cudaDeviceSynchronize() != cudaSuccess)
        return false;
    launch->dst = to;
    bool well = emu_track(to, (size_t)bytes) == 0 && item_run(launch);
    well = emu_track_check(to, (size_t)bytes) == bytes - payload && well &&
           emu_fault_count() == 0;
    well = well && cudaMemcpy(got, to, (size_t)bytes, cudaMemcpyDeviceToHost) ==
                       cudaSuccess;
    (void)cudaFree(to);
    return well && memcmp(got, expected, (size_t)bytes) == 0;
}

/* Draws tiles, blocks and warps. */
static void
draw_launch(struct item_launch *launch, struct test_random *random)
{
    int64_t tiles = test_random_in(random, 0, 1)
                        ? INT64_C(1) << test_random_in(random, 0, 6)
                        : test_random_in(random, 1, 9);
    launch->tile_bytes = ULI_GPU_TILE_MIN * tiles;
    launch->blocks = (int32_t)test_random_in(random, 1, 3);
    launch->threads = 32 * (int32_t)test_random_in(random, 1, 3);
}

static bool
print_wrong(const struct item_launch *launch, const struct uli_box *box,
    const char *what)
{
    fprintf(stderr, "%s of", what);
    for (int d = 0; d < 3; d++)
        fprintf(stderr, " %d by %d (%d),", (int)box->extent[d],
            (int)box->dst_stride[d], (int)box->src_stride[d]);
    fprintf(stderr,
        " runs of %d at %d (%d)%s, tiles of %d, %d blocks of %d: wrong\n",
        (int)box->run_bytes, (int)box->dst_offset, (int)box->src_offset,
        launch->rect ? ", by the strides of the call" : "",
        (int)launch->tile_bytes, (int)launch->blocks, (int)launch->threads);
    return false;
}

/* ---- extents and strides ------------------------------------------------- */

/* Draws extents: the runs have `run` units each, and at most `most` units
 * together. */
static void
draw_extents(
    struct test_random *random, int64_t run, int64_t most, int64_t (*extent)[3])
{
    int64_t left = uli_max(most / run, 1);
    for (int n = 0, d = (int)test_random_in(random, 0, 2); n < 3; n++) {
        (*extent)[d] = test_random_in(random, 1, uli_min(left, 12));
        left /= (*extent)[d];
        d = (d + 1) % 3;
    }
}

/* Draws strides that nest. The dimensions are nested in a drawn order or, with
 * `ordered`, as they are. Gaps are multiples of unit * element bytes, or of an
 * element alone. */
static void
draw_strides(struct test_random *random, const int64_t extent[3],
    int64_t run_bytes, int64_t unit, int64_t element, bool ordered,
    int64_t stride[3])
{
    int order[3] = {2, 1, 0};
    int64_t gap = test_random_in(random, 0, 1) ? unit * element : element;
    for (int i = 2; i > 0 && !ordered; i--) {
        int j = (int)test_random_in(random, 0, i), held = order[i];
        order[i] = order[j];
        order[j] = held;
    }
    int64_t span = run_bytes;
    for (int i = 0; i < 3; i++) {
        stride[order[i]] = span + gap * test_random_in(random, 0, 3);
        span = stride[order[i]] * extent[order[i]];
    }
}

/* Draws the first index of a rectangle. Returns its offset from the begin of
 * the tensor. */
static int64_t
draw_index(
    struct test_random *random, const int64_t stride[3], int64_t index[3])
{
    int64_t offset = 0, most = test_random_in(random, 0, 1);
    for (int d = 0; d < 3; d++) {
        index[d] = test_random_in(random, 0, most);
        offset += index[d] * stride[d];
    }
    return offset;
}

static void
fill_random(struct test_random *random, unsigned char *at, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 8) {
        uint64_t word = test_random_next(random);
        memcpy(at + i, &word, 8);
    }
}

/* ---- copies and zeros ---------------------------------------------------- */

/* Because of gaps, and of first indices up to 1, a side is up to 9 times as
 * long as the copied bytes. */
enum { COPY_BYTES = 10 << 10, SIDE_BYTES = 9 * COPY_BYTES };

/* Draws a box. Runs, gaps and offsets are multiples of a unit. The ends may be
 * misaligned, by the same or by different amounts on the two sides. */
static void
draw_box(struct test_random *random, struct uli_box *box)
{
    int64_t unit = INT64_C(1) << test_random_in(random, 0, 4);
    box->run_bytes = unit * test_random_in(random, 1, 40);
    draw_extents(random, box->run_bytes, COPY_BYTES, &box->extent);
    draw_strides(
        random, box->extent, box->run_bytes, unit, 1, true, box->dst_stride);
    draw_strides(random, box->extent, box->run_bytes, unit, 1,
        test_random_in(random, 0, 1) != 0, box->src_stride);
    box->dst_offset = test_random_in(random, 0, 15);
    box->src_offset = test_random_in(random, 0, 3)
                          ? box->dst_offset + 16 * test_random_in(random, 0, 1)
                          : test_random_in(random, 0, 15);
}

/* Lays the box by the strides of the call, where the table has the box without
 * gaps. */
static void
lay_box(struct test_random *random, struct item_launch *launch,
    struct uli_gpu_rect *rect, struct uli_box *box)
{
    struct uli_box dense = {.extent = {1, 1, 1},
        .run_bytes = uli_box_bytes(box),
        .dst_offset = 48,
        .src_offset = 32};
    memcpy(rect->extent, box->extent, sizeof(rect->extent));
    rect->run = box->run_bytes;
    launch->rect = rect;
    launch->dst_at = box->dst_offset;
    launch->src_at = box->src_offset;
    memcpy(launch->strides.at[1][0], box->dst_stride, sizeof(box->dst_stride));
    memcpy(launch->strides.at[0][0], box->src_stride, sizeof(box->src_stride));
    box->dst_offset += draw_index(random, box->dst_stride, rect->dst);
    box->src_offset += draw_index(random, box->src_stride, rect->src);
    uli_gpu_item_of_box(&launch->item, &dense);
}

bool
item_copy_is_right(struct test_random *random)
{
    static unsigned char src[SIDE_BYTES], expected[SIDE_BYTES], got[SIDE_BYTES];
    struct item_launch launch = {0};
    struct uli_gpu_rect rect;
    struct uli_box box = {{0}};
    draw_box(random, &box);
    draw_launch(&launch, random);
    bool zero = test_random_in(random, 0, 4) == 0;
    launch.item.kind = zero ? ULI_GPU_ZERO : ULI_GPU_COPY;
    if (test_random_in(random, 0, 1))
        uli_gpu_item_of_box(&launch.item, &box);
    else
        lay_box(random, &launch, &rect, &box);
    fill_random(random, src, SIDE_BYTES);
    memset(expected, POISON, sizeof(expected));
    struct uli_box_span all = {
        0, box.extent[0] * box.extent[1] * box.extent[2]};
    if (zero)
        uli_box_zero(&box, all, expected);
    else
        uli_box_copy(&box, all, expected, src, &uli_copy_plain);
    launch.src = device_copy(src, sizeof(src));
    bool well = launch.src && run_is_right(&launch, SIDE_BYTES,
                                  uli_box_bytes(&box), expected, got);
    (void)cudaFree((void *)(uintptr_t)launch.src);
    return well || print_wrong(&launch, &box, zero ? "zeros" : "a copy");
}

/* ---- sums ---------------------------------------------------------------- */

enum { SUM_ELEMENTS = 1600, SHARE_BYTES = 9 * 8 * SUM_ELEMENTS };

/* What uli_sum points to, and what describes the same to the kernel. */
struct shares {
    int32_t group[SHARES_MOST];
    int64_t offset[SHARES_MOST], stride[SHARES_MOST][3];
    struct uli_gpu_source sources[SHARES_MOST];
    struct uli_gpu_index indices[SHARES_MOST];
    const void *base[SHARES_MOST];
    unsigned char host[SHARES_MOST][SHARE_BYTES];
};

/* Draws an offset in elements. Mostly it is a multiple of the unit of runs and
 * gaps. */
static int64_t
draw_offset(struct test_random *random, int64_t unit)
{
    int64_t of = test_random_in(random, 0, 3) ? unit : 1;
    return of * test_random_in(random, 0, 1);
}

/* unit, in elements: runs and gaps are multiples of it. */
static void
draw_share(struct test_random *random, struct shares *shares, int32_t s,
    const struct uli_sum *sum, int64_t unit)
{
    int64_t bytes = uli_dtype_size(sum->partial_dtype);
    shares->base[s] = shares->host;
    shares->group[s] =
        s ? shares->group[s - 1] + (test_random_in(random, 0, 2) == 0) : 0;
    draw_strides(random, sum->extent, sum->run * bytes, unit, bytes,
        test_random_in(random, 0, 1) != 0, shares->stride[s]);
    shares->offset[s] =
        (int64_t)s * SHARE_BYTES + bytes * draw_offset(random, unit);
}

/* Draws a sum: random bits, NaN and infinity among them, in every pair of
 * types, with shares of one group or of several. */
static void
draw_sum(struct test_random *random, struct uli_sum *sum, struct shares *shares)
{
    int64_t unit = test_random_in(random, 0, 2) ? 8 : 1;
    memset(sum, 0, sizeof(*sum));
    sum->run = unit * test_random_in(random, 1, unit == 8 ? 40 : 60);
    draw_extents(random, sum->run, SUM_ELEMENTS, &sum->extent);
    sum->dtype = (int32_t)test_random_in(random, 1, 4);
    sum->partial_dtype = (int32_t)test_random_in(random, 1, 4);
    sum->nsources = (int32_t)test_random_in(random, 1, SHARES_MOST);
    sum->group = shares->group;
    sum->src_offset = shares->offset;
    sum->src_stride = (const int64_t(*)[3])shares->stride;
    int64_t bytes = uli_dtype_size(sum->dtype);
    draw_strides(random, sum->extent, sum->run * bytes, unit, bytes, true,
        sum->dst_stride);
    sum->dst_offset = bytes * draw_offset(random, unit);
    for (int32_t s = 0; s < sum->nsources; s++)
        draw_share(random, shares, s, sum, unit);
}

/* Lays the sum by the strides of the call. All shares have these strides,
 * because they are of one tensor; the table has no strides. */
static void
lay_sum(struct test_random *random, struct item_launch *launch,
    struct uli_gpu_rect *rect, struct uli_sum *sum, struct shares *shares)
{
    *rect = (struct uli_gpu_rect){.run = sum->run};
    memcpy(rect->extent, sum->extent, sizeof(rect->extent));
    launch->rect = rect;
    launch->indices = shares->indices;
    launch->dst_at = sum->dst_offset;
    launch->src_at = shares->offset[0];
    memcpy(launch->strides.at[1][0], sum->dst_stride, sizeof(sum->dst_stride));
    memcpy(
        launch->strides.at[0][0], shares->stride[0], sizeof(shares->stride[0]));
    sum->dst_offset += draw_index(random, sum->dst_stride, rect->dst);
    for (int32_t s = 0; s < sum->nsources; s++) {
        int64_t *stride = shares->stride[s];
        memcpy(stride, shares->stride[0], sizeof(*shares->stride));
        shares->offset[s] =
            launch->src_at + draw_index(random, stride, shares->indices[s].at);
    }
}

/* Fills the item and the sources of the table. */
static void
fill_sum(struct item_launch *launch, const struct uli_sum *sum,
    struct shares *shares)
{
    struct uli_sum flat = *sum;
    memset(shares->sources, 0, sizeof(shares->sources));
    for (int32_t s = 0; s < sum->nsources; s++) {
        shares->sources[s].group = shares->group[s];
        if (launch->rect)
            continue;
        shares->sources[s].offset = shares->offset[s];
        memcpy(shares->sources[s].stride, shares->stride[s],
            sizeof(shares->stride[s]));
    }
    if (launch->rect) {
        flat.run *= sum->extent[0] * sum->extent[1] * sum->extent[2];
        flat.extent[0] = flat.extent[1] = flat.extent[2] = 1;
        flat.dst_offset = 48;
    }
    launch->item.kind = ULI_GPU_SUM;
    uli_gpu_item_of_sum(&launch->item, &flat, shares->sources);
}

bool
item_sum_is_right(struct test_random *random)
{
    static unsigned char expected[SHARE_BYTES], got[SHARE_BYTES];
    static struct shares shares;
    struct item_launch launch = {.sources = shares.sources};
    struct uli_gpu_rect rect;
    struct uli_sum sum;
    draw_sum(random, &sum, &shares);
    draw_launch(&launch, random);
    if (test_random_in(random, 0, 1))
        lay_sum(random, &launch, &rect, &sum, &shares);
    fill_sum(&launch, &sum, &shares);
    int64_t runs = sum.extent[0] * sum.extent[1] * sum.extent[2];
    size_t bytes = (size_t)uli_max(sum.nsources, 2) * SHARE_BYTES;
    fill_random(random, shares.host[0], (int64_t)bytes);
    memset(expected, POISON, sizeof(expected));
    uli_sum_run(&sum, (struct uli_box_span){0, runs}, expected, shares.base);
    launch.src = device_copy(shares.host, bytes);
    bool well = launch.src &&
                run_is_right(&launch, SHARE_BYTES,
                    runs * sum.run * uli_dtype_size(sum.dtype), expected, got);
    (void)cudaFree((void *)(uintptr_t)launch.src);
    struct uli_box box = {.run_bytes = sum.run, .dst_offset = sum.dst_offset};
    memcpy(box.extent, sum.extent, sizeof(box.extent));
    memcpy(box.dst_stride, sum.dst_stride, sizeof(box.dst_stride));
    return well || print_wrong(&launch, &box, "a sum");
}
