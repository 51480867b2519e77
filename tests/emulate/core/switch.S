/* SPDX-License-Identifier: Apache-2.0
 *
 * void emu_fibre_switch(void **from, void *to)
 * Pushes the callee-saved registers, stores the stack pointer, takes the other
 * one, pops. core/fibre.c lays the first frame of a fibre in the same order.
 */
#if defined(__x86_64__)
    .text
    .globl emu_fibre_switch
    .type emu_fibre_switch, @function
emu_fibre_switch:
    push %r15
    push %r14
    push %r13
    push %r12
    push %rbx
    push %rbp
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %rbp
    pop %rbx
    pop %r12
    pop %r13
    pop %r14
    pop %r15
    ret
    .size emu_fibre_switch, .-emu_fibre_switch
#elif defined(__aarch64__)
    .text
    .globl emu_fibre_switch
    .type emu_fibre_switch, %function
emu_fibre_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size emu_fibre_switch, .-emu_fibre_switch
#endif
    .section .note.GNU-stack, "", %progbits
