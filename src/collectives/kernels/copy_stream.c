/* SPDX-License-Identifier: Apache-2.0
 *
 * When non-temporal stores pay. They spare the read of every line that is
 * about to be overwritten, a third of the traffic. Against them:
 *   - what fits the second-level cache is read back from there by whoever
 *     comes next (measured with the reading: a loss at 256 KiB, even at 1 MiB,
 *     a gain from 2 MiB on; the third level makes no difference);
 *   - lines filled in part cost more than a read: runs that begin and end
 *     inside lines have two of them each, and two writers where the
 *     destination is adjacent.
 * The base pointers are taken to be on a line boundary, as windows are.
 * Figures: perf/PERFORMANCE.md, "host copy kernels".
 */
#include <stdatomic.h>
#include <unistd.h>
#include "collectives/kernels/copy.h"
#include "collectives/kernels/copy_kernel.h"

enum {
    LINE_BYTES = 64,
    RAGGED_RUN_BYTES = 1024,       /* pays from here on in strided rows */
    RAGGED_ADJACENT_BYTES = 65536, /* and from here on in adjacent ones */
    DEFAULT_CACHE_BYTES = 1 << 20, /* where the machine does not say */
};

/* The second-level cache of a core. */
static int64_t
cache_bytes(void)
{
    static _Atomic int64_t cached;
    int64_t bytes = atomic_load_explicit(&cached, memory_order_relaxed);
    if (bytes == 0) {
#ifdef _SC_LEVEL2_CACHE_SIZE
        bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
        if (bytes <= 0)
            bytes = DEFAULT_CACHE_BYTES;
        atomic_store_explicit(&cached, bytes, memory_order_relaxed);
    }
    return bytes;
}

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
uli_copy_stream_pays(const struct uli_box *box, int64_t call_bytes)
{
    if (!uli_copy_kernel()->fence || call_bytes < 2 * cache_bytes())
        return false;
    if (whole_lines(box))
        return true;
    bool adjacent = box->dst_stride[2] == box->run_bytes;
    return box->run_bytes >=
           (adjacent ? RAGGED_ADJACENT_BYTES : RAGGED_RUN_BYTES);
}
