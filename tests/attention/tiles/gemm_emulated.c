/* SPDX-License-Identifier: Apache-2.0
 *
 * Products by emulated tiles.
 */
#include "attention/tiles/emulated_tiles.h"
#define PROBE_NAME probe_emulated
#include "attention/tiles/gemm_probe_body.h"

enum emulated_fault emulated_fault;
