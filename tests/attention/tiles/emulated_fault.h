/* SPDX-License-Identifier: Apache-2.0
 *
 * Ways in which emulated tiles can be wrong, to test that each is detected.
 */
#ifndef TESTS_ATTENTION_TILES_EMULATED_FAULT_H
#define TESTS_ATTENTION_TILES_EMULATED_FAULT_H

enum emulated_fault {
    FAULT_NONE,
    FAULT_PAIRS,  /* low and high of A change places */
    FAULT_STRIDE, /* rows of operands are a unit too far apart */
    FAULT_ROWS,   /* the last row is not computed */
    FAULT_ZERO,   /* tiles keep what they held */
    FAULTS
};
extern enum emulated_fault emulated_fault;

#endif
