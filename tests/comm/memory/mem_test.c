/* SPDX-License-Identifier: Apache-2.0
 *
 * Window objects: the order of alloc, attach, detach and free; calls out of
 * order; quarantine; and that cycles leave nothing behind.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "comm/meet.h"
#include "comm/memory/mem.h"
#include "comm/service/service.h"
#include "support/ranks.h"
#include "support/test.h"

enum { BYTES = 8192 };

static const ulyx_comm_params_t defaults = ULYX_COMM_PARAMS_INIT;

struct fixture {
    ulyx_comm_t *a[2], *b[2]; /* two communicators, each of two ranks */
    ulyx_mem_t *mem;
};

static int
set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    *state = f;
    return !f || uli_comm_create_local(2, &defaults, f->a) ||
           uli_comm_create_local(2, &defaults, f->b) ||
           ulyx_mem_alloc(BYTES, NULL, &f->mem, &(void *){NULL});
}

static int
tear_down(void **state)
{
    struct fixture *f = *state;
    int wrong = 0;
    for (int r = 0; r < 2; r++) {
        wrong += f->a[r] && uli_comm_destroy(f->a[r]) != ULYX_SUCCESS;
        wrong += f->b[r] && uli_comm_destroy(f->b[r]) != ULYX_SUCCESS;
    }
    wrong += ulyx_mem_free(f->mem) != ULYX_SUCCESS;
    free(f);
    return wrong;
}

/* ---- arguments ----------------------------------------------------------- */

static void
refuses_bad_arguments(void **state)
{
    (void)state;
    ulyx_mem_t *mem = (ulyx_mem_t *)&mem;
    void *address = &address;
    ulyx_mem_params_t params = ULYX_MEM_PARAMS_INIT;
    const ulyx_status_t bad = ULYX_ERR_INVALID_ARGUMENT;
    assert_status(ulyx_mem_alloc(0, NULL, &mem, &address), bad);
    assert_status(ulyx_mem_alloc(-1, NULL, &mem, &address), bad);
    assert_string_equal(ulyx_last_error(), "bytes is -1, must be at least 1");
    assert_status(ulyx_mem_alloc(1, NULL, NULL, &address), bad);
    assert_status(ulyx_mem_alloc(1, NULL, &mem, NULL), bad);
    assert_status(ulyx_mem_register(NULL, 1, NULL, &mem), bad);
    assert_status(ulyx_mem_register(address, 0, NULL, &mem), bad);
    assert_status(ulyx_mem_register(address, INT64_MAX, NULL, NULL), bad);
    assert_status(
        ulyx_mem_register((void *)~(uintptr_t)4095, 8192, NULL, &mem), bad);
    params.flags = 2;
    assert_status(
        ulyx_mem_alloc(1, &params, &mem, &address), ULYX_ERR_UNSUPPORTED);
    params.flags = 0;
    params.memory_kind = 9;
    assert_status(ulyx_mem_alloc(1, &params, &mem, &address), bad);
    params.memory_kind = ULYX_MEMORY_HOST;
    params.device = -2;
    assert_status(ulyx_mem_alloc(1, &params, &mem, &address), bad);
    params.device = -1;
    params.size = 3;
    assert_status(ulyx_mem_alloc(1, &params, &mem, &address), bad);
    assert_status(ulyx_mem_alloc(INT64_C(1) << 50, NULL, &mem, &address),
        ULYX_ERR_NO_MEMORY);
    assert_status(ulyx_mem_attach(NULL, mem), bad);
    assert_status(ulyx_mem_detach(NULL, mem), bad);
    assert_status(ulyx_mem_free(NULL), ULYX_SUCCESS);
    assert_ptr_equal(mem, &mem); /* outputs untouched */
    assert_ptr_equal(address, &address);
}

static void
window_reports_its_range(void **state)
{
    struct fixture *f = *state;
    char memory[100];
    void *address;
    int64_t bytes;
    ulyx_mem_t *mem;
    assert_status(ulyx_mem_get_range(f->mem, &address, &bytes), ULYX_SUCCESS);
    assert_int_equal(bytes, BYTES);
    assert_int_equal((uintptr_t)address % 4096, 0);
    assert_status(ulyx_mem_register(memory, 100, NULL, &mem), ULYX_SUCCESS);
    assert_status(ulyx_mem_get_range(mem, &address, &bytes), ULYX_SUCCESS);
    assert_ptr_equal(address, memory);
    assert_int_equal(bytes, 100);
    assert_status(ulyx_mem_free(mem), ULYX_SUCCESS);
}

/* ---- order --------------------------------------------------------------- */

static void
refuses_wrong_order(void **state)
{
    struct fixture *f = *state;
    const ulyx_status_t bad = ULYX_ERR_INVALID_ARGUMENT;
    assert_status(ulyx_mem_detach(f->a[0], f->mem), bad);
    assert_status(ulyx_mem_attach(f->a[0], f->mem), ULYX_SUCCESS);
    assert_status(ulyx_mem_attach(f->a[0], f->mem), bad);
    assert_status(ulyx_mem_free(f->mem), ULYX_ERR_BUSY);
    assert_non_null(strstr(ulyx_last_error(), "still attached"));
    assert_status(ulyx_mem_detach(f->a[1], f->mem), bad);
    assert_status(uli_comm_destroy(f->a[0]), ULYX_ERR_BUSY);
    assert_status(ulyx_mem_detach(f->a[0], f->mem), ULYX_SUCCESS);
    assert_status(ulyx_mem_detach(f->a[0], f->mem), bad);
}

static void
memory_is_attached_to_several_communicators(void **state)
{
    struct fixture *f = *state;
    assert_status(ulyx_mem_attach(f->a[0], f->mem), ULYX_SUCCESS);
    assert_status(ulyx_mem_attach(f->b[1], f->mem), ULYX_SUCCESS);
    assert_status(ulyx_mem_attach(f->a[1], f->mem), ULYX_SUCCESS);
    assert_status(ulyx_mem_detach(f->a[0], f->mem), ULYX_SUCCESS);
    assert_status(ulyx_mem_free(f->mem), ULYX_ERR_BUSY);
    assert_status(ulyx_mem_detach(f->b[1], f->mem), ULYX_SUCCESS);
    assert_status(ulyx_mem_detach(f->a[1], f->mem), ULYX_SUCCESS);
}

/* Overlapping registrations are separate windows; a range is found in a window
 * that holds all of it. */
static void
overlapping_registrations_are_separate_windows(void **state)
{
    struct fixture *f = *state;
    static char memory[300];
    ulyx_mem_t *low, *high;
    uint32_t window;
    int64_t offset;
    assert_status(ulyx_mem_register(memory, 200, NULL, &low), ULYX_SUCCESS);
    assert_status(
        ulyx_mem_register(memory + 100, 200, NULL, &high), ULYX_SUCCESS);
    assert_status(ulyx_mem_attach(f->a[0], low), ULYX_SUCCESS);
    assert_status(ulyx_mem_attach(f->a[0], high), ULYX_SUCCESS);
    assert_true(uli_window_find(f->a[0], memory + 50, 150, &window, &offset));
    assert_int_equal(offset, 50);
    assert_true(uli_window_find(f->a[0], memory + 150, 150, &window, &offset));
    assert_int_equal(offset, 50);
    assert_false(uli_window_find(f->a[0], memory + 50, 200, &window, &offset));
    assert_status(ulyx_mem_detach(f->a[0], low), ULYX_SUCCESS);
    assert_false(uli_window_find(f->a[0], memory + 50, 10, &window, &offset));
    assert_true(uli_window_find(f->a[0], memory + 150, 10, &window, &offset));
    assert_status(ulyx_mem_detach(f->a[0], high), ULYX_SUCCESS);
    assert_status(ulyx_mem_free(low), ULYX_SUCCESS);
    assert_status(ulyx_mem_free(high), ULYX_SUCCESS);
}

/* A rank that has destroyed its handle needs no windows any more. */
static void
ranks_that_left_are_passed_over(void **state)
{
    struct fixture *f = *state;
    assert_status(ulyx_mem_attach(f->b[0], f->mem), ULYX_SUCCESS);
    assert_status(uli_comm_destroy(f->a[1]), ULYX_SUCCESS);
    f->a[1] = NULL;
    assert_status(ulyx_mem_attach(f->a[0], f->mem), ULYX_SUCCESS);
    assert_status(uli_comm_destroy(f->b[1]), ULYX_SUCCESS);
    f->b[1] = NULL;
    assert_status(ulyx_mem_detach(f->a[0], f->mem), ULYX_SUCCESS);
    assert_status(ulyx_mem_detach(f->b[0], f->mem), ULYX_SUCCESS);
}

/* ---- quarantine, among threads ------------------------------------------- */

/* A rank with an operation in flight may still store; no other rank may. */
static void
waits_for_ranks_in_flight(void **state)
{
    struct fixture *f = *state;
    assert_status(ulyx_mem_attach(f->a[0], f->mem), ULYX_SUCCESS);
    atomic_fetch_add(&f->a[1]->nops, 1);
    uli_comm_abort(f->a[0]);
    assert_status(ulyx_mem_attach(f->a[0], f->mem), ULYX_ERR_INVALID_ARGUMENT);
    assert_status(ulyx_mem_detach(f->a[0], f->mem), ULYX_ERR_BUSY);
    assert_non_null(strstr(ulyx_last_error(), "rank 1 of comm"));
    assert_status(ulyx_mem_attach(f->b[0], f->mem), ULYX_ERR_BUSY);
    assert_status(ulyx_mem_free(f->mem), ULYX_ERR_BUSY);
    atomic_fetch_sub(&f->a[1]->nops, 1);
    assert_status(ulyx_mem_detach(f->a[0], f->mem), ULYX_SUCCESS);
    assert_status(ulyx_mem_attach(f->b[0], f->mem), ULYX_SUCCESS);
    assert_status(ulyx_mem_detach(f->b[0], f->mem), ULYX_SUCCESS);
}

static void
quarantine_outlives_destroy(void **state)
{
    struct fixture *f = *state;
    assert_status(ulyx_mem_attach(f->a[0], f->mem), ULYX_SUCCESS);
    atomic_fetch_add(&f->a[1]->nops, 1);
    uli_comm_abort(f->a[0]);
    assert_status(uli_comm_destroy(f->a[0]), ULYX_SUCCESS);
    f->a[0] = NULL;
    assert_status(ulyx_mem_attach(f->b[0], f->mem), ULYX_ERR_BUSY);
    assert_non_null(strstr(ulyx_last_error(), "rank 1 of comm"));
    assert_status(ulyx_mem_free(f->mem), ULYX_ERR_BUSY);
    atomic_fetch_sub(&f->a[1]->nops, 1);
    assert_status(uli_comm_destroy(f->a[1]), ULYX_SUCCESS);
    f->a[1] = NULL;
    assert_status(ulyx_mem_attach(f->b[0], f->mem), ULYX_SUCCESS);
    assert_status(ulyx_mem_detach(f->b[0], f->mem), ULYX_SUCCESS);
}

static void
failed_communicators_take_nothing(void **state)
{
    struct fixture *f = *state;
    uli_comm_abort(f->a[1]);
    assert_status(ulyx_mem_attach(f->a[0], f->mem), ULYX_ERR_ABORTED);
    assert_status(ulyx_mem_attach(f->b[0], f->mem), ULYX_SUCCESS);
    assert_status(ulyx_mem_detach(f->b[0], f->mem), ULYX_SUCCESS);
}

/* ---- cycles -------------------------------------------------------------- */

struct footprint {
    int descriptors;
    int mappings;
    long resident_kib;
};

static struct footprint
footprint_measure(void)
{
    struct footprint now = {0, 0, 0};
    char line[512];
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        now.descriptors++;
    closedir(folder);
    FILE *file = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof(line), file))
        now.mappings++;
    fclose(file);
    file = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof(line), file))
        sscanf(line, "VmRSS: %ld", &now.resident_kib);
    fclose(file);
    return now;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLACK_KIB = 1 << 20 }; /* a sanitizer keeps freed memory */
#else
enum { SLACK_KIB = 2048 };
#endif

/* The service thread closes a connection just after its peer has the answer, so
 * an extra descriptor may be gone a moment later. */
static bool
is_flat(struct footprint before)
{
    uli_deadline_t deadline = uli_deadline_in(2);
    struct footprint after;
    do {
        usleep(2000);
        after = footprint_measure();
        if (after.descriptors <= before.descriptors &&
            after.mappings <= before.mappings + 4 &&
            after.resident_kib <= before.resident_kib + SLACK_KIB)
            return true;
    } while (!uli_deadline_over(deadline));
    fprintf(stderr,
        "descriptors %d -> %d, mappings %d -> %d, resident %ld -> %ld KiB\n",
        before.descriptors, after.descriptors, before.mappings, after.mappings,
        before.resident_kib, after.resident_kib);
    return false;
}

static bool
mem_cycle(ulyx_comm_t *comm, int count)
{
    for (int i = 0; i < count; i++) {
        ulyx_mem_t *mem;
        void *address;
        if (ulyx_mem_alloc(BYTES, NULL, &mem, &address) ||
            ulyx_mem_attach(comm, mem) || ulyx_mem_detach(comm, mem) ||
            ulyx_mem_free(mem))
            return false;
    }
    return true;
}

static void
cycles_among_threads_leave_nothing(void **state)
{
    struct fixture *f = *state;
    assert_true(mem_cycle(f->a[0], 100));
    struct footprint before = footprint_measure();
    assert_true(mem_cycle(f->a[0], 10000));
    assert_true(is_flat(before));
}

/* Both ends at the same time, so each process also serves the other. */
static int
cycle_body(int rank, int nranks, void *context)
{
    struct meet *meet = context;
    ulyx_comm_t *comm;
    (void)nranks;
    bool ok = ranks_expect(meet_comm(meet, rank, 60, &comm) == ULYX_SUCCESS);
    if (!ok)
        return 1;
    ok &= ranks_expect(mem_cycle(comm, 200)) && meet_barrier(meet, rank);
    usleep(20000);
    struct footprint before = footprint_measure();
    ok &= ranks_expect(mem_cycle(comm, 5000)) && meet_barrier(meet, rank);
    ok &= ranks_expect(is_flat(before));
    ok &= ranks_expect(meet_barrier(meet, rank));
    ok &= ranks_expect(uli_comm_destroy(comm) == ULYX_SUCCESS);
    return !ok;
}

static void
cycles_among_processes_leave_nothing(void **state)
{
    (void)state;
    struct meet *meet = meet_new(2);
    assert_int_equal(ranks_run_processes(2, cycle_body, meet, 100), 0);
    meet_free(meet);
}

/* ---- several threads ----------------------------------------------------- */

/* Two windows, four threads, all handles: calls on one window are serialised,
 * so each call either makes its change or is refused. */
struct crowd {
    ulyx_comm_t *comms[2];
    ulyx_mem_t *mems[2];
    _Atomic int attached[2][2]; /* attaches minus detaches that succeeded */
};

static int
crowd_body(int rank, int nranks, void *context)
{
    struct crowd *crowd = context;
    const ulyx_status_t bad = ULYX_ERR_INVALID_ARGUMENT;
    int changes = 0, wrong = 0;
    (void)nranks;
    for (int i = 0; i < 2000; i++) {
        int c = (i + rank) & 1, m = (i >> 1 ^ rank >> 1) & 1;
        ulyx_comm_t *comm = crowd->comms[c];
        ulyx_mem_t *mem = crowd->mems[m];
        ulyx_status_t status =
            i % 3 ? ulyx_mem_attach(comm, mem) : ulyx_mem_detach(comm, mem);
        if (status == ULYX_SUCCESS)
            atomic_fetch_add(&crowd->attached[c][m], i % 3 ? 1 : -1);
        changes += status == ULYX_SUCCESS;
        wrong += status != ULYX_SUCCESS && status != bad;
    }
    return !(ranks_expect(wrong == 0) & ranks_expect(changes > 0));
}

static void
windows_serve_many_threads(void **state)
{
    struct fixture *f = *state;
    struct crowd crowd = {{f->a[0], f->a[1]}, {f->mem, NULL}, {{0}}};
    void *address;
    assert_status(
        ulyx_mem_alloc(BYTES, NULL, &crowd.mems[1], &address), ULYX_SUCCESS);
    assert_int_equal(ranks_run_threads(4, crowd_body, &crowd, 60), 0);
    for (int c = 0; c < 2; c++) {
        for (int m = 0; m < 2; m++) {
            int attached = atomic_load(&crowd.attached[c][m]);
            assert_in_range(attached, 0, 1);
            assert_status(ulyx_mem_detach(crowd.comms[c], crowd.mems[m]),
                attached ? ULYX_SUCCESS : ULYX_ERR_INVALID_ARGUMENT);
        }
    }
    assert_status(ulyx_mem_free(crowd.mems[1]), ULYX_SUCCESS);
}

/* ---- registered memory and processes ------------------------------------- */

static int
register_body(int rank, int nranks, void *context)
{
    struct meet *meet = context;
    static char memory[4096];
    ulyx_comm_t *comm;
    ulyx_mem_t *mem;
    (void)nranks;
    bool ok = ranks_expect(meet_comm(meet, rank, 20, &comm) == ULYX_SUCCESS);
    if (!ok)
        return 1;
    ok &= ranks_expect(
        ulyx_mem_register(memory, 4096, NULL, &mem) == ULYX_SUCCESS);
    ok &= ranks_expect(ulyx_mem_attach(comm, mem) == ULYX_ERR_UNSUPPORTED);
    ok &= ranks_expect(strstr(ulyx_last_error(), "ulyx_mem_alloc") != NULL);
    ok &= ranks_expect(ulyx_mem_free(mem) == ULYX_SUCCESS);
    ok &= ranks_expect(meet_barrier(meet, rank));
    ok &= ranks_expect(uli_comm_destroy(comm) == ULYX_SUCCESS);
    return !ok;
}

static void
registered_memory_is_refused_between_processes(void **state)
{
    (void)state;
    struct meet *meet = meet_new(2);
    assert_int_equal(ranks_run_processes(2, register_body, meet, 30), 0);
    meet_free(meet);
}

/* ---- fork ---------------------------------------------------------------- */

static int
child_body(struct fixture *f)
{
    void *address;
    ulyx_mem_t *mem;
    const ulyx_status_t forked = ULYX_ERR_FORKED;
    return !(uli_service_forked() &&
             ulyx_mem_alloc(1, NULL, &mem, &address) == forked &&
             ulyx_mem_attach(f->a[0], f->mem) == forked &&
             ulyx_mem_free(f->mem) == forked);
}

static void
children_are_refused(void **state)
{
    struct fixture *f = *state;
    int status = 1;
    pid_t pid = fork();
    if (pid == 0)
        _exit(child_body(f));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(mem_cycle(f->a[0], 3)); /* the parent still works */
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(refuses_bad_arguments),
    CASE(window_reports_its_range),
    CASE(refuses_wrong_order),
    CASE(memory_is_attached_to_several_communicators),
    CASE(overlapping_registrations_are_separate_windows),
    CASE(ranks_that_left_are_passed_over),
    CASE(waits_for_ranks_in_flight),
    CASE(quarantine_outlives_destroy),
    CASE(failed_communicators_take_nothing),
    CASE(cycles_among_threads_leave_nothing),
    cmocka_unit_test(cycles_among_processes_leave_nothing),
    CASE(windows_serve_many_threads),
    cmocka_unit_test(registered_memory_is_refused_between_processes),
    CASE(children_are_refused),
};

ULI_TEST_MAIN("Mem", tests)
