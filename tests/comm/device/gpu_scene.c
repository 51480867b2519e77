/* SPDX-License-Identifier: Apache-2.0
 *
 * See gpu_scene.h.
 */
#include "comm/device/gpu_scene.h"

#include <stddef.h>
#include <stdio.h>
#include <time.h>
#include "base/status.h"
#include "comm/device/gpu.h"
#include "comm/meet.h"
#include "device/cuda_driver.h"
#include "device/fake_memory.h"
#include "device/fake_open.h"
#include "support/ranks.h"
#include "transport/nvlink/imports.h"

struct fake_driver *gpu_driver;

int
gpu_open(void **state)
{
    (void)state;
    gpu_driver = fake_driver_open();
    return gpu_driver ? 0 : -1;
}

uint64_t
gpu_poison_of(const ulyx_comm_t *comm)
{
    return __atomic_load_n(uli_gpu_poison(comm), __ATOMIC_ACQUIRE);
}

bool
gpu_poison_comes(const ulyx_comm_t *comm)
{
    struct timespec nap = {0, 1000000};
    for (int i = 0; i < 10000 && !gpu_poison_of(comm); i++)
        nanosleep(&nap, NULL);
    return gpu_poison_of(comm) != 0;
}

bool gpu_busy;

static bool
gpu_is_busy(ulyx_comm_t *comm)
{
    (void)comm;
    return gpu_busy;
}

static void
gpu_notes_nothing(ulyx_comm_t *comm)
{
    (void)comm;
}

const struct uli_gpu_calls gpu_busy_calls = {gpu_is_busy, gpu_notes_nothing};

bool
gpu_nothing_left(void)
{
    int objects = gpu_driver->count(), imports = (int)uli_import_count();
    if (objects || imports || gpu_driver->depth || gpu_driver->relaxed)
        fprintf(stderr,
            "left: %d objects, %d imports, %d contexts, %d relaxed threads\n",
            objects, imports, gpu_driver->depth, gpu_driver->relaxed);
    return !objects && !imports && !gpu_driver->depth && !gpu_driver->relaxed;
}

int
gpu_close(void **state)
{
    (void)state;
    gpu_driver->failing = NULL;
    gpu_driver->no_peers = 0;
    gpu_driver->lacks = 0;
    gpu_driver->no_ipc = 0;
    return gpu_nothing_left() ? 0 : -1;
}

struct creation {
    struct meet *meet;
    const int32_t *devices;
    double timeout_s;
    ulyx_comm_t **comms;
    ulyx_status_t status[GPU_RANKS];
    char text[GPU_RANKS][256];
};

static int
create_one(int rank, int nranks, void *context)
{
    struct creation *c = context;
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    (void)nranks;
    params.memory_kind = ULYX_MEMORY_CUDA;
    params.timeout_s = c->timeout_s;
    params.device = c->devices[rank];
    c->status[rank] = meet_comm_by(c->meet, rank, &params, &c->comms[rank]);
    snprintf(c->text[rank], sizeof(c->text[rank]), "%s", uli_error_text());
    return 0;
}

ulyx_status_t
gpu_threads(
    int nranks, const int32_t *devices, double timeout_s, ulyx_comm_t **comms)
{
    struct creation c = {
        meet_new(nranks), devices, timeout_s, comms, {0}, {{0}}};
    int bad = ranks_run_threads(nranks, create_one, &c, 30);
    meet_free(c.meet);
    for (int r = 0; r < nranks && !bad; r++)
        if (c.status[r] != ULYX_SUCCESS)
            return uli_error_pass(c.status[r], c.text[r]);
    return bad ? ULYX_ERR_INTERNAL : ULYX_SUCCESS;
}

ulyx_mem_t *
gpu_alloc(int32_t device, int64_t bytes, char **address_p)
{
    ulyx_mem_t *mem = NULL;
    void *address = NULL;
    int64_t size;
    if (uli_mem_alloc(bytes, ULYX_MEMORY_CUDA, device, false, &mem))
        return NULL;
    uli_mem_range(mem, &address, &size);
    *address_p = address;
    return mem;
}

ulyx_mem_t *
gpu_register(void *address, int64_t bytes)
{
    ulyx_mem_t *mem = NULL;
    return uli_mem_register(address, bytes, ULYX_MEMORY_CUDA, -1, &mem) ==
                   ULYX_SUCCESS
               ? mem
               : NULL;
}

void *
gpu_entry(const ulyx_comm_t *comm, int32_t rank, uint32_t window)
{
    uint64_t nwindows = 0;
    unsigned char *const *row = uli_gpu_windows(comm, rank, &nwindows);
    pthread_mutex_lock(&comm->gpu->lock); /* it guards the entries */
    void *address = window < nwindows ? row[window] : NULL;
    pthread_mutex_unlock(&comm->gpu->lock);
    return address;
}

char *
gpu_segment(int32_t device, int npieces)
{
    const struct uli_cu_calls *cu = uli_cuda_calls();
    const struct uli_cu_memory_props props = {.type = ULI_CU_PINNED,
        .handle_types = ULI_CU_DESCRIPTOR,
        .location_type = ULI_CU_ON_DEVICE,
        .location = device};
    const struct uli_cu_access access = {
        ULI_CU_ON_DEVICE, device, ULI_CU_READ_WRITE};
    const size_t piece = FAKE_GRANULARITY;
    uli_cu_memory memory;
    uli_cu_ptr base = 0;
    bool well =
        cu->cuMemAddressReserve(&base, (size_t)npieces * piece, 0, 0, 0) == 0;
    for (int i = 0; i < npieces && well; i++) {
        uli_cu_ptr at = base + (size_t)i * piece;
        well = cu->cuMemCreate(&memory, piece, &props, 0) == 0 &&
               cu->cuMemMap(at, piece, 0, memory, 0) == 0 &&
               cu->cuMemSetAccess(at, piece, &access, 1) == 0 &&
               cu->cuMemRelease(memory) == 0;
    }
    return well ? (char *)(uintptr_t)base : NULL;
}

void
gpu_segment_free(char *base, int npieces)
{
    const struct uli_cu_calls *cu = uli_cuda_calls();
    const size_t piece = FAKE_GRANULARITY;
    uli_cu_ptr at = (uli_cu_ptr)(uintptr_t)base;
    for (int i = 0; i < npieces; i++)
        cu->cuMemUnmap(at + (size_t)i * piece, piece);
    cu->cuMemAddressFree(at, (size_t)npieces * piece);
}
