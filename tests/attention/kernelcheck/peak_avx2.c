/* SPDX-License-Identifier: Apache-2.0
 *
 * Peak loop of 8 lanes.
 */
#include "attention/kernelcheck/peak_loops.h"
#define LOOP_NAME kc_peak_avx2
#define LANES     8
#include "attention/kernelcheck/peak_body.h"
