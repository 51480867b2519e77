/* SPDX-License-Identifier: Apache-2.0
 *
 * A choice of copies as text: what the cache in the user's home holds, what
 * ULYX_CALIBRATE may name, and what ranks of a node pass to each other.
 *
 *     ulyx-copies 2
 *     cpu GenuineIntel-6-207-2
 *     version 0.2.0
 *     kernel avx512
 *     # GB/s measured, and by the default
 *     small apart l2 4 16 8.31 8.02
 *     ...
 *     stream 262144
 *     fan 196608
 *
 * A way is size (small medium large), source (apart on fan), hint (none once l2
 * l1), lanes (1, 2, 4 or 8), lines ahead (0 to 256), and the two figures that
 * were measured, 0 where nothing was. Each of the nine ways is there once;
 * stream and fan are numbers of bytes or "never", fan at least 196608.
 */
#ifndef ULI_COLLECTIVES_KERNELS_COPY_TEXT_H
#define ULI_COLLECTIVES_KERNELS_COPY_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include "collectives/kernels/copy_choice.h"

enum { ULI_COPY_TEXT = 1024, ULI_COPY_WHY = 128 };

/* Writes the choice, with its owner: this processor, library and kernel.
 * Returns its bytes, without the terminating zero. */
size_t uli_copy_text_write(
    const struct uli_copy_choice *choice, char text_p[ULI_COPY_TEXT]);

/* Reads a text of `bytes` bytes from any origin. here: it must name this
 * processor, library and kernel.
 * Returns false with *choice_p untouched, and the error in why_p. */
bool uli_copy_text_read(const char *text, size_t bytes, bool here,
    struct uli_copy_choice *choice_p, char why_p[ULI_COPY_WHY]);

#endif
