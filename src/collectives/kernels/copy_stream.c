/* SPDX-License-Identifier: Apache-2.0
 *
 * Which boxes suit non-temporal stores. A line filled in part costs more than a
 * read. Runs that begin and end inside lines have two such lines each, and
 * these lines have two writers where the destination is adjacent. The base
 * pointers are assumed to be on a line boundary, as windows are. Figures:
 * perf/PERFORMANCE.md, "host copy kernels".
 */
#include "collectives/kernels/copy.h"
#include "collectives/kernels/copy_kernel.h"

enum {
    LINE_BYTES = 64,
    RAGGED_RUN_BYTES = 1024,       /* pays from here on in strided rows */
    RAGGED_ADJACENT_BYTES = 65536, /* and from here on in adjacent ones */
};

/* Do all runs begin and end on line boundaries of the destination? */
static bool
whole_lines(const struct uli_box *box)
{
    int64_t bits = box->dst_offset | box->run_bytes;
    for (int i = 0; i < 3; i++)
        bits |= box->extent[i] > 1 ? box->dst_stride[i] : 0;
    return bits % LINE_BYTES == 0;
}

bool
uli_copy_streams_whole(const struct uli_box *box)
{
    if (!uli_copy_kernel()->fence)
        return false;
    if (whole_lines(box))
        return true;
    bool adjacent = box->dst_stride[2] == box->run_bytes;
    return box->run_bytes >=
           (adjacent ? RAGGED_ADJACENT_BYTES : RAGGED_RUN_BYTES);
}
