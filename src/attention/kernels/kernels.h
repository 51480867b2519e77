/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels behind one table, fastest first, the reference last. The first
 * kernel that the CPU runs and that takes the problem is used; a kernel chosen
 * by name is used or refused.
 *
 * A kernel runs on a translated call whose workspace is large enough, writes
 * every output row and counts call->scores. A kernel allocates nothing. It sets
 * call->failed if a flag for which it waits does not arrive or, on a device, if
 * a launch fails.
 */
#ifndef ULI_ATTENTION_KERNELS_H
#define ULI_ATTENTION_KERNELS_H

#include "attention/problem.h"

struct uli_attn_tile_ops;

struct uli_attn_kernel {
    const char *name;
    const char *what; /* for describe */
    bool (*usable)(void);
    /* Why the kernel is not usable; NULL: the CPU lacks the instructions. */
    const char *(*lacks)(void);
    /* NULL where the kernel takes the problem, else why not. */
    const char *(*refuses)(const struct uli_attn_problem *problem);
    /* Bytes, or -1 where they do not fit 63 bits. */
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

/* The kernel of that name, or the fastest where name is NULL. returns SUCCESS,
 * or UNSUPPORTED: the name is unknown here, the CPU does not run the kernel, or
 * the kernel refuses the problem. */
ulyx_status_t uli_attn_kernel_find(const char *name,
    const struct uli_attn_problem *problem, ulyx_attention_pass_t pass,
    const struct uli_attn_kernel **kernel_p);

/* Why a kernel does not take the problem; NULL where it does. */
const char *uli_attn_kernel_refusal(const struct uli_attn_kernel *kernel,
    const struct uli_attn_problem *problem, ulyx_attention_pass_t pass);

/* Why the rows before `kernel` are not used: "; not NAME: reason" for each of
 * them. The text is cut where it does not fit. */
void uli_attn_kernel_passed_over(const struct uli_attn_kernel *kernel,
    const struct uli_attn_problem *problem, ulyx_attention_pass_t pass,
    char *text_p, size_t text_bytes);

/* Row n of the table, fastest first; NULL past the end. */
const struct uli_attn_kernel *uli_attn_kernel_at(int n);

/* Row n of the table for device memory, whose kernels enqueue on call->stream;
 * a build without CUDA has no such rows. */
const struct uli_attn_kernel *uli_attn_device_kernel_at(int n);

#endif
