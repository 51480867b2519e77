/* SPDX-License-Identifier: Apache-2.0
 *
 * Head dimensions to 256. Shared memory holds two tiles of 80 keys beside Q.
 *   shared memory: Q 64, K 2 x 40, V 2 x 40 KiB
 */
#include "attention/cuda/hopper/sm90_kernel.h"

SM90_FAMILY(uli_sm90_d256, "sm90 256", 256, 256, 80, 2, 2, 1)
