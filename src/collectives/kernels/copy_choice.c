/* SPDX-License-Identifier: Apache-2.0
 *
 * The default choice of copies: what was measured on machines of the two makers
 * (perf/PERFORMANCE.md, "host copy kernels"). With several rows at a time both
 * makers' machines need a prefetch. But Intel's servers lose more than half of
 * the speed by the non-temporal hint, and gain by lanes also where source rows
 * follow each other, as they do in a fan-out.
 */
#include "collectives/kernels/copy_choice.h"

#include <pthread.h>
#include <unistd.h>
#include "base/system/cpu.h"

enum {
    DEFAULT_CACHE_BYTES = 1 << 20, /* where the system gives none */
    INTEL_STREAM_BYTES = 192 << 10,
};

/* Bytes of a core's second-level cache. */
static int64_t
cache_bytes(void)
{
    int64_t bytes = 0;
#ifdef _SC_LEVEL2_CACHE_SIZE
    bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    return bytes > 0 ? bytes : DEFAULT_CACHE_BYTES;
}

static struct uli_copy_choice defaults; /* written once */

/* Streaming stores save the read of every line that is about to be overwritten,
 * a third of the traffic. Ordinary stores have the advantage that what fits the
 * second-level cache is read from there afterwards. Measured together with that
 * reading, for a destination that was in no cache before: on Zen 5 both kinds
 * are equal at half the size of that cache, and streaming stores win from twice
 * its size on; on an Intel server, where a line that another core has written
 * arrives slowly, they win a sixth at 32 KiB and a third from 256 KiB on. */
static void
defaults_fill(void)
{
    static const struct uli_copy_way deep = {ULI_HINT_L2, 4, 16, false},
                                     once = {ULI_HINT_ONCE, 4, 16, false};
    bool intel = uli_cpu_is_intel();
    for (int size = 0; size < ULI_COPY_SIZES; size++) {
        defaults.ways[size][ULI_ROWS_APART] = intel ? deep : once;
        defaults.ways[size][ULI_ROWS_ON] = intel ? deep : uli_copy_plain;
        defaults.ways[size][ULI_ROWS_FANNED] = intel ? deep : uli_copy_plain;
    }
    defaults.fan_bytes = ULI_COPY_MEDIUM_BYTES;
    defaults.stream_bytes = intel ? INTEL_STREAM_BYTES : 2 * cache_bytes();
}

const struct uli_copy_choice *
uli_copy_defaults(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, defaults_fill);
    return &defaults;
}

static enum uli_copy_size
call_size(int64_t call_bytes)
{
    if (call_bytes < ULI_COPY_MEDIUM_BYTES)
        return ULI_COPY_SMALL;
    return call_bytes < ULI_COPY_LARGE_BYTES ? ULI_COPY_MEDIUM : ULI_COPY_LARGE;
}

struct uli_copy_call
uli_copy_call_of(const struct uli_copy_choice *choice, int64_t call_bytes)
{
    return (struct uli_copy_call){choice->ways[call_size(call_bytes)],
        call_bytes >= choice->stream_bytes ? ULI_STREAMS_WHOLE
                                           : ULI_STREAMS_NONE};
}
