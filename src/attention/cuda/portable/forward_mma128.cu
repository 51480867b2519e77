/* SPDX-License-Identifier: Apache-2.0
 *
 * Forward, 16-bit, head dimensions to 128.
 */
#include "attention/cuda/portable/forward_mma.h"

typedef mma_shape<128, 128, 2, 4> mma128_shape;

MMA_FAMILY(mma128, "mma128", mma128_shape);
