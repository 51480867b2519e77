/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport ucx where UCX itself fails. The test puts its own table of
 * UCX's calls in between: its rendezvous never end, as may happen with UCX 1.18
 * to 1.22 when a peer dies at a certain moment. Also the refusals in a fork.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/system/clock.h"
#include "transport/ends.h"
#include "transport/ucx/net.h"

enum { BYTES = 1 << 20, PUTS = 5 };

static const struct uli_ucx_calls *real;
static struct uli_ucx_calls lying;

/* The operation that the test's table holds back, as if UCX had not ended
 * it. */
static struct {
    ucp_send_nbx_callback_t ended;
    void *user_data;
} kept[PUTS];
static int nkept;
static ucp_am_recv_data_nbx_callback_t received;

static ucs_status_ptr_t
message_swallow(ucp_ep_h ep, unsigned id, const void *header,
    size_t header_bytes, const void *data, size_t bytes,
    const ucp_request_param_t *how)
{
    if (!(how->flags & UCP_AM_SEND_FLAG_RNDV))
        return real->am_send_nbx(
            ep, id, header, header_bytes, data, bytes, how);
    assert_true(nkept < PUTS);
    kept[nkept].ended = how->cb.send;
    kept[nkept].user_data = how->user_data;
    return &kept[nkept++];
}

static void
free_request(void *request)
{
    if ((char *)request < (char *)kept ||
        (char *)request >= (char *)&kept[PUTS])
        real->request_free(request);
}

static struct end *
open_end(int32_t rank)
{
    struct uli_settings settings;
    assert_status(uli_settings_load(&settings), ULYX_SUCCESS);
    snprintf(settings.ucx_verb, sizeof(settings.ucx_verb), "AM");
    return end_open(&uli_tr_ucx_ops, &settings, rank, 2, BYTES);
}

static void
end_lie(struct end *end)
{
    real = end->net->ucx;
    lying = *real;
    lying.am_send_nbx = message_swallow;
    lying.request_free = free_request;
    nkept = 0;
    end->net->ucx = &lying;
}

/* Breaks the connection, as UCX's error handler does. */
static void
break_connection(struct end *end, int32_t to)
{
    struct uli_ucx_peer *peer = &end->net->peers[to];
    uli_ucx_enter(end->net);
    peer->broken = true;
    peer->cause = UCS_ERR_CONNECTION_RESET;
    uli_ucx_due(end->net, peer);
    uli_ucx_leave(end->net);
}

static void
open_pair(struct end **a_p, struct end **b_p)
{
    *a_p = open_end(0);
    *b_p = open_end(1);
    ends_join(*a_p, *b_p);
    assert_status(end_put(*a_p, 1, "x", 1, 0, 0, 1), ULYX_SUCCESS);
    assert_true(ends_wait(*a_p, *b_p, &(*b_p)->words[0], 1, 10));
}

/* late: UCX ends the operations after they were abandoned. */
static void
check_given_up(bool late)
{
    struct end *a, *b;
    unsigned char *source = calloc(1, BYTES);
    open_pair(&a, &b);
    end_lie(a);
    for (int i = 0; i < PUTS; i++)
        assert_status(
            end_put(a, 1, source, BYTES, 0, 1, (uint64_t)i + 1), ULYX_SUCCESS);
    for (int i = 0; i < 1000; i++) /* a living peer's are not abandoned */
        a->ops->progress(a->net);
    assert_int_equal(atomic_load(&a->pending), PUTS);
    assert_false(a->ops->settled(a->net, 1));
    break_connection(a, 1);
    assert_true(ends_wait_count(a, NULL, &a->pending, 0, 30));
    assert_true(a->ops->settled(a->net, 1));
    assert_int_equal(atomic_load(&a->lost[1]), 1);
    assert_int_equal(a->net->flying, 0);
    for (int i = 0; late && i < nkept; i++)
        kept[i].ended(&kept[i], UCS_ERR_CANCELED, kept[i].user_data);
    assert_int_equal(atomic_load(&a->pending), 0);
    assert_true(a->ops->settled(a->net, 1));
    assert_int_equal(a->net->flying, 0);
    assert_int_equal(uli_list_empty(&a->net->peers[1].sends), late);
    free(source); /* it is no longer read */
    end_close(a, 10);
    end_close(b, 0.1);
}

static void
operations_that_ucx_never_ends_are_abandoned(void **state)
{
    (void)state;
    check_given_up(false);
}

static void
operations_that_ucx_ends_late_count_once(void **state)
{
    (void)state;
    check_given_up(true);
}

static ucs_status_ptr_t
swallow_receive(ucp_worker_h worker, void *descriptor, void *buffer,
    size_t bytes, const ucp_request_param_t *how)
{
    (void)worker;
    (void)descriptor;
    (void)buffer;
    (void)bytes;
    assert_int_equal(nkept, 0);
    received = how->cb.recv_am;
    kept[0].user_data = how->user_data;
    return &kept[nkept++];
}

/* A peer that other ranks have found dead: its connection is whole, and one of
 * its puts is arriving. The window is free when that put has been abandoned;
 * nothing more is accepted from the peer. */
static void
puts_of_dead_peers_are_waited_for(void **state)
{
    struct end *a, *b;
    unsigned char *source = calloc(1, BYTES);
    (void)state;
    open_pair(&a, &b);
    end_lie(b);
    lying.am_send_nbx = real->am_send_nbx;
    lying.am_recv_data_nbx = swallow_receive;
    assert_status(end_put(a, 1, source, BYTES, 0, 1, 1), ULYX_SUCCESS);
    uli_deadline_t deadline = uli_deadline_in(30);
    while (nkept == 0 && !uli_deadline_over(deadline)) {
        a->ops->progress(a->net);
        b->ops->progress(b->net);
    }
    assert_false(b->ops->landed(b->net, 0, false));
    for (int i = 0; i < 1000; i++) /* a living peer's put is not abandoned */
        b->ops->progress(b->net);
    assert_false(b->ops->landed(b->net, 0, true));
    while (!b->ops->landed(b->net, 0, true) && !uli_deadline_over(deadline))
        b->ops->progress(b->net);
    assert_true(b->ops->landed(b->net, 0, true));
    received(&kept[0], UCS_OK, BYTES, kept[0].user_data); /* UCX ends it late */
    assert_int_equal(atomic_load(&b->words[1]), 0);
    assert_true(uli_list_empty(&b->net->peers[0].receives));
    assert_int_equal(atomic_load(&b->lost[0]), 0); /* the caller knows */
    end_close(b, 0.1);
    end_close(a, 0.1);
    free(source);
}

/* The cost of keepalive depends on the peers with data on its way, not on the
 * number of ranks: only those peers are in the list. */
static void
idle_peers_are_not_looked_at(void **state)
{
    enum { MANY = 4096 };
    struct uli_settings settings;
    (void)state;
    assert_status(uli_settings_load(&settings), ULYX_SUCCESS);
    struct end *a = end_open(&uli_tr_ucx_ops, &settings, 0, MANY, 64);
    struct end *b = end_open(&uli_tr_ucx_ops, &settings, 1, MANY, 64);
    ends_join(a, b);
    assert_true(uli_list_empty(&a->net->watched));
    assert_status(end_put(a, 1, "x", 1, 0, 0, 1), ULYX_SUCCESS);
    assert_true(a->net->watched.next == &a->net->peers[1].watch);
    assert_true(a->net->watched.prev == &a->net->peers[1].watch);
    assert_true(ends_wait(a, b, &b->words[0], 1, 10));
    assert_status(end_put(b, 0, "x", 1, 0, 1, 1), ULYX_SUCCESS);
    assert_true(ends_wait(b, a, &a->words[1], 1, 10)); /* it has answered */
    int64_t deadline = uli_deadline_in(10);
    while (!uli_list_empty(&a->net->watched) && !uli_deadline_over(deadline))
        a->ops->progress(a->net);
    assert_true(uli_list_empty(&a->net->watched));
    assert_true(uli_list_empty(&a->net->probed));
    end_close(a, 0.1);
    end_close(b, 0.1);
}

/* Opens an end in a fork. Returns 0 on success. The parent's end, if any, is
 * closed in the fork like any other. */
static int
open_in_fork(struct end *inherited)
{
    int how;
    pid_t child = fork();
    if (child == 0) {
        char parent[32];
        struct uli_settings settings;
        struct uli_net *net = NULL;
        alarm(20); /* ends a wait without end */
        snprintf(parent, sizeof(parent), "from process %d ", (int)getppid());
        if (inherited)
            inherited->ops->close(inherited->net, uli_deadline_in(10));
        struct uli_net_params params = {.nranks = 2, .settings = &settings};
        ulyx_status_t status = uli_settings_load(&settings);
        if (status == ULYX_SUCCESS)
            status = uli_tr_ucx_ops.net->open(&params, &net);
        if (status == ULYX_SUCCESS)
            uli_tr_ucx_ops.net->close(net, uli_deadline_in(10));
        else if (status == ULYX_ERR_FORKED && strstr(ulyx_last_error(), parent))
            _exit(2);
        _exit(status != ULYX_SUCCESS);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    return how;
}

static void
fork_of_a_user_of_ucx_is_refused(void **state)
{
    (void)state;
    assert_int_equal(open_in_fork(NULL), 0);
    struct end *a = open_end(0);
    struct end *b = open_end(1);
    int how = open_in_fork(NULL);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 2);
    end_close(b, 0.1);
    how = open_in_fork(a);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 2);
    end_close(a, 0.1);
    assert_int_equal(open_in_fork(NULL), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(operations_that_ucx_never_ends_are_abandoned),
    cmocka_unit_test(operations_that_ucx_ends_late_count_once),
    cmocka_unit_test(puts_of_dead_peers_are_waited_for),
    cmocka_unit_test(idle_peers_are_not_looked_at),
    cmocka_unit_test(fork_of_a_user_of_ucx_is_refused),
};

ULI_TEST_MAIN("UcxFault", tests)
