/* SPDX-License-Identifier: Apache-2.0
 *
 * Backward, 16-bit, head dimensions to 64.
 */
#include "attention/cuda/portable/backward_mma.h"

typedef backward_shape<64, 64, 1> mma64;

BACKWARD_MMA_FAMILY(mma64, mma64);
