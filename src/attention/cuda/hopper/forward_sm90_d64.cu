/* SPDX-License-Identifier: Apache-2.0
 *
 * Head dimensions to 64: the exponentials take as long as the products. Two
 * consumers, four stages, as keys are small.
 *   shared memory: Q 2 x 16, K 4 x 16, V 4 x 16 KiB
 */
#include "attention/cuda/hopper/sm90_kernel.h"

SM90_FAMILY(uli_sm90_d64, "sm90 64", 64, 64, 128, 2, 4, 2)
