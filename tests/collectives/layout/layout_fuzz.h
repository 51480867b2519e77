/* SPDX-License-Identifier: Apache-2.0
 *
 * libFuzzer's entry: ends the process when a check fails.
 * returns 1 when the bytes made a layout, 0 when they were refused.
 */
#ifndef TESTS_COLLECTIVES_LAYOUT_LAYOUT_FUZZ_H
#define TESTS_COLLECTIVES_LAYOUT_LAYOUT_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
