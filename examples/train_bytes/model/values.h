/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of parameters and activations: the host's, or that of the rank's
 * device, with the stream on which all its work is enqueued in order. Uploads
 * and downloads are done when they return.
 */
#ifndef EXAMPLES_TRAIN_BYTES_MODEL_VALUES_H
#define EXAMPLES_TRAIN_BYTES_MODEL_VALUES_H

#include "real.h"

/* First and last of the rank's thread. open returns 0, or 3 after a message. */
int values_open(void);
void values_close(void);
/* NULL on the host. */
void *values_stream(void);
/* Until all that is enqueued is done. Returns 0, or 3 after a message: a
 * kernel has failed. */
int values_wait(void);

/* Zeros; NULL: no memory. */
void *values_alloc(int64_t bytes);
void values_free(void *memory);
void values_clear(void *memory, int64_t bytes);
void values_upload(void *to, const void *host, int64_t bytes);
void values_download(void *host, const void *from, int64_t bytes);

#endif
