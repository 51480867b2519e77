/* SPDX-License-Identifier: Apache-2.0
 *
 * A meeting through the caller's allgather, for instance MPI's. The callback is
 * responsible for deadlines and lost ranks. Of the result only this rank's own
 * record can be checked, and is checked.
 */
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "bootstrap/bootstrap.h"

struct callback {
    struct uli_bootstrap base;
    ulyx_allgather_fn allgather;
    void *context;
    int32_t gathers;
};

static ulyx_status_t
callback_gather(struct uli_bootstrap *bootstrap, const void *mine, size_t bytes,
    void *all_p, uli_deadline_t deadline)
{
    struct callback *callback = (struct callback *)bootstrap;
    (void)deadline;
    callback->gathers++;
    int result = callback->allgather(callback->context, mine, all_p, bytes);
    if (result != 0)
        return uli_error(ULYX_ERR_SYSTEM,
            "rank %d: the caller's allgather returned %d in gather %d",
            bootstrap->rank, result, callback->gathers);
    const char *own = (const char *)all_p + (size_t)bootstrap->rank * bytes;
    if (bytes && memcmp(own, mine, bytes) != 0)
        return uli_error(ULYX_ERR_MISMATCH,
            "rank %d of %d: the caller's allgather put other bytes in this "
            "rank's place: it has another rank order",
            bootstrap->rank, bootstrap->nranks);
    return ULYX_SUCCESS;
}

static void
callback_close(struct uli_bootstrap *bootstrap)
{
    free(bootstrap);
}

static const struct uli_bootstrap_ops callback_ops = {
    .name = "callback",
    .gather = callback_gather,
    .close = callback_close,
};

ulyx_status_t
uli_bootstrap_open_callback(ulyx_allgather_fn allgather, void *context,
    int32_t nranks, int32_t rank, struct uli_bootstrap **bootstrap_p)
{
    struct callback *callback = calloc(1, sizeof(*callback));
    if (!callback)
        return uli_error(ULYX_ERR_NO_MEMORY, "out of memory for a bootstrap");
    callback->base = (struct uli_bootstrap){&callback_ops, rank, nranks, NULL};
    callback->allgather = allgather;
    callback->context = context;
    *bootstrap_p = &callback->base;
    return ULYX_SUCCESS;
}
