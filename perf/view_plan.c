/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan in a few words, for the columns of a report: the schedule and the
 * verbs from ulyx_plan_describe, the transports from the communicator. Several
 * words of one column are joined by "+".
 */
#include "perf.h"

#include <stdio.h>
#include <string.h>

#include "collectives/layout/layout.h"
#include "comm/comm.h"
#include "comm/remote/remote.h"

/* Adds the word unless the text has it already. */
static void
add_word(char *text_p, size_t bytes, const char *word)
{
    size_t length = strlen(text_p);

    if (!strstr(text_p, word))
        snprintf(text_p + length, bytes - length, "%s%s", length > 0 ? "+" : "",
            word);
}

/* Finds the schedule: the word after "reshuffle" in "reshuffle direct (...";
 * but the transport in "reshuffle packed on device memory: pack, send/receive
 * (staged: ...". */
static void
find_schedule(struct perf_row *row)
{
    static const char begin[] = "reshuffle ", by[] = "send/receive (";
    const char *at = strstr(row->describe, begin);
    const char *transport = strstr(row->describe, by);

    if (!at)
        return;
    at += sizeof(begin) - 1;
    if (transport && strncmp(at, "packed", 6) == 0)
        at = transport + sizeof(by) - 1;
    snprintf(row->schedule, sizeof(row->schedule), "%.*s",
        (int)strcspn(at, " :,(;"), at);
}

/* Finds the verbs, in texts such as "; seq_to_head: 3 stored to (its dst is a
 * window), 1 by slot (small); ". */
static void
find_verbs(ulyx_direction_t direction, struct perf_row *row)
{
    static const struct {
        const char *text, *word;
    } verbs[] = {{"stored to", "store"}, {"move it themselves", "store"},
        {"loaded", "load"}, {"process_vm_readv", "read"}, {"ring", "ring"},
        {"by slot", "slot"}, {"by puts", "put"}, {"copies per call", "copy"},
        {"of one message", "message"}, {"nothing between", "none"}};
    char part[512], begin[48];
    const char *at;

    snprintf(begin, sizeof(begin), "; %s:", uli_direction_name(direction));
    at = strstr(row->describe, begin);
    if (!at)
        return;
    at += strlen(begin);
    snprintf(part, sizeof(part), "%.*s", (int)strcspn(at, ";"), at);
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
        if (strstr(part, verbs[i].text))
            add_word(row->verb, sizeof(row->verb), verbs[i].word);
}

/* Finds the transports to the other ranks. */
static void
find_transports(const ulyx_comm_t *comm, struct perf_row *row)
{
    for (int32_t p = 0; p < comm->nranks; p++) {
        const struct uli_peer *peer = &comm->peers[p];
        const struct uli_tr_ops *ops =
            comm->memory_kind == ULYX_MEMORY_CUDA && peer->map_device
                ? peer->map_device
                : peer->map;

        if (p != comm->rank)
            add_word(row->transport, sizeof(row->transport),
                uli_comm_is_remote(comm, p) ? "ucx" : ops->name);
    }
    if (row->transport[0] == 0)
        add_word(row->transport, sizeof(row->transport), "none");
}

bool
perf_row_describe(const struct perf_rank *rank, struct perf_row *row)
{
    if (ulyx_plan_describe(rank->plan, row->describe, sizeof(row->describe)) !=
        ULYX_SUCCESS)
        return false;
    row->schedule[0] = row->verb[0] = row->transport[0] = 0;
    find_schedule(row);
    find_verbs(rank->direction, row);
    find_transports(rank->comm, row);
    /* In hier the description of the pairs does not have the puts. */
    if (rank->comm->nnodes > 1 && !rank->stream)
        add_word(row->verb, sizeof(row->verb), "put");
    return true;
}
