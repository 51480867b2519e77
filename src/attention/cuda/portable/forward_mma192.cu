/* SPDX-License-Identifier: Apache-2.0
 *
 * Forward, 16-bit, head dimensions to 192 of q and k and 128 of v.
 */
#include "attention/cuda/portable/forward_mma.h"

typedef mma_shape<192, 128, 2, 4> mma192_shape;

MMA_FAMILY(mma192, "mma192", mma192_shape);
