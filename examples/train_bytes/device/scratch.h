/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernels' launches need of the thread's device.
 */
#ifndef EXAMPLES_TRAIN_BYTES_DEVICE_SCRATCH_H
#define EXAMPLES_TRAIN_BYTES_DEVICE_SCRATCH_H

/* Numbers of rows or threads, and behind them their sum. */
enum { TRAIN_SCRATCH_DOUBLES = 2048 };

/* On the device, of this thread. */
double *values_scratch(void);
/* Notes the error of a launch, a cudaError_t, for values_wait. */
void values_launched(int error);

#endif
