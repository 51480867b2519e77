/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank of a communicator over hosts, which meets by its environment; for
 * scripts/netns-suite.sh. It exchanges q, k and v back and forth and checks
 * every byte, until all calls are made or one fails:
 *
 *     hosts_rank CALLS [ROWS [SECONDS]]
 *
 * Output and exit code:
 *     rank R has met      communicator and plan are made; the rank now waits
 *                         SECONDS
 *     rank R has begun    the first call has returned
 *     rank R of P on N nodes: done, T s the longest call     ends with 0
 *     rank R: STATUS after T s of at most D: cause           ends with 3
 * where T is the time that the failing call took and D its timeout. Ends with 4
 * where bytes are wrong.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/system/clock.h"
#include "exchange.h"

struct self {
    struct exchange x;
    int64_t began_ns, longest_ns;
};

static int
self_report(const struct self *self, ulyx_status_t status)
{
    double spent = 1e-9 * (double)(uli_clock_ns() - self->began_ns);
    const char *timeout = getenv("ULYX_TIMEOUT");
    double most = self->x.comm ? self->x.comm->timeout_s
                               : (timeout ? atof(timeout) : 600);
    const char *text = ulyx_last_error();
    printf("rank %d: %s after %.1f s of at most %.0f: %s\n", self->x.rank,
        ulyx_status_name(status), spent, most, text);
    fflush(stdout);
    return 3;
}

static void
self_note(struct self *self)
{
    int64_t spent = uli_clock_ns() - self->began_ns;
    if (spent > self->longest_ns)
        self->longest_ns = spent;
}

/* One exchange and its inverse: the bytes that come back are the bytes that
 * were sent. */
static int
self_call(struct self *self, unsigned n)
{
    ulyx_status_t status;
    for (int t = 0; t < TENSORS; t++) {
        for (size_t i = 0; i < self->x.bytes[t]; i++)
            self->x.seq[t][i] =
                (unsigned char)(i * 7 + n + (size_t)self->x.rank + (size_t)t);
        memset(self->x.back[t], 0x5a, self->x.bytes[t]);
        memset(self->x.head[t], 0x5a, self->x.head_bytes[t]);
    }
    self->began_ns = uli_clock_ns();
    status = ulyx_reshuffle_execute(self->x.plan, ULYX_SEQ_TO_HEAD,
        (const void *const *)self->x.seq, (void *const *)self->x.head, NULL);
    if (status != ULYX_SUCCESS)
        return self_report(self, status);
    self_note(self);
    self->began_ns = uli_clock_ns();
    status = ulyx_reshuffle_execute(self->x.plan, ULYX_HEAD_TO_SEQ,
        (const void *const *)self->x.head, (void *const *)self->x.back, NULL);
    if (status != ULYX_SUCCESS)
        return self_report(self, status);
    self_note(self);
    for (int t = 0; t < TENSORS; t++)
        if (memcmp(self->x.seq[t], self->x.back[t], self->x.bytes[t]) != 0) {
            printf(
                "rank %d: tensor %d of call %u is wrong\n", self->x.rank, t, n);
            return 4;
        }
    return 0;
}

static void
self_print(const struct self *self, const char *what)
{
    printf("rank %d %s\n", self->x.rank, what);
    fflush(stdout);
}

static int
self_meet(struct self *self)
{
    char text[1024];
    self->began_ns = uli_clock_ns();
    ulyx_status_t status = exchange_meet(&self->x);
    if (status == ULYX_SUCCESS)
        status = exchange_plan(&self->x);
    if (status != ULYX_SUCCESS)
        return self_report(self, status);
    if (self->x.rank == 0 &&
        ulyx_plan_describe(self->x.plan, text, sizeof(text)) == ULYX_SUCCESS)
        printf("%s\n", text);
    self_print(self, "has met");
    return 0;
}

static int
self_leave(struct self *self)
{
    self->began_ns = uli_clock_ns();
    ulyx_status_t status = ulyx_plan_destroy(self->x.plan);
    self->x.plan = NULL;
    if (status == ULYX_SUCCESS)
        status = ulyx_comm_barrier(self->x.comm);
    if (status != ULYX_SUCCESS)
        return self_report(self, status);
    printf("rank %d of %d on %d nodes: done, %.1f s the longest call\n",
        self->x.rank, self->x.nranks, self->x.comm->nnodes,
        1e-9 * (double)self->longest_ns);
    return 0;
}

static int
self_run(struct self *self, unsigned calls, unsigned seconds)
{
    int code = self_meet(self);
    if (code == 0)
        sleep(seconds);
    for (unsigned n = 0; n < calls && code == 0; n++) {
        code = self_call(self, n);
        if (n == 0 && code == 0)
            self_print(self, "has begun");
    }
    return code ? code : self_leave(self);
}

int
main(int argc, char **argv)
{
    struct self self = {.x.rows = argc > 2 ? atoll(argv[2]) : 512};
    const char *rank = getenv("ULYX_RANK");
    self.x.rank = rank ? atoi(rank) : -1;
    int code = self_run(&self, argc > 1 ? (unsigned)atol(argv[1]) : 10,
        argc > 3 ? (unsigned)atol(argv[3]) : 0);
    exchange_close(&self.x);
    return code;
}
