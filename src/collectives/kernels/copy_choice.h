/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of the way of a call's copies: by the bytes that a rank copies in
 * the call, and by how its source lies. Ways differ in time alone, so ranks
 * need not agree on them.
 */
#ifndef ULI_COLLECTIVES_KERNELS_COPY_CHOICE_H
#define ULI_COLLECTIVES_KERNELS_COPY_CHOICE_H

#include <stdint.h>
#include "collectives/kernels/copy.h"

/* Bytes that a rank copies in a call: below ULI_COPY_MEDIUM_BYTES, below
 * ULI_COPY_LARGE_BYTES, and more. The bounds are below 256 KiB and 4 MiB
 * because calls of that nominal size hold whole tokens, a little less. */
enum uli_copy_size {
    ULI_COPY_SMALL,
    ULI_COPY_MEDIUM,
    ULI_COPY_LARGE,
    ULI_COPY_SIZES
};
enum {
    ULI_COPY_MEDIUM_BYTES = 192 << 10,
    ULI_COPY_LARGE_BYTES = 3 << 20,
};

/* Rows of the source: apart, as heads of a token's row are, or one after
 * another; or rows that are fanned out to several destinations. */
enum uli_copy_source {
    ULI_ROWS_APART,
    ULI_ROWS_ON,
    ULI_ROWS_FANNED,
    ULI_COPY_SOURCES
};

/* GB/s of a way that was measured, and of the default; 0: not measured. */
struct uli_copy_figure {
    double chosen, usual;
};

struct uli_copy_choice {
    struct uli_copy_way ways[ULI_COPY_SIZES][ULI_COPY_SOURCES];
    struct uli_copy_figure figures[ULI_COPY_SIZES][ULI_COPY_SOURCES];
    /* Stores stream in calls of at least this many bytes, INT64_MAX for never;
     * `stream` of the ways is ignored. */
    int64_t stream_bytes;
    /* Rows are fanned out in calls of at least this many bytes, INT64_MAX for
     * never; in others they are copied as rows apart. At least
     * ULI_COPY_MEDIUM_BYTES. */
    int64_t fan_bytes;
};

/* The choice without measurement, by the maker of this processor. */
const struct uli_copy_choice *uli_copy_defaults(void);

/* Which stores of a call stream: none, those of boxes for which that pays
 * (uli_copy_streams_whole), or all. */
enum uli_copy_streams { ULI_STREAMS_NONE, ULI_STREAMS_WHOLE, ULI_STREAMS_ALL };

/* What the copies of one call have in common. */
struct uli_copy_call {
    const struct uli_copy_way *ways; /* [ULI_COPY_SOURCES], the choice's */
    enum uli_copy_streams streams;
};

/* For a call in which a rank copies call_bytes. Valid as long as the choice. */
struct uli_copy_call uli_copy_call_of(
    const struct uli_copy_choice *choice, int64_t call_bytes);

/* The way of the call's copy of a (normalized) box with the kernel in use, or
 * of a fan-out (source ULI_ROWS_FANNED) of boxes like this one. */
static inline struct uli_copy_way
uli_copy_way_from(const struct uli_copy_call *call, const struct uli_box *box,
    enum uli_copy_source source)
{
    struct uli_copy_way way = call->ways[source];
    way.stream =
        call->streams == ULI_STREAMS_ALL ||
        (call->streams == ULI_STREAMS_WHOLE && uli_copy_streams_whole(box));
    return way;
}
static inline struct uli_copy_way
uli_copy_way_of(const struct uli_copy_call *call, const struct uli_box *box)
{
    return uli_copy_way_from(
        call, box, uli_box_reads_on(box) ? ULI_ROWS_ON : ULI_ROWS_APART);
}

#endif
