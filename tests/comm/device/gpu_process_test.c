/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows of device memory between processes: data that one rank writes the
 * others read, whatever the origin of the memory; failures of the driver at a
 * peer; peers that are killed while they map. Each process ends with no object
 * left in its driver.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/status.h"
#include "comm/device/gpu_scene.h"
#include "comm/meet.h"
#include "device/cuda_driver.h"
#include "device/device.h"
#include "device/fake_memory.h"
#include "support/ranks.h"
#include "support/test.h"
#include "transport/nvlink/imports.h"

enum { RANKS = 4, BYTES = 3 * FAKE_GRANULARITY - 1234, OFFSET = 1000 };

#define DO(call) ranks_expect((call) == ULYX_SUCCESS)

/* Called in each rank's own process. */
static ulyx_comm_t *
comm_join(struct meet *meet, int rank, double timeout_s)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    ulyx_comm_t *comm = NULL;
    params.memory_kind = ULYX_MEMORY_CUDA;
    params.device = rank % 2;
    params.timeout_s = timeout_s;
    bool well = ranks_expect(gpu_open(NULL) == 0) &&
                DO(meet_comm_by(meet, rank, &params, &comm)) &&
                ranks_expect(uli_gpu_unmapped(comm) == NULL);
    return well ? comm : NULL;
}

static bool
is_filled(const char *memory, int64_t bytes, int mark)
{
    for (int64_t i = 0; i < bytes; i++)
        if (memory[i] != (char)(mark + i % 13))
            return false;
    return true;
}

static void
memory_fill(char *memory, int64_t bytes, int mark)
{
    for (int64_t i = 0; i < bytes; i++)
        memory[i] = (char)(mark + i % 13);
}

/* Each rank's window is read and written by the next rank. */
static bool
pass_round(struct meet *meet, ulyx_comm_t *comm, char *base, int64_t bytes)
{
    uint32_t window = 0;
    int64_t offset = -1;
    uint64_t windows[RANKS];
    int next = (comm->rank + 1) % comm->nranks;
    bool well =
        ranks_expect(uli_window_find(comm, base, bytes, &window, &offset)) &&
        ranks_expect(offset == 0);
    memory_fill(base, bytes, comm->rank);
    well = ranks_expect(meet_gather(meet, comm->rank, window, windows)) && well;
    for (int p = 0; p < comm->nranks && well; p++) {
        char *theirs =
            uli_window_address(comm, p, (uint32_t)windows[p], 0, bytes);
        well =
            ranks_expect(theirs != NULL) &&
            ranks_expect(is_filled(theirs, bytes, p)) &&
            ranks_expect(gpu_entry(comm, p, (uint32_t)windows[p]) == theirs) &&
            ranks_expect((p == comm->rank) == (theirs == base));
    }
    well = ranks_expect(meet_barrier(meet, comm->rank)) && well;
    if (well)
        memory_fill(
            uli_window_address(comm, next, (uint32_t)windows[next], 0, bytes),
            bytes, 50 + comm->rank);
    well = ranks_expect(meet_barrier(meet, comm->rank)) && well;
    int before = (comm->rank + comm->nranks - 1) % comm->nranks;
    return well && ranks_expect(is_filled(base, bytes, 50 + before));
}

/* Attaches, passes round, detaches; all ranks together. */
static bool
mem_use(struct meet *meet, ulyx_comm_t *comm, ulyx_mem_t *mem, char *base,
    int64_t bytes)
{
    int64_t before = uli_import_count();
    bool well = ranks_expect(meet_barrier(meet, comm->rank)) &&
                ranks_expect(mem != NULL) && DO(uli_mem_attach(comm, mem)) &&
                pass_round(meet, comm, base, bytes) &&
                ranks_expect(uli_import_count() == before + comm->nranks - 1);
    well = ranks_expect(meet_barrier(meet, comm->rank)) && well;
    well = well && DO(uli_mem_detach(comm, mem));
    well = ranks_expect(meet_barrier(meet, comm->rank)) && well;
    well = ranks_expect(uli_import_count() == before) && well;
    return ranks_expect(meet_barrier(meet, comm->rank)) && well;
}

static int
comm_leave(ulyx_comm_t *comm, bool well)
{
    well = DO(uli_comm_destroy(comm)) && well;
    return !(ranks_expect(gpu_nothing_left()) && well);
}

static void
in_processes(int nranks, rank_fn body)
{
    struct meet *meet = meet_new(nranks);
    assert_int_equal(ranks_run_processes(nranks, body, meet, 60), 0);
    meet_free(meet);
}

/* ---- origins ------------------------------------------------------------- */

static int
allocate_rank(int rank, int nranks, void *context)
{
    ulyx_comm_t *comm = comm_join(context, rank, 20);
    char *base = NULL;
    (void)nranks;
    if (!comm)
        return 1;
    ulyx_mem_t *mem = gpu_alloc(rank % 2, BYTES, &base);
    bool well = mem_use(context, comm, mem, base, BYTES) &&
                mem_use(context, comm, mem, base, BYTES) &&
                DO(uli_mem_free(mem));
    return comm_leave(comm, well);
}

static void
allocated_windows_are_shared(void **state)
{
    (void)state;
    for (int nranks = 2; nranks <= RANKS; nranks++)
        in_processes(nranks, allocate_rank);
}

/* Plain memory, freed and allocated again, likely at the same address; a window
 * inside it. */
static int
register_plain(int rank, int nranks, void *context)
{
    ulyx_comm_t *comm = comm_join(context, rank, 20);
    bool well = comm != NULL;
    (void)nranks;
    for (int i = 0; i < 3 && well; i++) {
        void *memory = NULL;
        well = DO(uli_device_cuda.alloc(rank % 2, BYTES + OFFSET, &memory));
        char *inside = (char *)memory + OFFSET / 2;
        ulyx_mem_t *mem = gpu_register(inside, BYTES);
        well = well && mem_use(context, comm, mem, inside, BYTES) &&
               DO(uli_mem_free(mem)) && DO(uli_device_cuda.free(0, memory));
    }
    return comm ? comm_leave(comm, well) : 1;
}

static void
plain_memory_is_shared_by_its_base(void **state)
{
    (void)state;
    in_processes(RANKS, register_plain);
}

static int
register_segment(int rank, int nranks, void *context)
{
    ulyx_comm_t *comm = comm_join(context, rank, 20);
    char *base = gpu_segment(rank % 2, 4);
    bool well = comm && ranks_expect(base != NULL);
    (void)nranks;
    for (int i = 0; i < 2 && well; i++) {
        char *inside = base + FAKE_GRANULARITY / 2 + i * FAKE_GRANULARITY / 4;
        ulyx_mem_t *mem = gpu_register(inside, BYTES);
        well =
            mem_use(context, comm, mem, inside, BYTES) && DO(uli_mem_free(mem));
    }
    gpu_segment_free(base, 4);
    return comm ? comm_leave(comm, well) : 1;
}

static void
grown_segments_are_mapped_side_by_side(void **state)
{
    (void)state;
    in_processes(RANKS, register_segment);
}

/* Memory for which the driver gives no handle. */
static int
register_hidden(int rank, int nranks, void *context)
{
    ulyx_comm_t *comm = comm_join(context, rank, 20);
    void *memory = NULL;
    (void)nranks;
    if (!comm)
        return 1;
    gpu_driver->no_ipc = 1;
    bool well = DO(uli_device_cuda.alloc(rank % 2, BYTES, &memory));
    ulyx_mem_t *mem = gpu_register(memory, BYTES);
    well = well && ranks_expect(mem != NULL) &&
           ranks_expect(uli_mem_attach(comm, mem) == ULYX_ERR_UNSUPPORTED) &&
           ranks_expect(strstr(uli_error_text(), "neither legacy IPC") != NULL);
    well = well && DO(uli_mem_free(mem)) &&
           DO(uli_device_cuda.free(rank % 2, memory));
    well = ranks_expect(meet_barrier(context, rank)) && well;
    return comm_leave(comm, well);
}

static void
memory_without_a_handle_is_refused_by_name(void **state)
{
    (void)state;
    in_processes(2, register_hidden);
}

static int
use_arenas(int rank, int nranks, void *context)
{
    ulyx_comm_t *comm = comm_join(context, rank, 20);
    struct uli_arena_block block;
    uint64_t windows[RANKS], offsets[RANKS];
    if (!comm)
        return 1;
    bool well = DO(uli_gpu_arena_alloc(comm, 5 << 20, &block));
    memory_fill(block.address, 1000, rank);
    well = meet_gather(context, rank, block.window, windows) && well;
    well = meet_gather(context, rank, (uint64_t)block.offset, offsets) && well;
    for (int p = 0; p < nranks && well; p++) {
        char *theirs = uli_window_address(
            comm, p, (uint32_t)windows[p], (int64_t)offsets[p], 5 << 20);
        well = ranks_expect(theirs && is_filled(theirs, 1000, p)) &&
               ranks_expect((char *)gpu_entry(comm, p, (uint32_t)windows[p]) +
                                offsets[p] ==
                            theirs);
    }
    well = ranks_expect(meet_barrier(context, rank)) && well;
    return comm_leave(comm, well);
}

static void
arenas_are_shared(void **state)
{
    (void)state;
    in_processes(RANKS, use_arenas);
}

/* ---- faults -------------------------------------------------------------- */

/* Rank 1's driver maps nothing: the attach of rank 0 reports that, and is
 * undone at rank 2, which had the window. */
static int
refuse_import(int rank, int nranks, void *context)
{
    static const char *const calls[] = {"cuMemImportFromShareableHandle",
        "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuMemcpyAsync"};
    ulyx_comm_t *comm = comm_join(context, rank, 20);
    char *base = NULL;
    (void)nranks;
    if (!comm)
        return 1;
    int64_t imports = uli_import_count();
    ulyx_mem_t *mem = gpu_alloc(rank % 2, BYTES, &base);
    bool well = true;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        gpu_driver->faults(rank == 2 ? calls[i] : NULL, 719, NULL);
        well = ranks_expect(meet_barrier(context, rank)) && well;
        if (rank == 0)
            well = ranks_expect(uli_mem_attach(comm, mem) == ULYX_ERR_SYSTEM) &&
                   ranks_expect(strstr(uli_error_text(), "rank 2: ")) &&
                   ranks_expect(strstr(uli_error_text(), calls[i])) && well;
        well = ranks_expect(meet_barrier(context, rank)) && well;
        gpu_driver->faults(NULL, 0, NULL);
        well = ranks_expect(uli_import_count() == imports) && well;
    }
    well = well && mem_use(context, comm, mem, base, BYTES);
    well = DO(uli_mem_free(mem)) && well;
    return comm_leave(comm, well);
}

static void
a_refused_import_is_named_and_undone(void **state)
{
    (void)state;
    in_processes(3, refuse_import);
}

/* The driver of one rank maps nothing from the start: the communicator exists,
 * and all ranks have the reason why there are no windows. */
static int
never_map(int rank, int nranks, void *context)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    struct uli_arena_block block;
    ulyx_comm_t *comm = NULL;
    (void)nranks;
    params.memory_kind = ULYX_MEMORY_CUDA;
    params.timeout_s = 20;
    if (!ranks_expect(gpu_open(NULL) == 0))
        return 1;
    gpu_driver->result = ULI_CU_NOT_PERMITTED;
    gpu_driver->failing = rank == 1 ? "cuMemImportFromShareableHandle" : NULL;
    if (!DO(meet_comm_by(context, rank, &params, &comm)))
        return 1;
    const char *why = uli_gpu_unmapped(comm);
    bool well = ranks_expect(why != NULL) &&
                ranks_expect(strstr(why, "rank 0: rank 1: cuMemImportFrom")) &&
                ranks_expect(uli_gpu_arena_alloc(comm, 64, &block) ==
                             ULYX_ERR_UNSUPPORTED) &&
                ranks_expect(strstr(uli_error_text(), why));
    well = ranks_expect(meet_barrier(context, rank)) && well;
    return comm_leave(comm, well);
}

static void
a_driver_that_maps_nothing_is_reported_on_all_ranks(void **state)
{
    (void)state;
    in_processes(3, never_map);
}

/* A rank whose settings exclude the transport: found before any window arrives,
 * and the error of ranks that give their windows. */
static int
never_take(int rank, int nranks, void *context)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    ulyx_comm_t *comm = NULL;
    (void)nranks;
    params.memory_kind = ULYX_MEMORY_CUDA;
    params.timeout_s = 600; /* no rank waits that long */
    if (rank == 1)
        setenv("ULYX_TRANSPORTS", "^nvlink", 1);
    if (!ranks_expect(gpu_open(NULL) == 0) ||
        !DO(meet_comm_by(context, rank, &params, &comm)))
        return 1;
    const char *why = uli_gpu_unmapped(comm);
    bool well = ranks_expect(why != NULL) &&
                ranks_expect(strstr(why, "ULYX_TRANSPORTS=^nvlink leaves"));
    well = ranks_expect(meet_barrier(context, rank)) && well;
    return comm_leave(comm, well);
}

static void
a_rank_without_the_transport_is_reported_on_all_ranks(void **state)
{
    (void)state;
    in_processes(3, never_take);
}

struct killing {
    struct meet *meet;
    pid_t *pids;
    const char *call; /* the driver's call in which the victim ends */
};

/* Rank 1 dies inside its driver, in the middle of mapping rank 0's window. */
static int
die_in_mapping(int rank, int nranks, void *context)
{
    struct killing *k = context;
    ulyx_comm_t *comm = comm_join(k->meet, rank, 20);
    char *base = NULL;
    (void)nranks;
    if (!comm)
        return 1;
    ulyx_mem_t *mem = gpu_alloc(rank % 2, BYTES, &base);
    gpu_driver->faults(NULL, 0, rank == 1 ? k->call : NULL);
    if (!ranks_expect(meet_barrier(k->meet, rank)))
        return 1;
    if (rank == 1)
        for (;;)
            pause();
    bool well = true;
    if (rank == 0)
        well = ranks_expect(uli_mem_attach(comm, mem) == ULYX_ERR_RANK_LOST);
    /* The device's word follows the failure, by whichever thread found it. */
    while (__atomic_load_n(uli_gpu_poison(comm), __ATOMIC_ACQUIRE) == 0)
        usleep(1000);
    well = DO(uli_mem_free(mem)) && well;
    return comm_leave(comm, well);
}

static void
a_peer_killed_in_mapping_is_lost_not_waited_for(void **state)
{
    static const char *const calls[] = {
        "cuMemImportFromShareableHandle", "cuMemMap", "cuMemcpyAsync"};
    (void)state;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        struct killing k = {
            meet_new(3), ranks_shared(3 * sizeof(pid_t)), calls[i]};
        assert_int_equal(
            ranks_run_processes_victim(3, die_in_mapping, &k, 60, 1, k.pids),
            0);
        ranks_shared_free(k.pids, 3 * sizeof(pid_t));
        meet_free(k.meet);
    }
}

/* The owner of mapped windows is killed: its peers' mappings hold the memory
 * until the peers destroy the communicator, and then end. */
static int
lose_the_owner(int rank, int nranks, void *context)
{
    struct killing *k = context;
    ulyx_comm_t *comm = comm_join(k->meet, rank, 20);
    uint64_t windows[RANKS];
    uint32_t window = 0;
    int64_t offset;
    char *base = NULL;
    (void)nranks;
    if (!comm)
        return 1;
    ulyx_mem_t *mem = gpu_alloc(rank % 2, BYTES, &base);
    bool well = DO(uli_mem_attach(comm, mem));
    memory_fill(base, BYTES, rank);
    uli_window_find(comm, base, BYTES, &window, &offset);
    well = ranks_expect(meet_gather(k->meet, rank, window, windows)) && well;
    char *theirs = uli_window_address(comm, 1, (uint32_t)windows[1], 0, BYTES);
    if (rank == 1)
        raise(SIGKILL);
    while (__atomic_load_n(uli_gpu_poison(comm), __ATOMIC_ACQUIRE) == 0)
        usleep(1000);
    well = ranks_expect(theirs && is_filled(theirs, BYTES - 8, 1)) && well;
    theirs[BYTES - 8 + rank] = 9; /* stores still reach the same memory */
    /* the other survivor may not have the failure yet: repeat until it has
     * left */
    ulyx_status_t status = uli_mem_detach(comm, mem);
    for (int i = 0; i < 1000 && status == ULYX_ERR_BUSY; i++) {
        usleep(1000);
        status = uli_mem_detach(comm, mem);
    }
    well =
        ranks_expect(status == ULYX_SUCCESS) && DO(uli_mem_free(mem)) && well;
    return comm_leave(comm, well);
}

static void
a_killed_owner_leaves_no_mapping_behind(void **state)
{
    struct killing k = {meet_new(3), ranks_shared(3 * sizeof(pid_t)), NULL};
    (void)state;
    assert_int_equal(
        ranks_run_processes_victim(3, lose_the_owner, &k, 60, 1, k.pids), 0);
    ranks_shared_free(k.pids, 3 * sizeof(pid_t));
    meet_free(k.meet);
}

/* A rank whose kernels may still store keeps the window in quarantine, through
 * detach and destroy, until they have left. */
static int *working; /* in memory of both processes */

static bool
is_working(ulyx_comm_t *comm)
{
    (void)comm;
    return __atomic_load_n(working, __ATOMIC_ACQUIRE) != 0;
}

static void
working_look(ulyx_comm_t *comm)
{
    (void)comm;
}

static const struct uli_gpu_calls working_calls = {is_working, working_look};

static int
keep_working(int rank, int nranks, void *context)
{
    ulyx_comm_t *comm = comm_join(context, rank, 20);
    char *base = NULL;
    (void)nranks;
    if (!comm)
        return 1;
    ulyx_mem_t *mem = gpu_alloc(rank % 2, BYTES, &base);
    bool well = DO(uli_mem_attach(comm, mem));
    if (rank == 1)
        atomic_store(&comm->gpu->calls, &working_calls);
    well = ranks_expect(meet_barrier(context, rank)) && well;
    if (rank == 0) {
        uli_comm_abort(comm);
        well = ranks_expect(uli_mem_detach(comm, mem) == ULYX_ERR_BUSY) && well;
        well = DO(uli_comm_destroy(comm)) && well;
        well = ranks_expect(uli_mem_free(mem) == ULYX_ERR_BUSY) &&
               ranks_expect(strstr(uli_error_text(), "rank 1")) && well;
        __atomic_store_n(working, 0, __ATOMIC_RELEASE);
        well = DO(uli_mem_free(mem)) && well;
        return !(ranks_expect(meet_barrier(context, rank)) &&
                 ranks_expect(gpu_nothing_left()) && well);
    }
    well = ranks_expect(meet_barrier(context, rank)) && well;
    well = DO(uli_mem_detach(comm, mem)) && DO(uli_mem_free(mem)) && well;
    return comm_leave(comm, well);
}

static void
work_on_the_device_keeps_a_window_in_quarantine(void **state)
{
    (void)state;
    working = ranks_shared(sizeof(*working));
    *working = 1;
    in_processes(2, keep_working);
    ranks_shared_free(working, sizeof(*working));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(allocated_windows_are_shared),
    cmocka_unit_test(plain_memory_is_shared_by_its_base),
    cmocka_unit_test(grown_segments_are_mapped_side_by_side),
    cmocka_unit_test(memory_without_a_handle_is_refused_by_name),
    cmocka_unit_test(arenas_are_shared),
    cmocka_unit_test(a_refused_import_is_named_and_undone),
    cmocka_unit_test(a_driver_that_maps_nothing_is_reported_on_all_ranks),
    cmocka_unit_test(a_rank_without_the_transport_is_reported_on_all_ranks),
    cmocka_unit_test(a_peer_killed_in_mapping_is_lost_not_waited_for),
    cmocka_unit_test(a_killed_owner_leaves_no_mapping_behind),
    cmocka_unit_test(work_on_the_device_keeps_a_window_in_quarantine),
};

ULI_TEST_MAIN("GpuProcess", tests)
