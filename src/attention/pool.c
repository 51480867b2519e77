/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads of one call; see pool.h.
 */
#include "attention/pool.h"
#include <pthread.h>
#include <signal.h>
#include "topology/node.h"

/* Least work of a thread: 100 us or more on any core. */
#define FLOPS_PER_THREAD 1e7
#define THREADS_MAX      256

struct share {
    pthread_t id;
    void (*body)(void *context, int thread);
    void *context;
    int thread;
};

int
uli_pool_cores(void)
{
    int count = uli_node_cores();
    return count > THREADS_MAX ? THREADS_MAX : count;
}

int
uli_pool_threads(double flops, int limit)
{
    double useful = flops / FLOPS_PER_THREAD;
    limit = limit > THREADS_MAX ? THREADS_MAX : limit;
    if (useful >= limit)
        return limit;
    return useful < 1 ? 1 : (int)useful;
}

static void *
thread_main(void *argument)
{
    struct share *share = argument;
    share->body(share->context, share->thread);
    return NULL;
}

/* The threads block all signals, which belong to the caller's threads. */
void
uli_pool_run(
    int threads, void (*body)(void *context, int thread), void *context)
{
    struct share shares[THREADS_MAX];
    sigset_t all, old;
    int started = 1;
    threads = threads > THREADS_MAX ? THREADS_MAX : threads;
    if (threads > 1) {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        for (; started < threads; started++) {
            struct share *share = &shares[started];
            *share = (struct share){
                .body = body, .context = context, .thread = started};
            if (pthread_create(&share->id, NULL, thread_main, share) != 0)
                break;
        }
        pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
    body(context, 0);
    for (int i = 1; i < started; i++)
        pthread_join(shares[i].id, NULL);
}
