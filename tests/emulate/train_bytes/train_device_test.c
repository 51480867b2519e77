/* SPDX-License-Identifier: Apache-2.0
 *
 * train_bytes --device cuda on an emulated device, with ranks as threads: the
 * losses and gradient norms of its steps are equal on all ranks, and equal to
 * those of one rank on the host within single precision.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "emulate.h"
#include "emulate/driver/driver.h"
#include "launch.h"
#include "support/test.h"

enum { MOST_RANKS = 3, STEPS = 3 };

/* The tolerance of ranks on the host in single precision
 * (train_ranks_test.c). */
#define TOLERANCE 1e-6

struct seen {
    double losses[MOST_RANKS][STEPS], norms[MOST_RANKS][STEPS];
};

static unsigned char text[1001];

static struct corpus
corpus_of_text(void)
{
    text[0] = 'a', text[1] = 'b';
    for (int i = 2; i < (int)sizeof(text); i++)
        text[i] =
            (unsigned char)(32 + (text[i - 1] * 3 + text[i - 2] + i % 5) % 90);
    return (struct corpus){text, sizeof(text), 0};
}

static void
view_keep(void *context, const struct train_view *view)
{
    struct seen *seen = context;
    seen->losses[view->rank][view->step] = view->loss;
    seen->norms[view->rank][view->step] = view->norm;
}

static struct options
options_tiny(void)
{
    struct options options;
    options_default(&options);
    options.seq = 29;
    options.docs = 2;
    options.layers = 1;
    options.dim = 32;
    options.heads = 4;
    options.kv_heads = 2;
    options.hidden = 32;
    options.steps = STEPS;
    options.as_threads = true;
    options.threads = 1;
    options.timeout_s = 60;
    return options;
}

static void
seen_train(
    struct options options, bool device, int64_t ranks, struct seen *seen_p)
{
    const struct emu_config machine = {
        .sm_count = 4, .host_threads = (int)ranks + 1, .wall_time = true};
    struct corpus corpus = corpus_of_text();
    options.device = device;
    options.ranks = ranks;
    train_rank_device = train_rank_cuda;
    assert_int_equal(emu_open(&machine), 0);
    assert_int_equal(
        launch_threads(&options, &corpus, view_keep, seen_p, true), 0);
    assert_int_equal(emu_fault_count(), 0);
    assert_int_equal(emu_driver_live(), 0);
    emu_close();
}

static void
check_near(const char *what, int64_t ranks, int step, double here, double there)
{
    double apart = fabs(here - there) / fabs(there);
    if (!(apart <= TOLERANCE))
        fail_msg("%d ranks, step %d: %s is %.9g on the device, %.9g on the "
                 "host: %.3g apart",
            (int)ranks, step, what, here, there, apart);
}

static void
check_device(struct options options, int64_t ranks)
{
    struct seen host, device;
    seen_train(options, false, 1, &host);
    seen_train(options, true, ranks, &device);
    for (int step = 0; step < STEPS; step++) {
        check_near(
            "loss", ranks, step, device.losses[0][step], host.losses[0][step]);
        check_near(
            "norm", ranks, step, device.norms[0][step], host.norms[0][step]);
        for (int64_t r = 1; r < ranks; r++) {
            assert_true(device.losses[r][step] == device.losses[0][step]);
            assert_true(device.norms[r][step] == device.norms[0][step]);
        }
    }
}

static void
one_rank_has_the_hosts_losses(void **state)
{
    (void)state;
    check_device(options_tiny(), 1);
}

static void
two_ranks_have_the_hosts_losses(void **state)
{
    struct options options = options_tiny();
    (void)state;
    options.zigzag = options.save_none = true;
    check_device(options, 2);
}

/* 4 heads on 3 ranks: for equal work, heads are cut by rows, and the cuts
 * follow the documents. */
static void
three_ranks_have_the_hosts_losses(void **state)
{
    struct options options = options_tiny();
    (void)state;
    options.balanced = options.sgd = true;
    check_device(options, 3);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_rank_has_the_hosts_losses),
    cmocka_unit_test(two_ranks_have_the_hosts_losses),
    cmocka_unit_test(three_ranks_have_the_hosts_losses),
};

ULI_TEST_MAIN("EmulateTrain", tests)
