/* SPDX-License-Identifier: Apache-2.0
 *
 * The device memory of a rank: its device, stream, timers and sides. A side is
 * filled and checked in a copy on the host, and is copied as a whole.
 */
#include "perf.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "device/device.h"

#define DEVICES (uli_device_ops(ULYX_MEMORY_CUDA))

/* Gives this process a host id of its own, where ranks share a device: NCCL
 * refuses two ranks on one device unless their host ids differ. With different
 * ids NCCL uses sockets, which is good enough to check bytes, but not to
 * measure times. */
static void
pose_as_hosts(const struct perf_options *options, int32_t devices)
{
    char host[32];

    if (!options->vs[PERF_VS_NCCL] || options->procs <= devices)
        return;
    snprintf(host, sizeof(host), "ulyx-perf-%d", (int)getpid());
    setenv("NCCL_HOSTID", host, 0);
}

int
perf_devices_open(const struct perf_options *options)
{
    int32_t count = 0;
    ulyx_status_t status = DEVICES->open();

    if (status == ULYX_ERR_UNSUPPORTED) {
        printf("skipped: no CUDA device: %s\n", ulyx_last_error());
        return PERF_SKIPPED;
    }
    if (!perf_status_ok("CUDA", status) ||
        !perf_status_ok("devices", DEVICES->count(&count)))
        return PERF_LIBRARY;
    pose_as_hosts(options, count);
    return PERF_OK;
}

bool
perf_device_open(struct perf_rank *rank)
{
    return perf_status_ok("current device", DEVICES->current(&rank->device)) &&
           perf_status_ok(
               "stream", DEVICES->stream_create(rank->device, &rank->stream)) &&
           perf_status_ok("timer",
               DEVICES->timer_create(rank->device, &rank->timers[0])) &&
           perf_status_ok(
               "timer", DEVICES->timer_create(rank->device, &rank->timers[1]));
}

void
perf_device_close(struct perf_rank *rank)
{
    perf_graph_drop(rank, 1);
    for (int i = 0; i < 2; i++) {
        if (rank->timers[i])
            perf_status_ok(
                "timer", DEVICES->event_destroy(rank->device, rank->timers[i]));
        rank->timers[i] = NULL;
    }
    if (rank->stream)
        perf_status_ok(
            "stream", DEVICES->stream_destroy(rank->device, rank->stream));
    rank->stream = NULL;
}

bool
perf_device_alloc(struct perf_rank *rank, struct perf_side *side)
{
    void *address;

    if (!perf_status_ok("device memory",
            DEVICES->alloc(rank->device, side->bytes, &address)))
        return false;
    side->where = address;
    return true;
}

void
perf_device_free(struct perf_rank *rank, struct perf_side *side)
{
    perf_status_ok("device memory", DEVICES->free(rank->device, side->where));
}

static bool
rank_travel(struct perf_rank *rank, void *dst, const void *src, int64_t bytes)
{
    return !rank->stream ||
           (perf_status_ok("copy",
                DEVICES->copy(rank->device, dst, src, bytes, rank->stream)) &&
               perf_device_wait(rank, 1));
}

bool
perf_side_up(struct perf_rank *rank, struct perf_side *side)
{
    return rank_travel(rank, side->where, side->base, side->bytes);
}

bool
perf_side_down(struct perf_rank *rank, struct perf_side *side)
{
    return rank_travel(rank, side->base, side->where, side->bytes);
}

bool
perf_device_wait(struct perf_rank *ranks, int count_ranks)
{
    bool ok = true;

    for (int r = 0; r < count_ranks; r++)
        if (ranks[r].stream)
            ok = perf_status_ok("stream",
                     DEVICES->stream_wait(ranks[r].device, ranks[r].stream)) &&
                 ok;
    return ok;
}

bool
perf_device_start(struct perf_rank *ranks, int count_ranks)
{
    bool ok = true;

    for (int r = 0; r < count_ranks && ok; r++)
        ok = perf_status_ok("timer", DEVICES->event_record(ranks[r].device,
                                         ranks[r].timers[0], ranks[r].stream));
    return ok;
}

bool
perf_device_stop(struct perf_rank *ranks, int count_ranks, double *seconds_p)
{
    bool ok = true;

    for (int r = 0; r < count_ranks && ok; r++)
        ok = perf_status_ok("timer", DEVICES->event_record(ranks[r].device,
                                         ranks[r].timers[1], ranks[r].stream));
    ok = ok && perf_device_wait(ranks, count_ranks);
    for (int r = 0; r < count_ranks && ok; r++)
        ok = perf_status_ok(
            "timer", DEVICES->timer_elapsed(ranks[r].device, ranks[r].timers[0],
                         ranks[r].timers[1], &seconds_p[r]));
    return ok;
}

/* ---- graphs -------------------------------------------------------------- */

bool
perf_graph_begin(struct perf_rank *ranks, int count_ranks)
{
    bool ok = true;

    for (int r = 0; r < count_ranks && ok; r++)
        ok = perf_status_ok(
            "capture", DEVICES->graph_begin(ranks[r].device, ranks[r].stream));
    return ok;
}

bool
perf_graph_end(struct perf_rank *ranks, int count_ranks)
{
    bool ok = true;

    for (int r = 0; r < count_ranks; r++)
        ok = perf_status_ok("capture", DEVICES->graph_end(ranks[r].device,
                                           ranks[r].stream, &ranks[r].graph)) &&
             ok;
    return ok;
}

/* Launches the graph of every rank once before any graph is launched again,
 * because the ranks of a thread wait for each other. */
bool
perf_graph_replay(struct perf_rank *ranks, int count_ranks, int times)
{
    bool ok = true;

    for (int i = 0; i < times; i++)
        for (int r = 0; r < count_ranks && ok; r++)
            ok = perf_status_ok("graph", DEVICES->graph_launch(ranks[r].device,
                                             ranks[r].graph, ranks[r].stream));
    return ok;
}

bool
perf_graph_drop(struct perf_rank *ranks, int count_ranks)
{
    bool ok = true;

    for (int r = 0; r < count_ranks; r++) {
        if (ranks[r].graph)
            ok = perf_status_ok("graph",
                     DEVICES->graph_destroy(ranks[r].device, ranks[r].graph)) &&
                 ok;
        ranks[r].graph = NULL;
    }
    return ok;
}
