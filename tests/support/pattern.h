/* SPDX-License-Identifier: Apache-2.0
 *
 * Values that encode the origin of an element: (rank, tensor, batch, row, head,
 * element, salt) hashed into its bits, so that a misplaced element is detected.
 * Floats are finite, of moderate size, with full mantissas.
 */
#ifndef TESTS_SUPPORT_PATTERN_H
#define TESTS_SUPPORT_PATTERN_H

#include <stdint.h>
#include "ulyx/types.h"

struct pattern {
    int64_t salt, rank, tensor, batch, row, head;
};

/* Writes the value of element `element`, which has `bytes` bytes, to `at`. */
void pattern_write(const struct pattern *pattern, int64_t element,
    ulyx_dtype_t dtype, int64_t bytes, void *at);

#endif
