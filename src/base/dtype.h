/* SPDX-License-Identifier: Apache-2.0
 *
 * Element sizes of the data types.
 */
#ifndef ULI_BASE_DTYPE_H
#define ULI_BASE_DTYPE_H

#include <stdint.h>
#include "ulyx/types.h"

/* Bytes of one element; 0 for BYTES and unknown codes. */
static inline int64_t
uli_dtype_size(ulyx_dtype_t dtype)
{
    switch (dtype) {
    case ULYX_DTYPE_F64:
        return 8;
    case ULYX_DTYPE_F32:
        return 4;
    case ULYX_DTYPE_BF16:
    case ULYX_DTYPE_F16:
        return 2;
    case ULYX_DTYPE_F8_E4M3:
    case ULYX_DTYPE_F8_E5M2:
        return 1;
    default:
        return 0;
    }
}

#endif
