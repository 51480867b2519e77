/* SPDX-License-Identifier: Apache-2.0
 *
 * What launches of kernels need, in the device memory of the calling thread.
 */
#ifndef EXAMPLES_TRAIN_BYTES_DEVICE_SCRATCH_H
#define EXAMPLES_TRAIN_BYTES_DEVICE_SCRATCH_H

/* One number per row or thread, followed by their sum. */
enum { TRAIN_SCRATCH_DOUBLES = 2048 };

/* [TRAIN_SCRATCH_DOUBLES] in device memory, of this thread. */
double *values_scratch(void);
/* Keeps the error of a launch, a cudaError_t, for values_wait. */
void values_launched(int error);

#endif
