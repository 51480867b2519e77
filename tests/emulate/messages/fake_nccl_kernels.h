/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels by which fake_nccl moves device memory: one kernel per group, one
 * warp per operation, over rings in host memory that all devices reach.
 */
#ifndef TESTS_EMULATE_MESSAGES_FAKE_NCCL_KERNELS_H
#define TESTS_EMULATE_MESSAGES_FAKE_NCCL_KERNELS_H

#include <stddef.h>
#include "transport/nccl/fake_nccl.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FAKE_NCCL_OPS = 30 }; /* per launch: one warp per operation */

/* The function fake_nccl.launch: launches on the stream, on the current
 * device. */
int fake_nccl_kernels_launch(const struct fake_nccl_op *ops, int count,
    struct fake_nccl_words *words, void *stream);
/* Loads FAKE_NCCL_OK, which the build defines, and gives it the kernels and
 * rings that devices reach. Returns NULL where this fails. */
struct fake_nccl *fake_nccl_load(void);

#ifdef __cplusplus
}
#endif
#endif
