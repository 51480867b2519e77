/* SPDX-License-Identifier: Apache-2.0
 *
 * When non-temporal stores pay. They spare the read of every line that is
 * about to be overwritten, a third of the traffic, and lose when the bytes
 * would have been found in the cache by whoever reads them next, or when runs
 * fill lines only in part.
 */
#include <stdatomic.h>
#include <unistd.h>
#include "collectives/copy.h"
#include "collectives/copy_kernel.h"

/* Where the machine does not say. */
enum { DEFAULT_CACHE_BYTES = 32 << 20 };
enum { LINE_BYTES = 64 };

static int64_t
cache_bytes(void)
{
    static _Atomic int64_t cached;
    int64_t bytes = atomic_load_explicit(&cached, memory_order_relaxed);
    if (bytes == 0) {
        bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
        if (bytes <= 0)
            bytes = DEFAULT_CACHE_BYTES;
        atomic_store_explicit(&cached, bytes, memory_order_relaxed);
    }
    return bytes;
}

bool
uli_copy_stream_pays(const struct uli_box *box)
{
    return uli_copy_kernel()->fence && box->run_bytes >= 2 * LINE_BYTES &&
           uli_box_bytes(box) >= cache_bytes();
}
