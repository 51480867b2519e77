/* SPDX-License-Identifier: Apache-2.0
 *
 * Bandwidth and latency of puts between two processes, which meet over a
 * socket and may be in different network namespaces:
 *   ucx_bench serve PORT
 *   ucx_bench HOST PORT SIZE...     prints "size GB/s" and "latency us"
 * The sender keeps `DEPTH` puts on their way; the clock stops when the signal
 * of the last one has been answered. One-way latency is half of a round of two
 * 8-byte puts. perf/peers/net_compare.py runs it beside ucx_perftest.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/system/clock.h"
#include "transport/ends.h"

enum { DEPTH = 16, WINDOW = 16 << 20, PASS_BYTES = 256 << 20, ROUNDS = 2000 };

/* The client writes word 0; the server answers in word 1. */
static void
requests_serve(struct end *end)
{
    uint64_t answered = 0;
    for (;;) {
        end->ops->progress(end->net);
        uint64_t request = atomic_load(&end->words[0]);
        if (atomic_load(&end->lost[0]) || request == UINT64_MAX)
            return;
        if (request > answered) {
            answered = request;
            assert_status(
                end_put(end, 0, NULL, 0, 0, 1, answered), ULYX_SUCCESS);
        }
    }
}

static void
end_request(struct end *end, uint64_t value)
{
    assert_status(end_put(end, 1, NULL, 0, 0, 0, value), ULYX_SUCCESS);
    assert_true(ends_wait(end, NULL, &end->words[1], value, 60));
}

static double
end_bandwidth(struct end *end, const unsigned char *source, int64_t bytes,
    uint64_t *value)
{
    int64_t count = PASS_BYTES / bytes;
    count = count < 8 ? 8 : count > 20000 ? 20000 : count;
    int64_t start = uli_clock_ns();
    for (int64_t i = 0; i < count; i++) {
        while (atomic_load(&end->pending) >= DEPTH)
            end->ops->progress(end->net);
        assert_status(
            end_put(end, 1, source, bytes, 0, 2, *value + 1), ULYX_SUCCESS);
        if (bytes <= ULI_NET_INLINE_BYTES && i % DEPTH == 0)
            end->ops->progress(end->net);
    }
    assert_true(ends_wait_count(end, NULL, &end->pending, 0, 60));
    end_request(end, ++*value);
    return (double)(count * bytes) / (double)(uli_clock_ns() - start);
}

static void
end_drive(struct end *end, int sizes, char **size)
{
    unsigned char *source = malloc(WINDOW);
    uint64_t value = 0;
    memset(source, 1, WINDOW);
    for (int i = 0; i < 100; i++)
        end_request(end, ++value);
    int64_t start = uli_clock_ns();
    for (int i = 0; i < ROUNDS; i++)
        end_request(end, ++value);
    printf(
        "latency %.2f\n", (double)(uli_clock_ns() - start) / ROUNDS / 2 / 1000);
    for (int i = 0; i < sizes; i++) {
        int64_t bytes = atoll(size[i]);
        assert_in_range(bytes, 1, WINDOW);
        end_bandwidth(end, source, bytes, &value);
        printf("%lld %.4f\n", (long long)bytes,
            end_bandwidth(end, source, bytes, &value));
    }
    assert_status(end_put(end, 1, NULL, 0, 0, 0, UINT64_MAX), ULYX_SUCCESS);
    free(source);
}

int
main(int argc, char **argv)
{
    struct uli_settings settings;
    if (argc < 3) {
        fprintf(stderr, "usage: ucx_bench serve PORT | HOST PORT SIZE...\n");
        return 2;
    }
    bool serving = strcmp(argv[1], "serve") == 0;
    int socket = ends_meet(serving ? NULL : argv[1], atoi(argv[2]));
    if (socket < 0 || uli_settings_load(&settings)) {
        perror("ucx_bench");
        return 1;
    }
    struct end *end =
        end_open(&uli_tr_ucx_ops, &settings, serving ? 1 : 0, 2, WINDOW);
    ends_swap(end, serving ? 0 : 1, socket);
    if (serving)
        requests_serve(end);
    else
        end_drive(end, argc - 3, argv + 3);
    end_close(end, 10);
    return 0;
}
