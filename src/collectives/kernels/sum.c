/* SPDX-License-Identifier: Apache-2.0
 *
 * Ordered sums. All forms use one tree: a group's sources are added in order to
 * a partial sum, and the partial sums, group by group, to the total. The
 * one-pass form does exactly what the staged form does, on blocks of
 * accumulators that stay in the first-level cache, so the two agree bit for bit
 * by construction.
 *
 * Cost: every source is read once and dst written once; the accumulator blocks
 * (8 KiB of stack) never leave the cache.
 */
#include <assert.h>
#include "base/dtype.h"
#include "base/size.h"
#include "collectives/kernels/copy.h"
#include "collectives/kernels/copy_kernel.h"

/* Accumulators of a block: 4 KiB of double. A block of twice as many loses a
 * third of the speed with four sources and more, because the rows no longer
 * stay in the first-level cache. */
enum { BLOCK = 512, LINE_BYTES = 64 };

static bool
is_wide(int32_t dtype, int32_t partial_dtype)
{
    return dtype == ULYX_DTYPE_F64 || partial_dtype == ULYX_DTYPE_F64;
}

static const struct uli_sum_kernel *
kernel_of(int32_t dtype, int32_t partial_dtype)
{
    assert(dtype >= ULYX_DTYPE_F64 && dtype <= ULYX_DTYPE_F16);
    assert(partial_dtype >= ULYX_DTYPE_F64 && partial_dtype <= ULYX_DTYPE_F16);
    const struct uli_copy_kernel *kernel = uli_copy_kernel();
    return is_wide(dtype, partial_dtype) ? kernel->sum_f64 : kernel->sum_f32;
}

int64_t
uli_sum_acc_bytes(int32_t dtype, int32_t partial_dtype)
{
    return is_wide(dtype, partial_dtype) ? 8 : 4;
}

/* The dtype of accumulators that are a source themselves. */
static int32_t
acc_dtype(int32_t dtype, int32_t partial_dtype)
{
    return is_wide(dtype, partial_dtype) ? ULYX_DTYPE_F64 : ULYX_DTYPE_F32;
}

void
uli_sum_accumulate(int32_t dtype, int32_t partial_dtype, void *acc,
    const void *src, int64_t count, bool first)
{
    const struct uli_sum_kernel *kernel = kernel_of(dtype, partial_dtype);
    const uli_sum_read_fn *read = first ? kernel->load : kernel->add;
    read[ULI_SUM_INDEX(partial_dtype)](acc, src, 0, count, 1);
}

void
uli_sum_merge(int32_t dtype, int32_t partial_dtype, void *acc,
    const void *other_acc, int64_t count, bool first)
{
    const struct uli_sum_kernel *kernel = kernel_of(dtype, partial_dtype);
    const uli_sum_read_fn *read = first ? kernel->load : kernel->add;
    int32_t as = acc_dtype(dtype, partial_dtype);
    read[ULI_SUM_INDEX(as)](acc, other_acc, 0, count, 1);
}

void
uli_sum_store(const struct uli_sum *sum, struct uli_box_span span, void *dst,
    const void *acc)
{
    const struct uli_sum_kernel *kernel =
        kernel_of(sum->dtype, sum->partial_dtype);
    uli_sum_write_fn store = kernel->store[ULI_SUM_INDEX(sum->dtype)];
    int64_t acc_bytes = uli_sum_acc_bytes(sum->dtype, sum->partial_dtype);
    const unsigned char *from = acc;
    struct uli_span_rect rect;
    while (uli_span_next(sum->extent, &span, &rect)) {
        unsigned char *to = (unsigned char *)dst + sum->dst_offset +
                            uli_span_offset(rect.index, sum->dst_stride);
        for (int64_t j = 0; j < rect.extent[0]; j++) {
            store(to, sum->dst_stride[2], from, sum->run, rect.extent[1]);
            from += sum->run * rect.extent[1] * acc_bytes;
            to += sum->dst_stride[1];
        }
    }
}

/* nruns runs of `run` elements, from element `element` of run `index` on. */
struct block {
    int64_t index[3];
    int row_dim; /* the dimension along which a block's runs lie */
    int64_t element;
    int64_t run, nruns;
};

/* Prefetches nruns rows, which the next block will touch. A side's rows are a
 * pitch apart, and the sources take turns block by block, which no hardware
 * prefetcher follows. A prefetch past the end is harmless. */
static inline __attribute__((always_inline)) void
prefetch_rows(const unsigned char *rows, int64_t stride, int64_t run_bytes,
    int64_t nruns, int for_write)
{
    for (int64_t r = 0; r < nruns; r++, rows += stride) {
        for (int64_t i = 0; i < run_bytes; i += LINE_BYTES) {
            if (for_write)
                __builtin_prefetch(rows + i, 1, 3);
            else
                __builtin_prefetch(rows + i, 0, 3);
        }
    }
}

static void
sum_block(const struct uli_sum *sum, const struct uli_sum_kernel *kernel,
    const struct block *block, void *dst, const void *const src[])
{
    double total[BLOCK], partial[BLOCK];
    int32_t as = acc_dtype(sum->dtype, sum->partial_dtype);
    int partial_index = ULI_SUM_INDEX(sum->partial_dtype);
    int64_t elem = uli_dtype_size(sum->partial_dtype);
    int32_t first_group = sum->group[0];
    for (int32_t s = 0; s < sum->nsources; s++) {
        bool first = s == 0 || sum->group[s] != sum->group[s - 1];
        bool last =
            s == sum->nsources - 1 || sum->group[s] != sum->group[s + 1];
        bool direct = sum->group[s] == first_group;
        const unsigned char *from =
            (const unsigned char *)src[s] + sum->src_offset[s] +
            uli_span_offset(block->index, sum->src_stride[s]) +
            block->element * elem;
        const uli_sum_read_fn *read = first ? kernel->load : kernel->add;
        int64_t stride = sum->src_stride[s][block->row_dim];
        if (block->run == sum->run)
            prefetch_rows(from + block->nruns * stride, stride,
                block->run * elem, block->nruns, 0);
        read[partial_index](
            direct ? total : partial, from, stride, block->run, block->nruns);
        if (last && !direct)
            kernel->add[ULI_SUM_INDEX(as)](total,
                (const unsigned char *)partial, 0, block->run * block->nruns,
                1);
    }
    unsigned char *to = (unsigned char *)dst + sum->dst_offset +
                        uli_span_offset(block->index, sum->dst_stride) +
                        block->element * uli_dtype_size(sum->dtype);
    int64_t stride = sum->dst_stride[block->row_dim];
    if (block->run == sum->run)
        prefetch_rows(to + block->nruns * stride, stride,
            block->run * uli_dtype_size(sum->dtype), block->nruns, 1);
    kernel->store[ULI_SUM_INDEX(sum->dtype)](
        to, stride, total, block->run, block->nruns);
}

/* Sums one line of runs in blocks: parts of a long run, or several short
 * ones. */
static void
sum_line(const struct uli_sum *sum, const struct uli_sum_kernel *kernel,
    struct block *block, int64_t nruns, void *dst, const void *const src[])
{
    int64_t rows = uli_max(1, BLOCK / uli_max(1, sum->run));
    for (int64_t k = 0; k < nruns; k += rows) {
        block->nruns = uli_min(rows, nruns - k);
        for (int64_t e = 0; e < sum->run; e += BLOCK) {
            block->element = e;
            block->run = uli_min(BLOCK, sum->run - e);
            sum_block(sum, kernel, block, dst, src);
        }
        block->index[block->row_dim] += block->nruns;
    }
}

/* The innermost dimension of more than one run: along a dimension of a single
 * run every block would be a single row. */
static int
row_dim_of(const struct uli_sum *sum)
{
    int dim = 2;
    while (dim > 0 && sum->extent[dim] == 1)
        dim--;
    return dim;
}

void
uli_sum_run(const struct uli_sum *sum, struct uli_box_span span, void *dst,
    const void *const src[])
{
    const struct uli_sum_kernel *kernel =
        kernel_of(sum->dtype, sum->partial_dtype);
    int row_dim = row_dim_of(sum), shift = 2 - row_dim;
    int64_t extent[3] = {1, 1, 1};
    struct uli_span_rect rect;
    assert(sum->nsources > 0);
    for (int i = 0; i <= row_dim; i++)
        extent[i + shift] = sum->extent[i];
    while (uli_span_next(extent, &span, &rect)) {
        for (int64_t j = 0; j < rect.extent[0]; j++) {
            struct block block = {.row_dim = row_dim};
            for (int i = 0; i <= row_dim; i++)
                block.index[i] = rect.index[i + shift];
            if (row_dim > 0)
                block.index[row_dim - 1] += j;
            sum_line(sum, kernel, &block, rect.extent[1], dst, src);
        }
    }
}
