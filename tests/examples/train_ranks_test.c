/* SPDX-License-Identifier: Apache-2.0
 *
 * train_bytes on P ranks compared with one rank: the gradient of every
 * parameter, its global norm, and the losses of the following steps. 6 query
 * heads and 2 KV heads on 2, 3, 4 and 6 ranks give whole KV heads, KV heads
 * that ranks share, and uneven heads. The 61 tokens are uneven too, so ranks
 * predict different numbers of tokens. Ranks are threads here; the tests of the
 * program use processes.
 */
#include "support/test.h"

#include "launch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 8, MOST_STEPS = 50 };

/* What the hook was called with. */
struct seen {
    bool f64;
    int64_t parameter_count, values;
    struct parameter parameters[32];
    double *gradients[MOST_RANKS]; /* gradients of step 1, of each rank */
    double losses[MOST_RANKS][MOST_STEPS], norms[MOST_RANKS][MOST_STEPS];
};

static unsigned char text[3001];

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
    const struct parameter *last = &view->parameters[view->parameter_count - 1];
    int64_t values = last->at + last->in * last->out;
    double *copy;

    seen->losses[view->rank][view->step] = view->loss;
    seen->norms[view->rank][view->step] = view->norm;
    if (view->step > 0)
        return;
    copy = malloc((size_t)values * sizeof(*copy));
    for (int64_t i = 0; i < values; i++)
        copy[i] = seen->f64 ? ((const double *)view->gradients)[i]
                            : (double)((const float *)view->gradients)[i];
    seen->gradients[view->rank] = copy;
    if (view->rank == 0) {
        seen->values = values;
        seen->parameter_count = view->parameter_count;
        memcpy(seen->parameters, view->parameters,
            (size_t)view->parameter_count * sizeof(*view->parameters));
    }
}

/* Products of other shapes round differently, and a deeper model amplifies
 * this: in single precision two layers come close to 1e-6. Tests in single
 * precision therefore have one layer. */
static struct options
options_small(bool f64)
{
    struct options options;

    options_default(&options);
    options.f64 = f64;
    options.seq = 61;
    options.layers = f64 ? 2 : 1;
    options.dim = 48;
    options.hidden = f64 ? 64 : 32;
    options.steps = 10;
    options.as_threads = true;
    options.threads = 1;
    options.timeout_s = 60;
    return options;
}

static struct seen *
seen_train(struct options options, int64_t ranks)
{
    struct corpus corpus = corpus_of_text();
    struct seen *seen = calloc(1, sizeof(*seen));

    options.ranks = ranks;
    seen->f64 = options.f64;
    assert_int_equal(
        launch_threads(&options, &corpus, view_keep, seen, true), 0);
    return seen;
}

static void
seen_drop(struct seen *seen)
{
    for (int r = 0; r < MOST_RANKS; r++)
        free(seen->gradients[r]);
    free(seen);
}

/* Returns the relative L2 distance of two vectors. */
static double
values_distance(int64_t count, const double *a, const double *b)
{
    double apart = 0, size = 0;

    for (int64_t i = 0; i < count; i++) {
        apart += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
    }
    return size > 0 ? sqrt(apart / size) : apart > 0;
}

static void
compare_gradients(const struct seen *one, const struct seen *many,
    int64_t ranks, double tolerance)
{
    double norm = fabs(many->norms[0][0] - one->norms[0][0]) / one->norms[0][0];

    for (int64_t i = 0; i < one->parameter_count; i++) {
        const struct parameter *p = &one->parameters[i];
        double apart = values_distance(p->in * p->out,
            many->gradients[0] + p->at, one->gradients[0] + p->at);

        if (!(apart <= tolerance))
            fail_msg("%d ranks: gradient of %s is %.3g from one rank's",
                (int)ranks, p->name, apart);
    }
    if (!(norm <= tolerance))
        fail_msg("%d ranks: norm is %.3g from one rank's", (int)ranks, norm);
    /* Every rank must have equal bits, or replicas drift apart. */
    for (int64_t r = 1; r < ranks; r++)
        assert_memory_equal(many->gradients[r], many->gradients[0],
            (size_t)many->values * sizeof(double));
}

static void
compare_losses(const struct seen *one, const struct seen *many, int64_t ranks,
    int64_t steps)
{
    for (int64_t i = 0; i < steps; i++) {
        double tolerance = i < 10 ? 1e-5 : 1e-4;
        double apart =
            fabs(many->losses[0][i] - one->losses[0][i]) / one->losses[0][i];

        if (!(apart <= tolerance))
            fail_msg("%d ranks, step %d: loss %.9g, one rank's %.9g",
                (int)ranks, (int)i + 1, many->losses[0][i], one->losses[0][i]);
        for (int64_t r = 1; r < ranks; r++)
            assert_true(many->losses[r][i] == many->losses[0][i]);
    }
}

static void
runs_compare(struct options options)
{
    static const int64_t counts[] = {2, 3, 4, 6};
    struct seen *one = seen_train(options, 1);

    for (int i = 0; i < 4; i++) {
        struct seen *many = seen_train(options, counts[i]);

        compare_gradients(one, many, counts[i], options.f64 ? 1e-12 : 1e-6);
        compare_losses(one, many, counts[i], options.steps);
        seen_drop(many);
    }
    seen_drop(one);
}

static void
adamw_with_clipping_f32(void **state)
{
    struct options options = options_small(false);

    (void)state;
    options.steps = 50;
    /* less than the norms of all steps, so it always clips */
    options.clip = 0.5;
    runs_compare(options);
}

static void
adamw_with_clipping_f64(void **state)
{
    struct options options = options_small(true);

    (void)state;
    options.clip = 0.5;
    runs_compare(options);
}

static void
plain_sgd_f32(void **state)
{
    struct options options = options_small(false);

    (void)state;
    options.sgd = true;
    options.clip = 0;
    options.lr = 0.1;
    options.steps = 50;
    runs_compare(options);
}

static void
plain_sgd_f64(void **state)
{
    struct options options = options_small(true);

    (void)state;
    options.sgd = true;
    options.clip = 0;
    options.lr = 0.1;
    runs_compare(options);
}

/* AdamW is independent of the gradient's scale; SGD shows the effect of
 * clipping. */
static void
sgd_with_clipping(void **state)
{
    (void)state;
    for (int f64 = 0; f64 < 2; f64++) {
        struct options options = options_small(f64);

        options.sgd = true;
        options.clip = 0.5;
        options.lr = 0.1;
        options.steps = 25;
        runs_compare(options);
    }
}

static void
balanced_split_and_zigzag_order(void **state)
{
    (void)state;
    for (int f64 = 0; f64 < 2; f64++) {
        struct options options = options_small(f64);

        options.balanced = options.zigzag = true;
        options.steps = 5;
        runs_compare(options);
    }
}

/* The model keeps q, k and v and exchanges them again; tensors lie in
 * windows. */
static void
save_none_and_windows(void **state)
{
    (void)state;
    for (int i = 1; i < 4; i++) {
        struct options options = options_small(true);

        options.save_none = i & 1;
        options.windows = i & 2;
        options.steps = 3;
        runs_compare(options);
    }
}

/* There are fewer tokens than ranks, so some ranks have none. */
static void
ranks_without_tokens(void **state)
{
    struct options options = options_small(true);

    (void)state;
    options.seq = 5;
    options.docs = 2;
    runs_compare(options);
}

/* 8 ranks and 6 heads: with whole heads two ranks attend to nothing; balanced,
 * all ranks attend to parts of heads. */
static void
more_ranks_than_heads(void **state)
{
    (void)state;
    for (int balanced = 0; balanced < 2; balanced++) {
        struct options options = options_small(true);
        struct seen *one, *many;

        options.balanced = balanced;
        options.steps = 5;
        one = seen_train(options, 1);
        many = seen_train(options, 8);
        compare_gradients(one, many, 8, 1e-12);
        compare_losses(one, many, 8, options.steps);
        seen_drop(many);
        seen_drop(one);
    }
}

static void
training_lowers_the_loss(void **state)
{
    struct options options = options_small(false);
    struct seen *seen;
    double first = 0, last = 0;

    (void)state;
    options.steps = 50;
    options.lr = 0.01;
    seen = seen_train(options, 3);
    for (int i = 0; i < 5; i++) {
        first += seen->losses[0][i] / 5;
        last += seen->losses[0][45 + i] / 5;
    }
    if (!(last < first - 1))
        fail_msg("loss %.4f at first, %.4f at last", first, last);
    seen_drop(seen);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(adamw_with_clipping_f32),
    cmocka_unit_test(adamw_with_clipping_f64),
    cmocka_unit_test(plain_sgd_f32),
    cmocka_unit_test(plain_sgd_f64),
    cmocka_unit_test(sgd_with_clipping),
    cmocka_unit_test(balanced_split_and_zigzag_order),
    cmocka_unit_test(save_none_and_windows),
    cmocka_unit_test(ranks_without_tokens),
    cmocka_unit_test(more_ranks_than_heads),
    cmocka_unit_test(training_lowers_the_loss),
};

ULI_TEST_MAIN("TrainRanks", tests)
