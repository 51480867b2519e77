/* SPDX-License-Identifier: Apache-2.0
 *
 * Peak loop of 8 lanes.
 */
#include "attention/kernelcheck/bench/peak_loops.h"
#define LOOP_NAME kc_peak_avx2
#define LANES     8
#include "attention/kernelcheck/bench/peak_body.h"
