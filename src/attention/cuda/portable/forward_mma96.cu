/* SPDX-License-Identifier: Apache-2.0
 *
 * Forward, 16-bit, head dimensions to 96.
 */
#include "attention/cuda/portable/forward_mma.h"

typedef mma_shape<96, 96, 2, 4> mma96_shape;

MMA_FAMILY(mma96, "mma96", mma96_shape);
