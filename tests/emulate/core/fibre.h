/* SPDX-License-Identifier: Apache-2.0
 *
 * Fibres: one stack and one saved stack pointer each. The switch (switch.S)
 * saves the callee-saved registers only, about 20 ns per round trip. Stacks
 * are mapped with a guard below and kept for later fibres.
 */
#ifndef EMULATE_CORE_FIBRE_H
#define EMULATE_CORE_FIBRE_H

enum { EMU_STACK_BYTES = 131072, EMU_GUARD_BYTES = 65536 };

/* Returns the lowest byte of a stack of EMU_STACK_BYTES, or NULL without
 * memory. */
unsigned char *emu_stack_take(void);
void emu_stack_give(unsigned char *stack);

/* Returns a stack pointer. A switch to it calls entry, which must not
 * return. */
void *emu_fibre_start(unsigned char *stack, void (*entry)(void));

/* Saves the running context in *from and continues at `to`. */
void emu_fibre_switch(void **from, void *to);

#endif
