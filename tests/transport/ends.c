/* SPDX-License-Identifier: Apache-2.0
 *
 * See ends.h.
 */
#include "transport/ends.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/system/clock.h"

/* ---- hooks --------------------------------------------------------------- */

static void *
window_target(void *context, uint32_t window, int64_t offset, int64_t bytes)
{
    struct end *end = context;
    unsigned char *base = end_data(end);
    int64_t size = end->bytes;
    if (window == ENDS_SIGNALS) {
        base = (unsigned char *)end->words;
        size = sizeof(end->words);
    } else if (window != ENDS_DATA) {
        return NULL;
    }
    return offset >= 0 && bytes >= 0 && offset <= size - bytes ? base + offset
                                                               : NULL;
}

static void
put_arrived(void *context)
{
    struct end *end = context;
    atomic_fetch_add(&end->arrived, 1);
}

static void
message_arrived(void *context, int32_t from, const void *data, size_t bytes)
{
    struct end *end = context;
    int64_t at = atomic_load(&end->messages[from]);
    /* Not asserted, because the thread may be the library's, and cmocka would
     * jump out of it. */
    if (at < ENDS_MESSAGES) {
        memcpy(&end->received[from][at], data, bytes < 8 ? bytes : 8);
        end->received_bytes[from][at] = (int64_t)bytes;
    }
    atomic_store(&end->messages[from], at + 1);
}

static void
peer_lost(void *context, int32_t peer, const char *how)
{
    struct end *end = context;
    snprintf(end->how[peer], sizeof(end->how[peer]), "%s", how);
    atomic_fetch_add(&end->lost[peer], 1);
}

/* ---- one end ------------------------------------------------------------- */

unsigned char *
end_data(const struct end *end)
{
    return end->memory + ENDS_GUARD;
}

struct end *
end_open(const struct uli_tr_ops *ops, const struct uli_settings *settings,
    int32_t rank, int32_t nranks, int64_t data)
{
    struct end *end = calloc(1, sizeof(*end));
    assert_non_null(end);
    struct uli_net_params params = {
        .rank = rank,
        .nranks = nranks,
        .settings = settings,
        .hooks = {end, window_target, put_arrived, message_arrived, peer_lost},
    };
    end->ops = ops->net;
    end->rank = rank;
    end->nranks = nranks;
    end->bytes = data;
    end->guard = 0xA5;
    end->memory = malloc((size_t)data + 2 * ENDS_GUARD);
    assert_non_null(end->memory);
    memset(end->memory, end->guard, (size_t)data + 2 * ENDS_GUARD);
    assert_status(end->ops->open(&params, &end->net), ULYX_SUCCESS);
    assert_status(
        end->ops->window_add(end->net, ENDS_DATA, end_data(end), data),
        ULYX_SUCCESS);
    assert_status(end->ops->window_add(
                      end->net, ENDS_SIGNALS, end->words, sizeof(end->words)),
        ULYX_SUCCESS);
    return end;
}

void
end_check_guards(const struct end *end)
{
    for (int64_t i = 0; i < ENDS_GUARD; i++) {
        assert_int_equal(end->memory[i], end->guard);
        assert_int_equal(end->memory[ENDS_GUARD + end->bytes + i], end->guard);
    }
}

void
end_close(struct end *end, double seconds)
{
    end->ops->close(end->net, uli_deadline_in(seconds));
    end_check_guards(end);
    free(end->memory);
    free(end);
}

/* ---- pairs --------------------------------------------------------------- */

void
ends_join(struct end *a, struct end *b)
{
    char address[ULI_NET_ADDRESS_BYTES];
    size_t bytes;
    assert_status(a->ops->address(a->net, address, &bytes), ULYX_SUCCESS);
    assert_status(
        b->ops->connect(b->net, a->rank, address, bytes), ULYX_SUCCESS);
    assert_status(b->ops->address(b->net, address, &bytes), ULYX_SUCCESS);
    assert_status(
        a->ops->connect(a->net, b->rank, address, bytes), ULYX_SUCCESS);
}

void
ends_swap(struct end *end, int32_t peer, int socket)
{
    char mine[ULI_NET_ADDRESS_BYTES] = {0}, theirs[ULI_NET_ADDRESS_BYTES];
    size_t bytes, got = 0;
    uint64_t size, other;
    assert_status(end->ops->address(end->net, mine, &bytes), ULYX_SUCCESS);
    size = bytes;
    assert_int_equal(write(socket, &size, sizeof(size)), sizeof(size));
    assert_int_equal(write(socket, mine, sizeof(mine)), sizeof(mine));
    assert_int_equal(read(socket, &other, sizeof(other)), sizeof(other));
    while (got < sizeof(theirs)) {
        ssize_t part = read(socket, theirs + got, sizeof(theirs) - got);
        assert_true(part > 0);
        got += (size_t)part;
    }
    assert_status(
        end->ops->connect(end->net, peer, theirs, other), ULYX_SUCCESS);
}

ulyx_status_t
end_put(struct end *end, int32_t peer, const void *data, int64_t bytes,
    int64_t offset, int word, uint64_t value)
{
    struct uli_net_put put = {
        .data = data,
        .bytes = bytes,
        .window = ENDS_DATA,
        .offset = offset,
        .signal_window = ENDS_SIGNALS,
        .signal_offset = word * 8,
        .signal = value,
        .pending = &end->pending,
    };
    return end->ops->put(end->net, peer, &put);
}

int
ends_meet(const char *host, int port)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    if (host) {
        inet_pton(AF_INET, host, &at.sin_addr);
        for (int i = 0; i < 200; i++) {
            if (connect(listener, (struct sockaddr *)&at, sizeof(at)) == 0)
                return listener;
            close(listener);
            usleep(50000);
            listener = socket(AF_INET, SOCK_STREAM, 0);
        }
        return -1;
    }
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(listener, (struct sockaddr *)&at, sizeof(at)) ||
        listen(listener, 1))
        return -1;
    return accept(listener, NULL, NULL);
}

static void
move_on(struct end *a, struct end *b)
{
    bool happened = a->ops->progress(a->net);
    if (b)
        happened |= b->ops->progress(b->net);
    if (!happened)
        sched_yield();
}

bool
ends_wait(struct end *a, struct end *b, const _Atomic uint64_t *word,
    uint64_t value, double seconds)
{
    int64_t deadline = uli_deadline_in(seconds);
    while (atomic_load(word) < value) {
        if (uli_deadline_over(deadline))
            return false;
        move_on(a, b);
    }
    return true;
}

bool
ends_wait_count(struct end *a, struct end *b, const _Atomic int64_t *count,
    int64_t value, double seconds)
{
    int64_t deadline = uli_deadline_in(seconds);
    while (atomic_load(count) != value) {
        if (uli_deadline_over(deadline))
            return false;
        move_on(a, b);
    }
    return true;
}

bool
ends_wait_settled(struct end *a, struct end *b, int32_t peer, double seconds)
{
    int64_t deadline = uli_deadline_in(seconds);
    while (!a->ops->settled(a->net, peer)) {
        if (uli_deadline_over(deadline))
            return false;
        move_on(a, b);
    }
    return true;
}

/* ---- the service --------------------------------------------------------- */

struct end_service {
    struct end *end;
    pthread_t thread;
    _Atomic bool stop;
};

static void *
serve_thread(void *argument)
{
    struct end_service *service = argument;
    struct end *end = service->end;
    while (!atomic_load(&service->stop)) {
        while (end->ops->progress(end->net))
            continue;
        end->ops->wait(end->net, 1000);
    }
    return NULL;
}

struct end_service *
end_serve(struct end *end)
{
    struct end_service *service = calloc(1, sizeof(*service));
    assert_non_null(service);
    service->end = end;
    assert_int_equal(
        pthread_create(&service->thread, NULL, serve_thread, service), 0);
    return service;
}

void
end_service_stop(struct end_service *service)
{
    atomic_store(&service->stop, true);
    service->end->ops->wake(service->end->net);
    pthread_join(service->thread, NULL);
    free(service);
}
