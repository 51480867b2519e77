/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes from the kernel's generator, which blocks only until it has been seeded
 * after boot.
 */
#include "base/system/random.h"

#include <errno.h>
#include <sys/random.h>
#include <sys/types.h>
#include "base/status.h"

ulyx_status_t
uli_random_bytes(void *bytes_p, size_t count)
{
    unsigned char *bytes = bytes_p;
    while (count > 0) {
        ssize_t got = getrandom(bytes, count, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return uli_error_errno("getrandom of %zu bytes", count);
        bytes += got;
        count -= (size_t)got;
    }
    return ULYX_SUCCESS;
}
