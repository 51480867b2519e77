/* SPDX-License-Identifier: Apache-2.0
 *
 * One call that takes a decision (consensus.h has the words): the rank opens
 * its vote for the instance, then checks until there is a decision. Each check
 * takes a decision that a rank of the node or a message shows. If this rank may
 * propose now, the check also advances this rank's ballot.
 *
 * Turns do not affect the decision, only its time. The lowest rank that may
 * propose does so at once; the others follow in the order of ranks, between 1/2
 * and 3/4 of the call's time.
 */
#include "comm/agreement/survivors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/size.h"
#include "comm/agreement/survivors_call.h"

/* The pause after a refused ballot: 20 ms, plus 1 ms per rank number, so that
 * the ranks do not all try again at the same time. */
enum { RETRY_NS = 20 * 1000 * 1000, RANK_RETRY_NS = 1000 * 1000 };
enum { RETRY_PART = 64 }; /* the pause is at most 1/64 of the time left */

/* ---- a call -------------------------------------------------------------- */

static void
ring_node(ulyx_comm_t *comm)
{
    for (int32_t p = 0; p < comm->nranks; p++)
        if (p != comm->rank && !uli_comm_is_remote(comm, p))
            uli_doorbell_ring(comm->peers[p].control);
}

static void
survivors_lock(ulyx_comm_t *comm)
{
    if (comm->remote)
        pthread_mutex_lock(&comm->remote->lock);
}

static void
survivors_unlock(ulyx_comm_t *comm)
{
    if (comm->remote)
        pthread_mutex_unlock(&comm->remote->lock);
}

void
uli_survivors_receive_decision(
    struct uli_survivors_call *call, const struct uli_decision *decision)
{
    if (decision->instance != call->proposal.instance ||
        (call->has_received && call->received.ballot >= decision->ballot))
        return;
    call->received = *decision;
    call->has_received = true;
}

static void
close_call(struct uli_survivors_call *call)
{
    if (!call)
        return;
    free(call->proposal.seats);
    free(call->nodes);
    free(call);
}

static struct uli_survivors_call *
open_call(ulyx_comm_t *comm, uint32_t instance, uli_deadline_t deadline)
{
    struct uli_survivors_call *call = calloc(1, sizeof(*call));
    const struct uli_decision *last =
        &comm->control->decisions[(instance - 1) & 1];
    int64_t now = uli_clock_ns();

    if (!call)
        return NULL;
    call->comm = comm;
    call->deadline = deadline;
    call->exclude_at = now + (deadline - now) / 2;
    call->turns = now + (deadline - now) / 4 * 3;
    call->proposal.nranks = comm->nranks;
    call->proposal.instance = instance;
    call->proposal.seats =
        calloc((size_t)comm->nranks, sizeof(*call->proposal.seats));
    call->nodes = calloc((size_t)comm->nnodes, sizeof(*call->nodes));
    if (!call->proposal.seats || !call->nodes) {
        close_call(call);
        return NULL;
    }
    for (int32_t p = 0; p < comm->nranks; p++)
        call->proposal.seats[p].never =
            instance > 1 && !uli_decision_has(last, p);
    return call;
}

/* Updates which ranks and nodes live. Under the lock. */
static void
note_deaths(struct uli_survivors_call *call)
{
    ulyx_comm_t *comm = call->comm;

    for (int32_t j = 0; j < comm->nnodes; j++)
        call->nodes[j].lives = false;
    for (int32_t p = 0; p < comm->nranks; p++) {
        bool dead = atomic_load(&comm->peers[p].dead) != 0;

        call->proposal.seats[p].dead |= dead;
        call->nodes[comm->peers[p].node].lives |=
            !dead && atomic_load(&comm->control->left[p]) == 0;
    }
    for (int32_t p = 0; p < comm->nranks; p++)
        call->proposal.seats[p].gone = uli_comm_is_remote(comm, p) &&
                                       !call->nodes[comm->peers[p].node].lives;
}

/* Whether the rank may be the proposer. */
static bool
may_propose(const struct uli_survivors_call *call, int32_t rank)
{
    ulyx_comm_t *comm = call->comm;

    return !call->proposal.seats[rank].never &&
           atomic_load(&comm->peers[rank].dead) == 0 &&
           atomic_load(&comm->control->left[rank]) == 0 &&
           (uli_comm_is_remote(comm, rank) ||
               uli_vote_phase(uli_survivors_vote(comm, rank)) != ULI_VOTE_OUT);
}

static bool
is_my_turn(const struct uli_survivors_call *call, int64_t now)
{
    int32_t before = 0;

    for (int32_t p = 0; p < call->comm->rank; p++)
        before += may_propose(call, p);
    return before == 0 ||
           now >= call->exclude_at + (call->turns - call->exclude_at) /
                                         call->comm->nranks * before;
}

/* The decision makes this rank's vote IDLE; false: the vote has promised a
 * higher ballot, or is OUT. The decision that is overwritten is two instances
 * old, so no rank reads it. */
static bool
vote_accept(struct uli_survivors_call *call,
    const struct uli_decision *decision, uint32_t ballot)
{
    ulyx_comm_t *comm = call->comm;
    uint32_t instance = call->proposal.instance;
    uint64_t next, vote = uli_survivors_vote(comm, comm->rank);

    comm->control->decisions[instance & 1] = *decision;
    do
        if (!uli_vote_decide(vote, instance, ballot, &next))
            return false;
    while (!atomic_compare_exchange_weak(&comm->control->vote, &vote, next));
    return true;
}

/* Takes a decision that a vote of this node shows. The decision is valid,
 * whatever ballot this rank has promised: while this rank lives, the proposer
 * of that ballot queries the vote that shows the decision, too. */
static bool
learn_from_node(struct uli_survivors_call *call)
{
    ulyx_comm_t *comm = call->comm;
    struct uli_decision shown;

    for (int32_t p = 0; p < comm->nranks; p++)
        if (p != comm->rank && !uli_comm_is_remote(comm, p) &&
            uli_survivors_shown(comm, p, call->proposal.instance, &shown))
            return vote_accept(call, &shown, UINT32_MAX);
    return false;
}

static bool
learn_from_message(struct uli_survivors_call *call)
{
    bool learned;

    if (!call->comm->remote)
        return false;
    survivors_lock(call->comm);
    learned = call->has_received &&
              vote_accept(call, &call->received, call->received.ballot);
    survivors_unlock(call->comm);
    return learned;
}

/* ---- proposing ----------------------------------------------------------- */

/* Queries the votes of this node. exclude: a vote that has not come is made
 * OUT. */
static void
call_query_node(struct uli_survivors_call *call, bool exclude)
{
    ulyx_comm_t *comm = call->comm;
    struct uli_proposal *proposal = &call->proposal;

    for (int32_t p = 0; p < comm->nranks; p++) {
        struct uli_opinion opinion;
        struct uli_decision shown;
        enum uli_answer answer;
        uint32_t promised;

        if (uli_comm_is_remote(comm, p) || !uli_proposal_awaits(proposal, p))
            continue;
        answer = uli_survivors_query_vote(comm, p, proposal->instance,
            proposal->ballot, exclude, &opinion, &promised);
        if (answer == ULI_ANSWER_DECIDED) {
            if (!uli_survivors_shown(comm, p, proposal->instance, &shown))
                answer = ULI_ANSWER_PAST;
            else
                uli_survivors_receive_decision(call, &shown);
        }
        uli_proposal_take(
            proposal, proposal->ballot, p, answer, &opinion, promised);
    }
}

static void
begin_ballot(struct uli_survivors_call *call, int64_t now)
{
    uli_proposal_begin(&call->proposal, call->comm->rank);
    call->retry = now + uli_min((call->deadline - now) / RETRY_PART,
                            RETRY_NS + call->comm->rank * RANK_RETRY_NS);
    uli_survivors_query_soon(call);
}

/* Evaluates the answers to the ballot. True: they are complete, and *decision_p
 * is what this rank must decide. Under the lock. */
static bool
vote_weigh(struct uli_survivors_call *call, struct uli_decision *decision_p)
{
    enum uli_standing standing = uli_proposal_standing(&call->proposal);

    if (standing == ULI_STANDING_PAST)
        uli_survivors_leave(call->comm);
    if (standing != ULI_STANDING_READY)
        return false;
    if (call->has_received)
        *decision_p = call->received;
    else
        uli_proposal_form(&call->proposal, decision_p);
    decision_p->ballot = call->proposal.ballot;
    return true;
}

static bool
vote_propose(struct uli_survivors_call *call)
{
    ulyx_comm_t *comm = call->comm;
    struct uli_proposal *proposal = &call->proposal;
    struct uli_decision decision;
    int64_t now = uli_clock_ns();
    bool exclude = now >= call->exclude_at, ready = false;

    if (proposal->ballot == 0 && !is_my_turn(call, now))
        return false;
    survivors_lock(comm);
    if (exclude && !call->excludes)
        uli_survivors_query_soon(call);
    call->excludes = exclude;
    note_deaths(call);
    if (proposal->ballot == 0 ||
        (uli_proposal_standing(proposal) == ULI_STANDING_REFUSED &&
            now >= call->retry))
        begin_ballot(call, now);
    call_query_node(call, exclude);
    ready = vote_weigh(call, &decision);
    survivors_unlock(comm);
    if (!ready && comm->remote)
        uli_survivors_query_nodes(call, now);
    if (!ready)
        return false;
    if (!vote_accept(call, &decision, decision.ballot)) {
        proposal->seats[comm->rank].answer = ULI_ANSWER_NONE;
        return false;
    }
    ring_node(comm);
    uli_survivors_send_decision(comm, &decision, false);
    return true;
}

/* ---- waiting ------------------------------------------------------------- */

static ulyx_status_t
error_excluded(const ulyx_comm_t *comm)
{
    return uli_error(ULYX_ERR_RANK_LOST,
        "the other ranks have excluded rank %d", comm->rank);
}

/* All ranks have the same set of members; a rank that is not in this set is
 * OUT. */
static ulyx_status_t
vote_conclude(struct uli_survivors_call *call, struct uli_decision *decision_p)
{
    ulyx_comm_t *comm = call->comm;

    *decision_p = comm->control->decisions[call->proposal.instance & 1];
    if (!uli_decision_has(decision_p, comm->rank))
        uli_survivors_leave(comm);
    return uli_survivors_left_out(comm) ? error_excluded(comm) : ULYX_SUCCESS;
}

ulyx_status_t
uli_survivors_same(const struct uli_decision *decision)
{
    bool first_refused = decision->topic == ULI_TOPIC_REFUSED;

    if (decision->odd_rank < 0)
        return ULYX_SUCCESS;
    if (first_refused || decision->odd_topic == ULI_TOPIC_REFUSED)
        return uli_error(ULYX_ERR_PEER_REFUSED,
            "rank %d refused the arguments of its own call",
            first_refused ? decision->first_rank : decision->odd_rank);
    return uli_error(ULYX_ERR_MISMATCH,
        "rank %d called %s where rank %d called %s", decision->odd_rank,
        uli_topic_name(decision->odd_topic), decision->first_rank,
        uli_topic_name(decision->topic));
}

/* Before its first ballot a rank waits for the ranks whose turn is earlier;
 * then for the ranks that have not answered; if all have answered, for the rank
 * of the highest ballot. */
static struct uli_late
survivors_late(const struct uli_survivors_call *call)
{
    const struct uli_proposal *proposal = &call->proposal;
    int32_t rank = call->comm->rank, nranks = call->comm->nranks;
    struct uli_late late = uli_late_none(ULI_LATE_VOTE);
    int32_t highest_rank = uli_ballot_rank(nranks, proposal->highest);

    for (int32_t p = 0; p < nranks; p++)
        if (p != rank &&
            (proposal->ballot != 0 ? uli_proposal_awaits(proposal, p)
                                   : p < rank && may_propose(call, p)))
            uli_late_add(&late, p);
    if (proposal->ballot == 0)
        late.phase = ULI_LATE_DECIDE;
    if (late.count == 0 && proposal->highest != 0 && highest_rank != rank)
        late = uli_late_one(ULI_LATE_DECIDE, highest_rank);
    return late;
}

static ulyx_status_t
give_up(struct uli_survivors_call *call, uint32_t topic)
{
    struct uli_late late;

    survivors_lock(call->comm);
    late = survivors_late(call);
    survivors_unlock(call->comm);
    return uli_comm_late_error(call->comm, &late, uli_topic_name(topic));
}

static ulyx_status_t
await_decision(struct uli_survivors_call *call, uint32_t topic,
    struct uli_decision *decision_p)
{
    ulyx_comm_t *comm = call->comm;

    for (;;) {
        uint32_t seen = uli_doorbell_read(comm->control);
        int64_t now, next;

        uli_comm_progress(comm);
        if (uli_survivors_left_out(comm))
            return error_excluded(comm);
        if (learn_from_node(call) || learn_from_message(call) ||
            vote_propose(call))
            return vote_conclude(call, decision_p);
        if (uli_deadline_over(call->deadline))
            return give_up(call, topic);
        now = uli_clock_ns();
        next = now < call->exclude_at ? call->exclude_at : call->deadline;
        if (call->retry > now)
            next = uli_min(next, call->retry);
        uli_doorbell_sleep(comm->control, seen, next - now, NULL, NULL);
    }
}

/* The vote becomes OPEN; false: it is OUT. */
static bool
rank_come(ulyx_comm_t *comm, const struct uli_opinion *mine)
{
    uint64_t next, vote = uli_survivors_vote(comm, comm->rank);

    do {
        if (!uli_vote_come(vote, &next))
            return false;
        comm->control->opinions[uli_vote_instance(next) & 1] = *mine;
    } while (!atomic_compare_exchange_weak(&comm->control->vote, &vote, next));
    ring_node(comm);
    return true;
}

/* Announces this rank's coming to the lowest rank that may propose. On this
 * node the doorbell has done that. */
static void
coming_announce(struct uli_survivors_call *call)
{
    for (int32_t p = 0; p < call->comm->rank; p++)
        if (may_propose(call, p)) {
            if (uli_comm_is_remote(call->comm, p))
                uli_survivors_announce(call, p);
            return;
        }
}

/* Opens this rank's vote, unless the rank has come before, and waits for the
 * decision. */
static ulyx_status_t
decide_next(ulyx_comm_t *comm, const struct uli_opinion *mine, bool has_come,
    uli_deadline_t deadline, struct uli_decision *decision_p)
{
    uint32_t instance = uli_vote_instance(uli_survivors_vote(comm, comm->rank));
    struct uli_survivors_call *call =
        open_call(comm, instance + !has_come, deadline);
    ulyx_status_t status;

    if (!call)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for an agreement");
    if (has_come || rank_come(comm, mine)) {
        uli_survivors_listen(comm, call);
        coming_announce(call);
        status = await_decision(call, mine->topic, decision_p);
        uli_survivors_listen(comm, NULL);
    } else {
        status = error_excluded(comm);
    }
    close_call(call);
    return status;
}

ulyx_status_t
uli_survivors_decide(ulyx_comm_t *comm, const struct uli_opinion *mine,
    uli_deadline_t deadline, struct uli_decision *decision_p)
{
    uint64_t vote = uli_survivors_vote(comm, comm->rank);

    if (comm->nranks > ULI_MOST_SURVIVORS)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "%s: at most %d ranks can agree, not %d",
            uli_topic_name(mine->topic), (int)ULI_MOST_SURVIVORS, comm->nranks);
    /* A decision that an earlier call left open comes first. If its topic is
     * this call's, it is this call's result. */
    if (uli_vote_phase(vote) == ULI_VOTE_OPEN) {
        struct uli_opinion *last =
            &comm->control->opinions[uli_vote_instance(vote) & 1];

        ULI_TRY(decide_next(comm, last, true, deadline, decision_p));
        if (last->topic == mine->topic)
            return ULYX_SUCCESS;
    }
    return decide_next(comm, mine, false, deadline, decision_p);
}

/* ---- a value ------------------------------------------------------------- */

static int32_t
count_members(const ulyx_comm_t *comm, const struct uli_decision *decision)
{
    int32_t count = 0;

    for (int32_t p = 0; p < comm->nranks; p++)
        count += uli_decision_has(decision, p);
    return count;
}

ulyx_status_t
uli_comm_agree(ulyx_comm_t *comm, uint64_t mine, ulyx_agree_t how,
    ulyx_status_t outcome, uint64_t *value_p, int32_t *nranks_p)
{
    struct uli_recorder *recorder = &comm->control->recorder;
    bool refuses = outcome != ULYX_SUCCESS;
    struct uli_opinion opinion = {
        mine, refuses ? ULI_TOPIC_REFUSED : ULI_TOPIC_AND + (uint32_t)how};
    struct uli_decision decision;
    uli_deadline_t deadline = uli_deadline_in(comm->timeout_s);
    char text[256];

    snprintf(text, sizeof(text), "%s", uli_error_text());
    uint64_t recorded = uli_recorder_begin(
        recorder, &(struct uli_recorder_entry){.call = ULI_CALL_AGREE,
                      .direction = -1,
                      .begun_ns = uli_clock_ns()});
    ulyx_status_t status = uli_shrink_settle(comm, deadline);
    if (status == ULYX_SUCCESS)
        status = uli_survivors_decide(comm, &opinion, deadline, &decision);
    uli_recorder_end(recorder, recorded, status, uli_clock_ns());
    ULI_TRY(status);
    if (refuses)
        return uli_error_pass(outcome, text);
    ULI_TRY(uli_survivors_same(&decision));
    *value_p = decision.value;
    if (nranks_p)
        *nranks_p = count_members(comm, &decision);
    return ULYX_SUCCESS;
}
