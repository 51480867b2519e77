/* SPDX-License-Identifier: Apache-2.0
 *
 * Each allocation and system call inside a call fails once, in turn: the call
 * returns an error, nothing is kept, and the next attempt works. The linker
 * replaces the functions (--wrap), in the library's objects too.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include "comm/comm.h"
#include "comm/memory/mem.h"
#include "comm/service/service.h"
#include "comm/memory/windows.h"
#include "support/test.h"

/* Only calls of the test's thread fail, and only its countdown-th one; with
 * `lasting` every later one too. */
static _Thread_local int countdown;
static _Thread_local bool fired;
static bool lasting;

static bool
call_fails(int number)
{
    if (countdown == 0 || --countdown > 0)
        return false;
    if (lasting)
        countdown = 1;
    errno = number;
    return fired = true;
}

#define WRAP(type, name, number, failure, parameters, arguments)               \
    type __real_##name parameters;                                             \
    type __wrap_##name parameters;                                             \
    type __wrap_##name parameters                                              \
    {                                                                          \
        return call_fails(number) ? (failure) : __real_##name arguments;       \
    }

WRAP(void *, calloc, ENOMEM, NULL, (size_t n, size_t s), (n, s))
WRAP(void *, malloc, ENOMEM, NULL, (size_t s), (s))
WRAP(void *, realloc, ENOMEM, NULL, (void *q, size_t s), (q, s))
WRAP(void *, mmap, ENOMEM, MAP_FAILED,
    (void *a, size_t n, int p, int f, int d, off_t o), (a, n, p, f, d, o))
WRAP(int, memfd_create, EMFILE, -1, (const char *n, unsigned f), (n, f))
WRAP(int, ftruncate, ENOMEM, -1, (int d, off_t n), (d, n))
WRAP(int, posix_fallocate, ENOSPC, ENOSPC, (int d, off_t o, off_t n), (d, o, n))
WRAP(int, socket, EMFILE, -1, (int d, int t, int p), (d, t, p))
WRAP(int, bind, EADDRINUSE, -1, (int d, const struct sockaddr *a, socklen_t n),
    (d, a, n))
WRAP(int, listen, EADDRINUSE, -1, (int d, int n), (d, n))
WRAP(int, epoll_create1, EMFILE, -1, (int f), (f))
WRAP(int, epoll_ctl, ENOSPC, -1, (int e, int o, int d, struct epoll_event *v),
    (e, o, d, v))
WRAP(int, eventfd, EMFILE, -1, (unsigned v, int f), (v, f))
WRAP(int, pthread_create, EAGAIN, EAGAIN,
    (pthread_t * t, const pthread_attr_t *a, void *(*f)(void *), void *c),
    (t, a, f, c))

/* ---- resources kept ------------------------------------------------------ */

struct kept {
    int descriptors, mappings;
};

static struct kept
count_kept(void)
{
    struct kept kept = {0, 0};
    char line[512];
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        kept.descriptors++;
    closedir(folder);
    FILE *file = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof(line), file))
        kept.mappings += strstr(line, "memfd") != NULL;
    fclose(file);
    return kept;
}

/* Runs action with its n-th call failing, for n = 1, 2, ..., until no call
 * fails. Where action succeeds, it undoes its effect. */
static int
fail_each(ulyx_status_t (*action)(void *context), void *context)
{
    for (int n = 1; n < 1000; n++) {
        struct kept before = count_kept();
        fired = false;
        countdown = n;
        ulyx_status_t status = action(context);
        countdown = 0;
        struct kept after = count_kept();
        assert_int_equal(after.descriptors, before.descriptors);
        assert_int_equal(after.mappings, before.mappings);
        if (!fired) {
            assert_status(status, ULYX_SUCCESS);
            return n - 1;
        }
        /* An action may succeed where the failed call is optional (huge pages,
         * the rest of a free block). */
        if (status != ULYX_SUCCESS && status != ULYX_ERR_NO_MEMORY &&
            status != ULYX_ERR_SYSTEM)
            fail_msg(
                "call %d failed: status %d, %s", n, status, ulyx_last_error());
        assert_status(action(context), ULYX_SUCCESS);
    }
    fail_msg("the action never succeeded");
    return 0;
}

/* ---- actions ------------------------------------------------------------- */

static ulyx_status_t
mem_alloc_call(void *context)
{
    ulyx_mem_t *mem;
    void *address;
    (void)context;
    ULI_TRY(ulyx_mem_alloc(10000, NULL, &mem, &address));
    return ulyx_mem_free(mem);
}

static ulyx_status_t
mem_hold_call(void *context)
{
    unsigned char process[16];
    char name[32];
    (void)context;
    ULI_TRY(uli_service_hold(process, name));
    uli_service_release();
    return ULYX_SUCCESS;
}

static ulyx_status_t
comm_create_call(void *context)
{
    const ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    ulyx_comm_t *comms[3];
    (void)context;
    ULI_TRY(uli_comm_create_local(3, &params, comms));
    for (int r = 0; r < 3; r++)
        ULI_TRY(uli_comm_destroy(comms[r]));
    return ULYX_SUCCESS;
}

/* In new communicators with 63 windows: the next window needs a new chunk in
 * each table, so that the second peer can fail after the first has the
 * window. */
static ulyx_status_t
fill_chunk(ulyx_comm_t *comm, struct uli_tr_handle *handle)
{
    for (uint32_t w = 1; w < ULI_WINDOW_CHUNK; w++) {
        uint32_t window;
        ULI_TRY(uli_windows_give(comm, handle, uli_deadline_in(5), &window));
        if (window != w)
            return ULYX_ERR_INTERNAL;
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
attach_in(ulyx_comm_t **comms, ulyx_mem_t *mem)
{
    struct uli_arena_block block;
    ULI_TRY(ulyx_mem_attach(comms[1], mem));
    ulyx_status_t status = uli_arena_alloc(comms[0], 8 << 20, &block);
    if (status == ULYX_SUCCESS)
        uli_arena_free(comms[0], &block);
    ulyx_status_t detached = ulyx_mem_detach(comms[1], mem);
    return status ? status : detached;
}

static ulyx_status_t
mem_attach_call(void *context)
{
    const ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    ulyx_comm_t *comms[3];
    int kept_countdown = countdown;
    countdown = 0; /* creation is tested elsewhere */
    ULI_TRY(uli_comm_create_local(3, &params, comms));
    struct uli_tr_handle handle = {-1, comms, sizeof(comms)};
    ulyx_status_t status = fill_chunk(comms[1], &handle);
    countdown = kept_countdown;
    if (status == ULYX_SUCCESS)
        status = attach_in(comms, context);
    countdown = 0;
    /* No window stays half attached: after a failed attach no rank finds it. */
    for (int r = 0; status && r < 3; r++)
        if (uli_window_address(comms[r], 1, ULI_WINDOW_CHUNK, 0, 1))
            status = ULYX_ERR_INTERNAL;
    for (int r = 0; r < 3; r++)
        if (uli_comm_destroy(comms[r]) != ULYX_SUCCESS)
            status = ULYX_ERR_INTERNAL;
    return status;
}

struct halves {
    ulyx_comm_t *comms[2], *children[2];
    ulyx_status_t statuses[2];
};

/* Half a second: a peer may have to wait for a rank that has no memory left. */
static void
split_half(struct halves *halves, int rank)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    params.timeout_s = 0.5;
    halves->statuses[rank] = uli_comm_split(halves->comms[rank], 0, rank,
        ULYX_SUCCESS, &params, &halves->children[rank]);
}

static void *
split_other(void *halves)
{
    split_half(halves, 1);
    return NULL;
}

/* This thread is rank 0, the rank whose calls fail. */
static ulyx_status_t
comm_split_call(void *context)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    struct halves halves = {.statuses = {0, 0}};
    pthread_t other;
    int kept_countdown = countdown;
    countdown = 0;
    (void)context;
    params.timeout_s = 0.5;
    ULI_TRY(uli_comm_create_local(2, &params, halves.comms));
    if (__real_pthread_create(&other, NULL, split_other, &halves))
        return ULYX_ERR_INTERNAL;
    countdown = kept_countdown;
    split_half(&halves, 0);
    countdown = 0;
    pthread_join(other, NULL);
    ulyx_status_t status = halves.statuses[0];
    if ((status == ULYX_SUCCESS) != (halves.statuses[1] == ULYX_SUCCESS))
        status = ULYX_ERR_INTERNAL;
    for (int r = 0; r < 2; r++)
        if (uli_comm_destroy(halves.comms[r]) ||
            (halves.children[r] && uli_comm_destroy(halves.children[r])))
            status = ULYX_ERR_INTERNAL;
    return status;
}

static void
allocation_keeps_nothing(void **state)
{
    (void)state;
    /* The object itself reuses the memory of the one before (base/handle.h). */
    assert_in_range(fail_each(mem_alloc_call, NULL), 4, 50);
}

static void
service_start_keeps_nothing(void **state)
{
    (void)state;
    assert_in_range(fail_each(mem_hold_call, NULL), 8, 50);
}

static void
creation_keeps_nothing(void **state)
{
    (void)state;
    assert_in_range(fail_each(comm_create_call, NULL), 8, 200);
}

static void
split_keeps_nothing(void **state)
{
    (void)state;
    assert_in_range(fail_each(comm_split_call, NULL), 8, 200);
}

/* All later allocations fail too: undoing a creation must not need memory. */
static void
creation_keeps_nothing_when_memory_has_ended(void **state)
{
    (void)state;
    lasting = true;
    assert_in_range(fail_each(comm_create_call, NULL), 8, 200);
    assert_in_range(fail_each(comm_split_call, NULL), 8, 200);
    lasting = false;
}

static void
attach_keeps_nothing(void **state)
{
    (void)state;
    ulyx_mem_t *mem;
    void *address;
    assert_status(ulyx_mem_alloc(4096, NULL, &mem, &address), ULYX_SUCCESS);
    assert_in_range(fail_each(mem_attach_call, mem), 3, 50);
    assert_status(ulyx_mem_free(mem), ULYX_SUCCESS);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(allocation_keeps_nothing),
    cmocka_unit_test(service_start_keeps_nothing),
    cmocka_unit_test(creation_keeps_nothing),
    cmocka_unit_test(split_keeps_nothing),
    cmocka_unit_test(creation_keeps_nothing_when_memory_has_ended),
    cmocka_unit_test(attach_keeps_nothing),
};

ULI_TEST_MAIN("Shortage", tests)
