/* SPDX-License-Identifier: Apache-2.0
 *
 * The maths of moves is plain C that a C++ or CUDA source may include: this
 * file compiling is the test.
 */
extern "C" {
#include "collectives/layout/layout_heads.c"
#include "collectives/layout/layout_moves.c"
#include "collectives/layout/layout_packed.c"
}
