/* SPDX-License-Identifier: Apache-2.0
 *
 * What a copy and sum kernel is: the part of copy.h that differs by instruction
 * set. Private to the copy and sum files of this folder.
 *
 * To add a kernel: fill a struct uli_copy_kernel in a file of its own, give the
 * file its flags with ulyx_isa_source, and list it in copy.c, best last.
 */
#ifndef ULI_COLLECTIVES_KERNELS_COPY_KERNEL_H
#define ULI_COLLECTIVES_KERNELS_COPY_KERNEL_H

#include <stdbool.h>
#include <stdint.h>
#include "collectives/kernels/copy.h"

/* extent[0] x extent[1] runs: dst + j*dst_stride[0] + k*dst_stride[1]. */
struct uli_copy_plane {
    int64_t extent[2];
    int64_t run_bytes;
    unsigned char *dst;
    int64_t dst_stride[2];
    const unsigned char *src;
    int64_t src_stride[2];
};

/* Each of the rows of the source has one run for each target:
 *   targets[t].dst + i*dst_stride <- src + targets[t].src_offset + i*src_stride
 * for 0 <= i < rows. The targets lie in the order of src_offset; run_bytes is a
 * multiple of 64. If way->stream, every dst and dst_stride is one too. */
enum { ULI_FAN_TARGETS = 64 };
struct uli_copy_target {
    unsigned char *dst;
    int64_t dst_stride;
    int64_t src_offset;
};
struct uli_copy_fan {
    int64_t rows, run_bytes;
    const unsigned char *src;
    int64_t src_stride;
    int32_t ntargets; /* 1 to ULI_FAN_TARGETS */
    struct uli_copy_target targets[ULI_FAN_TARGETS];
};

/* Accumulators are float or double, packed. Sources and destinations are nruns
 * runs of `run` elements, stride bytes apart, of any alignment.
 *   read:  acc[nruns][run] <- src, or acc += src
 *   write: dst <- acc, rounded to nearest even; every NaN becomes the quiet
 *          positive NaN without payload, so that bits do not depend on which
 *          operand's NaN an addition keeps. */
typedef void (*uli_sum_read_fn)(void *acc, const unsigned char *src,
    int64_t src_stride, int64_t run, int64_t nruns);
typedef void (*uli_sum_write_fn)(unsigned char *dst, int64_t dst_stride,
    const void *acc, int64_t run, int64_t nruns);

/* Indexed by ULI_SUM_INDEX(dtype). */
enum { ULI_SUM_DTYPES = 4 };
#define ULI_SUM_INDEX(dtype) ((dtype)-ULYX_DTYPE_F64)

struct uli_sum_kernel {
    uli_sum_read_fn load[ULI_SUM_DTYPES];
    uli_sum_read_fn add[ULI_SUM_DTYPES];
    uli_sum_write_fn store[ULI_SUM_DTYPES];
};

struct uli_copy_kernel {
    bool (*usable)(void); /* does this machine run the kernel? */
    /* way->stream is false for a kernel without a fence. */
    void (*copy)(
        const struct uli_copy_plane *plane, const struct uli_copy_way *way);
    /* As copy. */
    void (*fan)(const struct uli_copy_fan *fan, const struct uli_copy_way *way);
    const struct uli_sum_kernel *sum_f32, *sum_f64;
    /* Orders non-temporal stores before later ones; the caller calls it once,
     * at the end. NULL in a kernel without such stores. */
    void (*fence)(void);
};

/* Streamed runs of this many bytes fill a whole line at any alignment. */
enum { ULI_STREAM_RUN_BYTES = 128 };

/* The kernel in use. */
const struct uli_copy_kernel *uli_copy_kernel(void);

extern const struct uli_copy_kernel uli_copy_portable;
extern const struct uli_copy_kernel uli_copy_avx2;
extern const struct uli_copy_kernel uli_copy_avx512;
extern const struct uli_sum_kernel uli_sum_portable_f32;
extern const struct uli_sum_kernel uli_sum_portable_f64;
extern const struct uli_sum_kernel uli_sum_avx2_f32;
extern const struct uli_sum_kernel uli_sum_avx512_f32;

/* The largest rectangle of runs at the beginning of a span: runs index[0],
 * index[1] + [0, extent[0]), index[2] + [0, extent[1]). */
struct uli_span_rect {
    int64_t index[3];
    int64_t extent[2];
};

/* Takes the next rectangle off the front of *left; false when *left is
 * empty. */
bool uli_span_next(const int64_t extent[3], struct uli_box_span *left,
    struct uli_span_rect *rect);

/* The scalar product. */
static inline int64_t
uli_span_offset(const int64_t index[3], const int64_t stride[3])
{
    return index[0] * stride[0] + index[1] * stride[1] + index[2] * stride[2];
}

#endif
