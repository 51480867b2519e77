/* SPDX-License-Identifier: Apache-2.0
 *
 * A kernel that holds back what follows it in its stream, until another kernel
 * opens the gate.
 */
#ifndef TESTS_EMULATE_PLAN_GATE_H
#define TESTS_EMULATE_PLAN_GATE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `open` is a word in host memory that devices reach, 0 at first. Both return a
 * cudaError_t. */
int gate_launch(const uint32_t *open, void *stream);
int gate_open_launch(uint32_t *open, void *stream);

#ifdef __cplusplus
}
#endif
#endif
