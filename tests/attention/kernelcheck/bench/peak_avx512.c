/* SPDX-License-Identifier: Apache-2.0
 *
 * Peak loop of 16 lanes.
 */
#include "attention/kernelcheck/bench/peak_loops.h"
#define LOOP_NAME kc_peak_avx512
#define LANES     16
#include "attention/kernelcheck/bench/peak_body.h"
