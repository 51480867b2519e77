/* SPDX-License-Identifier: Apache-2.0
 *
 * Exchanges between nodes over a network that delivers puts late and in any
 * order, as transport/net.h allows: random layouts against obvious placement,
 * every byte compared, many calls one after another, with each schedule. A word
 * may announce only the arrival of its own put: if the code infers more, eager
 * slots and chunks of one call or place are taken for those of another, and the
 * bytes differ.
 */
#include "collectives/exchange/reshuffle_world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "support/ranks.h"
#include "support/test.h"
#include "support/thread_net.h"

enum { MAX_RANKS = 6, LIMIT_S = 60, ROUNDS = 3, DELAY_US = 400 };

/* The destinations of a rank before its calls. */
struct before {
    unsigned char *bytes[ULYX_DIRECTIONS][ULI_TENSORS];
};

static void
before_keep(const struct world *w, int rank, struct before *before)
{
    memset(before, 0, sizeof(*before));
    for (int op = 0; op < ULYX_DIRECTIONS; op++)
        for (int t = 0; t < w->c.shape.ntensors; t++) {
            const struct image *image = &w->dst[op][rank][t];
            if (!image->base)
                continue;
            before->bytes[op][t] = malloc((size_t)image->bytes);
            memcpy(before->bytes[op][t], image->base, (size_t)image->bytes);
        }
}

/* Removes what the last call of the operation wrote. */
static void
put_back(struct world *w, int rank, int op, const struct before *before)
{
    for (int t = 0; t < w->c.shape.ntensors; t++) {
        const struct image *image = &w->dst[op][rank][t];
        if (image->base)
            memcpy(image->base, before->bytes[op][t], (size_t)image->bytes);
    }
}

static void
before_forget(struct before *before)
{
    for (int op = 0; op < ULYX_DIRECTIONS; op++)
        for (int t = 0; t < ULI_TENSORS; t++)
            free(before->bytes[op][t]);
}

static int
rank_body(int rank, int nranks, void *context)
{
    struct world *w = context;
    struct before before;
    (void)nranks;
    if (!ranks_expect(world_create(w, rank) == ULYX_SUCCESS))
        return 1;
    before_keep(w, rank, &before);
    bool good = true;
    for (int i = 0; good && i < ROUNDS * w->norder; i++) {
        int op = w->order[i % w->norder];
        put_back(w, rank, op, &before);
        good = ranks_expect(world_execute(w, rank, op) == ULYX_SUCCESS) &&
               ranks_expect(world_check_rank(w, op, rank));
    }
    before_forget(&before);
    return !good ||
           !ranks_expect(ulyx_plan_destroy(w->plans[rank]) == ULYX_SUCCESS);
}

static void
ranks_of(struct world_ranks *ranks, int32_t nranks, int ranks_per_node)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", ranks_per_node);
    setenv("ULYX_RANKS_PER_NODE", text, 1);
    world_ranks_init(ranks, nranks);
    unsetenv("ULYX_RANKS_PER_NODE");
}

static void
run_draw(struct world *w, struct world_ranks *ranks, struct test_random *random,
    const char *algo)
{
    uint64_t state = random->state;
    do
        case_random(&w->c, random, MAX_RANKS, false);
    while (w->c.shape.nranks != ranks->nranks);
    w->algo = algo;
    memset(w->plans, 0, sizeof(w->plans));
    if (!world_draw(w, ranks, random, 2)) {
        uli_layout_destroy(w->layout);
        return;
    }
    world_fill(w);
    int failed = ranks_run_threads(ranks->nranks, rank_body, w, LIMIT_S);
    if (failed || !world_check(w)) {
        printf("%s, state %" PRIu64 "\n", algo, state);
        case_print(&w->c);
        fail();
    }
    world_free(w);
}

static void
run_draws(uint64_t seed, const char *algo)
{
    struct test_random random = {test_seed(seed)};
    struct world *w = calloc(1, sizeof(*w));
    for (int per_node = 1; per_node <= 2; per_node++)
        for (int32_t nranks = 3; nranks <= MAX_RANKS; nranks += 3) {
            struct world_ranks ranks;
            memset(&ranks, 0, sizeof(ranks));
            ranks_of(&ranks, nranks, per_node);
            thread_net_delay(DELAY_US);
            for (int64_t i = 0, draws = test_draws(6); i < draws; i++) {
                w->salt = i;
                run_draw(w, &ranks, &random, algo);
            }
            thread_net_delay(0);
            world_ranks_free(&ranks);
        }
    free(w);
}

static void
direct(void **state)
{
    (void)state;
    run_draws(501, "direct");
}

static void
pairwise(void **state)
{
    (void)state;
    setenv("ULYX_NET_PEERS", "1", 1);
    run_draws(502, "pairwise");
    unsetenv("ULYX_NET_PEERS");
}

static void
hier(void **state)
{
    (void)state;
    run_draws(503, "hier");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(direct),
    cmocka_unit_test(pairwise),
    cmocka_unit_test(hier),
};

ULI_TEST_MAIN("ReshuffleReorder", tests)
