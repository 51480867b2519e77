/* SPDX-License-Identifier: Apache-2.0
 *
 * How a probe is evaluated, over invented networks: each verb has a true time,
 * and each turn takes that time, a little more, and sometimes very much more,
 * as on a machine with other load. Also the probe itself, by a clock of the
 * test: time passes only in calls of UCX, so the result does not depend on
 * other load. There the devices count as InfiniBand, over which a probe also
 * tries puts.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "base/system/clock.h"
#include "support/random.h"
#include "transport/ends.h"
#include "transport/ucx/net.h"

/* ---- invented times ------------------------------------------------------ */

enum { ROUNDS = ULI_UCX_PROBE_ROUNDS, VERBS = ULI_UCX_VERBS };

struct net {
    double true_ns[VERBS]; /* 0: the verb has no turns */
    double jitter;         /* at most, as a fraction of a turn's time */
    double disturbed;      /* chance of a turn that takes ten times as long */
};

static void
times_draw(struct test_random *random, const struct net *net,
    int64_t took_ns[ROUNDS][VERBS])
{
    for (int r = 0; r < ROUNDS; r++)
        for (int v = 0; v < VERBS; v++) {
            double ns = net->true_ns[v];
            ns *= 1 + net->jitter * test_random_unit(random);
            if (test_random_unit(random) < net->disturbed)
                ns *= 10;
            took_ns[r][v] = (int64_t)ns;
        }
}

/* counts[VERBS]: draws without a decision. */
static void
choice_judge(uint64_t seed, const struct net *net, int64_t draws,
    int64_t counts[VERBS + 1])
{
    struct test_random random = {test_seed(seed)};
    int64_t took_ns[ROUNDS][VERBS];
    memset(counts, 0, (VERBS + 1) * sizeof(*counts));
    for (int64_t i = 0; i < draws; i++) {
        times_draw(&random, net, took_ns);
        counts[uli_ucx_verb_choose((const int64_t(*)[VERBS])took_ns, ROUNDS)]++;
    }
    print_message("am %lld, put %lld, tag %lld, nothing %lld of %lld\n",
        (long long)counts[0], (long long)counts[1], (long long)counts[2],
        (long long)counts[3], (long long)draws);
}

enum { DRAWS = 20000 };

static void
quiet_links_get_the_fastest(void **state)
{
    const struct {
        double put, tag;
        enum uli_ucx_verb right;
    } cases[] = {
        {1e6, 1e6, ULI_UCX_BY_AM},
        {0.9e6, 0.9e6, ULI_UCX_BY_AM},   /* within the margins */
        {0.8e6, 0.79e6, ULI_UCX_BY_PUT}, /* TAG is not clearly better */
        {0.5e6, 0.6e6, ULI_UCX_BY_PUT},
        {1e8, 0.5e6, ULI_UCX_BY_TAG},
        {0.8e6, 0.5e6, ULI_UCX_BY_TAG},
        {0, 0.5e6, ULI_UCX_BY_TAG},
        {0.5e6, 0, ULI_UCX_BY_PUT},
        {0, 0, ULI_UCX_BY_AM},
    };
    int64_t counts[VERBS + 1];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct net net = {{1e6, cases[i].put, cases[i].tag}, 0.01, 0};
        choice_judge(31, &net, 200, counts);
        assert_int_equal(counts[cases[i].right], 200);
    }
}

/* One turn in five takes ten times as long: that must not choose a slower verb
 * for the link, nor hide a verb that is twice as fast. */
static void
disturbed_links_are_seldom_misjudged(void **state)
{
    const struct net equal = {{1e6, 1e6, 1e6}, 0.3, 0.2},
                     worse = {{1e6, 2e6, 1.5e6}, 0.3, 0.2},
                     better = {{1e6, 0.5e6, 1e6}, 0.3, 0.2};
    int64_t counts[VERBS + 1];
    (void)state;
    choice_judge(32, &equal, DRAWS, counts);
    assert_true(counts[ULI_UCX_BY_PUT] + counts[ULI_UCX_BY_TAG] < DRAWS / 50);
    choice_judge(33, &worse, DRAWS, counts);
    assert_true(counts[ULI_UCX_BY_PUT] + counts[ULI_UCX_BY_TAG] < DRAWS / 500);
    choice_judge(34, &better, DRAWS, counts);
    assert_true(counts[ULI_UCX_BY_AM] + counts[ULI_UCX_BY_TAG] < DRAWS / 50);
    assert_true(counts[ULI_UCX_BY_PUT] > DRAWS / 2);
}

static void
too_few_rounds_decide_nothing(void **state)
{
    int64_t took_ns[ROUNDS][VERBS] = {{100, 10, 100}, {100, 10, 100}};
    (void)state;
    for (int rounds = 0; rounds < ULI_UCX_PROBE_LEAST; rounds++)
        assert_int_equal(
            uli_ucx_verb_choose((const int64_t(*)[VERBS])took_ns, rounds),
            VERBS);
}

/* ---- the probe by the test's clock --------------------------------------- */

enum { LEAST_NS = 100000, SPOILT_MOST_US = 20000 };
#define REST_NS INT64_C(2000000000) /* longer than the pause between probes */

static _Atomic int64_t played_ns; /* 0: the true time */
static const struct uli_ucx_calls *real;
static struct uli_ucx_calls slowed;
static int64_t am_us, put_us, tag_us;
static int spoilt; /* number of large calls that are disturbed from now on */
static struct test_random chance;

int64_t __real_uli_clock_ns(void);
int64_t __wrap_uli_clock_ns(void);

int64_t
__wrap_uli_clock_ns(void)
{
    int64_t played = atomic_load(&played_ns);
    return played ? played : __real_uli_clock_ns();
}

bool __wrap_uli_ucx_is_infiniband(const char *folder, const char *devices);

bool
__wrap_uli_ucx_is_infiniband(const char *folder, const char *devices)
{
    (void)folder, (void)devices;
    return true;
}

static void
take_time(int64_t us)
{
    if (spoilt > 0) {
        spoilt--;
        us = test_random_in(&chance, 0, SPOILT_MOST_US);
    }
    atomic_fetch_add(&played_ns, LEAST_NS + us * 1000);
}

static ucs_status_ptr_t
slow_am(ucp_ep_h ep, unsigned id, const void *header, size_t header_bytes,
    const void *data, size_t bytes, const ucp_request_param_t *how)
{
    if (how->flags & UCP_AM_SEND_FLAG_RNDV)
        take_time(am_us);
    return real->am_send_nbx(ep, id, header, header_bytes, data, bytes, how);
}

static ucs_status_ptr_t
slow_put(ucp_ep_h ep, const void *data, size_t bytes, uint64_t to,
    ucp_rkey_h key, const ucp_request_param_t *how)
{
    take_time(put_us);
    return real->put_nbx(ep, data, bytes, to, key, how);
}

static ucs_status_ptr_t
slow_tag(ucp_ep_h ep, const void *data, size_t bytes, ucp_tag_t tag,
    const ucp_request_param_t *how)
{
    take_time(tag_us);
    return real->tag_send_nbx(ep, data, bytes, tag, how);
}

static struct end *
open_slowed(int32_t rank)
{
    struct uli_settings settings;
    assert_status(uli_settings_load(&settings), ULYX_SUCCESS);
    snprintf(settings.ucx_verb, sizeof(settings.ucx_verb), "AUTO");
    struct end *end = end_open(&uli_tr_ucx_ops, &settings, rank, 2, 1 << 20);
    real = end->net->ucx;
    slowed = *real;
    slowed.am_send_nbx = slow_am;
    slowed.put_nbx = slow_put;
    slowed.tag_send_nbx = slow_tag;
    return end;
}

/* Returns the verb of a link whose calls take these times; *attempts_p: how
 * many probes it took. */
static enum uli_ucx_verb
verb_probe(int64_t am, int64_t put, int64_t tag, int spoil, int *attempts_p)
{
    atomic_store(&played_ns, __real_uli_clock_ns());
    struct end *a = open_slowed(0), *b = open_slowed(1);
    const struct uli_ucx_link *link = &a->net->peers[1].link;
    unsigned char *source = calloc(1, 1 << 20);
    int64_t deadline = uli_deadline_in(20);
    am_us = am, put_us = put, tag_us = tag, spoilt = spoil;
    a->net->ucx = &slowed;
    ends_join(a, b);
    assert_status(end_put(a, 1, source, 1 << 20, 0, 0, 1), ULYX_SUCCESS);
    while (link->state != ULI_UCX_SETTLED ||
           b->net->peers[0].link.state != ULI_UCX_SETTLED) {
        assert_false(uli_deadline_over(deadline));
        if (link->state == ULI_UCX_RESTING) {
            spoilt = 0; /* the disturbance is over */
            atomic_fetch_add(&played_ns, REST_NS);
        }
        a->ops->progress(a->net);
        b->ops->progress(b->net);
    }
    enum uli_ucx_verb verb = link->verb;
    assert_int_equal(b->net->peers[0].link.verb, verb);
    *attempts_p = link->attempts;
    assert_true(ends_wait_count(a, b, &a->pending, 0, 30));
    struct end_service *service = end_serve(b);
    end_close(a, 10);
    end_service_stop(service);
    end_close(b, 10);
    atomic_store(&played_ns, 0);
    free(source);
    return verb;
}

/* Four calls a turn, so 20.4 ms against 0.4. */
static void
probe_finds_what_is_clearly_fastest(void **state)
{
    int attempts;
    (void)state;
    assert_int_equal(verb_probe(5000, 0, 5000, 0, &attempts), ULI_UCX_BY_PUT);
    assert_int_equal(verb_probe(5000, 5000, 0, 0, &attempts), ULI_UCX_BY_TAG);
    assert_int_equal(verb_probe(0, 5000, 5000, 0, &attempts), ULI_UCX_BY_AM);
}

/* The first attempt measures only noise. Whatever it gives, the link is settled
 * in the end, and rightly where the noise was detected.
 */
static void
probe_in_a_bad_moment_ends(void **state)
{
    int attempts;
    (void)state;
    chance.state = test_seed(35);
    for (int64_t i = 0; i < test_draws(12); i++) {
        enum uli_ucx_verb verb = verb_probe(0, 5000, 5000, 60, &attempts);
        print_message("by %s after %d inconclusive attempts\n",
            uli_ucx_verb_name(verb), attempts);
        if (attempts == 1 || attempts == 2) /* a quiet attempt followed */
            assert_int_equal(verb, ULI_UCX_BY_AM);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(quiet_links_get_the_fastest),
    cmocka_unit_test(disturbed_links_are_seldom_misjudged),
    cmocka_unit_test(too_few_rounds_decide_nothing),
    cmocka_unit_test(probe_finds_what_is_clearly_fastest),
    cmocka_unit_test(probe_in_a_bad_moment_ends),
};

ULI_TEST_MAIN("UcxVerbChoice", tests)
