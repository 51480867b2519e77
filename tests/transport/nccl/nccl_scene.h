/* SPDX-License-Identifier: Apache-2.0
 *
 * The scene of batches over the tests' NCCL (fake_nccl.h): host memory, and the
 * library's thread in place of a stream.
 */
#ifndef TESTS_TRANSPORT_NCCL_SCENE_H
#define TESTS_TRANSPORT_NCCL_SCENE_H

#include <stdbool.h>
#include <stddef.h>
#include "transport/batch.h"

int nccl_scene_open(void);
int nccl_scene_close(void);
bool nccl_scene_begin(int rank, int nranks, struct uli_batch_params *params_p);
bool nccl_scene_end(int rank);
void *nccl_scene_alloc(int rank, size_t bytes);
bool nccl_scene_copy(int rank, void *dst, const void *src, size_t bytes);
void *nccl_scene_stream(int rank);
bool nccl_scene_settle(int rank);

#endif
