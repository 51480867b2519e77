/* SPDX-License-Identifier: Apache-2.0
 *
 * The suite that every transport with ULI_TR_PUT must pass, between ends of one
 * process. The oracle of data is a copy of the bytes that the window should
 * hold after each signal.
 */
#include "transport/put_conformance.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/system/clock.h"
#include "support/random.h"
#include "transport/ends.h"

static struct uli_settings settings;

static void
ends_pair(struct end **a_p, struct end **b_p, int64_t bytes)
{
    assert_status(uli_settings_load(&settings), ULYX_SUCCESS);
    *a_p = end_open(put_subject, &settings, 0, 2, bytes);
    *b_p = end_open(put_subject, &settings, 1, 2, bytes);
    ends_join(*a_p, *b_p);
}

/* Closes both ends at the same time, because each needs the other's
 * progress. */
static void
ends_part(struct end *a, struct end *b)
{
    struct end_service *service = end_serve(b);
    end_close(a, 10);
    end_service_stop(service);
    assert_int_equal(atomic_load(&b->lost[0]), 0);
    end_close(b, 10);
}

static int64_t
any_size(struct test_random *random, int64_t most)
{
    int64_t top = test_random_in(random, 0, 25); /* up to 32 MiB */
    int64_t size = test_random_in(random, 0, (int64_t)1 << top);
    return size < most ? size : most;
}

/* Puts random pieces to random places, one at a time. */
void
put_lands_whole(void **state)
{
    (void)state;
    struct test_random random = {test_seed(21)};
    const int64_t bytes = (int64_t)32 << 20;
    struct end *a, *b;
    ends_pair(&a, &b, bytes);
    unsigned char *source = malloc((size_t)bytes + 64);
    unsigned char *mirror = malloc((size_t)bytes);
    memset(mirror, b->guard, (size_t)bytes);
    for (int64_t i = 1; i <= test_draws(40); i++) {
        int64_t size = any_size(&random, bytes);
        int64_t skew = test_random_in(&random, 0, 63);
        int64_t offset = test_random_in(&random, 0, bytes - size);
        for (int64_t k = 0; k < size; k += 8)
            memcpy(source + skew + k, &(uint64_t){test_random_next(&random)},
                (size_t)(size - k < 8 ? size - k : 8));
        memcpy(mirror + offset, source + skew, (size_t)size);
        assert_status(
            end_put(a, 1, source + skew, size, offset, 3, (uint64_t)i),
            ULYX_SUCCESS);
        assert_true(ends_wait(a, b, &b->words[3], (uint64_t)i, 30));
        assert_memory_equal(end_data(b) + offset, source + skew, (size_t)size);
        assert_true(ends_wait_count(a, b, &a->pending, 0, 30));
    }
    assert_memory_equal(end_data(b), mirror, (size_t)bytes);
    assert_true(ends_wait_settled(a, b, 1, 30));
    free(source);
    free(mirror);
    ends_part(a, b);
}

/* ---- signals ------------------------------------------------------------- */

/* All bytes of piece i have the value i. Its signal stores i + 1 in word i mod
 * ENDS_WORDS, so a word stands for its last piece only. */
enum { PIECES = 512, PIECE = 100000 };

struct watch {
    struct end *end;
    _Atomic bool stop;
    int64_t seen, torn, backwards;
};

static int64_t
piece_bytes(int64_t i)
{
    return i % 3 == 0 ? PIECE : i % 3 == 1 ? 700 + i : 20000;
}

static bool
is_whole(const unsigned char *piece, int64_t i)
{
    for (int64_t k = 0; k < piece_bytes(i); k++)
        if (piece[k] != (unsigned char)(i * 7 + 1))
            return false;
    return true;
}

static void *
watch_thread(void *argument)
{
    struct watch *watch = argument;
    uint64_t before[ENDS_WORDS] = {0};
    while (!atomic_load(&watch->stop)) {
        for (int w = 0; w < ENDS_WORDS; w++) {
            uint64_t now = atomic_load_explicit(
                &watch->end->words[w], memory_order_acquire);
            watch->backwards += now < before[w];
            if (now <= before[w])
                continue;
            before[w] = now;
            watch->seen++;
            int64_t i = (int64_t)now - 1;
            watch->torn +=
                !is_whole(end_data(watch->end) + i * (int64_t)PIECE, i);
        }
        sched_yield();
    }
    return NULL;
}

/* All pieces are on their way at the same time, and a thread checks the data of
 * each signal that it reads. */
void
put_signals_after_data(void **state)
{
    (void)state;
    struct end *a, *b;
    pthread_t thread;
    ends_pair(&a, &b, (int64_t)PIECES * PIECE);
    unsigned char *source = malloc((size_t)PIECES * PIECE);
    struct watch watched = {.end = b};
    assert_int_equal(pthread_create(&thread, NULL, watch_thread, &watched), 0);
    struct end_service *service = end_serve(b);
    for (int64_t i = 0; i < PIECES; i++) {
        unsigned char *piece = source + i * PIECE;
        memset(piece, (int)(i * 7 + 1), (size_t)piece_bytes(i));
        assert_status(end_put(a, 1, piece, piece_bytes(i), i * PIECE,
                          (int)(i % ENDS_WORDS), (uint64_t)i + 1),
            ULYX_SUCCESS);
    }
    for (int64_t i = PIECES - ENDS_WORDS; i < PIECES; i++)
        assert_true(
            ends_wait(a, NULL, &b->words[i % ENDS_WORDS], (uint64_t)i + 1, 60));
    assert_true(ends_wait_count(a, NULL, &a->pending, 0, 30));
    for (int64_t i = 0; i < PIECES; i++)
        assert_true(is_whole(end_data(b) + i * PIECE, i));
    end_service_stop(service);
    atomic_store(&watched.stop, true);
    pthread_join(thread, NULL);
    assert_true(watched.seen > 0);
    assert_int_equal(watched.torn, 0);
    assert_int_equal(watched.backwards, 0);
    free(source);
    ends_part(a, b);
}

/* A large put and then a small one with the same word: whichever lands first,
 * the word ends at the newer value. */
void
put_values_only_grow(void **state)
{
    (void)state;
    struct end *a, *b;
    const int64_t bytes = (int64_t)1 << 20;
    ends_pair(&a, &b, bytes);
    unsigned char *source = calloc(1, (size_t)bytes);
    uint64_t last = 0;
    for (uint64_t i = 0; i < 50; i++) {
        assert_status(
            end_put(a, 1, source, bytes, 0, 0, 2 * i + 1), ULYX_SUCCESS);
        assert_status(end_put(a, 1, source, 0, 0, 0, 2 * i + 2), ULYX_SUCCESS);
    }
    int64_t deadline = uli_deadline_in(60);
    while (atomic_load(&a->pending) > 0 || last < 100) {
        uint64_t now = atomic_load(&b->words[0]);
        assert_true(now >= last && !uli_deadline_over(deadline));
        last = now;
        a->ops->progress(a->net);
        b->ops->progress(b->net);
    }
    assert_int_equal(atomic_load(&b->words[0]), 100);
    free(source);
    ends_part(a, b);
}

/* ---- messages ------------------------------------------------------------ */

static void
send_numbered(struct end *end, struct test_random *random, uint64_t number)
{
    unsigned char text[ULI_NET_MESSAGE_BYTES];
    size_t bytes = (size_t)test_random_in(
        random, 8, number % 5 ? 200 : (int64_t)sizeof(text));
    memset(text, 0, sizeof(text));
    memcpy(text, &number, sizeof(number));
    assert_status(
        end->ops->message(end->net, 1 - end->rank, text, bytes), ULYX_SUCCESS);
}

/* Messages both ways, with small and large puts between them; when a message
 * arrives, the small puts before it have landed. */
void
put_messages_keep_order(void **state)
{
    (void)state;
    struct test_random random = {test_seed(22)};
    const int64_t count = 1000, bytes = 400000;
    struct end *a, *b;
    ends_pair(&a, &b, bytes);
    unsigned char *source = calloc(1, (size_t)bytes);
    for (int64_t i = 0; i < count; i++) {
        send_numbered(a, &random, (uint64_t)i);
        send_numbered(b, &random, (uint64_t)i);
        if (i % 7 == 0)
            assert_status(end_put(a, 1, source, i % 2 ? bytes : 900, 0, 5,
                              (uint64_t)i + 1),
                ULYX_SUCCESS);
        if (i % 50 == 0)
            a->ops->progress(a->net);
    }
    assert_true(ends_wait_count(a, b, &b->messages[0], count, 30));
    assert_true(ends_wait_count(a, b, &a->messages[1], count, 30));
    for (int64_t i = 0; i < count; i++) {
        assert_int_equal(b->received[0][i], i);
        assert_int_equal(a->received[1][i], i);
        assert_in_range(b->received_bytes[0][i], 8, ULI_NET_MESSAGE_BYTES);
    }
    assert_true(ends_wait_count(a, b, &a->pending, 0, 30));
    free(source);
    ends_part(a, b);
}

void
put_messages_of_all_sizes(void **state)
{
    (void)state;
    struct end *a, *b;
    unsigned char text[ULI_NET_MESSAGE_BYTES + 1] = {0};
    ends_pair(&a, &b, 64);
    for (int64_t i = 0; i <= 64; i++)
        assert_status(a->ops->message(a->net, 1, text,
                          (size_t)(i * ULI_NET_MESSAGE_BYTES / 64)),
            ULYX_SUCCESS);
    assert_true(ends_wait_count(a, b, &b->messages[0], 65, 30));
    for (int64_t i = 0; i <= 64; i++)
        assert_int_equal(
            b->received_bytes[0][i], i * ULI_NET_MESSAGE_BYTES / 64);
    assert_status(a->ops->message(a->net, 1, text, sizeof(text)),
        ULYX_ERR_INVALID_ARGUMENT);
    ends_part(a, b);
}

/* ---- progress ------------------------------------------------------------ */

/* No caller's thread calls progress: the services do, and sleep in between. */
void
put_moves_by_services(void **state)
{
    (void)state;
    struct end *a, *b;
    const int64_t bytes = (int64_t)8 << 20;
    ends_pair(&a, &b, bytes);
    struct end_service *at_a = end_serve(a), *at_b = end_serve(b);
    unsigned char *source = malloc((size_t)bytes);
    memset(source, 0x3C, (size_t)bytes);
    for (uint64_t i = 1; i <= 20; i++) {
        int64_t deadline = uli_deadline_in(30);
        usleep(5000); /* the services fall asleep */
        assert_status(
            end_put(a, 1, source, i % 2 ? bytes : 100, 0, 1, i), ULYX_SUCCESS);
        while (atomic_load(&b->words[1]) < i && !uli_deadline_over(deadline))
            usleep(100);
        assert_int_equal(atomic_load(&b->words[1]), i);
    }
    end_service_stop(at_a);
    end_service_stop(at_b);
    free(source);
    ends_part(a, b);
}

/* Several callers put at the same time; each has a word of its own. */
struct caller {
    struct end *end;
    int number;
    pthread_t thread;
};
enum { CALLERS = 4, CALLS = 200, SHARE = 65536 };

static void *
call_thread(void *argument)
{
    struct caller *caller = argument;
    unsigned char *source = malloc(SHARE);
    memset(source, caller->number + 1, SHARE);
    for (int i = 1; i <= CALLS; i++)
        if (end_put(caller->end, 1, source, i % 2 ? 3000 : SHARE,
                caller->number * (int64_t)SHARE, caller->number,
                (uint64_t)i) != ULYX_SUCCESS)
            break;
    while (atomic_load(&caller->end->pending) > 0)
        caller->end->ops->progress(caller->end->net);
    free(source);
    return NULL;
}

void
put_takes_many_threads(void **state)
{
    (void)state;
    struct end *a, *b;
    struct caller callers[CALLERS];
    ends_pair(&a, &b, (int64_t)CALLERS * SHARE);
    struct end_service *at_a = end_serve(a), *at_b = end_serve(b);
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){.end = a, .number = i};
        assert_int_equal(
            pthread_create(&callers[i].thread, NULL, call_thread, &callers[i]),
            0);
    }
    for (int i = 0; i < CALLERS; i++)
        pthread_join(callers[i].thread, NULL);
    for (int i = 0; i < CALLERS; i++) {
        assert_true(ends_wait(a, b, &b->words[i], CALLS, 30));
        for (int64_t k = 0; k < SHARE; k++)
            assert_int_equal(
                end_data(b)[i * (int64_t)SHARE + k], (unsigned char)(i + 1));
    }
    end_service_stop(at_a);
    end_service_stop(at_b);
    ends_part(a, b);
}

/* ---- bad input ----------------------------------------------------------- */

static void
check_refused(int64_t bytes, int64_t offset, uint32_t window, int64_t at)
{
    struct end *a, *b;
    ends_pair(&a, &b, 4096);
    unsigned char *source = calloc(1, (size_t)bytes + 1);
    struct uli_net_put put = {
        .data = source,
        .bytes = bytes,
        .window = window,
        .offset = offset,
        .signal_window = ENDS_SIGNALS,
        .signal_offset = at,
        .signal = 1,
        .pending = &a->pending,
    };
    assert_status(a->ops->put(a->net, 1, &put), ULYX_SUCCESS);
    assert_true(ends_wait_count(a, b, &b->lost[0], 1, 30));
    assert_true(strlen(b->how[0]) > 0);
    assert_true(ends_wait_count(a, b, &a->lost[1], 1, 30)); /* is notified */
    assert_true(ends_wait_count(a, b, &a->pending, 0, 30));
    for (int64_t i = 0; i < 4096; i++)
        assert_int_equal(end_data(b)[i], b->guard);
    for (int i = 0; i < ENDS_WORDS; i++)
        assert_int_equal(atomic_load(&b->words[i]), 0);
    assert_status(b->ops->message(b->net, 0, source, 1), ULYX_ERR_RANK_LOST);
    free(source);
    struct end_service *service = end_serve(b);
    end_close(a, 10);
    end_service_stop(service);
    end_close(b, 10);
}

void
put_refuses_other_memory(void **state)
{
    (void)state;
    check_refused(100, 0, 77, 0);                    /* no such window */
    check_refused(200000, 0, 77, 0);                 /* large */
    check_refused(4097, 0, ENDS_DATA, 0);            /* past the window's end */
    check_refused(10, -1, ENDS_DATA, 0);             /* before the window */
    check_refused(10, INT64_MAX, ENDS_DATA, 0);      /* overflow */
    check_refused(10, 0, ENDS_DATA, 8 * ENDS_WORDS); /* signal past the end */
    check_refused(10, 0, ENDS_DATA, 4);              /* not aligned */
}

void
put_refuses_rubbish_addresses(void **state)
{
    (void)state;
    struct end *a, *b;
    char address[ULI_NET_ADDRESS_BYTES + 8];
    size_t bytes;
    ends_pair(&a, &b, 64);
    assert_status(a->ops->address(a->net, address, &bytes), ULYX_SUCCESS);
    assert_in_range(bytes, 1, ULI_NET_ADDRESS_BYTES);
    assert_status(
        a->ops->connect(a->net, 1, address, 0), ULYX_ERR_INVALID_ARGUMENT);
    assert_status(
        a->ops->connect(a->net, 1, address, 3), ULYX_ERR_INVALID_ARGUMENT);
    assert_status(a->ops->connect(a->net, 1, address, sizeof(address)),
        ULYX_ERR_INVALID_ARGUMENT);
    address[0] ^= 1;
    assert_status(
        a->ops->connect(a->net, 1, address, bytes), ULYX_ERR_INVALID_ARGUMENT);
    ends_part(a, b);
}

/* ---- the end ------------------------------------------------------------- */

/* All puts and messages before close arrive. */
void
put_close_delivers(void **state)
{
    (void)state;
    const int64_t bytes = (int64_t)16 << 20;
    for (int round = 0; round < 4; round++) {
        struct end *a, *b;
        ends_pair(&a, &b, bytes);
        unsigned char *source = malloc((size_t)bytes);
        memset(source, 0x77, (size_t)bytes);
        if (round < 2)
            assert_status(end_put(a, 1, source, bytes, 0, 0, 1), ULYX_SUCCESS);
        for (int i = 0; i < 100; i++) {
            assert_status(end_put(a, 1, source, 1000, 0, 1, (uint64_t)i + 1),
                ULYX_SUCCESS);
            assert_status(
                a->ops->message(a->net, 1, source, 500), ULYX_SUCCESS);
        }
        if (round % 2) /* also the other way */
            assert_status(b->ops->message(b->net, 0, source, 9), ULYX_SUCCESS);
        struct end_service *service = end_serve(b);
        end_close(a, 30);
        end_service_stop(service);
        assert_int_equal(atomic_load(&b->words[1]), 100);
        assert_int_equal(atomic_load(&b->messages[0]), 100);
        assert_int_equal(atomic_load(&b->words[0]), round < 2);
        assert_int_equal(atomic_load(&b->lost[0]), 0);
        assert_status(
            b->ops->message(b->net, 0, source, 1), ULYX_ERR_RANK_LOST);
        end_close(b, 10);
        free(source);
    }
}

static int
open_descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) != -1;
    return count;
}

/* A sanitizer keeps freed memory, but finds leaks by itself. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool freed_memory_is_kept = true;
#else
static const bool freed_memory_is_kept = false;
#endif

static int64_t
resident_pages(void)
{
    long long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lld %lld", &total, &resident), 2);
    fclose(file);
    return resident;
}

void
put_opens_and_closes(void **state)
{
    (void)state;
    int descriptors = 0;
    int64_t pages = 0;
    const int64_t rounds = test_draws(60);
    for (int64_t i = 0; i < rounds; i++) {
        struct end *a, *b;
        ends_pair(&a, &b, 65536);
        unsigned char *source = calloc(1, 65536);
        assert_status(
            end_put(a, 1, source, i % 2 ? 65536 : 8, 0, 0, 1), ULYX_SUCCESS);
        assert_true(ends_wait(a, b, &b->words[0], 1, 30));
        assert_true(ends_wait_count(a, b, &a->pending, 0, 30));
        ends_part(a, b);
        free(source);
        if (i == rounds / 2) {
            descriptors = open_descriptors();
            pages = resident_pages();
        }
    }
    assert_int_equal(open_descriptors(), descriptors);
    /* A leak of 64 KiB per open would exceed this; the allocator may vary a
     * little. */
    if (!freed_memory_is_kept)
        assert_in_range(resident_pages(), 0, pages + 8 * rounds / 2);
}

void
put_describes_itself(void **state)
{
    (void)state;
    struct end *a, *b;
    char text[256], brief[5] = {0, 0, 0, 0, 'x'};
    ends_pair(&a, &b, 64);
    a->ops->describe(a->net, 1, text, sizeof(text));
    assert_true(strlen(text) > 10);
    a->ops->describe(a->net, 1, brief, 4);
    assert_int_equal(strlen(brief), 3);
    assert_int_equal(brief[4], 'x');
    ends_part(a, b);
}
