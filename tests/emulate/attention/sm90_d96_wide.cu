/* SPDX-License-Identifier: Apache-2.0
 *
 * The family of head dimension 96 as it is built with ULYX_SM90_WHOLE_PANELS.
 */
#define ULYX_SM90_WHOLE_PANELS
#define uli_sm90_d96 uli_sm90_d96_wide
#include "attention/cuda/hopper/forward_sm90_d96.cu"
