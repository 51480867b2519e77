/* SPDX-License-Identifier: Apache-2.0
 *
 * The two operations on bytes: a strided copy and an ordered sum, on boxes of
 * up to four dimensions. Kernels behind one table, portable C first, faster
 * ones in its place by CPU features.
 */
#ifndef ULI_COLLECTIVES_KERNELS_COPY_H
#define ULI_COLLECTIVES_KERNELS_COPY_H

#include <stdbool.h>
#include <stdint.h>
#include "ulyx/types.h"

/* extent[0] x extent[1] x extent[2] runs of run_bytes adjacent bytes. Offsets
 * and strides are in bytes, from the base pointers given at run time:
 *   dst + dst_offset + i*dst_stride[0] + j*dst_stride[1] + k*dst_stride[2]
 *   <- src + src_offset + i*src_stride[0] + ... */
struct uli_box {
    int64_t extent[3];
    int64_t run_bytes;
    int64_t dst_offset, dst_stride[3];
    int64_t src_offset, src_stride[3];
};

/* Makes a box canonical: dimensions of extent 1 are removed, the others ordered
 * by destination stride (largest outermost) and merged wherever both sides are
 * adjacent, also into the run (rows of one element become long runs). The same
 * pairs of addresses are copied. */
void uli_box_normalize(struct uli_box *box);

/* Merges loops that follow each other, and the innermost with the run, where
 * both sides are adjacent. The order of the bytes does not change. */
void uli_box_merge(struct uli_box *box);

int64_t uli_box_bytes(const struct uli_box *box);
static inline int64_t
uli_box_runs(const struct uli_box *box)
{
    return box->extent[0] * box->extent[1] * box->extent[2];
}

/* Runs [begin, end) of a box, counted in loop order of the normalized box (0 ..
 * product of extents), so that a long box can be copied in steps with checks of
 * the deadline between them. */
struct uli_box_span {
    int64_t begin, end;
};

/* Where prefetches of rows side by side put a line. */
enum uli_copy_hint {
    ULI_HINT_NONE, /* no prefetches but the hardware's own */
    ULI_HINT_ONCE, /* non-temporal: near, and not to be kept */
    ULI_HINT_L2,   /* a core's second level */
    ULI_HINT_L1,
    ULI_HINTS
};
enum { ULI_LANES_MAX = 8 };

/* How a copy is made. It changes the time of a copy, never the bytes, and the
 * best way differs between machines. A kernel without prefetches or streaming
 * stores ignores those fields. */
struct uli_copy_way {
    enum uli_copy_hint hint;
    int32_t lanes; /* rows, or pages of a fan-out, side by side: 1, 2, 4 or
                    * 8 */
    int32_t ahead; /* lines between a lane and its prefetch */
    bool stream;   /* non-temporal stores; ends with a store fence */
};
/* Row by row, ordinary stores. */
extern const struct uli_copy_way uli_copy_plain;

/* Copies runs [span.begin, span.end). dst and src do not overlap, and may have
 * any alignment. */
void uli_box_copy(const struct uli_box *box, struct uli_box_span span,
    void *dst, const void *src, const struct uli_copy_way *way);

/* Do two normalized boxes of one source read runs of equal length in the same
 * rows, of which there are several, apart from each other, and are the runs
 * whole lines of 64 bytes and short enough (16 KiB) that they share pages? */
bool uli_boxes_fan(const struct uli_box *a, const struct uli_box *b);

/* A fan-out copies several boxes in one pass over the source rows. */
enum { ULI_FAN_PARTS = 16 };
struct uli_fan_part {
    const struct uli_box *box; /* the caller's */
    void *dst;                 /* base pointer */
};
/* Can these boxes be copied by a way that streams, or does not? count: 1 to
 * ULI_FAN_PARTS; each box fans out with the first (uli_boxes_fan). False where
 * a streamed run does not begin on a line. */
bool uli_parts_fan(
    const struct uli_fan_part *parts, int32_t count, bool stream);
/* As uli_box_copy of runs span of each part, where uli_parts_fan. */
void uli_boxes_copy(const struct uli_fan_part *parts, int32_t count,
    struct uli_box_span span, const void *src, const struct uli_copy_way *way);

/* dst <- zeros; the box's src fields are ignored. */
void uli_box_zero(
    const struct uli_box *box, struct uli_box_span span, void *dst);

/* The box's bytes in loop order to and from contiguous memory: pack writes the
 * runs of span at `packed` one after another; unpack is the reverse. */
void uli_box_pack(const struct uli_box *box, struct uli_box_span span,
    void *packed, const void *src, const struct uli_copy_way *way);
void uli_box_unpack(const struct uli_box *box, struct uli_box_span span,
    void *dst, const void *packed, const struct uli_copy_way *way);

/* An ordered sum of `nsources` rectangles of partial_dtype into one of dtype.
 * Extents count elements; strides and offsets are bytes.
 *   acc = src[0]; acc += src[1]; ...   in fp32 (fp64 when dtype or
 *   partial_dtype is F64), sources of one group first:
 * group[s] is non-decreasing. Sources of equal group are summed in order, then
 * the groups' sums in order (the tree of a plan: node by node). dst is the sum
 * rounded once to nearest even; any NaN is stored as the quiet positive NaN
 * without payload. The bits do not depend on the kernel. */
struct uli_sum {
    int64_t extent[3], run; /* run: adjacent elements */
    int32_t dtype, partial_dtype;
    int64_t dst_offset, dst_stride[3];
    int32_t nsources;
    const int32_t *group;
    const int64_t *src_offset;      /* [nsources] */
    const int64_t (*src_stride)[3]; /* [nsources] */
};
/* src[s] are base pointers. span counts runs as for boxes. Allocates
 * nothing. */
void uli_sum_run(const struct uli_sum *sum, struct uli_box_span span, void *dst,
    const void *const src[]);

/* A sum in stages, chunk by chunk, for sources whose elements arrive packed.
 * accumulate: acc[count] <- src (first) or acc += src; merge: as accumulate,
 * from other accumulators; store: dst <- acc rounded, for the runs of span. acc
 * is float, or double when F64 is involved. */
void uli_sum_accumulate(int32_t dtype, int32_t partial_dtype, void *acc,
    const void *src, int64_t count, bool first);
void uli_sum_merge(int32_t dtype, int32_t partial_dtype, void *acc,
    const void *other_acc, int64_t count, bool first);
void uli_sum_store(const struct uli_sum *sum, struct uli_box_span span,
    void *dst, const void *acc);
/* Bytes of an accumulator element: 4 or 8. */
int64_t uli_sum_acc_bytes(int32_t dtype, int32_t partial_dtype);

/* The kernels that this machine runs, best last. select: by name, for tests and
 * benches ("portable", "avx2", "avx512"); NULL = the best. */
const char *const *uli_copy_kernel_names(int32_t *count_p);
bool uli_copy_kernel_select(const char *name);
const char *uli_copy_kernel_name(void); /* of the kernel in use */

/* Can the kernel in use store these runs by non-temporal stores without loss?
 * Depends on their length, and on whether they fill lines. */
bool uli_copy_streams_whole(const struct uli_box *box);

/* Do the rows of the innermost loop follow each other in the source? */
static inline bool
uli_box_reads_on(const struct uli_box *box)
{
    return box->extent[2] == 1 || box->src_stride[2] == box->run_bytes;
}

#endif
