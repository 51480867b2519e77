/* SPDX-License-Identifier: Apache-2.0
 *
 * See device_scene.h. Memory is cut from one allocation per rank, since freeing
 * waits for all work of a device.
 */
#include "emulate/messages/device_scene.h"

#include <cuda_runtime.h>
#include "comm/messages/batch_hooks.h"
#include "device/pinned.h"
#include "emulate.h"
#include "emulate/driver/driver.h"
#include "support/ranks.h"
#include "transport/batch_conformance.h"
#include "ulyx/comm.h"

enum { DEVICES = 2, ROOM = 8 << 20, ALIGN = 256 };

#define well_cu(call) ranks_expect((call) == cudaSuccess)

static ulyx_unique_id_t id;

static struct {
    struct uli_batch_context context;
    unsigned char cards[BATCH_RANKS * ULI_BATCH_ADDRESS_BYTES];
    cudaStream_t stream;
    unsigned char *room;
    size_t used;
} ranks[BATCH_RANKS];

int
device_scene_open(void)
{
    const struct emu_config config = {.devices = DEVICES,
        .sm_count = 8,
        /* one more than ranks, because a rank may wait outside the emulator */
        .host_threads = BATCH_RANKS + 1,
        .wall_time = true};
    if (emu_open(&config))
        return -1;
    emu_driver_no_peers(true);
    return (int)ulyx_unique_id_create(&id);
}

int
device_scene_close(void)
{
    int left = (int)emu_fault_count() + emu_driver_live() + uli_pinned_count();
    emu_driver_no_peers(false);
    emu_close();
    return left;
}

bool
device_scene_begin(int rank, int nranks, struct uli_batch_params *params_p)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    ulyx_comm_t *comm;
    params.memory_kind = ULYX_MEMORY_CUDA;
    params.device = rank % DEVICES;
    params.timeout_s = 30;
    cudaSetDevice(params.device);
    if (!ranks_expect(ulyx_comm_create(&id, nranks, rank, &params, &comm) ==
                      ULYX_SUCCESS))
        return false;
    ranks[rank].context = (struct uli_batch_context){comm, ranks[rank].cards};
    ranks[rank].used = 0;
    *params_p = uli_batch_params_of(&ranks[rank].context);
    return well_cu(cudaMalloc((void **)&ranks[rank].room, ROOM)) &&
           well_cu(cudaStreamCreateWithFlags(
               &ranks[rank].stream, cudaStreamNonBlocking));
}

bool
device_scene_end(int rank)
{
    ulyx_comm_t *comm = ranks[rank].context.comm;
    bool good = well_cu(cudaStreamDestroy(ranks[rank].stream)) &&
                well_cu(cudaFree(ranks[rank].room));
    return ranks_expect(comm && ulyx_comm_destroy(comm) == ULYX_SUCCESS) &&
           good;
}

void *
device_scene_alloc(int rank, size_t bytes)
{
    size_t at = ranks[rank].used;
    ranks[rank].used += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return ranks_expect(ranks[rank].used <= ROOM) ? ranks[rank].room + at
                                                  : NULL;
}

bool
device_scene_copy(int rank, void *dst, const void *src, size_t bytes)
{
    return well_cu(cudaMemcpyAsync(
               dst, src, bytes, cudaMemcpyDefault, ranks[rank].stream)) &&
           device_scene_settle(rank);
}

void *
device_scene_stream(int rank)
{
    return ranks[rank].stream;
}

bool
device_scene_settle(int rank)
{
    return well_cu(cudaStreamSynchronize(ranks[rank].stream));
}
