/* SPDX-License-Identifier: Apache-2.0
 *
 * Head dimensions to 192 of q and k, to 128 of v. One tile of Q, for space: the
 * next one is loaded once the results have left.
 *   shared memory: Q 48, K 2 x 48, V 2 x 32 KiB
 */
#include "attention/cuda/hopper/sm90_kernel.h"

SM90_FAMILY(uli_sm90_d192, "sm90 192/128", 192, 128, 128, 2, 2, 1)
