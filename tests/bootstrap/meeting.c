/* SPDX-License-Identifier: Apache-2.0
 *
 * Meetings for tests.
 */
#include "bootstrap/meeting.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "base/status.h"
#include "base/system/random.h"
#include "support/test.h"

static void
pause_s(double seconds)
{
    struct timespec pause = {
        (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&pause, &pause) != 0 && errno == EINTR)
        ;
}

/* ---- roots --------------------------------------------------------------- */

struct uli_root *
meeting_open(enum meeting_kind kind, double deadline_s, double handshake_s,
    struct uli_endpoint *place_p)
{
    struct uli_endpoint place = {.count = 1};
    struct uli_root_params params = {
        .deadline = uli_deadline_in(deadline_s),
        .handshake_s = handshake_s,
        .linger_s = 20,
        .listener_count = 1,
    };
    struct uli_root *root = NULL;
    char name[64];
    unsigned char salt[8];
    assert_status(uli_auth_init(), ULYX_SUCCESS);
    assert_status(uli_random_bytes(place.secret, sizeof(place.secret)), 0);
    assert_status(uli_random_bytes(salt, sizeof(salt)), 0);
    memcpy(params.secret, place.secret, sizeof(place.secret));
    snprintf(name, sizeof(name), "ulyx-test-%d-%02x%02x%02x%02x", (int)getpid(),
        salt[0], salt[1], salt[2], salt[3]);
    struct uli_socket_address *address = &place.addresses[0];
    if (kind == MEETING_UNIX) {
        assert_true(uli_address_abstract(name, address));
        params.same_user = place.same_user = true;
    } else {
        assert_true(uli_address_parse(
            kind == MEETING_V4 ? "127.0.0.1:1" : "[::1]:1", address));
        uli_address_set_port(address, 0);
    }
    assert_int_equal(uli_socket_listen(address, &params.listeners[0]), 0);
    assert_status(uli_root_start(&params, &root), ULYX_SUCCESS);
    *place_p = place;
    return root;
}

bool
meeting_all_ended(void)
{
    uli_deadline_t deadline = uli_deadline_in(5);
    while (uli_root_count() > 0 && !uli_deadline_over(deadline))
        pause_s(0.002);
    return uli_root_count() == 0;
}

void
meeting_close(struct uli_root *root)
{
    uli_root_stop(root, 5);
    assert_true(meeting_all_ended());
}

/* ---- ranks --------------------------------------------------------------- */

unsigned char
meeting_byte(int32_t rank, int gather, size_t at)
{
    return (unsigned char)((size_t)rank * 31 + (size_t)gather * 7 + at * 13 +
                           (at >> 8));
}

struct runner {
    pthread_t thread;
    const struct uli_endpoint *place;
    struct meeting_rank *rank;
};

static bool
table_is_right(const unsigned char *all, const struct meeting_rank *rank, int g)
{
    for (int32_t r = 0; r < rank->nranks; r++)
        for (size_t i = 0; i < rank->bytes; i++)
            if (all[(size_t)r * rank->bytes + i] != meeting_byte(r, g, i))
                return false;
    return true;
}

static ulyx_status_t
gather_all(struct uli_bootstrap *bootstrap, const struct meeting_rank *rank)
{
    ulyx_status_t status = ULYX_SUCCESS;
    unsigned char *mine = malloc(rank->bytes + 1);
    unsigned char *all = malloc(rank->bytes * (size_t)rank->nranks + 1);
    for (int g = 0; g < rank->gathers && !status; g++) {
        for (size_t i = 0; i < rank->bytes; i++)
            mine[i] = meeting_byte(rank->rank, g, i);
        status = bootstrap->ops->gather(bootstrap, mine, rank->bytes, all,
            uli_deadline_in(rank->patience_s));
        if (!status && !table_is_right(all, rank, g))
            status = uli_error(ULYX_ERR_INTERNAL, "wrong table");
    }
    free(mine);
    free(all);
    return status;
}

static void *
run_rank(void *context)
{
    struct runner *runner = context;
    struct meeting_rank *rank = runner->rank;
    struct uli_bootstrap *bootstrap = NULL;
    int fd = -1;
    pause_s(rank->late_s);
    uli_deadline_t deadline = uli_deadline_in(rank->patience_s);
    rank->status = uli_dial(runner->place, 0, deadline, &fd);
    if (!rank->status)
        rank->status = uli_bootstrap_open_star(fd, NULL, rank->nranks,
            rank->rank, (struct uli_port_range){0}, deadline, &bootstrap);
    if (!rank->status && rank->silent)
        pause_s(rank->patience_s);
    else if (!rank->status)
        rank->status = gather_all(bootstrap, rank);
    if (!rank->status && rank->fails)
        rank->status = bootstrap->ops->give_up(bootstrap, ULYX_ERR_NO_MEMORY,
            "no memory for \001 window", deadline);
    snprintf(rank->text, sizeof(rank->text), "%s",
        rank->status ? uli_error_text() : "");
    if (bootstrap)
        bootstrap->ops->close(bootstrap);
    return NULL;
}

void
meeting_run(
    const struct uli_endpoint *place, struct meeting_rank *ranks, int count)
{
    struct runner *runners = calloc((size_t)count, sizeof(*runners));
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 512 * 1024);
    assert_non_null(runners);
    for (int i = 0; i < count; i++) {
        runners[i].place = place;
        runners[i].rank = &ranks[i];
        if (!ranks[i].absent)
            assert_int_equal(pthread_create(&runners[i].thread, &attributes,
                                 run_rank, &runners[i]),
                0);
    }
    for (int i = 0; i < count; i++)
        if (!ranks[i].absent)
            pthread_join(runners[i].thread, NULL);
    pthread_attr_destroy(&attributes);
    free(runners);
}

/* ---- the process --------------------------------------------------------- */

int
meeting_open_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

int
meeting_raw(const struct uli_endpoint *place)
{
    int fd = -1;
    if (uli_socket_connect(&place->addresses[0], uli_deadline_in(5), &fd))
        return -1;
    return fd;
}

int
meeting_raw_drain(int fd, double limit_s)
{
    uli_deadline_t deadline = uli_deadline_in(limit_s);
    unsigned char byte;
    int count = 0, number;
    while ((number = uli_socket_receive(fd, &byte, 1, deadline)) == 0)
        count++;
    return number == ETIMEDOUT ? -1 : count;
}
