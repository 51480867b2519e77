/* SPDX-License-Identifier: Apache-2.0
 *
 * The one header with inline assembly (scripts/check_cuda_rules keeps it so).
 * Every function has two bodies: PTX here, and a twin of the same name and
 * type in tests/emulate/include/emulate_ptx.h, taken when ULI_EMULATE is
 * defined. A kernel written on these functions therefore runs on a card and,
 * unchanged, on a CPU under the emulator. docs/EMULATOR.md has the rules.
 *
 * Conventions: shared memory is named by its 32-bit address (ptx_smem_addr);
 * register fragments are arrays passed by reference to always-inline
 * functions; immediates are template arguments; memory operations carry
 * order and scope in their names. Long because each instruction is a short
 * function of its own. What needs compute capability 9.0a exists
 * when PTX_SM90 is 1; kernels guard their bodies with it.
 */
#ifndef DEVICE_CUDA_PTX_H
#define DEVICE_CUDA_PTX_H

#include "device/cuda/kernel.h"

#ifdef ULI_EMULATE
#define PTX_SM90 1
#include "emulate_ptx.h"
#else

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define PTX_SM90 1
#else
#define PTX_SM90 0
#endif

#define PTX_FN static __device__ __forceinline__

PTX_FN uint32_t
ptx_smem_addr(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* ---- loads, stores and atomics with an order and a scope ----
 * ptx_ld_{relaxed,acquire}_{cta,gpu,sys}_{u32,u64}(p)
 * ptx_st_{relaxed,release}_..(p, v)
 * ptx_atom_{add,exch}_{relaxed,acquire,release,acq_rel}_..(p, v) -> old
 * ptx_atom_cas_{same}_..(p, expected, v) -> old
 * ptx_red_add_{relaxed,release}_..(p, v) */
#define PTX_LD(sem, scope, bits, reg)                                          \
    PTX_FN uint##bits##_t ptx_ld_##sem##_##scope##_u##bits(                    \
        const uint##bits##_t *p)                                               \
    {                                                                          \
        uint##bits##_t v;                                                      \
        asm volatile("ld." #sem "." #scope ".u" #bits " %0, [%1];"             \
                     : "=" reg(v)                                              \
                     : "l"(p)                                                  \
                     : "memory");                                              \
        return v;                                                              \
    }
#define PTX_ST(sem, scope, bits, reg)                                          \
    PTX_FN void ptx_st_##sem##_##scope##_u##bits(                              \
        uint##bits##_t *p, uint##bits##_t v)                                   \
    {                                                                          \
        asm volatile(                                                          \
            "st." #sem "." #scope ".u" #bits " [%0], %1;" ::"l"(p), reg(v)     \
            : "memory");                                                       \
    }
#define PTX_ATOM(op, type, sem, scope, bits, reg)                              \
    PTX_FN uint##bits##_t ptx_atom_##op##_##sem##_##scope##_u##bits(           \
        uint##bits##_t *p, uint##bits##_t v)                                   \
    {                                                                          \
        uint##bits##_t old;                                                    \
        asm volatile("atom." #sem "." #scope "." #op "." #type #bits           \
                     " %0, [%1], %2;"                                          \
                     : "=" reg(old)                                            \
                     : "l"(p), reg(v)                                          \
                     : "memory");                                              \
        return old;                                                            \
    }
#define PTX_CAS(sem, scope, bits, reg)                                         \
    PTX_FN uint##bits##_t ptx_atom_cas_##sem##_##scope##_u##bits(              \
        uint##bits##_t *p, uint##bits##_t expected, uint##bits##_t v)          \
    {                                                                          \
        uint##bits##_t old;                                                    \
        asm volatile("atom." #sem "." #scope ".cas.b" #bits                    \
                     " %0, [%1], %2, %3;"                                      \
                     : "=" reg(old)                                            \
                     : "l"(p), reg(expected), reg(v)                           \
                     : "memory");                                              \
        return old;                                                            \
    }
#define PTX_RED(sem, scope, bits, reg)                                         \
    PTX_FN void ptx_red_add_##sem##_##scope##_u##bits(                         \
        uint##bits##_t *p, uint##bits##_t v)                                   \
    {                                                                          \
        asm volatile("red." #sem "." #scope ".add.u" #bits                     \
                     " [%0], %1;" ::"l"(p),                                    \
                     reg(v)                                                    \
                     : "memory");                                              \
    }
#define PTX_RMW(sem, scope, bits, reg)                                         \
    PTX_ATOM(add, u, sem, scope, bits, reg)                                    \
    PTX_ATOM(exch, b, sem, scope, bits, reg)                                   \
    PTX_CAS(sem, scope, bits, reg)
#define PTX_SCOPE(scope, bits, reg)                                            \
    PTX_LD(relaxed, scope, bits, reg)                                          \
    PTX_LD(acquire, scope, bits, reg)                                          \
    PTX_ST(relaxed, scope, bits, reg)                                          \
    PTX_ST(release, scope, bits, reg)                                          \
    PTX_RMW(relaxed, scope, bits, reg)                                         \
    PTX_RMW(acquire, scope, bits, reg)                                         \
    PTX_RMW(release, scope, bits, reg)                                         \
    PTX_RMW(acq_rel, scope, bits, reg)                                         \
    PTX_RED(relaxed, scope, bits, reg)                                         \
    PTX_RED(release, scope, bits, reg)
PTX_SCOPE(cta, 32, "r")
PTX_SCOPE(gpu, 32, "r")
PTX_SCOPE(sys, 32, "r")
PTX_SCOPE(cta, 64, "l")
PTX_SCOPE(gpu, 64, "l")
PTX_SCOPE(sys, 64, "l")

PTX_FN void
ptx_red_add_f32(float *p, float v)
{
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(p), "f"(v)
                 : "memory");
}

#define PTX_VOLATILE(bits, reg)                                                \
    PTX_FN uint##bits##_t ptx_ld_volatile_u##bits(const uint##bits##_t *p)     \
    {                                                                          \
        uint##bits##_t v;                                                      \
        asm volatile("ld.volatile.u" #bits " %0, [%1];"                        \
                     : "=" reg(v)                                              \
                     : "l"(p)                                                  \
                     : "memory");                                              \
        return v;                                                              \
    }                                                                          \
    PTX_FN void ptx_st_volatile_u##bits(uint##bits##_t *p, uint##bits##_t v)   \
    {                                                                          \
        asm volatile("st.volatile.u" #bits " [%0], %1;" ::"l"(p), reg(v)       \
                     : "memory");                                              \
    }
PTX_VOLATILE(32, "r")
PTX_VOLATILE(64, "l")

/* 16-byte global loads and stores: plain; _nc for data that no one writes
 * during the kernel; _stream for data that L1 should not keep. */
#define PTX_LD_V4(name, code)                                                  \
    PTX_FN uint4 name(const void *p)                                           \
    {                                                                          \
        uint4 v;                                                               \
        asm volatile(code " {%0, %1, %2, %3}, [%4];"                           \
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)              \
                     : "l"(p)                                                  \
                     : "memory");                                              \
        return v;                                                              \
    }
#define PTX_ST_V4(name, code)                                                  \
    PTX_FN void name(void *p, uint4 v)                                         \
    {                                                                          \
        asm volatile(code " [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x),       \
                     "r"(v.y), "r"(v.z), "r"(v.w)                              \
                     : "memory");                                              \
    }
PTX_LD_V4(ptx_ld_v4, "ld.global.v4.u32")
PTX_LD_V4(ptx_ld_nc_v4, "ld.global.nc.L1::no_allocate.v4.u32")
PTX_LD_V4(ptx_ld_stream_v4, "ld.global.L1::no_allocate.v4.u32")
PTX_ST_V4(ptx_st_v4, "st.global.v4.u32")
PTX_ST_V4(ptx_st_stream_v4, "st.global.L1::no_allocate.v4.u32")

/* ---- fences ---- */
#define PTX_STATEMENT(name, code)                                              \
    PTX_FN void name(void)                                                     \
    {                                                                          \
        asm volatile(code ::: "memory");                                       \
    }
PTX_STATEMENT(ptx_fence_acq_rel_cta, "fence.acq_rel.cta;")
PTX_STATEMENT(ptx_fence_acq_rel_gpu, "fence.acq_rel.gpu;")
PTX_STATEMENT(ptx_fence_acq_rel_sys, "fence.acq_rel.sys;")
PTX_STATEMENT(ptx_fence_sc_gpu, "fence.sc.gpu;")
PTX_STATEMENT(ptx_fence_sc_sys, "fence.sc.sys;")

/* ---- barriers of a block, by id and thread count ---- */
PTX_FN void
ptx_bar_sync(uint32_t id, uint32_t threads)
{
    asm volatile("barrier.cta.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

PTX_FN void
ptx_bar_arrive(uint32_t id, uint32_t threads)
{
    asm volatile("barrier.cta.arrive %0, %1;" ::"r"(id), "r"(threads)
                 : "memory");
}

/* ---- mbarriers ---- */
PTX_FN void
ptx_mbarrier_init(uint32_t bar, uint32_t count)
{
    asm volatile(
        "mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count)
        : "memory");
}

PTX_FN void
ptx_mbarrier_inval(uint32_t bar)
{
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}

PTX_FN void
ptx_mbarrier_arrive(uint32_t bar)
{
    asm volatile(
        "{ .reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [%0]; }" ::"r"(bar)
        : "memory");
}

/* True when the phase of this parity has completed; never suspends. */
PTX_FN bool
ptx_mbarrier_test_wait(uint32_t bar, uint32_t parity)
{
    uint32_t done;
    asm volatile("{ .reg .pred p;"
                 " mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;"
                 " selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return done != 0;
}

/* ---- cp.async (sixteen bytes bypass L1; zfill zero-fills past src_bytes) ---- */
#define PTX_CP_ASYNC(name, cache, bytes)                                       \
    PTX_FN void name(uint32_t dst, const void *src)                            \
    {                                                                          \
        asm volatile("cp.async." cache ".shared.global [%0], [%1], " bytes     \
                     ";" ::"r"(dst),                                           \
                     "l"(src)                                                  \
                     : "memory");                                              \
    }                                                                          \
    PTX_FN void name##_zfill(uint32_t dst, const void *src, uint32_t n)        \
    {                                                                          \
        asm volatile("cp.async." cache ".shared.global [%0], [%1], " bytes     \
                     ", %2;" ::"r"(dst),                                       \
                     "l"(src), "r"(n)                                          \
                     : "memory");                                              \
    }
PTX_CP_ASYNC(ptx_cp_async_4, "ca", "4")
PTX_CP_ASYNC(ptx_cp_async_8, "ca", "8")
PTX_CP_ASYNC(ptx_cp_async_16, "cg", "16")
PTX_STATEMENT(ptx_cp_async_commit, "cp.async.commit_group;")

/* Waits until at most N of the thread's groups are pending. */
template <int N>
PTX_FN void
ptx_cp_async_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* The barrier gets one arrival when the thread's copies so far are complete;
 * the arrival is part of the barrier's count. */
PTX_FN void
ptx_cp_async_mbarrier_arrive(uint32_t bar)
{
    asm volatile(
        "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar)
        : "memory");
}

/* ---- 8x8 matrices of 16-bit elements, and the warp's products ---- */
#define PTX_LDMATRIX(name, trans)                                              \
    PTX_FN void name(uint32_t(&r)[1], uint32_t addr)                           \
    {                                                                          \
        asm volatile("ldmatrix.sync.aligned.m8n8.x1" trans                     \
                     ".shared.b16 {%0}, [%1];"                                 \
                     : "=r"(r[0])                                              \
                     : "r"(addr)                                               \
                     : "memory");                                              \
    }                                                                          \
    PTX_FN void name(uint32_t(&r)[2], uint32_t addr)                           \
    {                                                                          \
        asm volatile("ldmatrix.sync.aligned.m8n8.x2" trans                     \
                     ".shared.b16 {%0, %1}, [%2];"                             \
                     : "=r"(r[0]), "=r"(r[1])                                  \
                     : "r"(addr)                                               \
                     : "memory");                                              \
    }                                                                          \
    PTX_FN void name(uint32_t(&r)[4], uint32_t addr)                           \
    {                                                                          \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4" trans                     \
                     ".shared.b16 {%0, %1, %2, %3}, [%4];"                     \
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])          \
                     : "r"(addr)                                               \
                     : "memory");                                              \
    }
PTX_LDMATRIX(ptx_ldmatrix, "")
PTX_LDMATRIX(ptx_ldmatrix_trans, ".trans")

/* d += a b, m16n8k16 (m16n8k8 for tf32), f32 accumulators. */
#define PTX_MMA(name, code)                                                    \
    PTX_FN void name(                                                          \
        float(&d)[4], const uint32_t(&a)[4], uint32_t b0, uint32_t b1)         \
    {                                                                          \
        asm volatile(                                                          \
            "mma.sync.aligned." code " {%0, %1, %2, %3}, {%4, %5, %6, %7},"    \
            " {%8, %9}, {%0, %1, %2, %3};"                                     \
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                   \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));   \
    }
PTX_MMA(ptx_mma_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32")
PTX_MMA(ptx_mma_f16, "m16n8k16.row.col.f32.f16.f16.f32")
PTX_MMA(ptx_mma_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32")

/* ---- conversions and functions ---- */
/* Two floats rounded to nearest even; lo in the low half. */
PTX_FN uint32_t
ptx_pack_bf16(float lo, float hi)
{
    uint32_t v;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(hi), "f"(lo));
    return v;
}

PTX_FN uint32_t
ptx_pack_f16(float lo, float hi)
{
    uint32_t v;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(hi), "f"(lo));
    return v;
}

PTX_FN float
ptx_bf16_to_float(uint16_t v)
{
    return __uint_as_float((uint32_t)v << 16);
}

PTX_FN float
ptx_f16_to_float(uint16_t v)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v));
    return f;
}

#define PTX_MATH(name, code)                                                   \
    PTX_FN float name(float x)                                                 \
    {                                                                          \
        float y;                                                               \
        asm(code " %0, %1;" : "=f"(y) : "f"(x));                               \
        return y;                                                              \
    }
PTX_MATH(ptx_ex2, "ex2.approx.ftz.f32")
PTX_MATH(ptx_lg2, "lg2.approx.ftz.f32")
PTX_MATH(ptx_rcp, "rcp.approx.ftz.f32")
PTX_MATH(ptx_tanh, "tanh.approx.f32")

/* Returns the value, hidden from the compiler: what is computed from the result
 * is computed at this place, instead of before a loop, where it would hold
 * registers. */
PTX_FN uint32_t
ptx_opaque(uint32_t v)
{
    asm volatile("" : "+r"(v));
    return v;
}

/* ---- time ---- */
PTX_FN uint64_t
ptx_globaltimer_ns(void)
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
    return ns;
}

PTX_FN void
ptx_nanosleep(uint32_t ns)
{
    asm volatile("nanosleep.u32 %0;" ::"r"(ns) : "memory");
}

#if PTX_SM90
/* ---- from here on: compute capability 9.0a ----
 * Between writes through the generic proxy and reads by TMA, bulk copies or
 * wgmma: a proxy fence by the writer, then a barrier or a release. */
PTX_STATEMENT(ptx_fence_proxy_async, "fence.proxy.async;")
PTX_STATEMENT(ptx_fence_proxy_async_shared, "fence.proxy.async.shared::cta;")
PTX_STATEMENT(ptx_fence_proxy_async_global, "fence.proxy.async.global;")
/* To be called after mbarrier.init, before the barrier after which others use
 * the mbarrier. */
PTX_STATEMENT(ptx_fence_mbarrier_init, "fence.mbarrier_init.release.cluster;")

/* threadIdx.x, read again at each call: for code that has no register to keep
 * it. */
PTX_FN uint32_t
ptx_thread(void)
{
    uint32_t t;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
    return t;
}

/* True in one lane of the warp's 32, always the same lane. */
PTX_FN bool
ptx_elect(void)
{
    uint32_t chosen;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff;"
                 " selp.u32 %0, 1, 0, p; }"
                 : "=r"(chosen)::"memory");
    return chosen != 0;
}

/* May suspend the thread for a while; false: the phase has not completed
 * yet. */
PTX_FN bool
ptx_mbarrier_try_wait(uint32_t bar, uint32_t parity)
{
    uint32_t done;
    asm volatile("{ .reg .pred p;"
                 " mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;"
                 " selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return done != 0;
}

PTX_FN void
ptx_mbarrier_arrive_expect_tx(uint32_t bar, uint32_t bytes)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar),
        "r"(bytes)
        : "memory");
}

PTX_FN void
ptx_mbarrier_expect_tx(uint32_t bar, uint32_t bytes)
{
    asm volatile(
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(bar),
        "r"(bytes)
        : "memory");
}

#define PTX_STMATRIX(name, trans)                                              \
    PTX_FN void name(uint32_t addr, const uint32_t(&r)[1])                     \
    {                                                                          \
        asm volatile("stmatrix.sync.aligned.m8n8.x1" trans                     \
                     ".shared.b16 [%0], {%1};" ::"r"(addr),                    \
                     "r"(r[0])                                                 \
                     : "memory");                                              \
    }                                                                          \
    PTX_FN void name(uint32_t addr, const uint32_t(&r)[2])                     \
    {                                                                          \
        asm volatile("stmatrix.sync.aligned.m8n8.x2" trans                     \
                     ".shared.b16 [%0], {%1, %2};" ::"r"(addr),                \
                     "r"(r[0]), "r"(r[1])                                      \
                     : "memory");                                              \
    }                                                                          \
    PTX_FN void name(uint32_t addr, const uint32_t(&r)[4])                     \
    {                                                                          \
        asm volatile("stmatrix.sync.aligned.m8n8.x4" trans                     \
                     ".shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(addr),        \
                     "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])                \
                     : "memory");                                              \
    }
PTX_STMATRIX(ptx_stmatrix, "")
PTX_STMATRIX(ptx_stmatrix_trans, ".trans")

/* Register budget of the warpgroup: N in 24..256, a multiple of 8. */
template <int N>
PTX_FN void
ptx_setmaxnreg_inc(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N>
PTX_FN void
ptx_setmaxnreg_dec(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* ---- TMA: boxes of a tensor map ----
 * ptx_tma_load(dst, map, bar, c0 .. c4), ptx_tma_store(map, src, c0 .. c4),
 * ptx_tma_prefetch(map, c0 .. c4): 1 to 5 coordinates, innermost first. The
 * hint of ptx_tma_load_hint is one of the policies below. */
#define PTX_POLICY(name, code)                                                 \
    PTX_FN uint64_t name(void)                                                 \
    {                                                                          \
        uint64_t policy;                                                       \
        asm("createpolicy.fractional." code ".b64 %0, 1.0;" : "=l"(policy));   \
        return policy;                                                         \
    }
PTX_POLICY(ptx_policy_evict_first, "L2::evict_first")
PTX_POLICY(ptx_policy_evict_last, "L2::evict_last")

#define PTX_LIST(...) __VA_ARGS__
/* fromN: the coordinates' operands when N others precede. */
#define PTX_TMA(dims, from1, from2, from3, from4, params, args)                \
    PTX_FN void ptx_tma_load(                                                  \
        uint32_t dst, const void *map, uint32_t bar, params)                   \
    {                                                                          \
        asm volatile("cp.async.bulk.tensor." dims ".shared::cluster.global"    \
                     ".mbarrier::complete_tx::bytes [%0], [%1, {" from3        \
                     "}], [%2];" ::"r"(dst),                                   \
                     "l"(map), "r"(bar), args                                  \
                     : "memory");                                              \
    }                                                                          \
    PTX_FN void ptx_tma_load_hint(                                             \
        uint64_t policy, uint32_t dst, const void *map, uint32_t bar, params)  \
    {                                                                          \
        asm volatile("cp.async.bulk.tensor." dims ".shared::cluster.global"    \
                     ".mbarrier::complete_tx::bytes.L2::cache_hint"            \
                     " [%0], [%1, {" from4 "}], [%2], %3;" ::"r"(dst),         \
                     "l"(map), "r"(bar), "l"(policy), args                     \
                     : "memory");                                              \
    }                                                                          \
    PTX_FN void ptx_tma_store(const void *map, uint32_t src, params)           \
    {                                                                          \
        asm volatile("cp.async.bulk.tensor." dims ".global.shared::cta"        \
                     ".bulk_group [%0, {" from2 "}], [%1];" ::"l"(map),        \
                     "r"(src), args                                            \
                     : "memory");                                              \
    }                                                                          \
    PTX_FN void ptx_tma_prefetch(const void *map, params)                      \
    {                                                                          \
        asm volatile("cp.async.bulk.prefetch.tensor." dims                     \
                     ".L2.global [%0, {" from1 "}];" ::"l"(map),               \
                     args                                                      \
                     : "memory");                                              \
    }
PTX_TMA("1d", "%1", "%2", "%3", "%4", PTX_LIST(int c0), PTX_LIST("r"(c0)))
PTX_TMA("2d", "%1, %2", "%2, %3", "%3, %4", "%4, %5", PTX_LIST(int c0, int c1),
    PTX_LIST("r"(c0), "r"(c1)))
PTX_TMA("3d", "%1, %2, %3", "%2, %3, %4", "%3, %4, %5", "%4, %5, %6",
    PTX_LIST(int c0, int c1, int c2), PTX_LIST("r"(c0), "r"(c1), "r"(c2)))
PTX_TMA("4d", "%1, %2, %3, %4", "%2, %3, %4, %5", "%3, %4, %5, %6",
    "%4, %5, %6, %7", PTX_LIST(int c0, int c1, int c2, int c3),
    PTX_LIST("r"(c0), "r"(c1), "r"(c2), "r"(c3)))
PTX_TMA("5d", "%1, %2, %3, %4, %5", "%2, %3, %4, %5, %6", "%3, %4, %5, %6, %7",
    "%4, %5, %6, %7, %8", PTX_LIST(int c0, int c1, int c2, int c3, int c4),
    PTX_LIST("r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)))

/* Copies to the same address in the shared memory of every block of the cluster
 * that the mask names. */
PTX_FN void
ptx_tma_load_multicast(
    uint32_t dst, const void *map, uint32_t bar, uint16_t mask, int c0, int c1)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global"
                 ".mbarrier::complete_tx::bytes.multicast::cluster"
                 " [%0], [%1, {%4, %5}], [%2], %3;" ::"r"(dst),
                 "l"(map), "r"(bar), "h"(mask), "r"(c0), "r"(c1)
                 : "memory");
}

PTX_FN void
ptx_tma_prefetch_map(const void *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* ---- bulk copies: multiples of 16 bytes at multiples of 16 ---- */
PTX_FN void
ptx_bulk_load(uint32_t dst, const void *src, uint32_t bytes, uint32_t bar)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global"
        ".mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst),
        "l"(src), "r"(bytes), "r"(bar)
        : "memory");
}

PTX_FN void
ptx_bulk_store(void *dst, uint32_t src, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1],"
                 " %2;" ::"l"(dst),
                 "r"(src), "r"(bytes)
                 : "memory");
}

PTX_FN void
ptx_bulk_reduce_add_f32(float *dst, uint32_t src, uint32_t bytes)
{
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32"
                 " [%0], [%1], %2;" ::"l"(dst),
                 "r"(src), "r"(bytes)
                 : "memory");
}

PTX_STATEMENT(ptx_bulk_commit, "cp.async.bulk.commit_group;")

/* Waits until at most N of the thread's groups have bytes to write (wait) or
 * to read (wait_read): only the first one makes the writes visible. */
template <int N>
PTX_FN void
ptx_bulk_wait(void)
{
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}

template <int N>
PTX_FN void
ptx_bulk_wait_read(void)
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

/* ---- wgmma: ordering; the products are in the generated part ---- */
PTX_STATEMENT(ptx_wgmma_fence, "wgmma.fence.sync.aligned;")
PTX_STATEMENT(ptx_wgmma_commit, "wgmma.commit_group.sync.aligned;")

template <int N>
PTX_FN void
ptx_wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* The compiler moves no use of the accumulators across this point. */
template <int R>
PTX_FN void
ptx_wgmma_touch(float (&d)[R])
{
#pragma unroll
    for (int i = 0; i < R; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

#include "device/cuda/ptx_wgmma.h"
#endif /* PTX_SM90 */
#endif /* ULI_EMULATE */

/* ---- made of the functions above, the same for the emulator ---- */
#if PTX_SM90
/* Spins until the phase of this parity has completed. */
static __device__ __forceinline__ void
ptx_mbarrier_wait(uint32_t bar, uint32_t parity)
{
    while (!ptx_mbarrier_try_wait(bar, parity))
        ;
}

/* wgmma shared-memory descriptor. Leading and stride byte offsets and the
 * start are multiples of 16; swizzle_bytes is 0, 32, 64 or 128. */
static __device__ __forceinline__ uint64_t
ptx_wgmma_descriptor(uint32_t start, uint32_t leading_bytes,
    uint32_t stride_bytes, uint32_t swizzle_bytes)
{
    uint64_t mode = swizzle_bytes == 128  ? 1
                    : swizzle_bytes == 64 ? 2
                    : swizzle_bytes == 32 ? 3
                                          : 0;
    return (uint64_t)((start & 0x3ffff) >> 4) |
           (uint64_t)((leading_bytes & 0x3ffff) >> 4) << 16 |
           (uint64_t)((stride_bytes & 0x3ffff) >> 4) << 32 | mode << 62;
}
#endif

#endif
