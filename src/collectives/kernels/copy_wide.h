/* SPDX-License-Identifier: Apache-2.0
 *
 * The copy kernel of machines with wide vectors, written once. The including
 * file defines its cache lines:
 *   line_t, line_load(src), line_store(dst, line), line_stream(dst, line)
 *   (dst on a line boundary), and part_copy(dst, src, bytes) for 0 < bytes <
 *   LINE_BYTES, touching no byte outside.
 *
 * One core is limited not by bandwidth but by the number of misses it keeps in
 * flight. Therefore several rows may be copied at a time, line by line, so that
 * misses of several pages overlap, while a prefetch runs ahead of each lane and
 * on into the next group of rows. One lane with a prefetch is enough where the
 * hardware's prefetcher stops at the end of each row. How many lanes, how far
 * ahead and into which cache is the way of the copy (copy.h), because machines
 * differ in all three. Measured in perf/PERFORMANCE.md, "host copy kernels".
 *
 * A step loads the lines of all lanes before it stores the first of them. Lanes
 * are often whole pages apart, on both sides, and a processor that compares the
 * low 12 bits of addresses only takes the load of one lane for a load of what
 * another lane has just stored, and lets it wait for the store.
 *
 * Only whole lines are streamed: the bytes of a run before its first line
 * boundary and after its last one are stored ordinarily.
 */
#ifndef ULI_COLLECTIVES_KERNELS_COPY_WIDE_H
#define ULI_COLLECTIVES_KERNELS_COPY_WIDE_H

/* Rows of the inner loop of a plane. */
struct rows {
    unsigned char *dst;
    const unsigned char *src;
    int64_t dst_stride, src_stride;
    int64_t bytes, count;
};

/* Bytes from dst to its next line boundary; 0 when nothing is streamed. */
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

/* The constants of one compiled body. */
struct body {
    int lanes;
    enum uli_copy_hint hint;
    bool stream;
};

/* Position of the prefetch: byte `at` of the group of lanes that begins at row
 * k. */
struct ahead {
    int64_t k, at;
};

static inline __attribute__((always_inline)) void
prefetch_line(const unsigned char *src, enum uli_copy_hint hint)
{
    switch (hint) {
    case ULI_HINT_ONCE:
        __builtin_prefetch(src, 0, 0);
        return;
    case ULI_HINT_L2:
        __builtin_prefetch(src, 0, 2);
        return;
    case ULI_HINT_L1:
        __builtin_prefetch(src, 0, 3);
        return;
    default:
        return;
    }
}

/* Never prefetches beyond the last group: another core's cache may hold those
 * lines. */
static inline __attribute__((always_inline)) void
prefetch_lines(
    struct ahead *ahead, const struct rows *rows, const struct body body)
{
    if (body.hint == ULI_HINT_NONE || ahead->k + body.lanes > rows->count)
        return;
    const unsigned char *src =
        rows->src + ahead->k * rows->src_stride + ahead->at;
    for (int lane = 0; lane < body.lanes; lane++)
        prefetch_line(src + lane * rows->src_stride, body.hint);
    ahead->at += LINE_BYTES;
    if (ahead->at >= rows->bytes) {
        ahead->at = 0;
        ahead->k += body.lanes;
    }
}

/* Copies rows k, k + 1, ..., one per lane. The bytes before the first line
 * boundary differ between lanes, so the lanes' whole lines differ by at most
 * one: the common lines are copied together, then each lane's end. */
static inline __attribute__((always_inline)) void
copy_lanes(const struct rows *rows, int64_t k, struct ahead *ahead,
    const struct body body)
{
    unsigned char *dst[ULI_LANES_MAX];
    const unsigned char *src[ULI_LANES_MAX];
    int64_t left[ULI_LANES_MAX], common = rows->bytes;
    for (int lane = 0; lane < body.lanes; lane++) {
        dst[lane] = rows->dst + (k + lane) * rows->dst_stride;
        src[lane] = rows->src + (k + lane) * rows->src_stride;
        int64_t head = head_bytes(dst[lane], body.stream);
        put_part(dst[lane], src[lane], head);
        dst[lane] += head;
        src[lane] += head;
        left[lane] = rows->bytes - head;
        common = left[lane] < common ? left[lane] : common;
    }
    common -= common % LINE_BYTES;
    for (int64_t i = 0; i < common; i += LINE_BYTES) {
        line_t lines[ULI_LANES_MAX];
        prefetch_lines(ahead, rows, body);
        for (int lane = 0; lane < body.lanes; lane++)
            lines[lane] = line_load(src[lane] + i);
        for (int lane = 0; lane < body.lanes; lane++)
            put_line(dst[lane] + i, lines[lane], body.stream);
    }
    for (int lane = 0; lane < body.lanes; lane++) {
        int64_t i = common;
        if (i + LINE_BYTES <= left[lane]) {
            put_line(dst[lane] + i, line_load(src[lane] + i), body.stream);
            i += LINE_BYTES;
        }
        put_part(dst[lane] + i, src[lane] + i, left[lane] - i);
    }
}

static inline __attribute__((always_inline)) void
copy_side_by_side(
    const struct rows *rows, int32_t ahead_lines, const struct body body)
{
    struct ahead ahead = {0, 0};
    int64_t k = 0;
    for (int line = 0; line < ahead_lines; line++)
        prefetch_lines(&ahead, rows, body);
    for (; k + body.lanes <= rows->count; k += body.lanes)
        copy_lanes(rows, k, &ahead, body);
    copy_in_turn(rows, k, body.stream);
}

/* ---- the bodies ---------------------------------------------------------- */

/* X(name, lanes, hint) */
#define BODIES_MAP(X)                                                          \
    X(one, 1, ULI_HINT_NONE)                                                   \
    X(one_once, 1, ULI_HINT_ONCE)                                              \
    X(one_l2, 1, ULI_HINT_L2)                                                  \
    X(one_l1, 1, ULI_HINT_L1)                                                  \
    X(two, 2, ULI_HINT_NONE)                                                   \
    X(two_once, 2, ULI_HINT_ONCE)                                              \
    X(two_l2, 2, ULI_HINT_L2)                                                  \
    X(two_l1, 2, ULI_HINT_L1)                                                  \
    X(four, 4, ULI_HINT_NONE)                                                  \
    X(four_once, 4, ULI_HINT_ONCE)                                             \
    X(four_l2, 4, ULI_HINT_L2)                                                 \
    X(four_l1, 4, ULI_HINT_L1)                                                 \
    X(eight, 8, ULI_HINT_NONE)                                                 \
    X(eight_once, 8, ULI_HINT_ONCE)                                            \
    X(eight_l2, 8, ULI_HINT_L2)                                                \
    X(eight_l1, 8, ULI_HINT_L1)

#define BODY(name, lanes, hint)                                                \
    static void copy_##name(const struct rows *rows, int32_t ahead)            \
    {                                                                          \
        copy_side_by_side(rows, ahead, (struct body){lanes, hint, false});     \
    }                                                                          \
    static void stream_##name(const struct rows *rows, int32_t ahead)          \
    {                                                                          \
        copy_side_by_side(rows, ahead, (struct body){lanes, hint, true});      \
    }
BODIES_MAP(BODY)
#undef BODY

typedef void (*body_fn)(const struct rows *rows, int32_t ahead);

/* By lanes, hint, and whether it streams. */
#define BODY(name, lanes, hint) [lanes][hint] = {copy_##name, stream_##name},
static const body_fn bodies[ULI_LANES_MAX + 1][ULI_HINTS][2] = {
    BODIES_MAP(BODY)};
#undef BODY

/* ---- planes -------------------------------------------------------------- */

/* Few rows are copied in turn, and their prefetches left to the hardware. */
static void
copy_rows(const struct rows *rows, const struct uli_copy_way *way)
{
    bool few = rows->count < 2 * way->lanes;

    bodies[few ? 1 : way->lanes][few ? ULI_HINT_NONE : way->hint][way->stream](
        rows, way->ahead);
}

/* Runs shorter than a line whose size copy_small does not list. */
static void
copy_parts(const struct rows *rows)
{
    for (int64_t k = 0; k < rows->count; k++)
        part_copy(rows->dst + k * rows->dst_stride,
            rows->src + k * rows->src_stride, rows->bytes);
}

static void
wide_copy(const struct uli_copy_plane *plane, const struct uli_copy_way *way)
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
        else
            copy_rows(&rows, way);
        rows.dst += plane->dst_stride[0];
        rows.src += plane->src_stride[0];
    }
}

#endif
