/* SPDX-License-Identifier: Apache-2.0
 *
 * The two things that happen to bytes: a strided copy and an ordered sum, on
 * boxes of up to four dimensions. Kernels behind one table, portable C first,
 * faster ones laid over it by CPU features.
 */
#ifndef ULI_COLLECTIVES_KERNELS_COPY_H
#define ULI_COLLECTIVES_KERNELS_COPY_H

#include <stdbool.h>
#include <stdint.h>
#include "ulyx/types.h"

/* extent[0] x extent[1] x extent[2] runs of run_bytes adjacent bytes.
 * Byte offsets are from the base pointers given at run time:
 *   dst + dst_offset + i*dst_stride[0] + j*dst_stride[1] + k*dst_stride[2]
 *   <- src + src_offset + i*src_stride[0] + ...                            */
struct uli_box {
    int64_t extent[3];
    int64_t run_bytes;
    int64_t dst_offset, dst_stride[3];
    int64_t src_offset, src_stride[3];
};

/* Canonical form: dimensions of extent 1 leave, the rest are ordered by
 * destination stride (largest outermost) and merged wherever both sides are
 * adjacent, also into the run (a tensor with one element a row becomes long
 * runs). Addresses visited are the same set, pairwise. */
void uli_box_normalize(struct uli_box *box);

/* Joins loops that follow each other, and the innermost with the run, where
 * both sides are adjacent. The order of the bytes stays. */
void uli_box_merge(struct uli_box *box);

int64_t uli_box_bytes(const struct uli_box *box);

/* Cuts [begin, end) of the box's runs, counted in loop order of the
 * normalized box (0 .. extent product), so that long boxes can be done in
 * steps between which deadlines are looked at. */
struct uli_box_span {
    int64_t begin, end;
};

/* Where prefetches of rows side by side put a line. */
enum uli_copy_hint {
    ULI_HINT_NONE, /* no prefetches but the machine's own */
    ULI_HINT_ONCE, /* non-temporal: near, and not to be kept */
    ULI_HINT_L2,   /* a core's second level */
    ULI_HINT_L1,
    ULI_HINTS
};
enum { ULI_LANES_MAX = 8 };

/* How a copy is made. Nothing of it shows in the bytes: it is what machines
 * differ in. Kernels without the one or the other do without it. */
struct uli_copy_way {
    enum uli_copy_hint hint;
    int32_t lanes; /* rows side by side: 1, 2, 4 or 8 */
    int32_t ahead; /* lines by which prefetches run in front of a lane */
    bool stream;   /* non-temporal stores; ends with a store fence */
};
/* Row by row, ordinary stores. */
extern const struct uli_copy_way uli_copy_plain;

/* Copies runs [span.begin, span.end). dst and src do not overlap. Any
 * alignment. */
void uli_box_copy(const struct uli_box *box, struct uli_box_span span,
    void *dst, const void *src, const struct uli_copy_way *way);
/* dst <- zeros; src fields of the box are ignored. */
void uli_box_zero(
    const struct uli_box *box, struct uli_box_span span, void *dst);

/* The box's bytes in loop order to and from contiguous memory: pack writes
 * the runs of span at `packed` one after another; unpack is the reverse. */
void uli_box_pack(const struct uli_box *box, struct uli_box_span span,
    void *packed, const void *src, const struct uli_copy_way *way);
void uli_box_unpack(const struct uli_box *box, struct uli_box_span span,
    void *dst, const void *packed, const struct uli_copy_way *way);

/* An ordered sum of `nsources` rectangles of partial_dtype into one of dtype.
 * Extents count elements; strides and offsets are bytes.
 *   acc = src[0]; acc += src[1]; ...   in fp32 (fp64 when dtype or
 *   partial_dtype is F64), sources of one group first:
 * group[s] is non-decreasing; sources of equal group are summed in order, then
 * the groups' sums in order (the tree of a plan: node by node). dst = the
 * sum rounded once to nearest even; any NaN is stored as the quiet positive
 * one without payload. Bits do not depend on the kernel. */
struct uli_sum {
    int64_t extent[3], run; /* run: adjacent elements */
    int32_t dtype, partial_dtype;
    int64_t dst_offset, dst_stride[3];
    int32_t nsources;
    const int32_t *group;
    const int64_t *src_offset;      /* [nsources] */
    const int64_t (*src_stride)[3]; /* [nsources] */
};
/* src[s] are base pointers. span counts runs as above. Allocates nothing. */
void uli_sum_run(const struct uli_sum *sum, struct uli_box_span span, void *dst,
    const void *const src[]);

/* The staged form, chunk by chunk, when a source's elements arrive packed:
 * acc[count] <- src (first = true) or acc += src; and dst <- acc rounded, for
 * the runs of span. acc is float, or double when F64 is involved. */
void uli_sum_accumulate(int32_t dtype, int32_t partial_dtype, void *acc,
    const void *src, int64_t count, bool first);
void uli_sum_merge(int32_t dtype, int32_t partial_dtype, void *acc,
    const void *other_acc, int64_t count, bool first);
void uli_sum_store(const struct uli_sum *sum, struct uli_box_span span,
    void *dst, const void *acc);
/* Bytes of an accumulator element: 4 or 8. */
int64_t uli_sum_acc_bytes(int32_t dtype, int32_t partial_dtype);

/* Which kernels this machine runs, best last; set by name for tests and
 * benches ("portable", "avx2", "avx512"); NULL = best. */
const char *const *uli_copy_kernel_names(int32_t *count_p);
bool uli_copy_kernel_select(const char *name);
const char *uli_copy_kernel_name(void); /* of the one in use */

/* Can the kernel in use store these runs by non-temporal stores without loss?
 * By their length, and whether they fill lines. */
bool uli_copy_streams_whole(const struct uli_box *box);

/* Do the rows of the innermost loop follow each other in the source? */
bool uli_box_reads_on(const struct uli_box *box);

#endif
