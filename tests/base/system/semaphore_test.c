/* SPDX-License-Identifier: Apache-2.0
 *
 * The semaphore: posts are counted, waits end, and no waiter sleeps although
 * there is a post.
 */
#include <pthread.h>
#include <stdlib.h>
#include "base/system/clock.h"
#include "base/system/semaphore.h"
#include "support/test.h"

enum { THREADS = 4, ROUNDS = 20000 };

static void
posts_are_taken_once_each(void **state)
{
    (void)state;
    struct uli_semaphore semaphore;
    uli_semaphore_init(&semaphore);
    assert_false(uli_semaphore_wait(&semaphore, 0));
    uli_semaphore_post(&semaphore);
    uli_semaphore_post(&semaphore);
    assert_true(uli_semaphore_wait(&semaphore, -1));
    assert_true(uli_semaphore_wait(&semaphore, 0));
    int64_t begin = uli_clock_ns();
    assert_false(uli_semaphore_wait(&semaphore, 2000000));
    assert_true(uli_clock_ns() - begin >= 2000000);
}

struct ring {
    struct uli_semaphore turns[THREADS];
    int64_t passed; /* only the thread that has the turn writes it */
};
struct runner {
    struct ring *ring;
    int index;
};

static void *
pass_turns(void *context)
{
    struct runner *runner = context;
    struct ring *ring = runner->ring;
    for (int i = 0; i < ROUNDS; i++) {
        /* some waits are short, and give up while a post may be under way */
        while (
            !uli_semaphore_wait(&ring->turns[runner->index], i % 3 ? -1 : 1000))
            ;
        ring->passed++;
        uli_semaphore_post(&ring->turns[(runner->index + 1) % THREADS]);
    }
    return NULL;
}

static void
no_waiter_sleeps_through_a_post(void **state)
{
    (void)state;
    struct ring ring = {.passed = 0};
    struct runner runners[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        uli_semaphore_init(&ring.turns[i]);
    for (int i = 0; i < THREADS; i++) {
        runners[i] = (struct runner){&ring, i};
        assert_int_equal(
            pthread_create(&threads[i], NULL, pass_turns, &runners[i]), 0);
    }
    uli_semaphore_post(&ring.turns[0]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(ring.passed, (int64_t)THREADS * ROUNDS);
}

/* The waiter frees the semaphore as soon as the post has arrived. */
static void *
post_once(void *context)
{
    uli_semaphore_post(context);
    return NULL;
}

static void
waiter_may_free_the_semaphore_after_its_wait(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        struct uli_semaphore *semaphore = malloc(sizeof(*semaphore));
        pthread_t thread;
        uli_semaphore_init(semaphore);
        assert_int_equal(
            pthread_create(&thread, NULL, post_once, semaphore), 0);
        assert_true(uli_semaphore_wait(semaphore, -1));
        free(semaphore);
        pthread_join(thread, NULL);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(posts_are_taken_once_each),
    cmocka_unit_test(no_waiter_sleeps_through_a_post),
    cmocka_unit_test(waiter_may_free_the_semaphore_after_its_wait),
};

ULI_TEST_MAIN("Semaphore", tests)
