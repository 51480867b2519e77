/* SPDX-License-Identifier: Apache-2.0
 *
 * Forward, 16-bit, head dimensions to 64.
 */
#include "attention/cuda/portable/forward_mma.h"

typedef mma_shape<64, 64, 2, 4> mma64_shape;

MMA_FAMILY(mma64, "mma64", mma64_shape);
