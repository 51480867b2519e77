/* SPDX-License-Identifier: Apache-2.0
 *
 * What the twins of emulate_ptx.h and the built-ins of cuda_runtime.h call:
 * the emulator's entry points, C linkage, compiled without instrumentation.
 * Called by the fibre of an emulated thread.
 */
#ifndef EMULATE_EMULATE_CALLS_H
#define EMULATE_EMULATE_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct emu_dim3 {
    unsigned x, y, z;
};

/* The result is constant during the life of a fibre, so the compiler may keep
 * it. */
#define EMU_CONST    __attribute__((const))
#define EMU_NORETURN __attribute__((noreturn))
struct emu_dim3 emu_thread_index(void) EMU_CONST;
struct emu_dim3 emu_block_index(void) EMU_CONST;
struct emu_dim3 emu_block_dim(void) EMU_CONST;
struct emu_dim3 emu_grid_dim(void) EMU_CONST;
uint32_t emu_lane(void) EMU_CONST;
unsigned char *emu_shared_base(void) EMU_CONST;
uint32_t emu_shared_addr(const void *p);

/* The order of an access is a set of bits; relaxed is the empty set. */
enum emu_order { EMU_RELAXED = 0, EMU_ACQUIRE = 1, EMU_RELEASE = 2 };
enum emu_scope { EMU_CTA, EMU_GPU, EMU_SYS };
enum emu_rmw {
    EMU_ADD,
    EMU_EXCH,
    EMU_CAS,
    EMU_MIN,
    EMU_MAX,
    EMU_AND,
    EMU_OR,
    EMU_XOR,
    EMU_ADD_F32
};
uint64_t emu_load(const void *p, int bytes, int order, int scope);
void emu_store(void *p, uint64_t value, int bytes, int order, int scope);
uint64_t emu_atomic(void *p, int rmw, uint64_t value, uint64_t expected,
    int bytes, int order, int scope);
void emu_fence(int scope);
/* Makes a plain access on behalf of an intrinsic. */
void emu_plain(const void *p, size_t bytes, bool write);
void emu_copy_16(void *to, const void *from);

/* A barrier of the block. threads = 0: all threads that have not ended. */
void emu_barrier(uint32_t id, uint32_t threads, bool wait);
/* As above, and combines the values of all threads: 0 count, 1 and, 2 or. */
int emu_barrier_reduce(int how, int predicate);

enum emu_shuffle { EMU_SHFL_IDX, EMU_SHFL_UP, EMU_SHFL_DOWN, EMU_SHFL_XOR };
uint64_t emu_shfl(
    int how, uint32_t mask, uint64_t value, uint32_t lane, uint32_t width);
uint32_t emu_ballot(uint32_t mask, bool predicate);
void emu_syncwarp(uint32_t mask);
uint32_t emu_reduce(int rmw, uint32_t mask, uint32_t value);
bool emu_elect(void);
void emu_setmaxnreg(bool increase, uint32_t count);

uint64_t emu_globaltimer(void);
void emu_nanosleep(uint32_t ns);
EMU_NORETURN void emu_trap(void);

void emu_mbarrier_init(uint32_t bar, uint32_t count);
void emu_mbarrier_inval(uint32_t bar);
/* expect: bytes that the arrival announces. arrivals: 0 or 1. */
void emu_mbarrier_arrive(uint32_t bar, uint32_t arrivals, uint32_t expect);
bool emu_mbarrier_wait(uint32_t bar, uint32_t parity, bool may_suspend);
void emu_fence_mbarrier_init(void);
/* Bit 0 is shared memory, bit 1 global memory. */
void emu_fence_proxy(uint32_t spaces);

void emu_cp_async(
    uint32_t dst, const void *src, uint32_t bytes, uint32_t src_bytes);
void emu_cp_async_commit(void);
void emu_cp_async_wait(uint32_t pending);
void emu_cp_async_arrive(uint32_t bar);

void emu_tma_load(uint32_t dst, const void *map, uint32_t bar,
    const int *coordinates, int count);
void emu_tma_store(
    const void *map, uint32_t src, const int *coordinates, int count);
void emu_tma_prefetch(const void *map, int count);
void emu_bulk_load(uint32_t dst, const void *src, uint32_t bytes, uint32_t bar);
void emu_bulk_store(void *dst, uint32_t src, uint32_t bytes, bool add_f32);
void emu_bulk_commit(void);
void emu_bulk_wait(uint32_t pending, bool read_only);
EMU_NORETURN void emu_unsupported(const char *what);

void emu_ldmatrix(uint32_t *r, uint32_t addr, int count, bool trans);
void emu_stmatrix(uint32_t addr, const uint32_t *r, int count, bool trans);
enum emu_type { EMU_BF16, EMU_F16, EMU_TF32 };
void emu_mma(int type, float *d, const uint32_t *a, uint32_t b0, uint32_t b1);
uint16_t emu_float_to_bf16(float f);
uint16_t emu_float_to_f16(float f);
float emu_f16_to_float(uint16_t v);

void emu_wgmma_fence(void);
void emu_wgmma_commit(void);
void emu_wgmma_wait(uint32_t pending);
/* d has n/2 floats; a_registers (4 words) or NULL for the descriptor a. */
void emu_wgmma(int type, int n, float *d, const uint32_t *a_registers,
    uint64_t a, uint64_t b, int scale_d, int trans_a, int trans_b);

#ifdef __cplusplus
}
#endif
#endif
