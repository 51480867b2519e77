/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocations during puts and messages: this program's malloc counts them, by
 * the caller's address and by the present call of UCX. ulyx must not allocate
 * once the first puts have been made; allocations of UCX itself are printed, by
 * verb and size.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include "base/system/clock.h"
#include "transport/ends.h"
#include "transport/ucx/net.h"

/* ---- malloc -------------------------------------------------------------- */

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
extern char __executable_start, etext;

enum which {
    OTHER,
    SEND,
    PUT,
    FLUSH,
    TAG_SEND,
    RECEIVE,
    TAG_RECEIVE,
    PROGRESS,
    CALLS
};
static const char *const call_names[CALLS] = {"outside of UCX's calls",
    "am_send", "put", "flush", "tag_send", "am_recv_data", "tag_recv",
    "progress"};

static __thread bool counts;
static __thread enum which under_way;
static int64_t ours, theirs[CALLS], their_bytes;

static void
allocation_count(const void *caller, size_t bytes)
{
    const char *at = caller;
    if (!counts)
        return;
    if (at >= &__executable_start && at < &etext) {
        ours++;
    } else {
        theirs[under_way]++;
        their_bytes += (int64_t)bytes;
    }
}

void *
malloc(size_t bytes)
{
    allocation_count(__builtin_return_address(0), bytes);
    return __libc_malloc(bytes);
}

void *
calloc(size_t number, size_t bytes)
{
    allocation_count(__builtin_return_address(0), number * bytes);
    return __libc_calloc(number, bytes);
}

void *
realloc(void *memory, size_t bytes)
{
    allocation_count(__builtin_return_address(0), bytes);
    return __libc_realloc(memory, bytes);
}

int
posix_memalign(void **memory_p, size_t alignment, size_t bytes)
{
    allocation_count(__builtin_return_address(0), bytes);
    *memory_p = __libc_memalign(alignment, bytes);
    return *memory_p ? 0 : 12; /* ENOMEM */
}

/* ---- calls of UCX -------------------------------------------------------- */

static const struct uli_ucx_calls *real;
static struct uli_ucx_calls watched;

/* A callback of ulyx may call UCX again. */
#define WITHIN(kind, expression)                                               \
    do {                                                                       \
        enum which before = under_way;                                         \
        under_way = (kind);                                                    \
        __typeof__(expression) result = (expression);                          \
        under_way = before;                                                    \
        return result;                                                         \
    } while (0)

static ucs_status_ptr_t
send_am(ucp_ep_h ep, unsigned id, const void *header, size_t header_bytes,
    const void *data, size_t bytes, const ucp_request_param_t *how)
{
    WITHIN(SEND,
        real->am_send_nbx(ep, id, header, header_bytes, data, bytes, how));
}

static ucs_status_ptr_t
put_data(ucp_ep_h ep, const void *data, size_t bytes, uint64_t to,
    ucp_rkey_h key, const ucp_request_param_t *how)
{
    WITHIN(PUT, real->put_nbx(ep, data, bytes, to, key, how));
}

static ucs_status_ptr_t
flush_all(ucp_ep_h ep, const ucp_request_param_t *how)
{
    WITHIN(FLUSH, real->ep_flush_nbx(ep, how));
}

static ucs_status_ptr_t
tag_send(ucp_ep_h ep, const void *data, size_t bytes, ucp_tag_t tag,
    const ucp_request_param_t *how)
{
    WITHIN(TAG_SEND, real->tag_send_nbx(ep, data, bytes, tag, how));
}

static ucs_status_ptr_t
receive_am(ucp_worker_h worker, void *descriptor, void *data, size_t bytes,
    const ucp_request_param_t *how)
{
    WITHIN(
        RECEIVE, real->am_recv_data_nbx(worker, descriptor, data, bytes, how));
}

static ucs_status_ptr_t
tag_receive(ucp_worker_h worker, void *data, size_t bytes, ucp_tag_t tag,
    ucp_tag_t mask, const ucp_request_param_t *how)
{
    WITHIN(
        TAG_RECEIVE, real->tag_recv_nbx(worker, data, bytes, tag, mask, how));
}

static unsigned
progress_counted(ucp_worker_h worker)
{
    WITHIN(PROGRESS, real->worker_progress(worker));
}

static void
end_watch(struct end *end)
{
    real = end->net->ucx;
    watched = *real;
    watched.am_send_nbx = send_am;
    watched.put_nbx = put_data;
    watched.ep_flush_nbx = flush_all;
    watched.tag_send_nbx = tag_send;
    watched.am_recv_data_nbx = receive_am;
    watched.tag_recv_nbx = tag_receive;
    watched.worker_progress = progress_counted;
}

/* ---- puts ---------------------------------------------------------------- */

enum { DEPTH = 4, WARM = 200, PUTS = 200, WINDOW = 4 << 20 };

static struct end *
open_end(int32_t rank, const char *verb)
{
    struct uli_settings settings;
    assert_status(uli_settings_load(&settings), ULYX_SUCCESS);
    snprintf(settings.ucx_verb, sizeof(settings.ucx_verb), "%s", verb);
    settings.insecure = strcmp(verb, "PUT") == 0; /* also over TCP */
    return end_open(&uli_tr_ucx_ops, &settings, rank, 2, WINDOW);
}

static void
bytes_move(struct end *a, struct end *b, const void *source, int64_t bytes,
    int64_t puts, uint64_t *value)
{
    uint64_t end = *value + (uint64_t)puts;
    int64_t deadline = uli_deadline_in(60);
    while (atomic_load(&b->words[0]) < end || atomic_load(&a->pending) > 0) {
        if (*value < end && *value - atomic_load(&b->words[0]) < DEPTH)
            assert_status(
                end_put(a, 1, source, bytes, 0, 0, ++*value), ULYX_SUCCESS);
        a->ops->progress(a->net);
        b->ops->progress(b->net);
        assert_false(uli_deadline_over(deadline));
    }
}

static void
check_put(const char *verb, int64_t bytes)
{
    struct end *a = open_end(0, verb), *b = open_end(1, verb);
    unsigned char *source = calloc(1, WINDOW);
    uint64_t value = 0;
    end_watch(a);
    a->net->ucx = b->net->ucx = &watched;
    ends_join(a, b);
    bytes_move(a, b, source, bytes, WARM, &value);
    ours = their_bytes = 0;
    memset(theirs, 0, sizeof(theirs));
    counts = true;
    bytes_move(a, b, source, bytes, PUTS, &value);
    counts = false;
    char text[256];
    int length = 0;
    text[0] = 0;
    for (int c = 0; c < CALLS; c++)
        if (theirs[c])
            length += snprintf(text + length, sizeof(text) - (size_t)length,
                ", %.2f in %s", (double)theirs[c] / PUTS, call_names[c]);
    print_message("%s, %lld bytes: ours %lld; UCX's a put, %lld bytes%s\n",
        verb, (long long)bytes, (long long)ours,
        (long long)(their_bytes / PUTS), text);
    assert_int_equal(ours, 0);
    struct end_service *service = end_serve(b);
    end_close(a, 10);
    end_service_stop(service);
    end_close(b, 10);
    free(source);
}

static void
puts_allocate_nothing_of_ours(void **state)
{
    static const char *const verbs[] = {"AM", "PUT", "TAG"};
    static const int64_t sizes[] = {8, 60000, 1 << 20};
    (void)state;
    for (size_t v = 0; v < sizeof(verbs) / sizeof(verbs[0]); v++)
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
            check_put(verbs[v], sizes[i]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(puts_allocate_nothing_of_ours),
};

ULI_TEST_MAIN("UcxAlloc", tests)
