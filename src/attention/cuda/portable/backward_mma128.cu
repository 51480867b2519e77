/* SPDX-License-Identifier: Apache-2.0
 *
 * Backward, 16-bit, head dimensions to 128.
 */
#include "attention/cuda/portable/backward_mma.h"

typedef backward_shape<128, 128, 1> mma128;

BACKWARD_MMA_FAMILY(mma128, mma128);
