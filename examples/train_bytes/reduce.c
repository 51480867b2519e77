/* SPDX-License-Identifier: Apache-2.0
 *
 * The sum over ranks, by the library, which adds in rank order. Each rank sends
 * 2 (P - 1) / P of the values.
 */
#include "reduce.h"

#include <stdio.h>

int
reduce_sum(ulyx_comm_t *comm, ulyx_dtype_t dtype, int64_t count, void *values,
    void *stream, int64_t *sent_p)
{
    int32_t nranks = 0;

    if (!comm)
        return 0;
    if (ulyx_comm_get_nranks(comm, &nranks) != ULYX_SUCCESS ||
        ulyx_allreduce(comm, values, values, count, dtype, stream) !=
            ULYX_SUCCESS) {
        fprintf(stderr, "train_bytes: sum over ranks: %s\n", ulyx_last_error());
        return 3;
    }
    *sent_p += 2 * count * (nranks - 1) / nranks * ulyx_dtype_size(dtype);
    return 0;
}
