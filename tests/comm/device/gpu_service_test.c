/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests to the service for windows in device memory: wrong shares, wrong
 * descriptors and wrong numbers change nothing and leave no descriptor open; a
 * valid request is accepted.
 */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/status.h"
#include "comm/device/gpu_scene.h"
#include "comm/service/service_dial.h"
#include "comm/service/service_internal.h"
#include "support/random.h"
#include "support/test.h"
#include "transport/nvlink/imports.h"

enum { RANKS = 2, WINDOW = 9, BYTES = 4096 };
static const int32_t devices[RANKS] = {0, 1};

/* Rank 0's communicator and the memory that a peer offers. */
struct scene {
    ulyx_comm_t *comms[RANKS];
    struct uli_share_memory memory;
    struct uli_share share;
};

static int
set_up(void **state)
{
    static struct scene scene;
    *state = &scene;
    memset(&scene, 0, sizeof(scene));
    return gpu_open(state) || gpu_threads(RANKS, devices, 20, scene.comms) ||
           uli_share_alloc(1, BYTES, &scene.memory) ||
           uli_share_export(scene.memory.address, &scene.share);
}

static int
tear_down(void **state)
{
    struct scene *s = *state;
    int wrong = 0;
    uli_share_close(&s->share);
    for (int r = 0; r < RANKS; r++)
        wrong += uli_comm_destroy(s->comms[r]) != ULYX_SUCCESS;
    wrong += uli_share_free(&s->memory) != ULYX_SUCCESS;
    return gpu_close(state) || wrong;
}

static int
lowest_free(void)
{
    int fd = dup(0);
    close(fd);
    return fd;
}

static struct uli_service_answer
scene_call(struct scene *s, struct uli_service_request request,
    const struct uli_service_cargo *cargo)
{
    const struct uli_identity *me = &s->comms[0]->peers[0].identity;
    struct uli_service_answer answer;
    int fd = dial(me->service);
    memcpy(request.endpoint, me->endpoint, sizeof(request.endpoint));
    memset(&answer, 0, sizeof(answer));
    assert_true(fd >= 0);
    assert_status(uli_service_exchange(
                      fd, &request, cargo, NULL, uli_deadline_in(20), &answer),
        ULYX_SUCCESS);
    close(fd);
    return answer;
}

static struct uli_service_request
good_request(const struct scene *s)
{
    struct uli_service_request request = {.protocol = ULI_PROTOCOL,
        .kind = ULI_SERVICE_DELIVER,
        .rank = 1,
        .window = WINDOW,
        .bytes = BYTES,
        .address = s->share.base,
        .nshares = 1};
    return request;
}

static void
a_right_window_is_taken_and_withdrawn(void **state)
{
    struct scene *s = *state;
    struct uli_service_request request = good_request(s);
    struct uli_service_cargo cargo = {&s->share, 1, 1, {s->share.fd}};
    int64_t imports = uli_import_count();
    strcpy(s->memory.address, "of the peer");
    for (int i = 0; i < 2; i++) { /* repeated, as after a lost answer */
        assert_int_equal(
            scene_call(s, request, &cargo).outcome, ULI_SERVICE_DONE);
        char *there = uli_window_address(s->comms[0], 1, WINDOW, 0, BYTES);
        assert_non_null(there);
        assert_string_equal(there, "of the peer");
        assert_ptr_equal(gpu_entry(s->comms[0], 1, WINDOW), there);
        assert_int_equal(uli_import_count(), imports + 1);
    }
    request.kind = ULI_SERVICE_WITHDRAW;
    request.nshares = 0;
    assert_int_equal(scene_call(s, request, NULL).outcome, ULI_SERVICE_DONE);
    assert_null(gpu_entry(s->comms[0], 1, WINDOW));
    assert_int_equal(uli_import_count(), imports);
}

static void
wrong_windows_change_nothing(void **state)
{
    struct scene *s = *state;
    int ends[2], lowest;
    assert_int_equal(pipe(ends), 0);
    lowest = lowest_free();
    for (int bad = 0; bad < 10; bad++) {
        struct uli_service_request request = good_request(s);
        struct uli_share share = s->share;
        struct uli_service_cargo cargo = {&share, 1, 1, {s->share.fd}};
        ulyx_status_t status = ULYX_ERR_SYSTEM;
        if (bad == 0)
            cargo.nfds = 0;
        else if (bad == 1)
            request.address--;
        else if (bad == 2)
            request.bytes = share.bytes + 1;
        else if (bad == 3)
            request.bytes = -1;
        else if (bad == 4)
            share.bytes = INT64_MAX;
        else if (bad == 5)
            share.form = 77;
        else if (bad == 6)
            cargo.fds[0] = ends[0], status = ULYX_ERR_INVALID_ARGUMENT;
        else if (bad == 7)
            request.window = 0, status = ULYX_ERR_INVALID_ARGUMENT;
        else if (bad == 8)
            request.rank = 0, status = ULYX_ERR_INVALID_ARGUMENT;
        else
            request.window = 1u << 20, status = ULYX_ERR_NO_MEMORY;
        struct uli_service_answer answer = scene_call(s, request, &cargo);
        assert_int_equal(answer.outcome, ULI_SERVICE_FAILED);
        if (answer.status != status)
            fail_msg("case %d: %s", bad, answer.text);
        assert_true(strlen(answer.text) > 0);
        assert_null(uli_window_address(s->comms[0], 1, WINDOW, 0, 1));
        assert_null(gpu_entry(s->comms[0], 1, WINDOW));
        /* the service has finished the last request */
        assert_true(answers_ping(s->comms[0]->peers[0].identity.service));
        assert_int_equal(lowest_free(), lowest);
    }
    close(ends[0]);
    close(ends[1]);
}

/* Messages whose length does not match their content end their connection. */
static void
messages_of_wrong_length_are_dropped(void **state)
{
    struct scene *s = *state;
    struct test_random random = {test_seed(3)};
    static struct uli_share shares[8];
    const char *service = s->comms[0]->peers[0].identity.service;
    int lowest = lowest_free();
    for (int64_t i = 0; i < test_draws(100); i++) {
        struct uli_service_request request = good_request(s);
        struct uli_service_cargo cargo = {shares,
            (int32_t)test_random_in(&random, 0, 8), 2,
            {s->share.fd, s->share.fd}};
        struct uli_service_answer answer;
        int fd = dial(service);
        request.nshares = (int32_t)test_random_in(&random, -3, 300);
        if (request.nshares == cargo.nshares)
            request.nshares = INT32_MAX;
        assert_status(uli_service_exchange(fd, &request, &cargo, NULL,
                          uli_deadline_in(20), &answer),
            ULYX_IN_PROGRESS);
        close(fd);
        assert_int_equal(lowest_free(), lowest);
    }
    assert_true(answers_ping(service));
}

#define WITH_RANKS(name)                                                       \
    cmocka_unit_test_setup_teardown(name, set_up, tear_down)
static const struct CMUnitTest tests[] = {
    WITH_RANKS(a_right_window_is_taken_and_withdrawn),
    WITH_RANKS(wrong_windows_change_nothing),
    WITH_RANKS(messages_of_wrong_length_are_dropped),
};

ULI_TEST_MAIN("GpuService", tests)
