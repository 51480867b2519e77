/* SPDX-License-Identifier: Apache-2.0
 *
 * A window is mapped and unmapped by the transport that was chosen for the
 * peer. In these tests that is a transport of the test, which does what shm
 * does and lists its mappings. The tests choose this transport for all peers,
 * whether the ranks are processes or threads of one process.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "comm/meet.h"
#include "comm/memory/mem.h"
#include "comm/memory/windows.h"
#include "support/ranks.h"
#include "support/select_wrap.h"
#include "support/test.h"

enum { RANKS = 3, BYTES = 8192, MOST = 256 };

/* ---- the transport ------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Mappings of this process. Ranks change and search the list under the lock;
 * it is counted without the lock, after all ranks of the process are done. */
static void *live[MOST];
static _Atomic int made; /* counted by the threads of all ranks */

/* Replaces `from` by `to` in the list of mappings; false if it is not
 * listed. */
static bool
function_replace(void *from, void *to)
{
    int i = 0;
    pthread_mutex_lock(&lock);
    while (i < MOST && live[i] != from)
        i++;
    if (i < MOST)
        live[i] = to;
    pthread_mutex_unlock(&lock);
    return i < MOST;
}

static bool
is_live(void *address)
{
    return address && function_replace(address, address);
}

static int
count_live(void)
{
    int count = 0;
    for (int i = 0; i < MOST; i++)
        count += live[i] != NULL;
    return count;
}

static ulyx_status_t
counted_map(const struct uli_tr_handle *handle, void **address_p)
{
    ulyx_status_t status = uli_tr_shm_ops.window_map(handle, address_p);
    if (status == ULYX_SUCCESS && !function_replace(NULL, *address_p))
        abort();
    made += status == ULYX_SUCCESS;
    return status;
}

static void
counted_unmap(void *address, int64_t bytes)
{
    if (!function_replace(address, NULL)) /* not a mapping of this transport */
        abort();
    uli_tr_shm_ops.window_unmap(address, bytes);
}

static const struct uli_tr_ops counted = {.name = "counted",
    .caps = ULI_TR_MAP,
    .window_map = counted_map,
    .window_unmap = counted_unmap};

const struct uli_tr_ops *
__wrap_uli_tr_select(const struct uli_settings *settings,
    const struct uli_identity *me, const struct uli_identity *peer,
    uint64_t caps, char *why_p, size_t why_bytes)
{
    if (caps == ULI_TR_MAP)
        return &counted;
    return __real_uli_tr_select(settings, me, peer, caps, why_p, why_bytes);
}

/* ---- windows of all ranks ------------------------------------------------ */

static ulyx_mem_t *
attach_new(ulyx_comm_t *comm, uint32_t *window_p)
{
    ulyx_mem_t *mem;
    void *base;
    int64_t bytes, offset;
    bool good = ranks_expect(uli_mem_alloc(BYTES, ULYX_MEMORY_HOST, 0, false,
                                 &mem) == ULYX_SUCCESS) &&
                ranks_expect(uli_mem_attach(comm, mem) == ULYX_SUCCESS);
    uli_mem_range(mem, &base, &bytes);
    good =
        good && ranks_expect(uli_window_find(comm, base, 8, window_p, &offset));
    return good ? mem : NULL;
}

/* Checks that each peer's control segment and window are mapped, and stores
 * this rank's letter in each window, for own_was_stored_to. */
static bool
peers_are_mapped(ulyx_comm_t *comm, uint32_t window)
{
    bool good = true;
    for (int32_t p = 0; p < comm->nranks && good; p++) {
        if (p == comm->rank)
            continue;
        char *base = uli_window_address(comm, p, window, 0, BYTES);
        good = ranks_expect(is_live(base)) &&
               ranks_expect(is_live(uli_window_address(comm, p, 0, 0, 1)));
        if (good)
            base[comm->rank] = (char)('a' + comm->rank);
    }
    return good;
}

static bool
own_was_stored_to(ulyx_comm_t *comm, ulyx_mem_t *mem)
{
    char *base;
    int64_t bytes;
    bool good = true;
    uli_mem_range(mem, (void **)&base, &bytes);
    for (int32_t p = 0; p < comm->nranks; p++)
        good = ranks_expect(p == comm->rank || base[p] == 'a' + p) && good;
    return good;
}

static int
exchange_windows(int rank, int nranks, void *context)
{
    ulyx_comm_t *comm;
    ulyx_mem_t *mem;
    uint32_t window;
    (void)nranks;
    if (!ranks_expect(meet_comm(context, rank, 20, &comm) == ULYX_SUCCESS))
        return 1;
    mem = attach_new(comm, &window);
    bool good = mem && ranks_expect(uli_comm_barrier(comm) == ULYX_SUCCESS) &&
                peers_are_mapped(comm, window) &&
                ranks_expect(uli_comm_barrier(comm) == ULYX_SUCCESS) &&
                own_was_stored_to(comm, mem);
    good = mem && ranks_expect(uli_mem_detach(comm, mem) == ULYX_SUCCESS) &&
           ranks_expect(uli_mem_free(mem) == ULYX_SUCCESS) && good;
    /* Once all ranks have detached their windows, none of these is mapped. */
    good = good && ranks_expect(uli_comm_barrier(comm) == ULYX_SUCCESS);
    for (int32_t p = 0; p < comm->nranks; p++)
        good = good &&
               ranks_expect(!uli_window_address(comm, p, window, 0, BYTES));
    return !(ranks_expect(uli_comm_destroy(comm) == ULYX_SUCCESS) && good);
}

static int
process_rank(int rank, int nranks, void *context)
{
    int failed = exchange_windows(rank, nranks, context);
    return failed || !ranks_expect(count_live() == 0) ||
           !ranks_expect(made >= 2 * (nranks - 1));
}

static void
windows_of_processes_go_by_the_transport(void **state)
{
    struct meet *meet = meet_new(RANKS);
    (void)state;
    assert_int_equal(ranks_run_processes(RANKS, process_rank, meet, 60), 0);
    meet_free(meet);
}

static void
windows_of_threads_go_by_the_transport(void **state)
{
    struct meet *meet = meet_new(RANKS);
    (void)state;
    made = 0;
    assert_int_equal(ranks_run_threads(RANKS, exchange_windows, meet, 60), 0);
    assert_true(made >= 2 * RANKS * (RANKS - 1));
    assert_int_equal(count_live(), 0);
    meet_free(meet);
}

/* Without a bootstrap: segments are made so that they can be mapped by
 * descriptor, and memory without a descriptor is refused. */
static void
windows_of_a_local_communicator_go_by_the_transport(void **state)
{
    const ulyx_comm_params_t defaults = ULYX_COMM_PARAMS_INIT;
    ulyx_comm_t *comms[2];
    ulyx_mem_t *mem, *registered;
    uint32_t window;
    static char memory[64];
    (void)state;
    assert_status(uli_comm_create_local(2, &defaults, comms), ULYX_SUCCESS);
    mem = attach_new(comms[0], &window);
    assert_non_null(mem);
    assert_true(peers_are_mapped(comms[1], window));
    assert_true(own_was_stored_to(comms[0], mem));
    assert_status(uli_mem_register(
                      memory, sizeof(memory), ULYX_MEMORY_HOST, 0, &registered),
        ULYX_SUCCESS);
    assert_status(uli_mem_attach(comms[0], registered), ULYX_ERR_UNSUPPORTED);
    assert_status(uli_mem_free(registered), ULYX_SUCCESS);
    assert_status(uli_mem_detach(comms[0], mem), ULYX_SUCCESS);
    assert_status(uli_mem_free(mem), ULYX_SUCCESS);
    for (int r = 0; r < 2; r++)
        assert_status(uli_comm_destroy(comms[r]), ULYX_SUCCESS);
    assert_int_equal(count_live(), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(windows_of_processes_go_by_the_transport),
    cmocka_unit_test(windows_of_threads_go_by_the_transport),
    cmocka_unit_test(windows_of_a_local_communicator_go_by_the_transport),
};

ULI_TEST_MAIN("WindowsMap", tests)
