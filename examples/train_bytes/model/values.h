/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of parameters and activations: host memory, or memory of the rank's
 * device, with the stream on which all work is enqueued. Uploads and downloads
 * have ended when they return.
 */
#ifndef EXAMPLES_TRAIN_BYTES_MODEL_VALUES_H
#define EXAMPLES_TRAIN_BYTES_MODEL_VALUES_H

#include "real.h"

/* Called first and last by the rank's thread. values_open returns 0, or 3 after
 * a message. */
int values_open(void);
void values_close(void);
/* NULL on the host. */
void *values_stream(void);
/* Waits until everything enqueued has ended. Returns 0, or 3 after a message if
 * a call or a kernel has failed. */
int values_wait(void);

/* Returns memory filled with zeros; NULL: no memory. */
void *values_alloc(int64_t bytes);
void values_free(void *memory);
void values_clear(void *memory, int64_t bytes);
void values_upload(void *to, const void *host, int64_t bytes);
void values_download(void *host, const void *from, int64_t bytes);

#endif
