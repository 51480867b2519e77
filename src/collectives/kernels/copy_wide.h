/* SPDX-License-Identifier: Apache-2.0
 *
 * The copy kernel of machines with wide vectors, written once. The file that
 * includes this defines what a cache line is to it:
 *   line_t, line_load(src), line_store(dst, line), line_stream(dst, line)
 *   (dst on a line boundary), and part_copy(dst, src, bytes) for 0 < bytes <
 *   LINE_BYTES, touching no byte outside.
 *
 * What limits one core is not bandwidth but the number of misses it keeps in
 * flight. Runs that follow each other in the source are left to the hardware's
 * prefetchers. Strided ones are taken LANES at a time, line by line, so that
 * misses of several pages overlap, while a prefetch runs AHEAD_LINES in front
 * of each lane and on into the next group; the non-temporal hint keeps source
 * lines, which nobody reads again, out of the second level. Measured in
 * perf/PERFORMANCE.md, "host copy kernels".
 *
 * Streaming stores whole lines only: the bytes of a run before its first line
 * boundary and after its last one are stored ordinarily.
 */
#ifndef ULI_COLLECTIVES_KERNELS_COPY_WIDE_H
#define ULI_COLLECTIVES_KERNELS_COPY_WIDE_H

enum { LANES = 4, AHEAD_LINES = 16 };

/* Rows of the inner loop of a plane. */
struct rows {
    unsigned char *dst;
    const unsigned char *src;
    int64_t dst_stride, src_stride;
    int64_t bytes, count;
};

/* Bytes from dst to its next line boundary, 0 when nothing is streamed. */
static inline int64_t
head_bytes(const unsigned char *dst, bool stream)
{
    return stream ? (int64_t)(-(uintptr_t)dst & (LINE_BYTES - 1)) : 0;
}

static inline __attribute__((always_inline)) void
put_line(unsigned char *dst, line_t line, bool stream)
{
    if (stream)
        line_stream(dst, line);
    else
        line_store(dst, line);
}

static inline __attribute__((always_inline)) void
put_part(unsigned char *dst, const unsigned char *src, int64_t bytes)
{
    if (bytes)
        part_copy(dst, src, bytes);
}

static inline __attribute__((always_inline)) void
copy_run(
    unsigned char *dst, const unsigned char *src, int64_t bytes, bool stream)
{
    int64_t i = head_bytes(dst, stream);
    put_part(dst, src, i);
    for (; i + LINE_BYTES <= bytes; i += LINE_BYTES)
        put_line(dst + i, line_load(src + i), stream);
    put_part(dst + i, src + i, bytes - i);
}

static inline __attribute__((always_inline)) void
copy_in_turn(const struct rows *rows, int64_t first, bool stream)
{
    for (int64_t k = first; k < rows->count; k++)
        copy_run(rows->dst + k * rows->dst_stride,
            rows->src + k * rows->src_stride, rows->bytes, stream);
}

/* ---- side by side -------------------------------------------------------- */

/* Where the prefetch is: byte `at` of LANES rows from row k on. */
struct ahead {
    int64_t k, at;
};

/* Never beyond the last group: what lies there may be somebody's cache. */
static inline __attribute__((always_inline)) void
prefetch_lines(struct ahead *ahead, const struct rows *rows)
{
    if (ahead->k + LANES > rows->count)
        return;
    const unsigned char *src =
        rows->src + ahead->k * rows->src_stride + ahead->at;
    for (int lane = 0; lane < LANES; lane++)
        __builtin_prefetch(src + lane * rows->src_stride, 0, 0);
    ahead->at += LINE_BYTES;
    if (ahead->at >= rows->bytes) {
        ahead->at = 0;
        ahead->k += LANES;
    }
}

/* LANES rows from row k on. Heads differ by lane, so bodies differ by at most
 * one line: common lines together, then each lane's end. */
static inline __attribute__((always_inline)) void
copy_lanes(const struct rows *rows, int64_t k, struct ahead *ahead, bool stream)
{
    unsigned char *dst[LANES];
    const unsigned char *src[LANES];
    int64_t left[LANES], common = rows->bytes;
    for (int lane = 0; lane < LANES; lane++) {
        dst[lane] = rows->dst + (k + lane) * rows->dst_stride;
        src[lane] = rows->src + (k + lane) * rows->src_stride;
        int64_t head = head_bytes(dst[lane], stream);
        put_part(dst[lane], src[lane], head);
        dst[lane] += head;
        src[lane] += head;
        left[lane] = rows->bytes - head;
        common = left[lane] < common ? left[lane] : common;
    }
    common -= common % LINE_BYTES;
    for (int64_t i = 0; i < common; i += LINE_BYTES) {
        prefetch_lines(ahead, rows);
        for (int lane = 0; lane < LANES; lane++)
            put_line(dst[lane] + i, line_load(src[lane] + i), stream);
    }
    for (int lane = 0; lane < LANES; lane++) {
        int64_t i = common;
        if (i + LINE_BYTES <= left[lane]) {
            put_line(dst[lane] + i, line_load(src[lane] + i), stream);
            i += LINE_BYTES;
        }
        put_part(dst[lane] + i, src[lane] + i, left[lane] - i);
    }
}

static inline __attribute__((always_inline)) void
copy_side_by_side(const struct rows *rows, bool stream)
{
    struct ahead ahead = {0, 0};
    int64_t k = 0;
    for (int line = 0; line < AHEAD_LINES; line++)
        prefetch_lines(&ahead, rows);
    for (; k + LANES <= rows->count; k += LANES)
        copy_lanes(rows, k, &ahead, stream);
    copy_in_turn(rows, k, stream);
}

/* ---- planes -------------------------------------------------------------- */

static inline __attribute__((always_inline)) void
copy_rows(const struct rows *rows, bool stream)
{
    bool strided = rows->src_stride != rows->bytes;
    if (strided && rows->count >= 2 * LANES)
        copy_side_by_side(rows, stream);
    else
        copy_in_turn(rows, 0, stream);
}

/* Runs below a line that have no spelled-out size. */
static void
copy_parts(const struct rows *rows)
{
    for (int64_t k = 0; k < rows->count; k++)
        part_copy(rows->dst + k * rows->dst_stride,
            rows->src + k * rows->src_stride, rows->bytes);
}

static void
wide_copy(const struct uli_copy_plane *plane, bool stream)
{
    struct rows rows = {
        .dst = plane->dst,
        .src = plane->src,
        .dst_stride = plane->dst_stride[1],
        .src_stride = plane->src_stride[1],
        .bytes = plane->run_bytes,
        .count = plane->extent[1],
    };
    if (rows.bytes < LINE_BYTES && copy_small(plane))
        return;
    for (int64_t j = 0; j < plane->extent[0]; j++) {
        if (rows.bytes < LINE_BYTES)
            copy_parts(&rows);
        else if (stream)
            copy_rows(&rows, true);
        else
            copy_rows(&rows, false);
        rows.dst += plane->dst_stride[0];
        rows.src += plane->src_stride[0];
    }
}

static void
stream_joint(const struct uli_copy_plane planes[], int32_t count)
{
    for (int64_t k = 0; k < planes[0].extent[1]; k++) {
        for (int32_t n = 0; n < count; n++) {
            struct rows rows = {
                .dst = planes[n].dst + k * planes[n].dst_stride[1],
                .src = planes[n].src + k * planes[n].src_stride[1],
                .dst_stride = planes[n].dst_stride[0],
                .src_stride = planes[n].src_stride[0],
                .bytes = planes[n].run_bytes,
                .count = planes[n].extent[0],
            };
            copy_in_turn(&rows, 0, true);
        }
    }
}

#endif
