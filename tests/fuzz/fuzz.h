/* SPDX-License-Identifier: Apache-2.0
 *
 * A fuzz target is one file that defines LLVMFuzzerTestOneInput. Linked with
 * libFuzzer, the target gets libFuzzer's inputs; linked with replay.c, it gets
 * the inputs stored in tests/fuzz/corpus and damaged copies of each.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Runs the target on one input; ends the process where the library is wrong.
 * libFuzzer prescribes the name. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Writes the bytes to a regular file and returns its path, which is valid until
 * the next call. */
const char *fuzz_file(const uint8_t *data, size_t bytes);

#endif
