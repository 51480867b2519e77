/* SPDX-License-Identifier: Apache-2.0
 *
 * Ways in which emulated tiles can be wrong. A test must detect each of
 * them.
 */
#ifndef TESTS_ATTENTION_TILES_EMULATED_FAULT_H
#define TESTS_ATTENTION_TILES_EMULATED_FAULT_H

enum emulated_fault {
    FAULT_NONE,
    FAULT_PAIRS,  /* the low and the high element of A are exchanged */
    FAULT_STRIDE, /* the stride of operand rows is one unit too large */
    FAULT_ROWS,   /* the last row is not computed */
    FAULT_ZERO,   /* tiles are not zeroed */
    FAULTS
};
extern enum emulated_fault emulated_fault;

#endif
