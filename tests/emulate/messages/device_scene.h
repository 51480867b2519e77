/* SPDX-License-Identifier: Apache-2.0
 *
 * The scene of batches on emulated devices that cannot map each other's memory.
 * Each rank has a communicator, whose hooks the batch uses.
 */
#ifndef TESTS_EMULATE_MESSAGES_DEVICE_SCENE_H
#define TESTS_EMULATE_MESSAGES_DEVICE_SCENE_H

#include <stdbool.h>
#include <stddef.h>
#include "transport/batch.h"

int device_scene_open(void);
int device_scene_close(void);
bool device_scene_begin(
    int rank, int nranks, struct uli_batch_params *params_p);
bool device_scene_end(int rank);
void *device_scene_alloc(int rank, size_t bytes);
bool device_scene_copy(int rank, void *dst, const void *src, size_t bytes);
void *device_scene_stream(int rank);
bool device_scene_settle(int rank);

#endif
