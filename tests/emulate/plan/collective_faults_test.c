/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults planted into the kernels of collectives (collective_plant.py). The
 * emulator must report each fault, or the result must show it, in every seed;
 * the same sources without a fault must pass. The whole library runs in a
 * process of its own each time, so that what a fault leaves behind does not
 * reach the next run.
 *
 * Data is copied in the ranks' own streams, so only the collectives order the
 * work of one rank before that of another.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cuda_runtime.h>
#include "collective_planted.h"
#include "emulate.h"
#include "emulate/plant/fault_runs.h"
#include "support/random.h"
#include "support/test.h"
#include "ulyx/collective.h"
#include "ulyx/comm.h"
#include "ulyx/memory.h"

int collective_planted; /* number of the planted fault; 0 = none */

#define FAULT_NAME(name) #name,
static const char *const names[] = {"NONE", COLLECTIVE_FAULTS(FAULT_NAME)};
enum { FAULTS = sizeof(names) / sizeof(names[0]) };

enum { RANKS = 3, AREA = 16384, ROUNDS = 2, SEEDS = 2 };
enum { ELEMENTS = 1201, PIECE = 3501, SHIFT = 4 };

struct rank {
    ulyx_comm_t *comm;
    cudaStream_t stream;
    /* memory in a window and in none; both hold src, then dst */
    unsigned char *place[2], *fresh;
    /* dst of each call: [round][window][sum] */
    unsigned char *out[ROUNDS][2][2];
    unsigned char src[AREA];
};

static struct rank ranks[RANKS];

/* ---- set-up -------------------------------------------------------------- */

static unsigned char *
device_memory(int64_t bytes)
{
    void *memory = NULL;
    run_must(cudaMalloc(&memory, (size_t)bytes) == cudaSuccess);
    return memory;
}

static void
open_rank(int32_t r, struct test_random *random)
{
    ulyx_mem_params_t params = ULYX_MEM_PARAMS_INIT;
    struct rank *one = &ranks[r];
    ulyx_mem_t *mem;
    void *window = NULL;
    params.memory_kind = ULYX_MEMORY_CUDA;
    params.device = r % 2;
    run_must(ulyx_mem_alloc(2 * AREA, &params, &mem, &window) == ULYX_SUCCESS);
    run_must(ulyx_mem_attach(one->comm, mem) == ULYX_SUCCESS);
    run_must(cudaSetDevice(r % 2) == cudaSuccess);
    run_must(cudaStreamCreateWithFlags(&one->stream, cudaStreamNonBlocking) ==
             cudaSuccess);
    one->place[0] = device_memory(2 * AREA);
    one->place[1] = window;
    one->fresh = device_memory(AREA);
    for (int i = 0; i < ROUNDS * 4; i++)
        one->out[i / 4][i / 2 % 2][i % 2] = device_memory(AREA);
    /* numbers whose sum depends on their order */
    for (int i = 0; i < AREA / 4; i++) {
        float value = (float)(test_random_normal(random) *
                              (double)(1 << test_random_in(random, 0, 12)));
        memcpy(one->src + 4 * i, &value, 4);
    }
    run_must(cudaMemcpy(one->fresh, one->src, AREA, cudaMemcpyHostToDevice) ==
             cudaSuccess);
}

static void
open_all(uint64_t seed)
{
    const struct emu_config config = {.devices = 2,
        .sm_count = 2,
        .host_threads = 1,
        .seed = seed,
        .wall_time = true,
        .quiet = collective_planted != 0};
    struct test_random random = {seed};
    ulyx_unique_id_t id;
    /* Chunks have 128 bytes, and a queue has several chunks of a piece. */
    setenv("ULYX_GPU_SMS", "1", 1);
    setenv("ULYX_GPU_RECV_BUFFER", "2K", 1);
    run_must(emu_open(&config) == 0);
    run_must(ulyx_unique_id_create(&id) == ULYX_SUCCESS);
    run_must(ulyx_group_start() == ULYX_SUCCESS);
    for (int32_t r = 0; r < RANKS; r++) {
        ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
        params.memory_kind = ULYX_MEMORY_CUDA;
        params.device = r % 2;
        params.timeout_s = 60;
        run_must(ulyx_comm_create(&id, RANKS, r, &params, &ranks[r].comm) ==
                 ULYX_SUCCESS);
    }
    run_must(ulyx_group_end() == ULYX_SUCCESS);
    for (int32_t r = 0; r < RANKS; r++)
        open_rank(r, &random);
    run_must(ulyx_group_start() == ULYX_SUCCESS); /* makes the channel */
    for (int32_t r = 0; r < RANKS; r++)
        run_must(ulyx_alltoall(ranks[r].comm, NULL, NULL, 0, ranks[r].stream) ==
                 ULYX_SUCCESS);
    /* The kernel runs here for the first time, so a planted fault may already
     * show. */
    ulyx_status_t status = ulyx_group_end();
    if (status == ULYX_ERR_SYSTEM && collective_planted)
        _exit(RUN_CAUGHT);
    run_must(status == ULYX_SUCCESS);
}

/* ---- calls --------------------------------------------------------------- */

static ulyx_status_t
call_enqueue(int32_t r, int round, int window, int sum)
{
    struct rank *one = &ranks[r];
    unsigned char *src = one->place[window], *dst = src + AREA + SHIFT;
    ulyx_status_t status;
    cudaSetDevice(r % 2);
    cudaMemcpyAsync(
        src, one->fresh, AREA, cudaMemcpyDeviceToDevice, one->stream);
    status = sum ? ulyx_allreduce(one->comm, src, dst, ELEMENTS, ULYX_DTYPE_F32,
                       one->stream)
                 : ulyx_alltoall(one->comm, src, dst, PIECE, one->stream);
    cudaMemcpyAsync(one->out[round][window][sum], dst, AREA - SHIFT,
        cudaMemcpyDeviceToDevice, one->stream);
    return status;
}

static bool
sums_are_right(const unsigned char *seen)
{
    for (int i = 0; i < ELEMENTS; i++) {
        float total, value;
        memcpy(&total, ranks[0].src + 4 * i, 4);
        for (int r = 1; r < RANKS; r++) {
            memcpy(&value, ranks[r].src + 4 * i, 4);
            total += value;
        }
        if (memcmp(&total, seen + 4 * i, 4))
            return false;
    }
    return true;
}

static bool
pieces_are_right(int32_t r, const unsigned char *seen)
{
    for (int p = 0; p < RANKS; p++)
        if (memcmp(seen + p * PIECE, ranks[p].src + r * PIECE, PIECE))
            return false;
    return true;
}

static bool
all_is_well(void)
{
    static unsigned char seen[AREA];
    ulyx_status_t status = ULYX_SUCCESS;
    bool well = true;
    for (int32_t r = 0; r < RANKS; r++)
        well = cudaStreamSynchronize(ranks[r].stream) == cudaSuccess && well;
    for (int32_t r = 0; well && r < RANKS; r++) {
        well =
            ulyx_comm_get_async_error(ranks[r].comm, &status) == ULYX_SUCCESS &&
            status == ULYX_SUCCESS;
        for (int i = 0; well && i < ROUNDS * 4; i++) {
            well = cudaMemcpy(seen, ranks[r].out[i / 4][i / 2 % 2][i % 2],
                       AREA - SHIFT, cudaMemcpyDeviceToHost) == cudaSuccess;
            well = well &&
                   (i % 2 ? sums_are_right(seen) : pieces_are_right(r, seen));
        }
    }
    return well && emu_fault_count() == 0;
}

static int
run_here(int fault, uint64_t seed)
{
    bool well = true;
    collective_planted = fault;
    open_all(seed);
    for (int i = 0; i < ROUNDS * 4; i++)
        for (int32_t r = 0; r < RANKS; r++)
            well = call_enqueue(r, i / 4, i / 2 % 2, i % 2) == ULYX_SUCCESS &&
                   well;
    return all_is_well() && well ? RUN_WELL : RUN_CAUGHT;
}

/* ---- tests --------------------------------------------------------------- */

static const struct fault_runs runs = {
    names, FAULTS, SEEDS, 60, .run = run_here};

static void
none_planted_passes(void **state)
{
    (void)state;
    fault_runs_none_is_well(&runs);
}

static void
each_fault_is_caught(void **state)
{
    (void)state;
    fault_runs_each_is_caught(&runs);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(none_planted_passes),
    cmocka_unit_test(each_fault_is_caught),
};

ULI_TEST_MAIN("EmulateCollectiveFaults", tests)
