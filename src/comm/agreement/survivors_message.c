/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between survivors on several nodes. Messages of one rank stay in
 * order, so a decision that a vote shows arrives before the answer DECIDED, and
 * before the message that its sender has left.
 */
#include <stddef.h>
#include <string.h>
#include "base/size.h"
#include "comm/agreement/survivors_call.h"

/* The pause before a node is queried again. It doubles each time: the rank that
 * was queried may not answer, or ranks may not come for a long time. */
enum { LEAST_PAUSE_NS = 10 * 1000 * 1000, MOST_PAUSE_NS = 320 * 1000 * 1000 };

/* The content of a VOTES message: head.count / sizeof(struct voice) of
 * these. */
struct voice {
    struct uli_opinion opinion;
    uint32_t promised;
    int32_t rank;
    uint8_t answer;
    bool dead;
};
enum { MOST_VOICES = (ULI_NET_MESSAGE_BYTES - 64) / sizeof(struct voice) };

static size_t
decision_bytes(const ulyx_comm_t *comm)
{
    return offsetof(struct uli_decision, members) +
           ((size_t)comm->nranks + 7) / 8;
}

static uint64_t
name_ballot(uint32_t instance, uint32_t ballot)
{
    return (uint64_t)instance << 32 | ballot;
}

/* ---- sending ------------------------------------------------------------- */

void
uli_survivors_listen(ulyx_comm_t *comm, struct uli_survivors_call *call)
{
    if (!comm->remote)
        return;
    pthread_mutex_lock(&comm->remote->lock);
    comm->remote->deciding = call;
    pthread_mutex_unlock(&comm->remote->lock);
}

void
uli_survivors_announce(struct uli_survivors_call *call, int32_t to)
{
    struct uli_message message = {
        .head.kind = ULI_MESSAGE_COME, .value = call->proposal.instance};

    uli_remote_send_message(call->comm, to, &message, NULL, 0);
}

static bool
rank_can_receive(const ulyx_comm_t *comm, int32_t rank)
{
    return uli_comm_is_remote(comm, rank) &&
           atomic_load(&comm->peers[rank].dead) == 0 &&
           atomic_load(&comm->control->left[rank]) == 0;
}

void
uli_survivors_send_decision(
    ulyx_comm_t *comm, const struct uli_decision *decision, bool members)
{
    for (int32_t p = 0; comm->remote && p < comm->nranks; p++) {
        struct uli_message message = {.head.kind = ULI_MESSAGE_DECISION};

        if (rank_can_receive(comm, p) &&
            (!members || uli_decision_has(decision, p)))
            uli_remote_send_message(
                comm, p, &message, decision, decision_bytes(comm));
    }
}

static void
node_query_soon(struct uli_queried_node *queried)
{
    queried->next_ns = 0;
    queried->pause_ns = LEAST_PAUSE_NS;
}

void
uli_survivors_query_soon(struct uli_survivors_call *call)
{
    for (int32_t j = 0; j < call->comm->nnodes; j++)
        node_query_soon(&call->nodes[j]);
}

/* Whether the node is to be queried now for a vote that is still missing. If
 * so, sets when it is queried next. */
static bool
node_is_due(struct uli_survivors_call *call, int32_t node, int64_t now)
{
    const struct uli_nodes *nodes = &call->comm->remote->nodes;
    bool due = false;

    pthread_mutex_lock(&call->comm->remote->lock);
    if (now >= call->nodes[node].next_ns)
        for (int32_t at = nodes->first[node]; at < nodes->first[node + 1]; at++)
            due = due || uli_proposal_awaits(&call->proposal, nodes->order[at]);
    if (due) {
        struct uli_queried_node *queried = &call->nodes[node];

        queried->next_ns = now + queried->pause_ns;
        queried->pause_ns = uli_min(2 * queried->pause_ns, MOST_PAUSE_NS);
    }
    pthread_mutex_unlock(&call->comm->remote->lock);
    return due;
}

/* The next rank of the node that can receive. A rank that was left out, maybe
 * because it stands still, is chosen in every second round only. -1: none. */
static int32_t
delegate_of(struct uli_survivors_call *call, int32_t node)
{
    const struct uli_nodes *nodes = &call->comm->remote->nodes;
    int32_t first = nodes->first[node], count = nodes->first[node + 1] - first;

    for (int32_t i = 0; i < 2 * count; i++) {
        uint32_t turn = call->nodes[node].turn++;
        int32_t rank = nodes->order[first + (int32_t)(turn % (uint32_t)count)];
        bool all = turn / (uint32_t)count % 2 != 0;

        if (rank_can_receive(call->comm, rank) &&
            (all || !call->proposal.seats[rank].never))
            return rank;
    }
    return -1;
}

void
uli_survivors_query_nodes(struct uli_survivors_call *call, int64_t now_ns)
{
    ulyx_comm_t *comm = call->comm;

    for (int32_t node = 0; node < comm->nnodes; node++) {
        struct uli_message message = {.head.kind = ULI_MESSAGE_BALLOT,
            .value =
                name_ballot(call->proposal.instance, call->proposal.ballot),
            .status = call->excludes};
        int32_t delegate;

        if (node == comm->remote->nodes.mine ||
            !node_is_due(call, node, now_ns))
            continue;
        delegate = delegate_of(call, node);
        if (delegate >= 0)
            uli_remote_send_message(comm, delegate, &message, NULL, 0);
    }
}

/* ---- answering (hooks) --------------------------------------------------- */

struct reply {
    ulyx_comm_t *comm;
    int32_t to;
    uint64_t ballot;
    size_t count;
    struct voice voices[MOST_VOICES];
};

static void
reply_flush(struct reply *reply)
{
    struct uli_message message = {
        .head.kind = ULI_MESSAGE_VOTES, .value = reply->ballot};

    if (reply->count > 0)
        uli_remote_post(reply->comm, reply->to, &message, reply->voices,
            reply->count * sizeof(reply->voices[0]));
    reply->count = 0;
}

static void
reply_show(struct reply *reply, const struct uli_decision *decision)
{
    struct uli_message message = {.head.kind = ULI_MESSAGE_DECISION};

    uli_remote_post(reply->comm, reply->to, &message, decision,
        decision_bytes(reply->comm));
}

static void
reply_add(struct reply *reply, int32_t rank, uint32_t instance, uint32_t ballot,
    bool exclude)
{
    ulyx_comm_t *comm = reply->comm;
    struct voice *voice = &reply->voices[reply->count];
    struct uli_decision shown;

    memset(voice, 0, sizeof(*voice));
    voice->rank = rank;
    voice->answer = (uint8_t)uli_survivors_query_vote(comm, rank, instance,
        ballot, exclude, &voice->opinion, &voice->promised);
    voice->dead = atomic_load(&comm->peers[rank].dead) != 0;
    if (voice->answer == ULI_ANSWER_DECIDED) {
        if (uli_survivors_shown(comm, rank, instance, &shown))
            reply_show(reply, &shown);
        else
            voice->answer = ULI_ANSWER_PAST;
    }
    if (++reply->count == MOST_VOICES)
        reply_flush(reply);
}

static void
take_ballot(ulyx_comm_t *comm, int32_t from, const struct uli_message *message)
{
    const struct uli_nodes *nodes = &comm->remote->nodes;
    struct reply reply = {.comm = comm, .to = from, .ballot = message->value};
    int32_t end = nodes->first[nodes->mine + 1];

    for (int32_t at = nodes->first[nodes->mine]; at < end; at++)
        reply_add(&reply, nodes->order[at], (uint32_t)(message->value >> 32),
            (uint32_t)message->value, message->status != 0);
    reply_flush(&reply);
}

static void
take_votes(ulyx_comm_t *comm, int32_t from, struct uli_survivors_call *call,
    const struct uli_message *message)
{
    size_t count = message->head.count / sizeof(struct voice);

    if ((uint32_t)(message->value >> 32) != call->proposal.instance)
        return;
    for (size_t i = 0; i < count; i++) {
        struct voice voice;

        memcpy(&voice, message->more + i * sizeof(voice), sizeof(voice));
        if (voice.rank < 0 || voice.rank >= comm->nranks ||
            comm->peers[voice.rank].node != comm->peers[from].node ||
            voice.answer > ULI_ANSWER_PAST ||
            (voice.answer == ULI_ANSWER_DECIDED && !call->has_received))
            return;
        uli_proposal_take(&call->proposal, (uint32_t)message->value, voice.rank,
            (enum uli_answer)voice.answer, &voice.opinion, voice.promised);
        call->proposal.seats[voice.rank].dead |= voice.dead;
    }
}

static void
take_decision(ulyx_comm_t *comm, struct uli_survivors_call *call,
    const struct uli_message *message)
{
    struct uli_decision decision;

    memset(&decision, 0, sizeof(decision));
    if (message->head.count != decision_bytes(comm))
        return;
    memcpy(&decision, message->more, message->head.count);
    if (decision.first_rank < comm->nranks && decision.odd_rank < comm->nranks)
        uli_survivors_receive_decision(call, &decision);
}

void
uli_survivors_receive(
    ulyx_comm_t *comm, int32_t from, const struct uli_message *message)
{
    struct uli_survivors_call *call;

    if (message->head.kind == ULI_MESSAGE_BALLOT) {
        take_ballot(comm, from, message);
        return;
    }
    pthread_mutex_lock(&comm->remote->lock);
    call = comm->remote->deciding;
    if (call && message->head.kind == ULI_MESSAGE_VOTES)
        take_votes(comm, from, call, message);
    else if (call && message->head.kind == ULI_MESSAGE_DECISION)
        take_decision(comm, call, message);
    else if (call)
        node_query_soon(&call->nodes[comm->peers[from].node]);
    pthread_mutex_unlock(&comm->remote->lock);
}
