/* SPDX-License-Identifier: Apache-2.0
 *
 * Head dimensions to 128.
 *   shared memory: Q 2 x 32, K 2 x 32, V 2 x 32 KiB
 */
#include "attention/cuda/hopper/sm90_kernel.h"

SM90_FAMILY(uli_sm90_d128, "sm90 128", 128, 128, 128, 2, 2, 2)
