/* SPDX-License-Identifier: Apache-2.0
 *
 * Backward, 16-bit, head dimensions to 256.
 */
#include "attention/cuda/portable/backward_mma.h"

typedef backward_shape<256, 256, 2> mma256;

BACKWARD_MMA_FAMILY(mma256, mma256);
