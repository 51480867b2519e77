/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators of device memory on emulated devices, through the public API:
 * windows in the caller's memory, in the library's and in the pool, as kernels
 * and copies reach them; the table on the device, read back by copies; and a
 * kernel that waits in vain for a peer. The kernel must end when that peer
 * aborts, although no host thread of the library waits.
 */
#include <stdio.h>
#include <string.h>
#include "base/status.h"
#include "collectives/device/mapped/exchange_gpu.h"
#include "comm/device/gpu.h"
#include "device/device.h"
#include "emulate/driver/driver.h"
#include "support/ranks.h"
#include "support/test.h"
#include "ulyx/ulyx.h"

enum { RANKS = 3, DEVICES = 2, BYTES = 5000 };

struct world {
    ulyx_unique_id_t id;
    ulyx_comm_t *comms[RANKS];
};

static int
create_one(int rank, int nranks, void *context)
{
    struct world *w = context;
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    params.memory_kind = ULYX_MEMORY_CUDA;
    params.device = rank % DEVICES;
    params.timeout_s = 30;
    return !ranks_expect(ulyx_comm_create(&w->id, nranks, rank, &params,
                             &w->comms[rank]) == ULYX_SUCCESS);
}

static int
set_up(void **state)
{
    static struct world world;
    const struct emu_config config = {
        .devices = DEVICES, .host_threads = RANKS, .wall_time = true};
    *state = &world;
    memset(&world, 0, sizeof(world));
    return emu_open(&config) || ulyx_unique_id_create(&world.id) ||
           ranks_run_threads(RANKS, create_one, &world, 60);
}

static int
tear_down(void **state)
{
    struct world *w = *state;
    int wrong = 0;
    for (int r = 0; r < RANKS; r++)
        wrong += ulyx_comm_destroy(w->comms[r]) != ULYX_SUCCESS;
    emu_driver_fail(NULL, 0, 0);
    emu_close();
    return wrong + emu_driver_live();
}

static const struct uli_device_ops *
cuda_ops(void)
{
    return uli_device_ops(ULYX_MEMORY_CUDA);
}

/* Copies bytes by the device, which sees memory as a kernel does. */
static void
bytes_fetch(int32_t device, void *dst, const void *src, int64_t bytes)
{
    void *stream = NULL;
    assert_status(cuda_ops()->stream_create(device, &stream), ULYX_SUCCESS);
    assert_status(
        cuda_ops()->copy(device, dst, src, bytes, stream), ULYX_SUCCESS);
    assert_status(cuda_ops()->stream_wait(device, stream), ULYX_SUCCESS);
    assert_status(cuda_ops()->stream_destroy(device, stream), ULYX_SUCCESS);
}

static unsigned char *
window_entry(const ulyx_comm_t *comm, int32_t rank, uint32_t window)
{
    unsigned char *address = NULL;
    uint64_t nwindows = 0;
    unsigned char *const *row = uli_gpu_windows(comm, rank, &nwindows);
    assert_true(window < nwindows);
    bytes_fetch(comm->gpu->device, &address, &row[window], sizeof(address));
    return address;
}

/* Checks that the devices of all ranks read the window that rank 1 has attached
 * at `base`. */
static void
expect_reached(struct world *w, unsigned char *base, int64_t bytes)
{
    unsigned char pattern[BYTES], seen[BYTES];
    uint32_t window = 0;
    int64_t offset = -1;
    for (int64_t i = 0; i < bytes; i++)
        pattern[i] = (unsigned char)(3 + i * 7);
    bytes_fetch(1, base, pattern, bytes);
    assert_true(uli_window_find(w->comms[1], base, bytes, &window, &offset));
    for (int r = 0; r < RANKS; r++) {
        unsigned char *there = window_entry(w->comms[r], 1, window);
        assert_ptr_equal(
            there, uli_window_address(w->comms[r], 1, window, 0, bytes));
        memset(seen, 0, sizeof(seen));
        bytes_fetch(r % DEVICES, seen, there + offset, bytes);
        assert_memory_equal(seen, pattern, bytes);
    }
}

static void
windows_are_reached_by_all_devices(void **state)
{
    struct world *w = *state;
    ulyx_mem_params_t params = ULYX_MEM_PARAMS_INIT;
    ulyx_mem_t *mem = NULL;
    void *address = NULL;
    params.memory_kind = ULYX_MEMORY_CUDA;
    params.device = 1;
    assert_status(ulyx_mem_alloc(BYTES, &params, &mem, &address), 0);
    assert_status(ulyx_mem_attach(w->comms[1], mem), ULYX_SUCCESS);
    expect_reached(w, address, BYTES);
    assert_status(ulyx_mem_detach(w->comms[1], mem), ULYX_SUCCESS);
    assert_status(ulyx_mem_free(mem), ULYX_SUCCESS);

    assert_status(cuda_ops()->alloc(1, BYTES, &address), ULYX_SUCCESS);
    params.device = 0;
    assert_status(
        ulyx_mem_register((char *)address + 16, BYTES - 16, &params, &mem),
        ULYX_ERR_INVALID_ARGUMENT);
    params.device = -1;
    assert_status(
        ulyx_mem_register((char *)address + 16, BYTES - 16, &params, &mem), 0);
    assert_status(ulyx_mem_attach(w->comms[1], mem), ULYX_SUCCESS);
    expect_reached(w, (unsigned char *)address + 16, BYTES - 16);
    assert_status(ulyx_mem_detach(w->comms[1], mem), ULYX_SUCCESS);
    assert_status(ulyx_mem_free(mem), ULYX_SUCCESS);
    assert_status(cuda_ops()->free(1, address), ULYX_SUCCESS);

    assert_status(ulyx_pool_attach(w->comms[1]), ULYX_SUCCESS);
    address = ulyx_pool_malloc(BYTES, 1, NULL);
    assert_non_null(address);
    expect_reached(w, address, BYTES);
    ulyx_pool_free(address, BYTES, 1, NULL);
    assert_status(ulyx_pool_detach(w->comms[1]), ULYX_SUCCESS);
}

static void
arenas_are_zeroed_by_the_device(void **state)
{
    struct world *w = *state;
    static unsigned char seen[300], ones[300];
    struct uli_arena_block block;
    memset(ones, 255, sizeof(ones));
    for (int i = 0; i < 2; i++) {
        assert_status(uli_gpu_arena_alloc(w->comms[2], 300, &block), 0);
        memset(seen, 9, sizeof(seen));
        bytes_fetch(0, seen, block.address, sizeof(seen));
        for (size_t b = 0; b < sizeof(seen); b++)
            assert_int_equal(seen[b], 0);
        bytes_fetch(0, block.address, ones, sizeof(ones));
        uli_gpu_arena_free(w->comms[2], &block);
    }
}

/* ---- poison -------------------------------------------------------------- */

/* One rank's exchange, without items, with a peer that never comes. */
struct alone {
    struct uli_arena_block block; /* flags of both directions, peers, state */
    struct uli_gpu_args args;
};

static void
make_alone(ulyx_comm_t *comm, struct alone *a)
{
    struct uli_gpu_peer peers[2];
    struct uli_gpu_flags *words;
    memset(a, 0, sizeof(*a));
    memset(peers, 0, sizeof(peers));
    assert_status(uli_gpu_arena_alloc(
                      comm, 4 * (int64_t)sizeof(*words) + 4096, &a->block),
        0);
    words = a->block.address;
    char *rest = (char *)(words + 4);
    peers[1].mine = &words[0];
    peers[1].yours = &words[1];
    peers[1].shares = 1;
    a->args.state = (struct uli_gpu_state *)(void *)rest;
    a->args.peers = (const struct uli_gpu_peer *)(void *)(rest + 1024);
    a->args.rank = 0;
    a->args.nranks = 2;
    a->args.poison = uli_gpu_poison(comm);
    a->args.timeout_ns = UINT64_C(60) * 1000 * 1000 * 1000;
    a->args.steps = ULI_GPU_ALL;
    assert_status(uli_gpu_upload(comm, rest + 1024, peers, sizeof(peers)), 0);
}

static void
a_spinning_kernel_leaves_when_a_peer_aborts(void **state)
{
    struct world *w = *state;
    struct uli_gpu_state seen;
    struct alone a;
    void *stream = NULL;
    make_alone(w->comms[0], &a);
    assert_status(cuda_ops()->stream_create(0, &stream), ULYX_SUCCESS);
    assert_int_equal(uli_gpu_exchange_launch(&a.args, 1, 64, stream), 0);
    assert_status(ulyx_comm_abort(w->comms[1]), ULYX_SUCCESS);
    assert_status(cuda_ops()->stream_wait(0, stream), ULYX_SUCCESS);
    bytes_fetch(0, &seen, a.args.state, sizeof(seen));
    assert_int_equal(seen.failed, 0); /* the deadline did not end the call */
    assert_int_equal(seen.call, 0);   /* nor did the peer */
    assert_status(cuda_ops()->stream_destroy(0, stream), ULYX_SUCCESS);
    uli_gpu_arena_free(w->comms[0], &a.block);
}

#define WITH_RANKS(name)                                                       \
    cmocka_unit_test_setup_teardown(name, set_up, tear_down)
static const struct CMUnitTest tests[] = {
    WITH_RANKS(windows_are_reached_by_all_devices),
    WITH_RANKS(arenas_are_zeroed_by_the_device),
    WITH_RANKS(a_spinning_kernel_leaves_when_a_peer_aborts),
};

ULI_TEST_MAIN("EmulateWindows", tests)
