/* SPDX-License-Identifier: Apache-2.0
 *
 * Size-first parameter structs at the public edge.
 */
#ifndef ULI_API_PARAMS_H
#define ULI_API_PARAMS_H

#include <stddef.h>
#include "ulyx/comm.h"

/* Copies a caller's struct of any version into one of own_bytes: a shorter
 * (older) one leaves the rest zero, a longer (newer) one must be zero beyond
 * own_bytes. name is the struct's, for messages. given = NULL: copies
 * defaults, which has own_bytes.
 * returns SUCCESS; ERR_INVALID_ARGUMENT (size under least_bytes, or absurd);
 * ERR_UNSUPPORTED (non-zero bytes that this version does not know). */
ulyx_status_t uli_params_copy(void *own_p, size_t own_bytes, size_t least_bytes,
    const void *given, const void *defaults, const char *name);

/* An array of structs whose element size the caller gave: 1 to most elements
 * of at least own_bytes. name is the array's, its count is "n<name>". */
ulyx_status_t uli_params_array(const void *array, size_t element_bytes,
    size_t own_bytes, int32_t count, int32_t most, const char *name);

/* Copies element `index` of such an array; its unknown bytes must be zero.
 * returns SUCCESS; ERR_UNSUPPORTED. */
ulyx_status_t uli_params_element(void *own_p, size_t own_bytes,
    const void *array, size_t element_bytes, int index, const char *name);

/* A timeout_s field: 0 (a default) to one day. */
ulyx_status_t uli_params_timeout(double timeout_s);

/* ERR_FORKED in a child forked after the library was used. */
ulyx_status_t uli_api_enter(void);

/* ERR_UNSUPPORTED for a call that moves host memory only, on a communicator of
 * CUDA memory: the same on all its ranks. */
ulyx_status_t uli_api_host_only(const ulyx_comm_t *comm, const char *call);
/* ERR_INVALID_ARGUMENT for a stream of a communicator of host memory. */
ulyx_status_t uli_api_stream(const ulyx_comm_t *comm, const void *stream);

#define ULI_CHECK_POINTER(pointer)                                             \
    do {                                                                       \
        if ((pointer) == NULL)                                                 \
            return uli_error(                                                  \
                ULYX_ERR_INVALID_ARGUMENT, "%s is NULL", #pointer);            \
    } while (0)

#endif
