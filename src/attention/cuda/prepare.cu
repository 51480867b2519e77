/* SPDX-License-Identifier: Apache-2.0
 *
 * The prepare kernel: checks the documents, clears the state and writes the
 * list of tiles, section by section of the keys, in a section longest first.
 * One block.
 *
 *   runs -> units -> tiles: two scans give the first unit of each run and the
 *   first tile of each unit, so that every thread finds run, unit and place of
 *   any tile by two binary searches. A counting sort by section and the number
 *   of key tiles that a tile sees orders the list: a first pass over the tiles
 *   counts, a second one places. Tiles of one cost stay near the order of
 *   their rows, which is good for the cache; no result depends on the order.
 *
 * Cost: O(documents + tiles) loads of a few words, in block-wide steps.
 */
#include "attention/cuda/forward_gpu.h"
#include "attention/cuda/prepare_axis.h"
#include <string.h>
#include "device/cuda/ptx.h"
#include "ulyx/types.h"

enum {
    PREPARE_THREADS = 512,
    PREPARE_WARPS = PREPARE_THREADS / 32,
    BUCKETS = 1024,
    SECTIONS = 32,    /* at most: costs have buckets / sections steps */
    PUT_BYTES = 3968, /* of a launch's 4096 bytes of arguments */
};

/* Shared memory. */
struct prepare_shared {
    int64_t warp_sums[PREPARE_WARPS];
    unsigned long long faults[2]; /* of each side: document << 8 | what */
    unsigned long long most;      /* the largest cost */
    uint32_t buckets[BUCKETS];    /* count, then next place; longest first */
};

struct prepare {
    const uli_gpu_attn_args *args;
    prepare_shared *shared;
    int64_t nruns, nunits, ntiles;
    int64_t *run_units;  /* [nruns + 1] first unit of each run */
    int64_t *unit_tiles; /* [nunits + 1] first tile of each unit */
};

/* Sum of the values of all threads before this one; *total_p of all. */
static __device__ int64_t
block_scan(prepare_shared *shared, int64_t value, int64_t *total_p)
{
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t sum = value, before = 0, total = 0;
    for (uint32_t step = 1; step < 32; step *= 2) {
        int64_t other = __shfl_up_sync(0xffffffffu, sum, step);
        sum += lane >= step ? other : 0;
    }
    if (lane == 31)
        shared->warp_sums[warp] = sum;
    __syncthreads();
    for (uint32_t w = 0; w < PREPARE_WARPS; w++) {
        before += w < warp ? shared->warp_sums[w] : 0;
        total += shared->warp_sums[w];
    }
    __syncthreads();
    *total_p = total;
    return before + sum - value;
}

/* The last of starts[0 .. count) that is not after n. */
static __device__ int64_t
start_of(const int64_t *starts, int64_t count, int64_t n)
{
    int64_t low = 0, high = count;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (starts[middle] <= n)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static __device__ int64_t
units_of_run(const prepare &p, int64_t r)
{
    struct axis_run run = axis_run_at(*p.args, r);
    return run.docs.end - run.docs.begin + 1;
}

static __device__ struct axis_unit
unit_at(const prepare &p, int64_t u, struct axis_run *run_p)
{
    int64_t r = start_of(p.run_units, p.nruns, u);
    *run_p = axis_run_at(*p.args, r);
    return axis_unit_at(*p.args, *run_p, u - p.run_units[r]);
}

static __device__ int64_t
tiles_of_unit(const prepare &p, int64_t u)
{
    struct axis_run run;
    struct axis_unit unit = unit_at(p, u, &run);
    return axis_tiles(*p.args, unit.gap) + axis_tiles(*p.args, unit.rows);
}

/* starts[n] = sum of count(0 .. n); returns starts[total]. */
static __device__ int64_t
write_starts(const prepare &p, int64_t *starts, int64_t total,
    int64_t (*count)(const prepare &, int64_t))
{
    int64_t carry = 0, sum;
    for (int64_t first = 0; first < total; first += PREPARE_THREADS) {
        int64_t n = first + threadIdx.x;
        int64_t value = n < total ? count(p, n) : 0;
        int64_t before = block_scan(p.shared, value, &sum);
        if (n < total)
            starts[n] = carry + before;
        carry += sum;
    }
    if (threadIdx.x == 0)
        starts[total] = carry;
    __syncthreads();
    return carry;
}

/* All threads: the cause of a refusal, or 0. The cause names the first bad
 * document of the queries, else of the keys. */
static __device__ uint64_t
check_docs(const prepare &p)
{
    prepare_shared *shared = p.shared;
    if (threadIdx.x < 2)
        shared->faults[threadIdx.x] = UINT64_MAX;
    __syncthreads();
    for (int side = 0; side < 2 && p.args->has_docs; side++) {
        for (int64_t n = threadIdx.x; n < p.args->ndocs; n += PREPARE_THREADS) {
            int what = axis_fault(*p.args, side != 0, n);
            if (what)
                atomicMin(&shared->faults[side],
                    (unsigned long long)n << 8 | (unsigned)what);
        }
    }
    __syncthreads();
    uint64_t fault =
        shared->faults[0] != UINT64_MAX ? shared->faults[0] : shared->faults[1];
    if (fault == UINT64_MAX)
        return 0;
    return ULI_GPU_ATTN_CAUSE(
        -ULYX_ERR_INVALID_ARGUMENT, fault & 255, fault >> 8);
}

static __device__ struct uli_gpu_attn_tile
tile_at(const prepare &p, int64_t t)
{
    struct axis_run run;
    int64_t u = start_of(p.unit_tiles, p.nunits, t);
    struct axis_unit unit = unit_at(p, u, &run);
    return axis_tile_at(*p.args, run, unit, t - p.unit_tiles[u]);
}

static __device__ int64_t
cost_of(const prepare &p, const uli_gpu_attn_tile &tile)
{
    int64_t first, end;
    mask_tiles(*p.args, tile, p.args->tile_keys, &first, &end);
    return end - first;
}

/* Buckets by the keys' section, then by cost. */
struct prepare_order {
    int64_t rows; /* of a section, counted over the keys of all batch items */
    int64_t each; /* buckets per section */
    int64_t most; /* the largest cost */
    int64_t step; /* costs per bucket; 1 as long as no tile sees more key tiles
                   * than a section has buckets */
};

static __device__ struct prepare_order
order_of(const prepare &p)
{
    int64_t keys = p.args->batch * p.args->len_k, rows = p.args->section_rows;
    if (rows == 0 || rows > keys)
        rows = mask_max(keys, 1);
    rows = mask_max(rows, (keys + SECTIONS - 1) / SECTIONS);
    int64_t sections = mask_max((keys + rows - 1) / rows, 1);
    int64_t each = BUCKETS / sections, most = (int64_t)p.shared->most;
    return {rows, each, most, most / each + 1};
}

/* The first bucket of a section is for the longest tiles. */
static __device__ uint32_t
bucket_of(const prepare &p, const prepare_order &order,
    const uli_gpu_attn_tile &tile)
{
    int64_t section =
        (tile.k_batch * p.args->len_k + tile.k_begin) / order.rows;
    return (uint32_t)(section * order.each +
                      (order.most - cost_of(p, tile)) / order.step);
}

static __device__ struct prepare_order
count_tiles(const prepare &p)
{
    unsigned long long most = 0;
    for (uint32_t b = threadIdx.x; b < BUCKETS; b += PREPARE_THREADS)
        p.shared->buckets[b] = 0;
    if (threadIdx.x == 0)
        p.shared->most = 0;
    __syncthreads();
    for (int64_t t = threadIdx.x; t < p.ntiles; t += PREPARE_THREADS)
        most = max(most, (unsigned long long)cost_of(p, tile_at(p, t)));
    atomicMax(&p.shared->most, most);
    __syncthreads();
    struct prepare_order order = order_of(p);
    for (int64_t t = threadIdx.x; t < p.ntiles; t += PREPARE_THREADS)
        atomicAdd(&p.shared->buckets[bucket_of(p, order, tile_at(p, t))], 1u);
    __syncthreads();
    return order;
}

/* Replaces the count of each bucket by the place of the bucket's first tile. */
static __device__ void
scan_buckets(const prepare &p)
{
    int64_t carry = 0, sum;
    for (uint32_t first = 0; first < BUCKETS; first += PREPARE_THREADS) {
        uint32_t b = first + threadIdx.x;
        int64_t before = block_scan(p.shared, p.shared->buckets[b], &sum);
        p.shared->buckets[b] = (uint32_t)(carry + before);
        carry += sum;
    }
    __syncthreads();
}

static __device__ void
place_tiles(const prepare &p, const prepare_order &order)
{
    for (int64_t first = 0; first < p.ntiles; first += PREPARE_THREADS) {
        int64_t t = first + threadIdx.x;
        if (t < p.ntiles) {
            struct uli_gpu_attn_tile tile = tile_at(p, t);
            uint32_t b = bucket_of(p, order, tile);
            p.args->tiles[atomicAdd(&p.shared->buckets[b], 1u)] = tile;
        }
        __syncthreads(); /* nearly keeps the order of rows within a bucket */
    }
}

static __device__ void
write_state(const prepare &p, uint64_t cause)
{
    const uli_gpu_attn_args &args = *p.args;
    for (int64_t n = threadIdx.x; args.max_logit && n < args.heads_q;
         n += PREPARE_THREADS)
        args.max_logit[n] = __uint_as_float(0xff800000u);
    if (threadIdx.x)
        return;
    args.state->failed = cause;
    args.state->ntiles = cause ? 0 : p.ntiles;
    args.state->next = 0;
    args.state->blocks = 0;
    if (cause && args.cause)
        ptx_atom_cas_relaxed_sys_u64(args.cause, 0, cause);
}

__global__ void
__launch_bounds__(PREPARE_THREADS, 1)
    attention_prepare_kernel(const __grid_constant__ uli_gpu_attn_args args)
{
    ULI_SHARED(memory);
    prepare p = {&args, (prepare_shared *)memory, 0, 0, 0, args.scratch, NULL};
    uint64_t cause = 0;
    if (args.unlisted)
        p.ntiles = uli_gpu_attn_unlisted_count(&args);
    else
        cause = check_docs(p);
    if (!cause && !args.unlisted) {
        p.nruns = args.q_segments ? args.nq_segments : args.batch;
        p.nunits = write_starts(p, p.run_units, p.nruns, units_of_run);
        p.unit_tiles = p.run_units + p.nruns + 1;
        p.ntiles = write_starts(p, p.unit_tiles, p.nunits, tiles_of_unit);
        struct prepare_order order = count_tiles(p);
        scan_buckets(p);
        place_tiles(p, order);
    }
    write_state(p, cause);
}

int
uli_gpu_attn_device(int32_t *sms_p, int32_t *capability_p)
{
    int device, sms, major, minor;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(
            &major, cudaDevAttrComputeCapabilityMajor, device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(
            &minor, cudaDevAttrComputeCapabilityMinor, device);
    if (error == cudaSuccess && major < 8)
        error = cudaErrorNotSupported;
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(
            &sms, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess) {
        *sms_p = sms;
        *capability_p = 10 * major + minor;
    }
    return error;
}

/* ---- tables by way of arguments ------------------------------------------ */

struct put_payload {
    unsigned char bytes[PUT_BYTES];
};

__global__ void __launch_bounds__(128, 1)
    attention_put_kernel(unsigned char *to, int64_t count,
        const __grid_constant__ put_payload payload)
{
    for (int64_t n = threadIdx.x; n < count; n += blockDim.x)
        to[n] = payload.bytes[n];
}

int
uli_gpu_attn_put(void *device, const void *host, int64_t bytes, void *stream)
{
    struct uli_launch_config launch = {
        dim3(1), dim3(128), 0, (cudaStream_t)stream};
    for (int64_t at = 0; at < bytes; at += PUT_BYTES) {
        struct put_payload payload;
        int64_t count = mask_min(bytes - at, PUT_BYTES);
        memcpy(payload.bytes, (const unsigned char *)host + at, (size_t)count);
        cudaError_t error = uli_kernel_launch(launch, attention_put_kernel,
            (unsigned char *)device + at, count, payload);
        if (error != cudaSuccess)
            return error;
    }
    return cudaSuccess;
}

int
uli_gpu_attn_prepare_launch(const struct uli_gpu_attn_args *args, void *stream)
{
    struct uli_launch_config launch = {dim3(1), dim3(PREPARE_THREADS),
        sizeof(struct prepare_shared), (cudaStream_t)stream};
    return uli_kernel_launch(launch, attention_prepare_kernel, *args);
}
