/* SPDX-License-Identifier: Apache-2.0
 *
 * train_bytes on one rank: its gradients compared with finite differences in
 * double, its loss where that is known, and how batches are cut.
 */
#include "support/random.h"
#include "support/test.h"

#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fixture {
    struct options options;
    struct corpus corpus;
    struct batch batch;
    struct attend attend;
    struct model model;
};

/* A text in which each byte depends on the two before it. */
static unsigned char text[997];

static void
write_text(void)
{
    text[0] = 'a', text[1] = 'b';
    for (int i = 2; i < (int)sizeof(text); i++)
        text[i] =
            (unsigned char)(32 + (text[i - 1] * 3 + text[i - 2] + i % 5) % 90);
}

static void
fixture_make(struct fixture *f)
{
    write_text();
    options_default(&f->options);
    f->options.seq = 37;
    f->options.layers = 2;
    f->options.dim = 48;
    f->options.hidden = 40;
    f->corpus = (struct corpus){text, sizeof(text), 0};
    assert_int_equal(
        batch_create(&f->batch, f->options.seq, f->options.docs), 0);
    assert_int_equal(attend_create(&f->attend, &f->options, NULL, 1), 0);
    assert_int_equal(model_create(&f->model, &f->options, &f->attend), 0);
    batch_draw(&f->batch, &f->corpus, 5, 0);
}

static void
fixture_drop(struct fixture *f)
{
    model_destroy(&f->model);
    attend_destroy(&f->attend);
    batch_free(&f->batch);
}

static double
mean_loss(struct fixture *f)
{
    double loss;

    assert_int_equal(model_step(&f->model, &f->batch, &loss), 0);
    return loss / (double)f->batch.predicted;
}

/* The derivative in a random direction of one parameter: central differences
 * with Richardson's step, (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h, with an
 * error of order h^4. */
static double
fixture_difference(
    struct fixture *f, const struct parameter *p, const double *direction)
{
    static const double at[4] = {1, -1, 2, -2}, weight[4] = {8, -8, -1, 1};
    const double h = 1e-3;
    real *value = f->model.value + p->at;
    int64_t count = p->in * p->out;
    double sum = 0;

    for (int point = 0; point < 4; point++) {
        for (int64_t i = 0; i < count; i++)
            value[i] += at[point] * h * direction[i];
        sum += weight[point] * mean_loss(f);
        for (int64_t i = 0; i < count; i++)
            value[i] -= at[point] * h * direction[i];
    }
    return sum / (12 * h);
}

static void
gradients_match_finite_differences(void **state)
{
    struct test_random random = {test_seed(11)};
    struct fixture f;
    double *gradient;

    (void)state;
    fixture_make(&f);
    mean_loss(&f);
    gradient = malloc((size_t)f.model.values * sizeof(*gradient));
    memcpy(
        gradient, f.model.gradient, (size_t)f.model.values * sizeof(*gradient));
    for (int64_t i = 0; i < f.model.parameter_count; i++) {
        const struct parameter *p = &f.model.parameters[i];
        int64_t count = p->in * p->out;
        double *direction = malloc((size_t)count * sizeof(*direction));
        double expected, dot = 0, length = 0, norm = 0;

        for (int64_t j = 0; j < count; j++) {
            direction[j] = test_random_normal(&random);
            length += direction[j] * direction[j];
        }
        for (int64_t j = 0; j < count; j++) {
            direction[j] /= sqrt(length);
            dot += direction[j] * gradient[p->at + j];
            norm += gradient[p->at + j] * gradient[p->at + j];
        }
        expected = fixture_difference(&f, p, direction);
        free(direction);
        if (!(norm > 0) || !(fabs(dot - expected) < 1e-9 + 1e-7 * sqrt(norm)))
            fail_msg("%s: gradient of norm %g, %.12g by differences %.12g",
                p->name, sqrt(norm), dot, expected);
    }
    free(gradient);
    fixture_drop(&f);
}

/* With a head of zeros all bytes are equally likely. */
static void
loss_of_a_uniform_guess_is_ln_256(void **state)
{
    struct fixture f;
    const struct parameter *head;

    (void)state;
    fixture_make(&f);
    head = &f.model.parameters[f.model.parameter_count - 1];
    memset(f.model.value + head->at, 0,
        (size_t)(head->in * head->out) * sizeof(real));
    assert_true(fabs(mean_loss(&f) - log(256)) < 1e-12);
    fixture_drop(&f);
}

/* A document's bytes, their positions and what they predict do not depend on
 * what is packed beside it: here each is found by its byte in the text. */
static void
batches_predict_the_next_byte_of_each_document(void **state)
{
    struct corpus corpus = {text, sizeof(text), 0};
    struct batch batch;
    int64_t predicted = 0;

    (void)state;
    for (int i = 0; i < (int)sizeof(text); i++)
        /* the position of each byte value */
        text[i] = (unsigned char)(i * 7 % 251);
    assert_int_equal(batch_create(&batch, 64, 5), 0);
    for (int64_t step = 0; step < 50; step++) {
        batch_draw(&batch, &corpus, 3, step);
        assert_int_equal(batch.begins[0], 0);
        assert_int_equal(batch.begins[5], 64);
        predicted = 0;
        for (int64_t d = 0; d < 5; d++) {
            int64_t begin = batch.begins[d], end = batch.begins[d + 1];

            assert_true(end - begin >= 2);
            for (int64_t i = begin; i < end; i++) {
                assert_int_equal(batch.positions[i], i - begin);
                assert_int_equal(batch.labels[i],
                    i + 1 < end ? (int)batch.tokens[i + 1] : -1);
                predicted += batch.labels[i] >= 0;
            }
        }
        assert_int_equal(batch.predicted, predicted);
    }
    batch_free(&batch);
}

static void
batches_depend_on_seed_and_step_only(void **state)
{
    struct corpus corpus = {text, sizeof(text), 0};
    struct batch one, two;

    (void)state;
    write_text();
    assert_int_equal(batch_create(&one, 64, 5), 0);
    assert_int_equal(batch_create(&two, 64, 5), 0);
    batch_draw(&one, &corpus, 3, 8);
    batch_draw(&two, &corpus, 3, 7);
    assert_memory_not_equal(one.begins, two.begins, 6 * sizeof(int64_t));
    batch_draw(&two, &corpus, 3, 8);
    assert_memory_equal(one.begins, two.begins, 6 * sizeof(int64_t));
    assert_memory_equal(one.tokens, two.tokens, 64);
    batch_draw(&two, &corpus, 4, 8);
    assert_memory_not_equal(one.tokens, two.tokens, 64);
    batch_free(&one);
    batch_free(&two);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(gradients_match_finite_differences),
    cmocka_unit_test(loss_of_a_uniform_guess_is_ln_256),
    cmocka_unit_test(batches_predict_the_next_byte_of_each_document),
    cmocka_unit_test(batches_depend_on_seed_and_step_only),
};

ULI_TEST_MAIN("TrainModel", tests)
