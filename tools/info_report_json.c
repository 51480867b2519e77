/* SPDX-License-Identifier: Apache-2.0
 *
 * ulyx_info report --json: what the report shows as text, as one JSON object.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rank_list.h"
#include "comm/comm.h"
#include "info_report.h"

static json_t *
text_or_null(const char *text)
{
    return text[0] != 0 ? json_string(text) : json_null();
}

/* The progress of the rank's current call, if the call stands still. */
static json_t *
progress_pack(const struct info_rank *rank)
{
    const struct uli_recorder_progress *progress = &rank->copy.progress;
    json_t *peers;

    if (!rank->call || progress->serial != rank->call->serial)
        return json_null();
    peers = json_array();
    for (int i = 0; i < progress->npeers; i++) {
        const struct uli_recorded_peer *peer = &progress->peers[i];

        json_array_append_new(
            peers, json_pack("{s:i, s:s, s:I, s:I}", "rank", (int)peer->rank,
                       "stage", uli_recorder_stage_name(peer->stage),
                       "sent_chunks", (json_int_t)peer->sent_chunks,
                       "received_chunks", (json_int_t)peer->received_chunks));
    }
    return json_pack("{s:s, s:i, s:o}", "stage",
        uli_recorder_stage_name(progress->stage), "missing",
        (int)progress->missing, "peers", peers);
}

static json_t *
rank_pack(struct info_found *found, const struct info_rank *rank)
{
    char does[256], awaited[96] = "";

    info_rank_text(rank, does, sizeof(does));
    if (rank->waits)
        info_found_awaited_text(found, rank, awaited, sizeof(awaited));
    return json_pack("{s:i, s:o, s:o, s:b, s:s, s:o, s:o, s:o}", "rank",
        (int)rank->copy.rank, "host", text_or_null(rank->copy.host), "pid",
        rank->pid != 0 ? json_integer(rank->pid) : json_null(), "dump",
        (int)!rank->absent, "does", does, "waits_for", text_or_null(awaited),
        "failure", text_or_null(rank->failure), "progress",
        progress_pack(rank));
}

static json_t *
culprits_pack(struct info_found *found)
{
    json_t *culprits = json_array();

    for (int i = 0; i < found->count; i++)
        if (info_rank_is_cause(&found->ranks[i]))
            json_array_append_new(culprits, rank_pack(found, &found->ranks[i]));
    return culprits;
}

static json_t *
circles_pack(const struct info_found *found)
{
    json_t *circles = json_array();

    for (int i = 0; i < found->count; i++) {
        json_t *circle;
        int at = i;

        if (!info_found_begins_circle(found, i))
            continue;
        circle = json_array();
        do {
            json_array_append_new(
                circle, json_integer(found->ranks[at].copy.rank));
            at = found->ranks[at].next;
        } while (at != i);
        json_array_append_new(circles, circle);
    }
    return circles;
}

static json_t *
call_pack(const struct info_call *call)
{
    char ranks[128], fingerprint[32];

    info_call_ranks_text(call, ranks, sizeof(ranks));
    snprintf(fingerprint, sizeof(fingerprint), "%016" PRIx64,
        call->call.fingerprint);
    return json_pack("{s:s, s:I, s:s, s:I, s:b, s:i, s:s}", "call",
        uli_call_name((enum uli_call)call->call.call), "plan",
        (json_int_t)call->call.plan, "fingerprint", fingerprint, "number",
        (json_int_t)call->call.number, "inside", (int)call->inside, "count",
        call->count, "ranks", ranks);
}

static json_t *
calls_pack(const struct info_found *found)
{
    json_t *packed = json_array();
    struct info_call *calls;
    int count = info_found_group(found, &calls);

    for (int i = 0; i < count; i++)
        json_array_append_new(packed, call_pack(&calls[i]));
    if (count >= 0)
        free(calls);
    return packed;
}

json_t *
info_report_pack(struct info_found *found)
{
    const struct uli_recorder_copy *copy = &found->ranks[0].copy;
    json_t *ranks = json_array();
    char id[24];
    size_t at = 0;

    for (int i = 0; i < 8; i++)
        at += (size_t)snprintf(id + at, sizeof(id) - at, "%02x", copy->id[i]);
    for (int i = 0; i < found->count; i++)
        json_array_append_new(ranks, rank_pack(found, &found->ranks[i]));
    return json_pack("{s:s, s:s, s:i, s:i, s:o, s:o, s:o, s:o}", "name",
        copy->name, "id", id, "nranks", (int)copy->nranks, "dumps",
        found->count - found->absent, "culprits", culprits_pack(found),
        "circles", circles_pack(found), "calls", calls_pack(found), "ranks",
        ranks);
}
