/* SPDX-License-Identifier: Apache-2.0
 *
 * What an exchange puts on a host's link: counted by the kernel, reported by
 * the plan, and computed here from the shape alone.
 *
 *     hosts_wire CALLS ROWS
 *
 * For each operation, over the ranks of one host and CALLS calls:
 *     due    each row of a head, once per rank of another host that reads it,
 *            or with the schedule hier once per host; and each share of a sum,
 *            once per rank or per host
 *     plan   the plan's wire_bytes: equal to due; with hier, more by less than
 *            8 bytes per sum
 *     link   what has left through the interface, as packets
 *
 * plan <= link, because nothing is compressed. Beyond the payload there are
 *     a header, and words of at most 512 bytes, per put: at most 16 puts per
 *     pair of ranks and call (READY, EAGER, DONE, records), and two per
 *     chunk (FILLED or credit), where a chunk has 64 KiB or more: 1 / 64;
 *     UCX's header, at most 64 bytes per fragment of 8 KiB: 1 / 128;
 *     headers of Ethernet, IP and TCP, at most 94 bytes per packet;
 *     at most 1460 bytes per segment that is sent again;
 *     64 KiB of barriers, keepalives and ARP.
 * Therefore link <= plan * (1 + 3 / 128) + 8192 per pair and call + 94 per
 * packet + 1460 per segment sent again + 65536. Ends with 0; or prints which
 * relation does not hold, and ends with 3 (a call failed) or 5.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "collectives/plan/plan.h"
#include "exchange.h"
#include "topology/model/schedule.h"

struct counters {
    int64_t bytes, packets, again; /* sent; again: segments sent again */
};

/* Reads the first interface that is not the loopback. A process sees only the
 * interfaces of its own network namespace. */
static void
read_interface(struct counters *counters_p)
{
    char line[512];
    FILE *file = fopen("/proc/net/dev", "r");
    while (file && fgets(line, sizeof(line), file)) {
        char *colon = strchr(line, ':');
        if (!colon || strstr(line, " lo:"))
            continue;
        /* the eight columns before are of what was received */
        sscanf(colon + 1, "%*s %*s %*s %*s %*s %*s %*s %*s %" SCNd64 "%" SCNd64,
            &counters_p->bytes, &counters_p->packets);
        break;
    }
    if (file)
        fclose(file);
}

/* Each table is two lines: "Tcp: names", then "Tcp: values" in the same
 * order. */
static void
read_segments_again(struct counters *counters_p)
{
    char names[1024], values[1024], *name_at, *value_at;
    FILE *file = fopen("/proc/net/snmp", "r");
    while (file && fgets(names, sizeof(names), file)) {
        if (strncmp(names, "Tcp:", 4) || !fgets(values, sizeof(values), file))
            continue;
        char *name = strtok_r(names, " ", &name_at);
        char *value = strtok_r(values, " ", &value_at);
        while (name && value && strcmp(name, "RetransSegs")) {
            name = strtok_r(NULL, " ", &name_at);
            value = strtok_r(NULL, " ", &value_at);
        }
        counters_p->again = value ? atoll(value) : 0;
        break;
    }
    if (file)
        fclose(file);
}

static struct counters
counters_sample(void)
{
    struct counters counters = {-1, -1, -1};
    read_interface(&counters);
    read_segments_again(&counters);
    return counters;
}

/* ---- what is due --------------------------------------------------------- */

/* Counts the heads of a tensor at the ranks of a node: with `once`, a head that
 * several ranks have counts once, else once per rank. */
static int64_t
heads_of_node(const struct exchange *x, int t, int32_t node, bool once)
{
    bool has[HEADS] = {false};
    int64_t sum = 0, different = 0;
    for (int32_t r = 0; r < x->nranks; r++) {
        int64_t first = 0, count = 0;
        if (x->comm->peers[r].node != node)
            continue;
        ulyx_plan_get_heads(x->plan, t, r, &first, &count);
        for (int64_t h = first; h < first + count; h++)
            has[h] = true;
        sum += count;
    }
    for (int h = 0; h < HEADS; h++)
        different += has[h];
    return once ? different : sum;
}

static int64_t
rows_of_node(const struct exchange *x, int32_t node)
{
    int64_t sum = 0, rows = 0;
    for (int32_t r = 0; r < x->nranks; r++) {
        ulyx_plan_get_seq_rows(x->plan, 0, r, &rows);
        sum += x->comm->peers[r].node == node ? rows : 0;
    }
    return sum;
}

/* Returns the bytes that one call sends from this rank's node to all others. In
 * HEAD_TO_SEQ a head that several ranks have comes from one of them, which is
 * here a rank of this node. */
static int64_t
due_bytes(const struct exchange *x, ulyx_direction_t direction, bool hier)
{
    int32_t mine = x->comm->peers[x->rank].node;
    bool once = hier || direction == ULYX_HEAD_TO_SEQ;
    int64_t bytes = 0;
    for (int32_t n = 0; n < x->comm->nnodes; n++)
        for (int t = 0; t < TENSORS && n != mine; t++) {
            ulyx_dtype_t partial = ULYX_DTYPE_BF16;
            if (direction == ULYX_SEQ_TO_HEAD) {
                bytes += rows_of_node(x, mine) * DIM * 2 *
                         heads_of_node(x, t, n, once);
                continue;
            }
            if (direction == ULYX_SEQ_TO_HEAD_ADJOINT)
                ulyx_plan_get_partial_dtype(x->plan, t, &partial);
            bytes += rows_of_node(x, n) * DIM *
                     heads_of_node(x, t, mine, once) *
                     (partial == ULYX_DTYPE_F32 ? 4 : 2);
        }
    return bytes;
}

/* ---- what is sent -------------------------------------------------------- */

/* Adds up the bytes that the plans of this node's ranks report for one call. */
static ulyx_status_t
plan_bytes(
    struct exchange *x, ulyx_direction_t direction, int64_t *all, int64_t *sum)
{
    ulyx_traffic_t traffic = {.size = sizeof(traffic)};
    ULI_TRY(ulyx_plan_get_traffic(x->plan, direction, &traffic));
    ULI_TRY(ulyx_allgather(
        x->comm, &traffic.wire_bytes, all, (int64_t)sizeof(*all), NULL));
    *sum = 0;
    for (int32_t r = 0; r < x->nranks; r++)
        if (x->comm->peers[r].node == x->comm->peers[x->rank].node)
            *sum += all[r];
    return ULYX_SUCCESS;
}

static ulyx_status_t
exchange_calls(struct exchange *x, ulyx_direction_t direction, int count)
{
    bool out = direction == ULYX_SEQ_TO_HEAD;
    const void *const *src = (const void *const *)(out ? x->seq : x->head);
    void *const *dst = (void *const *)(out ? x->head : x->back);
    ULI_TRY(ulyx_comm_barrier(x->comm));
    for (int i = 0; i < count; i++)
        ULI_TRY(ulyx_reshuffle_execute(x->plan, direction, src, dst, NULL));
    return ulyx_comm_barrier(x->comm);
}

/* Returns NULL, or text that says which relation does not hold. "pairs" are
 * those of a rank of this node with a rank of another node. */
static const char *
exchange_judge(const struct exchange *x, int64_t due, int64_t plan,
    const struct counters *sent, int64_t count)
{
    int64_t here = 0;
    for (int32_t r = 0; r < x->nranks; r++)
        here += x->comm->peers[r].node == x->comm->peers[x->rank].node;
    int64_t pairs = here * (x->nranks - here);
    int64_t most = count * plan + count * plan / 128 * 3 +
                   8192 * pairs * count + 94 * sent->packets +
                   1460 * sent->again + 65536;
    if (plan < due || plan > due + due / 64)
        return "the plan's bytes are not what is due";
    if (sent->bytes < count * plan)
        return "less has left than the plan says";
    return sent->bytes > most ? "more has left than headers explain" : NULL;
}

static int
exchange_measure(
    struct exchange *x, ulyx_direction_t direction, int count, int64_t *all)
{
    struct counters before, after;
    bool hier = strcmp(uli_algo_name(x->plan->algo), "hier") == 0;
    int64_t due = due_bytes(x, direction, hier), plan = 0;
    ulyx_status_t status = plan_bytes(x, direction, all, &plan);
    /* Before the counters are read: connections, and their congestion windows,
     * which grow. */
    if (status == ULYX_SUCCESS)
        status = exchange_calls(x, direction, 2);
    before = counters_sample();
    if (status == ULYX_SUCCESS)
        status = exchange_calls(x, direction, count);
    after = counters_sample();
    if (status != ULYX_SUCCESS)
        return printf("rank %d: %s\n", x->rank, ulyx_last_error()), 3;
    struct counters sent = {after.bytes - before.bytes,
        after.packets - before.packets, after.again - before.again};
    const char *wrong = exchange_judge(x, due, plan, &sent, count);
    printf("rank %d, %s %s: due %" PRId64 ", plan %" PRId64 ", link %" PRId64
           " = %.4f of plan in %" PRId64 " packets, %" PRId64
           " segments again: %s\n",
        x->rank, uli_algo_name(x->plan->algo), uli_direction_name(direction),
        due * count, plan * count, sent.bytes,
        (double)sent.bytes / (double)(plan * count), sent.packets, sent.again,
        wrong ? wrong : "ok");
    return wrong ? 5 : 0;
}

static int
measure_all(struct exchange *x, int count)
{
    static const ulyx_direction_t directions[] = {
        ULYX_SEQ_TO_HEAD, ULYX_HEAD_TO_SEQ, ULYX_SEQ_TO_HEAD_ADJOINT};
    int64_t *all = calloc((size_t)x->nranks, sizeof(*all));
    int code = all ? 0 : 3;
    for (int i = 0; i < 3 && code == 0; i++)
        code = exchange_measure(x, directions[i], count, all);
    free(all);
    return code;
}

int
main(int argc, char **argv)
{
    struct exchange x = {.rows = argc > 2 ? atoll(argv[2]) : 16384};
    int code = 3, count = argc > 1 ? atoi(argv[1]) : 10;
    if (exchange_meet(&x) != ULYX_SUCCESS || exchange_plan(&x) != ULYX_SUCCESS)
        printf("%s\n", ulyx_last_error());
    else
        code = measure_all(&x, count);
    exchange_close(&x);
    return code;
}
