/* SPDX-License-Identifier: Apache-2.0
 *
 * Backward, 16-bit, head dimensions to 192 of q and k and 128 of v.
 */
#include "attention/cuda/portable/backward_mma.h"

typedef backward_shape<192, 128, 1> mma192;

BACKWARD_MMA_FAMILY(mma192, mma192);
