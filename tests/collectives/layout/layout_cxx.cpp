/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of moves is plain C that a C++ or CUDA source may include. The
 * test is that this file compiles.
 */
extern "C" {
#include "collectives/layout/layout_heads.c"
#include "collectives/layout/layout_moves.c"
#include "collectives/layout/layout_packed.c"
}
