/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls every function of ptx.h once, so that a signature that differs between
 * the assembly and its twin, or assembly that the toolkit refuses, fails the
 * build. Never run. Built by the emulator's compiler and, where a toolkit is
 * present, by nvcc for sm_80 and sm_90a.
 */
#include "device/cuda/ptx.h"

#define RMW(sem, scope, bits)                                                  \
    n += ptx_atom_add_##sem##_##scope##_u##bits(p##bits, 1);                   \
    n += ptx_atom_exch_##sem##_##scope##_u##bits(p##bits, 1);                  \
    n += ptx_atom_cas_##sem##_##scope##_u##bits(p##bits, 1, 2);
#define SCOPE(scope, bits)                                                     \
    n += ptx_ld_relaxed_##scope##_u##bits(p##bits);                            \
    n += ptx_ld_acquire_##scope##_u##bits(p##bits);                            \
    ptx_st_relaxed_##scope##_u##bits(p##bits, 1);                              \
    ptx_st_release_##scope##_u##bits(p##bits, 1);                              \
    RMW(relaxed, scope, bits)                                                  \
    RMW(acquire, scope, bits)                                                  \
    RMW(release, scope, bits)                                                  \
    RMW(acq_rel, scope, bits)                                                  \
    ptx_red_add_relaxed_##scope##_u##bits(p##bits, 1);                         \
    ptx_red_add_release_##scope##_u##bits(p##bits, 1);

__global__ void
memory_kernel(uint32_t *p32, uint64_t *p64, float *f, uint4 *v)
{
    uint64_t n = 0;
    SCOPE(cta, 32)
    SCOPE(gpu, 32)
    SCOPE(sys, 32)
    SCOPE(cta, 64)
    SCOPE(gpu, 64)
    SCOPE(sys, 64)
    n += ptx_ld_volatile_u32(p32) + ptx_ld_volatile_u64(p64);
    ptx_st_volatile_u32(p32, 1);
    ptx_st_volatile_u64(p64, 1);
    ptx_red_add_f32(f, 1.0f);
    v[0] = ptx_ld_v4(v + 1);
    v[2] = ptx_ld_nc_v4(v + 3);
    v[4] = ptx_ld_stream_v4(v + 5);
    ptx_st_v4(v + 6, v[0]);
    ptx_st_stream_v4(v + 7, v[2]);
    ptx_fence_acq_rel_cta();
    ptx_fence_acq_rel_gpu();
    ptx_fence_acq_rel_sys();
    ptx_fence_sc_gpu();
    ptx_fence_sc_sys();
    ptx_nanosleep(20);
    *p64 = ptx_opaque((uint32_t)n) + ptx_globaltimer_ns();
}

__global__ void
warp_kernel(uint32_t *out, const uint4 *src, float *f)
{
    ULI_SHARED(shared);
    uint32_t base = ptx_smem_addr(shared), r1[1], r2[2], r4[4];
    float d[4] = {0};
    ptx_mbarrier_init(base, 1);
    ptx_bar_sync(1, 64);
    ptx_bar_arrive(2, 64);
    ptx_mbarrier_arrive(base);
    out[0] = ptx_mbarrier_test_wait(base, 0);
    ptx_cp_async_4(base + 64, src);
    ptx_cp_async_8(base + 64, src);
    ptx_cp_async_16(base + 64, src);
    ptx_cp_async_4_zfill(base + 64, src, 2);
    ptx_cp_async_8_zfill(base + 64, src, 4);
    ptx_cp_async_16_zfill(base + 64, src, 8);
    ptx_cp_async_commit();
    ptx_cp_async_wait<1>();
    ptx_cp_async_mbarrier_arrive(base);
    ptx_mbarrier_inval(base);
    ptx_ldmatrix(r1, base + 64);
    ptx_ldmatrix(r2, base + 64);
    ptx_ldmatrix(r4, base + 64);
    ptx_mma_bf16(d, r4, r1[0], r2[0]);
    ptx_ldmatrix_trans(r1, base + 64);
    ptx_ldmatrix_trans(r2, base + 64);
    ptx_ldmatrix_trans(r4, base + 64);
    ptx_mma_f16(d, r4, r1[0], r2[0]);
    ptx_mma_tf32(d, r4, r1[0], r2[0]);
    out[1] = ptx_pack_bf16(d[0], d[1]);
    out[2] = ptx_pack_f16(d[2], d[3]);
    f[0] = ptx_bf16_to_float(1) + ptx_f16_to_float(2);
    f[1] = ptx_ex2(d[0]) + ptx_lg2(d[1]) + ptx_rcp(d[2]) + ptx_tanh(d[3]);
}

#if PTX_SM90
template <int R>
static __device__ __forceinline__ void
products_run(float *f, uint64_t a, uint64_t b)
{
    float d[R] = {0};
    const uint32_t r[4] = {1, 2, 3, 4};
    ptx_wgmma_fence();
    ptx_wgmma_bf16<0, 0>(d, a, b, 0);
    ptx_wgmma_bf16<1, 1>(d, a, b, 1);
    ptx_wgmma_bf16<1>(d, r, b, 1);
    ptx_wgmma_f16<0, 0>(d, a, b, 1);
    ptx_wgmma_f16<0>(d, r, b, 1);
    ptx_wgmma_commit();
    ptx_wgmma_wait<0>();
    ptx_wgmma_touch(d);
    f[threadIdx.x] = d[0] + d[R - 1];
}

/* N = 2 R = 8, 16 .. 256. */
template <int R>
static __device__ __forceinline__ void
every_width(float *f, uint64_t a)
{
    products_run<R>(f, a, a + 64);
    if constexpr (R < 128)
        every_width<R + 4>(f, a);
}
#endif

__global__ void __launch_bounds__(128, 1)
    hopper_kernel(const __grid_constant__ CUtensorMap map, float *f)
{
#if PTX_SM90
    ULI_SHARED(shared);
    uint32_t base = ptx_smem_addr(shared), data = base + 1024;
    const uint32_t r1[1] = {1}, r2[2] = {1, 2}, r4[4] = {1, 2, 3, 4};
    ptx_tma_prefetch_map(&map);
    f[ptx_thread()] = 0;
    if (ptx_elect())
        ptx_mbarrier_init(base, 1);
    ptx_fence_mbarrier_init();
    ptx_fence_proxy_async();
    ptx_fence_proxy_async_shared();
    ptx_fence_proxy_async_global();
    ptx_setmaxnreg_dec<40>();
    ptx_setmaxnreg_inc<232>();
    ptx_mbarrier_arrive_expect_tx(base, 128);
    ptx_mbarrier_expect_tx(base, 128);
    uint64_t policy = ptx_policy_evict_first() | ptx_policy_evict_last();
    ptx_tma_load(data, &map, base, 0);
    ptx_tma_load(data, &map, base, 0, 1);
    ptx_tma_load(data, &map, base, 0, 1, 2);
    ptx_tma_load(data, &map, base, 0, 1, 2, 3);
    ptx_tma_load(data, &map, base, 0, 1, 2, 3, 4);
    ptx_tma_load_multicast(data, &map, base, 3, 0, 1);
    ptx_tma_load_hint(policy, data, &map, base, 0);
    ptx_tma_load_hint(policy, data, &map, base, 0, 1);
    ptx_tma_load_hint(policy, data, &map, base, 0, 1, 2);
    ptx_tma_load_hint(policy, data, &map, base, 0, 1, 2, 3);
    ptx_tma_load_hint(policy, data, &map, base, 0, 1, 2, 3, 4);
    ptx_tma_prefetch(&map, 0);
    ptx_tma_prefetch(&map, 0, 1);
    ptx_tma_prefetch(&map, 0, 1, 2);
    ptx_tma_prefetch(&map, 0, 1, 2, 3);
    ptx_tma_prefetch(&map, 0, 1, 2, 3, 4);
    f[0] = (float)ptx_mbarrier_try_wait(base, 1);
    ptx_mbarrier_wait(base, 0);
    ptx_stmatrix(data, r1);
    ptx_stmatrix(data, r2);
    ptx_stmatrix(data, r4);
    ptx_stmatrix_trans(data, r1);
    ptx_stmatrix_trans(data, r2);
    ptx_stmatrix_trans(data, r4);
    ptx_tma_store(&map, data, 0);
    ptx_tma_store(&map, data, 0, 1);
    ptx_tma_store(&map, data, 0, 1, 2);
    ptx_tma_store(&map, data, 0, 1, 2, 3);
    ptx_tma_store(&map, data, 0, 1, 2, 3, 4);
    ptx_bulk_load(data, f, 128, base);
    ptx_bulk_store(f, data, 128);
    ptx_bulk_reduce_add_f32(f, data, 128);
    ptx_bulk_commit();
    ptx_bulk_wait_read<1>();
    ptx_bulk_wait<0>();
    every_width<4>(f, ptx_wgmma_descriptor(data, 16, 1024, 128));
#endif
}

cudaError_t
ptx_compile_launch(uint32_t *out, const uint4 *src, float *f)
{
    struct uli_launch_config launch = {dim3(1), dim3(128), 0, nullptr};
    cudaError_t error = uli_kernel_prepare(warp_kernel, 65536);
    return error ? error : uli_kernel_launch(launch, warp_kernel, out, src, f);
}
