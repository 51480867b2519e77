/* SPDX-License-Identifier: Apache-2.0
 *
 * The verbs of ucx's links: both ends agree whatever their settings; without a
 * setting a probe settles the verb; puts are used only where both ends permit
 * them; a put's signal never arrives before its data; and keys end with their
 * windows. The flush is also left out, to show the effect: over one connection
 * no error need occur, so the result is only printed.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include "base/system/clock.h"
#include "support/random.h"
#include "transport/ends.h"
#include "transport/ucx/net.h"

static const char *const words[] = {"AM", "PUT", "TAG", "AUTO"};
enum { AUTO = ULI_UCX_BY_PROBE, KINDS = 4 };

static struct uli_settings settings;

static struct end *
open_end(int32_t rank, int kind, int64_t bytes)
{
    assert_status(uli_settings_load(&settings), ULYX_SUCCESS);
    snprintf(settings.ucx_verb, sizeof(settings.ucx_verb), "%s", words[kind]);
    settings.insecure = kind == ULI_UCX_BY_PUT;
    return end_open(&uli_tr_ucx_ops, &settings, rank, 2, bytes);
}

static void
ends_part(struct end *a, struct end *b)
{
    struct end_service *service = end_serve(b);
    end_close(a, 10);
    end_service_stop(service);
    end_close(b, 10);
}

static const struct uli_ucx_link *
link_to(const struct end *end, int32_t peer)
{
    return &end->net->peers[peer].link;
}

/* True once both ends have settled, within ten seconds. */
static bool
both_settle(struct end *a, struct end *b)
{
    int64_t deadline = uli_deadline_in(10);
    while (link_to(a, 1)->state != ULI_UCX_SETTLED ||
           link_to(b, 0)->state != ULI_UCX_SETTLED) {
        if (uli_deadline_over(deadline))
            return false;
        a->ops->progress(a->net);
        b->ops->progress(b->net);
    }
    return true;
}

/* ---- agreement ----------------------------------------------------------- */

/* The expected verb of two settings, of which one is not AUTO. AUTO uses no
 * puts over TCP. */
static int
verb_agreed(int first, int second)
{
    int forced = first == AUTO ? second : first;
    if (first == second)
        return first;
    return (first == AUTO || second == AUTO) && forced != ULI_UCX_BY_PUT
               ? forced
               : ULI_UCX_BY_AM;
}

static void
check_agreement(int first, int second, int starter)
{
    enum { BYTES = 600000 };
    struct end *a = open_end(0, first, BYTES), *b = open_end(1, second, BYTES);
    unsigned char *source = malloc(BYTES);
    memset(source, 0x11, BYTES);
    ends_join(a, b);
    for (int i = 1; i <= 3; i++) {
        if (starter != 1)
            assert_status(
                end_put(a, 1, source, BYTES, 0, 0, (uint64_t)i), ULYX_SUCCESS);
        if (starter != 0)
            assert_status(
                end_put(b, 0, source, BYTES, 0, 0, (uint64_t)i), ULYX_SUCCESS);
    }
    assert_true(both_settle(a, b));
    assert_int_equal(link_to(a, 1)->verb, link_to(b, 0)->verb);
    if (first != AUTO || second != AUTO)
        assert_int_equal(link_to(a, 1)->verb, verb_agreed(first, second));
    for (int i = 4; i <= 6; i++) {
        assert_status(
            end_put(a, 1, source, BYTES, 0, 0, (uint64_t)i), ULYX_SUCCESS);
        assert_true(ends_wait(a, b, &b->words[0], (uint64_t)i, 30));
    }
    assert_memory_equal(end_data(b), source, BYTES);
    assert_true(ends_wait_count(a, b, &a->pending, 0, 30));
    ends_part(a, b);
    free(source);
}

static void
ends_with_different_settings_agree(void **state)
{
    (void)state;
    for (int first = 0; first < KINDS; first++)
        for (int second = 0; second < KINDS; second++)
            for (int starter = 0; starter < 3; starter++)
                check_agreement(first, second, starter);
}

static void
a_probe_is_logged(void **state)
{
    (void)state;
    char text[256];
    struct end *a = open_end(0, AUTO, 1 << 20), *b = open_end(1, AUTO, 1 << 20);
    unsigned char *source = calloc(1, 1 << 20);
    ends_join(a, b);
    assert_status(end_put(a, 1, source, 1 << 20, 0, 0, 1), ULYX_SUCCESS);
    assert_true(both_settle(a, b));
    for (int v = 0; v < ULI_UCX_VERBS; v++)
        assert_int_equal(link_to(a, 1)->best_ns[v] > 0,
            v != ULI_UCX_BY_PUT || a->net->may_put);
    a->ops->describe(a->net, 1, text, sizeof(text));
    print_message("%s\n", text);
    assert_non_null(strstr(text, "MB/s"));
    assert_true(ends_wait_count(a, b, &a->pending, 0, 30));
    ends_part(a, b);
    free(source);
}

/* ---- who may put --------------------------------------------------------- */

static void
puts_over_tcp_are_refused(void **state)
{
    (void)state;
    struct uli_net *net = NULL;
    struct uli_net_params params = {.nranks = 2, .settings = &settings};
    assert_status(uli_settings_load(&settings), ULYX_SUCCESS);
    snprintf(settings.ucx_verb, sizeof(settings.ucx_verb), "PUT");
    settings.insecure = false;
    assert_status(
        uli_tr_ucx_ops.net->open(&params, &net), ULYX_ERR_UNSUPPORTED);
    assert_null(net);
    print_message("%s\n", uli_error_text());
    assert_non_null(strstr(uli_error_text(), "ULYX_UCX_VERB=PUT over "));
    assert_non_null(strstr(uli_error_text(), "ULYX_INSECURE=1"));
}

static void
add_port(const char *folder, const char *port, const char *layer)
{
    char path[256];
    snprintf(path, sizeof(path), "mkdir -p %s/%s && echo %s >%s/%s/link_layer",
        folder, port, layer, folder, port);
    assert_int_equal(system(path), 0);
}

/* An invented machine: one InfiniBand and one RoCE port on each device. */
static void
infiniband_is_distinguished_from_the_rest(void **state)
{
    (void)state;
    const struct {
        const char *devices;
        bool is;
    } cases[] = {{"mlx5_0:1", true}, {"mlx5_0:1,mlx5_1:1", true},
        {"mlx5_0:2", false}, {"mlx5_0:1,mlx5_0:2", false}, {"mlx5_0", false},
        {"mlx5_0:", false}, {"mlx5_0:1,eth0", false}, {"eth0", false},
        {"all", false}, {"", false}, {",", false}, {"mlx5_0:1,", true},
        {":1", false}, {"../mlx5_0:1", false}, {"mlx5_0:../ports/1", false},
        {"^mlx5_0:1", false}, {"mlx5_9:1", false}};
    char folder[] = "/tmp/ulyx-ports-XXXXXX", command[64];
    assert_non_null(mkdtemp(folder));
    add_port(folder, "mlx5_0/ports/1", "InfiniBand");
    add_port(folder, "mlx5_0/ports/2", "Ethernet");
    add_port(folder, "mlx5_1/ports/1", "InfiniBand");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (uli_ucx_is_infiniband(folder, cases[i].devices) != cases[i].is)
            fail_msg("\"%s\" is taken for %s", cases[i].devices,
                cases[i].is ? "another network" : "InfiniBand");
    snprintf(command, sizeof(command), "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* ---- keys --------------------------------------------------------------- */

enum { WARM = ENDS_WORDS - 1 }; /* the word of these puts */

static bool
has_key(const struct end *end, int32_t peer, uint32_t window)
{
    const struct uli_ucx_peer *to = &end->net->peers[peer];
    for (int i = 0; i < to->nkeys; i++)
        if (to->keys[i].window == window && to->keys[i].key)
            return true;
    return false;
}

static void
put_until_key(struct end *a, struct end *b, const unsigned char *source,
    int64_t bytes, uint64_t *value)
{
    int64_t deadline = uli_deadline_in(10);
    while (!has_key(a, 1, ENDS_DATA) && !uli_deadline_over(deadline)) {
        assert_status(
            end_put(a, 1, source, bytes, 0, WARM, ++*value), ULYX_SUCCESS);
        assert_true(ends_wait(a, b, &b->words[WARM], *value, 30));
    }
    assert_true(has_key(a, 1, ENDS_DATA));
    uint64_t placed = a->net->peers[1].placed;
    assert_status(
        end_put(a, 1, source, bytes, 0, WARM, ++*value), ULYX_SUCCESS);
    assert_true(ends_wait(a, b, &b->words[WARM], *value, 30));
    assert_true(ends_wait_count(a, b, &a->pending, 0, 30));
    assert_int_equal(a->net->peers[1].placed, placed + 1); /* sent by PUT */
}

/* ---- order --------------------------------------------------------------- */

enum { PIECE = 300000, PIECES = 24 };

struct watch {
    struct end *end;
    _Atomic bool stop;
    _Atomic int64_t seen;
    int64_t torn;
};

/* All bytes of piece i in pass n have the value n; its word is i. */
static void *
watch_thread(void *argument)
{
    struct watch *watch = argument;
    uint64_t before[PIECES] = {0};
    while (!atomic_load(&watch->stop)) {
        for (int i = 0; i < PIECES; i++) {
            uint64_t now = atomic_load_explicit(
                &watch->end->words[i], memory_order_acquire);
            const unsigned char *at = end_data(watch->end) + i * (size_t)PIECE;
            if (now == before[i])
                continue;
            before[i] = now;
            bool whole = true;
            for (int64_t k = PIECE - 1; k >= 0 && whole; k--)
                whole = at[k] == (unsigned char)now;
            watch->torn += !whole;
            atomic_fetch_add(&watch->seen, 1);
        }
        sched_yield();
    }
    return NULL;
}

/* A pass begins when the last one has been checked. */
static int64_t
torn_puts(bool unflushed, int64_t passes)
{
    int64_t bytes = (int64_t)PIECES * PIECE;
    struct end *a = open_end(0, ULI_UCX_BY_PUT, bytes),
               *b = open_end(1, ULI_UCX_BY_PUT, bytes);
    struct watch watched = {.end = b};
    unsigned char *source = calloc(1, (size_t)bytes);
    pthread_t thread;
    uint64_t value = 0;
    ends_join(a, b);
    put_until_key(a, b, source, PIECE, &value);
    uint64_t placed = a->net->peers[1].placed;
    a->net->unflushed = unflushed;
    assert_int_equal(pthread_create(&thread, NULL, watch_thread, &watched), 0);
    for (int64_t n = 1; n <= passes; n++) {
        memset(source, (int)n, (size_t)bytes);
        for (int i = 0; i < PIECES; i++)
            assert_status(end_put(a, 1, source + i * (size_t)PIECE, PIECE,
                              i * (int64_t)PIECE, i, (uint64_t)n),
                ULYX_SUCCESS);
        for (int i = 0; i < PIECES; i++)
            assert_true(ends_wait(a, b, &b->words[i], (uint64_t)n, 60));
        assert_true(ends_wait_count(a, b, &a->pending, 0, 30));
        while (atomic_load(&watched.seen) < n * PIECES)
            sched_yield();
    }
    atomic_store(&watched.stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(link_to(a, 1)->verb, ULI_UCX_BY_PUT);
    assert_int_equal(a->net->peers[1].placed,
        placed + (uint64_t)passes * PIECES); /* all sent by PUT */
    ends_part(a, b);
    free(source);
    return watched.torn;
}

static void
torn_puts_without_a_flush_are_counted(void **state)
{
    (void)state;
    const int64_t passes = test_draws(12);
    int64_t torn = torn_puts(true, passes);
    print_message("without the flush %lld of %lld puts are torn\n",
        (long long)torn, (long long)passes * PIECES);
}

static void
no_put_is_torn(void **state)
{
    (void)state;
    assert_int_equal(torn_puts(false, test_draws(12)), 0);
}

/* ---- keys ---------------------------------------------------------------- */

/* The window's number is used again, with other memory. */
static void
keys_end_with_their_windows(void **state)
{
    (void)state;
    const int64_t bytes = 500000;
    struct end *a = open_end(0, ULI_UCX_BY_PUT, bytes),
               *b = open_end(1, ULI_UCX_BY_PUT, bytes);
    unsigned char *source = malloc((size_t)bytes), *old = b->memory;
    uint64_t value = 0;
    ends_join(a, b);
    memset(source, 0x21, (size_t)bytes);
    put_until_key(a, b, source, bytes, &value);
    assert_memory_equal(end_data(b), source, (size_t)bytes);
    b->ops->window_remove(b->net, ENDS_DATA);
    b->memory = malloc((size_t)bytes + 2 * ENDS_GUARD);
    memset(b->memory, b->guard, (size_t)bytes + 2 * ENDS_GUARD);
    assert_status(b->ops->window_add(b->net, ENDS_DATA, end_data(b), bytes),
        ULYX_SUCCESS);
    assert_status(b->ops->message(b->net, 0, "again", 5), ULYX_SUCCESS);
    assert_true(ends_wait_count(a, b, &a->messages[1], 1, 30));
    assert_false(has_key(a, 1, ENDS_DATA)); /* the key's end arrived before */
    memset(source, 0x43, (size_t)bytes);
    put_until_key(a, b, source, bytes, &value);
    assert_memory_equal(end_data(b), source, (size_t)bytes);
    for (int64_t i = 0; i < bytes; i++)
        assert_int_equal(old[ENDS_GUARD + i], 0x21);
    free(old);
    ends_part(a, b);
    free(source);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ends_with_different_settings_agree),
    cmocka_unit_test(a_probe_is_logged),
    cmocka_unit_test(puts_over_tcp_are_refused),
    cmocka_unit_test(infiniband_is_distinguished_from_the_rest),
    cmocka_unit_test(torn_puts_without_a_flush_are_counted),
    cmocka_unit_test(no_put_is_torn),
    cmocka_unit_test(keys_end_with_their_windows),
};

ULI_TEST_MAIN("UcxVerb", tests)
