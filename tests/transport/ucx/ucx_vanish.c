/* SPDX-License-Identifier: Apache-2.0
 *
 * netns-test.sh runs this program on two hosts, of which the second vanishes:
 * rank 0 must be notified, once, soon after ULYX_KEEPALIVE, whether its
 * connection was idle or full of data. "Soon" is three times as long, for a
 * loaded machine.
 *   ucx_vanish idle|busy
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/system/clock.h"
#include "transport/ends.h"

enum { WINDOW = 4 << 20, DEPTH = 16 };

static double
seconds_since(int64_t then)
{
    return (double)(uli_clock_ns() - then) / 1e9;
}

/* Puts until the peer is lost. Returns how long no put had ended by then. */
static double
keep_busy(struct end *end, const unsigned char *source, double limit_s)
{
    int64_t moved = uli_clock_ns(), before = 0;
    uint64_t value = 1;
    while (!atomic_load(&end->lost[1]) && seconds_since(moved) < limit_s) {
        while (atomic_load(&end->pending) < DEPTH &&
               end_put(end, 1, source, WINDOW, 0, 1, ++value) == ULYX_SUCCESS)
            continue;
        end->ops->progress(end->net);
        if (atomic_load(&end->lost[1]))
            break;
        int64_t done = (int64_t)value - atomic_load(&end->pending);
        if (done != before)
            moved = uli_clock_ns();
        before = done;
    }
    return seconds_since(moved);
}

static double
stay_idle(struct end *end, double limit_s)
{
    int64_t start = uli_clock_ns();
    assert_status(end_put(end, 1, NULL, 0, 0, 0, 1), ULYX_SUCCESS);
    while (!atomic_load(&end->lost[1]) && seconds_since(start) < limit_s) {
        end->ops->progress(end->net);
        end->ops->wait(end->net, 100);
    }
    return seconds_since(start);
}

int
main(int argc, char **argv)
{
    struct uli_settings settings;
    const char *rank = getenv("ULYX_RANK"), *master = getenv("MASTER_ADDR");
    if (argc != 2 || !rank || !master || uli_settings_load(&settings)) {
        fprintf(stderr, "usage: netns-test.sh run ... ucx_vanish idle|busy\n");
        return 2;
    }
    int me = atoi(rank);
    bool busy = strcmp(argv[1], "busy") == 0;
    int socket = ends_meet(me == 0 ? NULL : master, 7777);
    struct end *end = end_open(&uli_tr_ucx_ops, &settings, me, 2, WINDOW);
    ends_swap(end, 1 - me, socket);
    for (; me == 1;) {
        end->ops->progress(end->net);
        end->ops->wait(end->net, 100);
    }
    unsigned char *source = calloc(1, WINDOW);
    /* The host vanishes two seconds after it came up. */
    double limit_s = 3 * settings.keepalive_s + 3;
    double took =
        busy ? keep_busy(end, source, limit_s) : stay_idle(end, limit_s);
    printf("%s: lost %d times, after %.1f s: %s\n", argv[1],
        (int)atomic_load(&end->lost[1]), took, end->how[1]);
    bool good = atomic_load(&end->lost[1]) == 1;
    good &= ends_wait_count(end, NULL, &end->pending, 0, 10);
    free(source);
    end_close(end, 1);
    return good ? 0 : 1;
}
