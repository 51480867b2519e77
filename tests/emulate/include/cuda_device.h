/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA language for a C++ compiler: qualifiers, vector types, built-in
 * variables, and the built-in functions that our kernels use. Included by the
 * stand-in cuda_runtime.h.
 */
#ifndef EMULATE_CUDA_DEVICE_H
#define EMULATE_CUDA_DEVICE_H

#include <cmath>
#include <cstring>
#include "emulate_calls.h"

#define __global__ __attribute__((visibility("default")))
#define __device__
#define __host__
#define __constant__ static
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__    __attribute__((noinline))
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __align__(n) alignas(n)

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1)
        : x(a), y(b), z(c)
    {
    }
};
typedef emu_dim3 uint3;

#define EMU_VECTOR(type, name)                                                 \
    struct alignas(2 * sizeof(type)) name##2                                   \
    {                                                                          \
        type x, y;                                                             \
    };                                                                         \
    struct alignas(sizeof(type) < 8 ? 4 * sizeof(type) : 16) name##4           \
    {                                                                          \
        type x, y, z, w;                                                       \
    };                                                                         \
    static inline name##2 make_##name##2(type x, type y)                       \
    {                                                                          \
        return {x, y};                                                         \
    }                                                                          \
    static inline name##4 make_##name##4(type x, type y, type z, type w)       \
    {                                                                          \
        return {x, y, z, w};                                                   \
    }
EMU_VECTOR(unsigned, uint)
EMU_VECTOR(int, int)
EMU_VECTOR(float, float)
EMU_VECTOR(unsigned short, ushort)
EMU_VECTOR(unsigned long long, ulonglong)
EMU_VECTOR(double, double)

#define threadIdx (emu_thread_index())
#define blockIdx  (emu_block_index())
#define blockDim  (emu_block_dim())
#define gridDim   (emu_grid_dim())
#define warpSize  32

/* ---- barriers, votes, shuffles ---- */
static inline void
__syncthreads()
{
    emu_barrier(0, 0, true);
}

static inline int
__syncthreads_count(int p)
{
    return emu_barrier_reduce(0, p);
}

static inline int
__syncthreads_and(int p)
{
    return emu_barrier_reduce(1, p);
}

static inline int
__syncthreads_or(int p)
{
    return emu_barrier_reduce(2, p);
}

static inline void
__syncwarp(unsigned mask = 0xffffffffu)
{
    emu_syncwarp(mask);
}

static inline unsigned
__ballot_sync(unsigned mask, int p)
{
    return emu_ballot(mask, p != 0);
}

static inline int
__any_sync(unsigned mask, int p)
{
    return emu_ballot(mask, p != 0) != 0;
}

static inline int
__all_sync(unsigned mask, int p)
{
    return emu_ballot(mask, p != 0) == mask;
}

template <typename T>
static inline T
emu_shfl_any(int how, unsigned mask, T value, unsigned lane, int width)
{
    uint64_t bits = 0;
    static_assert(sizeof(T) <= 8, "a shuffle moves up to 8 bytes");
    __builtin_memcpy(&bits, &value, sizeof value);
    bits = emu_shfl(how, mask, bits, lane, (uint32_t)width);
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

#define EMU_SHFL(name, how)                                                    \
    template <typename T>                                                      \
    static inline T name(                                                      \
        unsigned mask, T value, unsigned lane, int width = 32)                 \
    {                                                                          \
        return emu_shfl_any(how, mask, value, lane, width);                    \
    }
EMU_SHFL(__shfl_sync, EMU_SHFL_IDX)
EMU_SHFL(__shfl_up_sync, EMU_SHFL_UP)
EMU_SHFL(__shfl_down_sync, EMU_SHFL_DOWN)
EMU_SHFL(__shfl_xor_sync, EMU_SHFL_XOR)

#define EMU_REDUCE(name, rmw)                                                  \
    static inline unsigned name(unsigned mask, unsigned value)                 \
    {                                                                          \
        return emu_reduce(rmw, mask, value);                                   \
    }
EMU_REDUCE(__reduce_add_sync, EMU_ADD)
EMU_REDUCE(__reduce_min_sync, EMU_MIN)
EMU_REDUCE(__reduce_max_sync, EMU_MAX)
EMU_REDUCE(__reduce_and_sync, EMU_AND)
EMU_REDUCE(__reduce_or_sync, EMU_OR)

/* ---- fences, atomics, time ---- */
static inline void
__threadfence_block()
{
    emu_fence(EMU_CTA);
}

static inline void
__threadfence()
{
    emu_fence(EMU_GPU);
}

static inline void
__threadfence_system()
{
    emu_fence(EMU_SYS);
}

#define EMU_ATOMIC(name, rmw, type)                                            \
    static inline type name(type *p, type value)                               \
    {                                                                          \
        return (type)emu_atomic(                                               \
            p, rmw, (uint64_t)value, 0, sizeof *p, EMU_RELAXED, EMU_GPU);      \
    }
#define EMU_ATOMICS(type)                                                      \
    EMU_ATOMIC(atomicAdd, EMU_ADD, type)                                       \
    EMU_ATOMIC(atomicExch, EMU_EXCH, type)                                     \
    EMU_ATOMIC(atomicAnd, EMU_AND, type)                                       \
    EMU_ATOMIC(atomicOr, EMU_OR, type)                                         \
    EMU_ATOMIC(atomicXor, EMU_XOR, type)                                       \
    static inline type atomicCAS(type *p, type expected, type value)           \
    {                                                                          \
        return (type)emu_atomic(p, EMU_CAS, (uint64_t)value,                   \
            (uint64_t)expected, sizeof *p, EMU_RELAXED, EMU_GPU);              \
    }
EMU_ATOMICS(unsigned)
EMU_ATOMICS(unsigned long long)
EMU_ATOMIC(atomicAdd, EMU_ADD, int)
EMU_ATOMIC(atomicMin, EMU_MIN, unsigned)
EMU_ATOMIC(atomicMax, EMU_MAX, unsigned)
EMU_ATOMIC(atomicMin, EMU_MIN, unsigned long long)
EMU_ATOMIC(atomicMax, EMU_MAX, unsigned long long)

static inline void
__nanosleep(unsigned ns)
{
    emu_nanosleep(ns);
}

static inline long long
clock64()
{
    return (long long)emu_globaltimer();
}

static inline void
__trap()
{
    emu_trap();
}

/* ---- arithmetic ---- */
template <typename To, typename From>
static inline To
emu_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "same size");
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}

static inline unsigned
__float_as_uint(float f)
{
    return emu_bits<unsigned>(f);
}

static inline float
__uint_as_float(unsigned u)
{
    return emu_bits<float>(u);
}

static inline int
__float_as_int(float f)
{
    return emu_bits<int>(f);
}

static inline float
__int_as_float(int i)
{
    return emu_bits<float>(i);
}

static inline float
__fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}

/* macros, because glibc has functions of these names */
#define __expf(x) expf(x)
#define __logf(x) logf(x)

static inline float
__fdividef(float a, float b)
{
    return a / b;
}

static inline float
rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}

static inline int
__popc(unsigned x)
{
    return __builtin_popcount(x);
}

static inline int
__clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}

static inline int
__ffs(int x)
{
    return __builtin_ffs(x);
}

static inline unsigned
__umulhi(unsigned a, unsigned b)
{
    return (unsigned)((unsigned long long)a * b >> 32);
}

static inline unsigned long long
__umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

/* Byte i of the result is the byte of {a, b} that nibble i of the selector
 * names. */
static inline unsigned
__byte_perm(unsigned a, unsigned b, unsigned selector)
{
    unsigned long long bytes = (unsigned long long)b << 32 | a;
    unsigned result = 0;
    for (int i = 0; i < 4; i++)
        result |= (unsigned)(bytes >> 8 * (selector >> 4 * i & 7) & 255)
                  << 8 * i;
    return result;
}

template <typename T>
static inline T
__ldg(const T *p)
{
    return *p;
}

#define EMU_MINMAX(type)                                                       \
    static inline type min(type a, type b)                                     \
    {                                                                          \
        return a < b ? a : b;                                                  \
    }                                                                          \
    static inline type max(type a, type b)                                     \
    {                                                                          \
        return a > b ? a : b;                                                  \
    }
EMU_MINMAX(int)
EMU_MINMAX(unsigned)
EMU_MINMAX(long)
EMU_MINMAX(unsigned long)
EMU_MINMAX(long long)
EMU_MINMAX(unsigned long long)
EMU_MINMAX(float)

/* cudaMalloc(&typed_pointer, bytes), as the toolkit's C++ overload. */
template <typename T>
static inline cudaError_t
cudaMalloc(T **p, size_t bytes)
{
    return cudaMalloc((void **)p, bytes);
}

#endif
