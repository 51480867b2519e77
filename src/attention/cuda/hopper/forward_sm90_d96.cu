/* SPDX-License-Identifier: Apache-2.0
 *
 * Head dimensions to 96: two panels, the second half empty, and six steps of
 * 16 columns.
 *   shared memory: Q 2 x 32, K 2 x 32, V 2 x 32 KiB
 *
 * V's 96 columns are one and a half panels of a product 96 wide. Where a card
 * does not read such an operand as the others (card_facts says), the products
 * are 128 wide, ULYX_SM90_WHOLE_PANELS: of zeros, which TMA puts behind V.
 */
#include "attention/cuda/hopper/sm90_kernel.h"

#ifdef ULYX_SM90_WHOLE_PANELS
SM90_FAMILY(uli_sm90_d96, "sm90 96", 96, 128, 128, 2, 2, 2)
#else
SM90_FAMILY(uli_sm90_d96, "sm90 96", 96, 96, 128, 2, 2, 2)
#endif
