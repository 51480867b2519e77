/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels behind one table, fastest first, the reference last. A kernel
 * is taken when the CPU runs it and it takes the problem; a caller's choice by
 * name is obeyed or refused.
 *
 * Kernels run on a translated call whose workspace is large enough, write
 * every output row, count call->scores and report a flag that did not come in
 * call->failed. They allocate nothing.
 */
#ifndef ULI_ATTENTION_KERNELS_H
#define ULI_ATTENTION_KERNELS_H

#include "attention/problem.h"

struct uli_attn_tile_ops;

struct uli_attn_kernel {
    const char *name;
    const char *what; /* for describe */
    bool (*usable)(void);
    /* Why it is not usable; NULL: the CPU lacks its instructions. */
    const char *(*lacks)(void);
    /* NULL where the kernel takes the problem, else why not. */
    const char *(*refuses)(const struct uli_attn_problem *problem);
    /* Bytes, or -1 where they do not fit 64 bits. */
    int64_t (*workspace)(const struct uli_attn_problem *problem,
        ulyx_attention_pass_t pass, int threads);
    void (*forward)(struct uli_attn_call *call);
    void (*backward)(struct uli_attn_call *call); /* NULL: forward only */
    const struct uli_attn_tile_ops *tile;         /* NULL where not tiled */
};

extern const struct uli_attn_kernel uli_attn_portable_kernel;
#if defined(__x86_64__)
extern const struct uli_attn_kernel uli_attn_avx2_kernel;
extern const struct uli_attn_kernel uli_attn_avx512_kernel;
extern const struct uli_attn_kernel uli_attn_avx512_bf16_kernel;
extern const struct uli_attn_kernel uli_attn_amx_kernel;
#endif
extern const struct uli_attn_kernel uli_attn_reference_kernel;
/* on a device */
extern const struct uli_attn_kernel uli_attn_sm90_kernel;
extern const struct uli_attn_kernel uli_attn_cuda_kernel;

/* The kernel called name, or the fastest. returns SUCCESS, or UNSUPPORTED:
 * unknown here, not run by this CPU, or the problem refused. */
ulyx_status_t uli_attn_kernel_find(const char *name,
    const struct uli_attn_problem *problem, ulyx_attention_pass_t pass,
    const struct uli_attn_kernel **kernel_p);

/* Why a kernel is not taken for the problem; NULL: it can be. */
const char *uli_attn_kernel_refusal(const struct uli_attn_kernel *kernel,
    const struct uli_attn_problem *problem, ulyx_attention_pass_t pass);

/* Why the rows before `kernel` were passed over, "; not NAME: reason" each; cut
 * where it does not fit, empty where there is none. */
void uli_attn_kernel_passed_over(const struct uli_attn_kernel *kernel,
    const struct uli_attn_problem *problem, ulyx_attention_pass_t pass,
    char *text_p, size_t text_bytes);

/* Row n of the table, fastest first; NULL past the end. */
const struct uli_attn_kernel *uli_attn_kernel_at(int n);

/* The same for calls on device memory, whose kernels enqueue on call->stream;
 * empty in a build without CUDA. */
const struct uli_attn_kernel *uli_attn_device_kernel_at(int n);

#endif
