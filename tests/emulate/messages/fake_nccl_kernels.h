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

enum { FAKE_NCCL_OPS = 30 }; /* of a launch: one warp per operation */

/* fake_nccl.launch: on the stream, of the current device. */
int fake_nccl_kernels_launch(const struct fake_nccl_op *ops, int count,
    struct fake_nccl_words *words, void *stream);
/* Loads FAKE_NCCL_OK, which the target defines, and gives it the kernels and
 * rings that devices reach; NULL where it cannot be. */
struct fake_nccl *fake_nccl_load(void);

#ifdef __cplusplus
}
#endif
#endif
