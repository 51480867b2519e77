/* SPDX-License-Identifier: Apache-2.0
 *
 * Forward, 16-bit, head dimensions to 256.
 */
#include "attention/cuda/portable/forward_mma.h"

typedef mma_shape<256, 256, 1, 8> mma256_shape;

MMA_FAMILY(mma256, "mma256", mma256_shape);
