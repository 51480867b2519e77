/* SPDX-License-Identifier: Apache-2.0
 *
 * Head dimensions to 96: two panels, the second half empty, and six steps of
 * 16 columns.
 *   shared memory: Q 2 x 32, K 2 x 32, V 2 x 32 KiB
 */
#include "attention/cuda/hopper/sm90_kernel.h"

SM90_FAMILY(uli_sm90_d96, "sm90 96", 96, 96, 128, 2, 2, 2)
