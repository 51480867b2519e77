/* SPDX-License-Identifier: Apache-2.0
 *
 * The twins of src/device/cuda/ptx.h: same names and types, over the emulator.
 * Included by that header only; tests/emulate/self/ptx_compile.cu calls every
 * function on both sides.
 */
#ifndef EMULATE_EMULATE_PTX_H
#define EMULATE_EMULATE_PTX_H

#define PTX_FN static inline __attribute__((always_inline, unused))

PTX_FN uint32_t
ptx_smem_addr(const void *p)
{
    return emu_shared_addr(p);
}

/* ---- ordered memory ---- */
#define EMU_ORDER_relaxed EMU_RELAXED
#define EMU_ORDER_acquire EMU_ACQUIRE
#define EMU_ORDER_release EMU_RELEASE
#define EMU_ORDER_acq_rel (EMU_ACQUIRE | EMU_RELEASE)
#define EMU_SCOPE_cta     EMU_CTA
#define EMU_SCOPE_gpu     EMU_GPU
#define EMU_SCOPE_sys     EMU_SYS

#define PTX_LD(sem, scope, bits)                                               \
    PTX_FN uint##bits##_t ptx_ld_##sem##_##scope##_u##bits(                    \
        const uint##bits##_t *p)                                               \
    {                                                                          \
        return (uint##bits##_t)emu_load(                                       \
            p, sizeof *p, EMU_ORDER_##sem, EMU_SCOPE_##scope);                 \
    }
#define PTX_ST(sem, scope, bits)                                               \
    PTX_FN void ptx_st_##sem##_##scope##_u##bits(                              \
        uint##bits##_t *p, uint##bits##_t v)                                   \
    {                                                                          \
        emu_store(p, v, sizeof *p, EMU_ORDER_##sem, EMU_SCOPE_##scope);        \
    }
#define PTX_ATOM(op, rmw, sem, scope, bits)                                    \
    PTX_FN uint##bits##_t ptx_atom_##op##_##sem##_##scope##_u##bits(           \
        uint##bits##_t *p, uint##bits##_t v)                                   \
    {                                                                          \
        return (uint##bits##_t)emu_atomic(                                     \
            p, rmw, v, 0, sizeof *p, EMU_ORDER_##sem, EMU_SCOPE_##scope);      \
    }
#define PTX_RMW(sem, scope, bits)                                              \
    PTX_ATOM(add, EMU_ADD, sem, scope, bits)                                   \
    PTX_ATOM(exch, EMU_EXCH, sem, scope, bits)                                 \
    PTX_FN uint##bits##_t ptx_atom_cas_##sem##_##scope##_u##bits(              \
        uint##bits##_t *p, uint##bits##_t expected, uint##bits##_t v)          \
    {                                                                          \
        return (uint##bits##_t)emu_atomic(p, EMU_CAS, v, expected, sizeof *p,  \
            EMU_ORDER_##sem, EMU_SCOPE_##scope);                               \
    }
#define PTX_RED(sem, scope, bits)                                              \
    PTX_FN void ptx_red_add_##sem##_##scope##_u##bits(                         \
        uint##bits##_t *p, uint##bits##_t v)                                   \
    {                                                                          \
        emu_atomic(                                                            \
            p, EMU_ADD, v, 0, sizeof *p, EMU_ORDER_##sem, EMU_SCOPE_##scope);  \
    }
#define PTX_SCOPE(scope, bits)                                                 \
    PTX_LD(relaxed, scope, bits)                                               \
    PTX_LD(acquire, scope, bits)                                               \
    PTX_ST(relaxed, scope, bits)                                               \
    PTX_ST(release, scope, bits)                                               \
    PTX_RMW(relaxed, scope, bits)                                              \
    PTX_RMW(acquire, scope, bits)                                              \
    PTX_RMW(release, scope, bits)                                              \
    PTX_RMW(acq_rel, scope, bits)                                              \
    PTX_RED(relaxed, scope, bits)                                              \
    PTX_RED(release, scope, bits)
PTX_SCOPE(cta, 32)
PTX_SCOPE(gpu, 32)
PTX_SCOPE(sys, 32)
PTX_SCOPE(cta, 64)
PTX_SCOPE(gpu, 64)
PTX_SCOPE(sys, 64)

#define PTX_VOLATILE(bits)                                                     \
    PTX_FN uint##bits##_t ptx_ld_volatile_u##bits(const uint##bits##_t *p)     \
    {                                                                          \
        return (uint##bits##_t)emu_load(p, sizeof *p, EMU_RELAXED, EMU_SYS);   \
    }                                                                          \
    PTX_FN void ptx_st_volatile_u##bits(uint##bits##_t *p, uint##bits##_t v)   \
    {                                                                          \
        emu_store(p, v, sizeof *p, EMU_RELAXED, EMU_SYS);                      \
    }
PTX_VOLATILE(32)
PTX_VOLATILE(64)

PTX_FN void
ptx_red_add_f32(float *p, float v)
{
    emu_atomic(p, EMU_ADD_F32, __float_as_uint(v), 0, 4, EMU_RELAXED, EMU_GPU);
}

#define PTX_V4(load, store)                                                    \
    PTX_FN uint4 load(const void *p)                                           \
    {                                                                          \
        emu_plain(p, 16, false);                                               \
        uint4 v;                                                               \
        emu_copy_16(&v, p);                                                    \
        return v;                                                              \
    }                                                                          \
    PTX_FN void store(void *p, uint4 v)                                        \
    {                                                                          \
        emu_plain(p, 16, true);                                                \
        emu_copy_16(p, &v);                                                    \
    }
PTX_V4(ptx_ld_v4, ptx_st_v4)
PTX_V4(ptx_ld_stream_v4, ptx_st_stream_v4)

PTX_FN uint4
ptx_ld_nc_v4(const void *p)
{
    return ptx_ld_v4(p);
}

#define PTX_STATEMENT(name, call)                                              \
    PTX_FN void name(void)                                                     \
    {                                                                          \
        call;                                                                  \
    }
PTX_STATEMENT(ptx_fence_acq_rel_cta, emu_fence(EMU_CTA))
PTX_STATEMENT(ptx_fence_acq_rel_gpu, emu_fence(EMU_GPU))
PTX_STATEMENT(ptx_fence_acq_rel_sys, emu_fence(EMU_SYS))
PTX_STATEMENT(ptx_fence_sc_gpu, emu_fence(EMU_GPU))
PTX_STATEMENT(ptx_fence_sc_sys, emu_fence(EMU_SYS))
PTX_STATEMENT(ptx_fence_proxy_async, emu_fence_proxy(3))
PTX_STATEMENT(ptx_fence_proxy_async_shared, emu_fence_proxy(1))
PTX_STATEMENT(ptx_fence_proxy_async_global, emu_fence_proxy(2))
PTX_STATEMENT(ptx_fence_mbarrier_init, emu_fence_mbarrier_init())

/* ---- barriers ---- */
PTX_FN void
ptx_bar_sync(uint32_t id, uint32_t threads)
{
    emu_barrier(id, threads, true);
}

PTX_FN void
ptx_bar_arrive(uint32_t id, uint32_t threads)
{
    emu_barrier(id, threads, false);
}

PTX_FN void
ptx_mbarrier_init(uint32_t bar, uint32_t count)
{
    emu_mbarrier_init(bar, count);
}

PTX_FN void
ptx_mbarrier_inval(uint32_t bar)
{
    emu_mbarrier_inval(bar);
}

PTX_FN void
ptx_mbarrier_arrive(uint32_t bar)
{
    emu_mbarrier_arrive(bar, 1, 0);
}

PTX_FN void
ptx_mbarrier_arrive_expect_tx(uint32_t bar, uint32_t bytes)
{
    emu_mbarrier_arrive(bar, 1, bytes);
}

PTX_FN void
ptx_mbarrier_expect_tx(uint32_t bar, uint32_t bytes)
{
    emu_mbarrier_arrive(bar, 0, bytes);
}

PTX_FN bool
ptx_mbarrier_test_wait(uint32_t bar, uint32_t parity)
{
    return emu_mbarrier_wait(bar, parity, false);
}

PTX_FN bool
ptx_mbarrier_try_wait(uint32_t bar, uint32_t parity)
{
    return emu_mbarrier_wait(bar, parity, true);
}

/* ---- warp ---- */
PTX_FN uint32_t
ptx_thread(void)
{
    return threadIdx.x;
}

PTX_FN bool
ptx_elect(void)
{
    return emu_elect();
}

template <int N>
PTX_FN void
ptx_setmaxnreg_inc(void)
{
    emu_setmaxnreg(true, N);
}

template <int N>
PTX_FN void
ptx_setmaxnreg_dec(void)
{
    emu_setmaxnreg(false, N);
}

#define PTX_CP_ASYNC(name, bytes)                                              \
    PTX_FN void name(uint32_t dst, const void *src)                            \
    {                                                                          \
        emu_cp_async(dst, src, bytes, bytes);                                  \
    }                                                                          \
    PTX_FN void name##_zfill(uint32_t dst, const void *src, uint32_t n)        \
    {                                                                          \
        emu_cp_async(dst, src, bytes, n);                                      \
    }
PTX_CP_ASYNC(ptx_cp_async_4, 4)
PTX_CP_ASYNC(ptx_cp_async_8, 8)
PTX_CP_ASYNC(ptx_cp_async_16, 16)
PTX_STATEMENT(ptx_cp_async_commit, emu_cp_async_commit())

template <int N>
PTX_FN void
ptx_cp_async_wait(void)
{
    emu_cp_async_wait(N);
}

PTX_FN void
ptx_cp_async_mbarrier_arrive(uint32_t bar)
{
    emu_cp_async_arrive(bar);
}

#define PTX_MATRIX(count)                                                      \
    PTX_FN void ptx_ldmatrix(uint32_t(&r)[count], uint32_t addr)               \
    {                                                                          \
        emu_ldmatrix(r, addr, count, false);                                   \
    }                                                                          \
    PTX_FN void ptx_ldmatrix_trans(uint32_t(&r)[count], uint32_t addr)         \
    {                                                                          \
        emu_ldmatrix(r, addr, count, true);                                    \
    }                                                                          \
    PTX_FN void ptx_stmatrix(uint32_t addr, const uint32_t(&r)[count])         \
    {                                                                          \
        emu_stmatrix(addr, r, count, false);                                   \
    }                                                                          \
    PTX_FN void ptx_stmatrix_trans(uint32_t addr, const uint32_t(&r)[count])   \
    {                                                                          \
        emu_stmatrix(addr, r, count, true);                                    \
    }
PTX_MATRIX(1)
PTX_MATRIX(2)
PTX_MATRIX(4)

#define PTX_MMA(name, type)                                                    \
    PTX_FN void name(                                                          \
        float(&d)[4], const uint32_t(&a)[4], uint32_t b0, uint32_t b1)         \
    {                                                                          \
        emu_mma(type, d, a, b0, b1);                                           \
    }
PTX_MMA(ptx_mma_bf16, EMU_BF16)
PTX_MMA(ptx_mma_f16, EMU_F16)
PTX_MMA(ptx_mma_tf32, EMU_TF32)

/* ---- conversions and functions ---- */
PTX_FN uint32_t
ptx_pack_bf16(float lo, float hi)
{
    return (uint32_t)emu_float_to_bf16(hi) << 16 | emu_float_to_bf16(lo);
}

PTX_FN uint32_t
ptx_pack_f16(float lo, float hi)
{
    return (uint32_t)emu_float_to_f16(hi) << 16 | emu_float_to_f16(lo);
}

PTX_FN float
ptx_bf16_to_float(uint16_t v)
{
    return __uint_as_float((uint32_t)v << 16);
}

PTX_FN float
ptx_f16_to_float(uint16_t v)
{
    return emu_f16_to_float(v);
}

PTX_FN float
ptx_ex2(float x)
{
    return exp2f(x);
}

PTX_FN float
ptx_lg2(float x)
{
    return log2f(x);
}

PTX_FN float
ptx_rcp(float x)
{
    return 1.0f / x;
}

PTX_FN float
ptx_tanh(float x)
{
    return tanhf(x);
}

PTX_FN uint64_t
ptx_globaltimer_ns(void)
{
    return emu_globaltimer();
}

PTX_FN uint32_t
ptx_opaque(uint32_t v)
{
    return v;
}

PTX_FN void
ptx_nanosleep(uint32_t ns)
{
    emu_nanosleep(ns);
}

/* ---- TMA and bulk copies ---- */
PTX_FN uint64_t
ptx_policy_evict_first(void)
{
    return 1;
}

PTX_FN uint64_t
ptx_policy_evict_last(void)
{
    return 2;
}

template <typename... C>
PTX_FN void
ptx_tma_load(uint32_t dst, const void *map, uint32_t bar, int c0, C... c)
{
    const int coordinates[] = {c0, c...};
    emu_tma_load(dst, map, bar, coordinates, 1 + sizeof...(C));
}

template <typename... C>
PTX_FN void
ptx_tma_load_hint(uint64_t policy, uint32_t dst, const void *map, uint32_t bar,
    int c0, C... c)
{
    (void)policy;
    ptx_tma_load(dst, map, bar, c0, c...);
}

PTX_FN void
ptx_tma_load_multicast(
    uint32_t dst, const void *map, uint32_t bar, uint16_t mask, int c0, int c1)
{
    (void)dst, (void)map, (void)bar, (void)mask, (void)c0, (void)c1;
    emu_unsupported("multicast");
}

template <typename... C>
PTX_FN void
ptx_tma_store(const void *map, uint32_t src, int c0, C... c)
{
    const int coordinates[] = {c0, c...};
    emu_tma_store(map, src, coordinates, 1 + sizeof...(C));
}

template <typename... C>
PTX_FN void
ptx_tma_prefetch(const void *map, int c0, C... c)
{
    (void)c0;
    ((void)c, ...);
    emu_tma_prefetch(map, 1 + sizeof...(C));
}

PTX_FN void
ptx_tma_prefetch_map(const void *map)
{
    emu_tma_prefetch(map, 0);
}

PTX_FN void
ptx_bulk_load(uint32_t dst, const void *src, uint32_t bytes, uint32_t bar)
{
    emu_bulk_load(dst, src, bytes, bar);
}

PTX_FN void
ptx_bulk_store(void *dst, uint32_t src, uint32_t bytes)
{
    emu_bulk_store(dst, src, bytes, false);
}

PTX_FN void
ptx_bulk_reduce_add_f32(float *dst, uint32_t src, uint32_t bytes)
{
    emu_bulk_store(dst, src, bytes, true);
}

PTX_STATEMENT(ptx_bulk_commit, emu_bulk_commit())

template <int N>
PTX_FN void
ptx_bulk_wait(void)
{
    emu_bulk_wait(N, false);
}

template <int N>
PTX_FN void
ptx_bulk_wait_read(void)
{
    emu_bulk_wait(N, true);
}

/* ---- wgmma ---- */
PTX_STATEMENT(ptx_wgmma_fence, emu_wgmma_fence())
PTX_STATEMENT(ptx_wgmma_commit, emu_wgmma_commit())

template <int N>
PTX_FN void
ptx_wgmma_wait(void)
{
    emu_wgmma_wait(N);
}

template <int R>
PTX_FN void
ptx_wgmma_touch(float (&d)[R])
{
    (void)d;
}

#define PTX_WGMMA(name, type)                                                  \
    template <int TransA, int TransB, int R>                                   \
    PTX_FN void name(float(&d)[R], uint64_t a, uint64_t b, int scale_d)        \
    {                                                                          \
        emu_wgmma(                                                             \
            type, 2 * R, d, nullptr, a, b, scale_d != 0, TransA, TransB);      \
    }                                                                          \
    template <int TransB, int R>                                               \
    PTX_FN void name(                                                          \
        float(&d)[R], const uint32_t(&a)[4], uint64_t b, int scale_d)          \
    {                                                                          \
        emu_wgmma(type, 2 * R, d, a, 0, b, scale_d != 0, 0, TransB);           \
    }
PTX_WGMMA(ptx_wgmma_bf16, EMU_BF16)
PTX_WGMMA(ptx_wgmma_f16, EMU_F16)

#endif
