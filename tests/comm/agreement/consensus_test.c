/* SPDX-License-Identifier: Apache-2.0
 *
 * The survivors' protocol through every order of events of small jobs: ranks
 * come, lose patience, propose, ask, learn, leave and die, whenever the
 * protocol permits. The steps are the library's own functions; the test only
 * keeps the state and chooses the next step. All that survivors.c may do is
 * covered: messages are delivered late, out of order, twice or never, and any
 * rank proposes at any time.
 *
 * To prove that the search would find a fault, it is repeated with each rule of
 * the protocol broken in turn.
 */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/agreement/consensus.h"
#include "support/random.h"

enum { RANKS = 4, INSTANCES = 2, BALLOTS = 2 };

/* Rules that may be broken. */
enum rule {
    ALL_HOLD,
    PROMISES_BIND,      /* a vote takes no ballot below the one it promised */
    NODES_ANSWER,       /* the node of a dead rank answers for its vote */
    FAREWELL,           /* a rank that leaves sends its last decision */
    SHOWN_IS_TAKEN,     /* a proposer takes over a decision that was shown */
    ALL_ARE_QUERIED,    /* also by a proposer to which a decision was shown */
    EXCLUDED_IS_MARKED, /* a rank that is passed over is OUT */
};

static enum rule broken;

struct job {
    int nranks, instances, ballots, deaths, leaves;
    int slow; /* 0, or so many of the highest ranks lack decision 1 */
    int node[RANKS];
};

/* Members are sets of bits; 0: no decision. */
struct rank {
    uint8_t answers[RANKS]; /* to the present ballot */
    uint8_t ballot, highest;
    uint8_t begun[INSTANCES][BALLOTS]; /* questions on their way */
    uint8_t noted, parted;             /* known deaths and leaves */
    uint8_t received, received_ballot;
    uint8_t members[INSTANCES], by[INSTANCES]; /* decisions, and ballots */
    uint8_t settled[INSTANCES]; /* decided here by a proposal; may be
                                 * received */
};

struct state {
    uint64_t votes[RANKS];
    struct rank ranks[RANKS];
    uint8_t alive, left, deaths, leaves;
};

/* ---- visited states ------------------------------------------------------ */

struct search {
    const struct job *job;
    uint64_t *seen; /* hashes */
    size_t capacity, count;
    struct state *stack;
    size_t depth, room;
    bool split;       /* two living ranks have different decisions */
    int64_t decided;  /* states with a decision */
    int64_t late;     /* states with a decision by a later ballot */
    int64_t left_out; /* states with a living rank that is OUT */
};

static uint64_t
hash_state(const struct state *state)
{
    const uint64_t *word = (const uint64_t *)state;
    uint64_t hash = 0x9E3779B97F4A7C15u;
    for (size_t i = 0; i < sizeof(*state) / 8; i++) {
        hash = (hash ^ word[i]) * 0xBF58476D1CE4E5B9u;
        hash ^= hash >> 29;
    }
    return hash ? hash : 1;
}

static bool
search_insert(struct search *s, uint64_t hash)
{
    size_t at = hash & (s->capacity - 1);
    while (s->seen[at] && s->seen[at] != hash)
        at = (at + 1) & (s->capacity - 1);
    if (s->seen[at])
        return false;
    s->seen[at] = hash;
    s->count++;
    return true;
}

static void
grow_seen(struct search *s)
{
    uint64_t *old = s->seen;
    size_t capacity = s->capacity;
    s->capacity *= 2;
    s->count = 0;
    s->seen = calloc(s->capacity, sizeof(*s->seen));
    assert_non_null(s->seen);
    for (size_t i = 0; i < capacity; i++)
        if (old[i])
            search_insert(s, old[i]);
    free(old);
}

static void
search_push(struct search *s, const struct state *state)
{
    if (s->count > s->capacity / 2)
        grow_seen(s);
    if (!search_insert(s, hash_state(state)))
        return;
    if (s->depth == s->room) {
        s->room *= 2;
        s->stack = realloc(s->stack, s->room * sizeof(*s->stack));
        assert_non_null(s->stack);
    }
    s->stack[s->depth++] = *state;
}

/* ---- invariants ---------------------------------------------------------- */

static void
search_judge(struct search *s, const struct state *state)
{
    bool decided = false, late = false, out = false;
    for (int k = 0; k < s->job->instances; k++) {
        uint8_t one = 0;
        for (int r = 0; r < s->job->nranks; r++) {
            const struct rank *rank = &state->ranks[r];
            if (!(state->alive >> r & 1) || !rank->members[k])
                continue;
            s->split |= one && rank->members[k] != one;
            one = rank->members[k];
            decided = true;
            late |= rank->by[k] > s->job->nranks;
        }
        /* Members of a decision were members of the decision before. */
        for (int r = 0; r < s->job->nranks; r++)
            if (k > 0 && one && state->ranks[r].members[k - 1])
                s->split |= one & ~state->ranks[r].members[k - 1];
    }
    for (int r = 0; r < s->job->nranks; r++)
        out |= (state->alive >> r & 1) &&
               uli_vote_phase(state->votes[r]) == ULI_VOTE_OUT;
    s->decided += decided;
    s->late += late;
    s->left_out += out;
}

/* ---- steps --------------------------------------------------------------- */

static bool
is_open(const struct state *state, int r)
{
    return (state->alive >> r & 1) && !(state->left >> r & 1) &&
           uli_vote_phase(state->votes[r]) == ULI_VOTE_OPEN;
}

/* The library's proposal, filled from the state of a rank. */
struct view {
    struct uli_proposal proposal;
    struct uli_seat seats[RANKS];
};

static bool
is_known_gone(const struct job *job, const struct rank *rank, int r, int p)
{
    if (job->node[r] == job->node[p])
        return false;
    for (int q = 0; q < job->nranks; q++)
        if (job->node[q] == job->node[p] &&
            !((rank->noted | rank->parted) >> q & 1) &&
            (broken != NODES_ANSWER || q == p))
            return false;
    return true;
}

static uint64_t
value_of(int r)
{
    return ~(UINT64_C(1) << r);
}

static void
view_rank(
    const struct job *job, const struct state *state, int r, struct view *view)
{
    const struct rank *rank = &state->ranks[r];
    uint32_t k = uli_vote_instance(state->votes[r]);
    memset(view, 0, sizeof(*view));
    view->proposal = (struct uli_proposal){
        job->nranks, k, rank->ballot, rank->highest, view->seats};
    for (int p = 0; p < job->nranks; p++) {
        struct uli_seat *seat = &view->seats[p];
        seat->opinion = (struct uli_opinion){value_of(p), ULI_TOPIC_AND};
        seat->answer = rank->answers[p];
        seat->dead = rank->noted >> p & 1;
        seat->gone = is_known_gone(job, rank, r, p);
        seat->never = k > 1 && !(rank->members[k - 2] >> p & 1);
    }
}

static void
keep_view(struct state *state, int r, const struct view *view)
{
    struct rank *rank = &state->ranks[r];
    rank->ballot = (uint8_t)view->proposal.ballot;
    rank->highest = (uint8_t)view->proposal.highest;
    for (int p = 0; p < view->proposal.nranks; p++)
        rank->answers[p] = view->seats[p].answer;
}

static void
rank_receive(struct rank *rank, uint8_t members, uint8_t ballot)
{
    if (rank->received && rank->received_ballot >= ballot)
        return;
    rank->received = members;
    rank->received_ballot = ballot;
}

/* Applies a decision to the rank's vote, if the vote allows it. A rank that is
 * not a member leaves. */
static bool
ballot_accept(
    struct state *state, int r, uint8_t members, uint8_t by, uint32_t ballot)
{
    struct rank *rank = &state->ranks[r];
    uint32_t k = uli_vote_instance(state->votes[r]);
    if (broken == PROMISES_BIND)
        ballot = UINT32_MAX;
    if (!uli_vote_decide(state->votes[r], k, ballot, &state->votes[r]))
        return false;
    rank->members[k - 1] = members;
    rank->by[k - 1] = by;
    if (!(members >> r & 1))
        state->votes[r] = uli_vote_leave(state->votes[r]);
    memset(rank->answers, 0, sizeof(rank->answers));
    rank->ballot = rank->highest = rank->received = rank->received_ballot = 0;
    return true;
}

/* Delivers the question of a ballot that rank r has ever begun to rank p. The
 * answer counts if the ballot is still r's present one. */
static void
job_query(const struct job *job, struct state *state, int r, uint32_t k,
    uint32_t ballot, int p, bool exclude)
{
    struct uli_opinion opinion = {value_of(p), ULI_TOPIC_AND};
    uint32_t promised = uli_vote_ballot(state->votes[p]);
    uint64_t before = state->votes[p];
    enum uli_answer answer =
        uli_vote_answer(before, k, ballot, exclude, &state->votes[p]);
    struct view view;
    if (broken == EXCLUDED_IS_MARKED && answer == ULI_ANSWER_OUT)
        state->votes[p] = before;
    if (!is_open(state, r) || uli_vote_instance(state->votes[r]) != k ||
        state->ranks[r].ballot != ballot)
        return;
    if (answer == ULI_ANSWER_DECIDED)
        rank_receive(&state->ranks[r], state->ranks[p].members[k - 1],
            state->ranks[p].by[k - 1]);
    view_rank(job, state, r, &view);
    uli_proposal_take(&view.proposal, ballot, p, answer, &opinion, promised);
    keep_view(state, r, &view);
}

static bool
node_lives(const struct job *job, const struct state *state, int p)
{
    for (int q = 0; q < job->nranks; q++)
        if (job->node[q] == job->node[p] && (state->alive >> q & 1) &&
            !(state->left >> q & 1))
            return true;
    return false;
}

static void
step_queries(struct search *s, const struct state *from, int r)
{
    const struct job *job = s->job;
    for (int p = 0; p < job->nranks; p++)
        for (int i = 0; i < job->instances * job->ballots; i++) {
            uint32_t k = (uint32_t)(i / job->ballots) + 1;
            uint32_t ballot = from->ranks[r].begun[k - 1][i % job->ballots];
            if (!ballot || !node_lives(job, from, p))
                continue;
            for (int exclude = 0; exclude < 2; exclude++) {
                struct state to = *from;
                job_query(job, &to, r, k, ballot, p, exclude);
                search_push(s, &to);
            }
        }
}

static void
step_propose(struct search *s, const struct state *from, int r)
{
    const struct job *job = s->job;
    uint32_t k = uli_vote_instance(from->votes[r]);
    struct uli_decision decision;
    struct state to = *from;
    struct view view;
    uint8_t members, by;
    view_rank(job, from, r, &view);
    for (int i = 0; i < job->ballots; i++)
        if (!from->ranks[r].begun[k - 1][i]) {
            uli_proposal_begin(&view.proposal, r);
            keep_view(&to, r, &view);
            to.ranks[r].begun[k - 1][i] = to.ranks[r].ballot;
            search_push(s, &to);
            break;
        }
    to = *from;
    view_rank(job, from, r, &view);
    if (!from->ranks[r].ballot)
        return;
    enum uli_standing standing = uli_proposal_standing(&view.proposal);
    if (broken == ALL_ARE_QUERIED && from->ranks[r].received)
        standing = ULI_STANDING_READY;
    if (standing == ULI_STANDING_PAST) {
        to.votes[r] = uli_vote_leave(to.votes[r]);
        search_push(s, &to);
        return;
    }
    if (standing != ULI_STANDING_READY)
        return;
    uli_proposal_form(&view.proposal, &decision);
    members = decision.members[0];
    for (int p = 0; p < job->nranks; p++)
        if (members >> p & 1)
            decision.value |= UINT64_C(1) << p;
    assert_true(!members || decision.value == UINT64_MAX);
    if (from->ranks[r].received && broken != SHOWN_IS_TAKEN)
        members = from->ranks[r].received;
    by = from->ranks[r].ballot;
    if (ballot_accept(&to, r, members, by, by))
        to.ranks[r].settled[k - 1] = 1;
    else
        to.ranks[r].answers[r] = ULI_ANSWER_NONE;
    search_push(s, &to);
}

static void
step_learn(struct search *s, const struct state *from, int r)
{
    const struct job *job = s->job;
    uint32_t k = uli_vote_instance(from->votes[r]);
    for (int c = 0; c < job->nranks; c++) {
        const struct rank *other = &from->ranks[c];
        struct state to = *from;
        if (c == r)
            continue;
        if (job->node[c] == job->node[r] && uli_vote_shows(from->votes[c], k) &&
            ballot_accept(
                &to, r, other->members[k - 1], other->by[k - 1], UINT32_MAX))
            search_push(s, &to);
        to = *from;
        if (other->settled[k - 1] && job->node[c] != job->node[r]) {
            rank_receive(&to.ranks[r], other->members[k - 1], other->by[k - 1]);
            search_push(s, &to);
        }
    }
    struct state to = *from;
    if (from->ranks[r].received &&
        ballot_accept(&to, r, from->ranks[r].received,
            from->ranks[r].received_ballot, from->ranks[r].received_ballot))
        search_push(s, &to);
}

/* Rank r receives that c has left, or notices that c has died. */
static void
step_notes(struct search *s, const struct state *from, int r)
{
    const struct job *job = s->job;
    for (int c = 0; c < job->nranks; c++) {
        struct state to = *from;
        if (!(from->alive >> c & 1) && !(from->ranks[r].noted >> c & 1)) {
            to.ranks[r].noted |= (uint8_t)(1 << c);
            search_push(s, &to);
        }
        to = *from;
        if (!(from->left >> c & 1) || (from->ranks[r].parted >> c & 1))
            continue;
        to.ranks[r].parted |= (uint8_t)(1 << c);
        for (uint32_t k = 1; k <= (uint32_t)job->instances; k++)
            if (broken != FAREWELL && is_open(from, r) &&
                uli_vote_instance(from->votes[r]) == k &&
                uli_vote_shows(from->votes[c], k))
                rank_receive(&to.ranks[r], from->ranks[c].members[k - 1],
                    from->ranks[c].by[k - 1]);
        search_push(s, &to);
    }
}

/* Clears the state of a dead rank, except messages on their way and the parts
 * that its node can show: fewer states to visit. */
static void
rank_forget(struct state *state, int r)
{
    struct rank *rank = &state->ranks[r];
    memset(rank->answers, 0, sizeof(rank->answers));
    rank->ballot = rank->highest = rank->received = rank->received_ballot = 0;
    rank->noted = rank->parted = 0;
}

static void
step_rank(struct search *s, const struct state *from, int r)
{
    const struct job *job = s->job;
    struct state to = *from;
    if (uli_vote_instance(from->votes[r]) < (uint32_t)job->instances &&
        uli_vote_come(from->votes[r], &to.votes[r]))
        search_push(s, &to);
    if (is_open(from, r)) {
        step_propose(s, from, r);
        step_learn(s, from, r);
    }
    if (from->deaths < job->deaths) {
        to = *from;
        to.alive &= (uint8_t) ~(1 << r);
        to.deaths++;
        rank_forget(&to, r);
        search_push(s, &to);
    }
    if (!is_open(from, r) && from->leaves < job->leaves) {
        to = *from;
        to.left |= (uint8_t)(1 << r);
        to.leaves++;
        search_push(s, &to);
    }
    step_notes(s, from, r);
}

/* Visits all states. Questions of ranks that have died or moved on may still be
 * on their way. */
static void
search_run(struct search *s, const struct job *job)
{
    struct state start;
    memset(s, 0, sizeof(*s));
    memset(&start, 0, sizeof(start));
    s->job = job;
    s->capacity = 1 << 16;
    s->room = 1 << 12;
    s->seen = calloc(s->capacity, sizeof(*s->seen));
    s->stack = malloc(s->room * sizeof(*s->stack));
    assert_true(s->seen && s->stack);
    start.alive = (uint8_t)((1 << job->nranks) - 1);
    for (int r = 0; job->slow && r < job->nranks; r++) {
        bool has = r < job->nranks - job->slow;
        start.votes[r] = uli_vote(1, has ? ULI_VOTE_IDLE : ULI_VOTE_OPEN, 0);
        start.ranks[r].members[0] = has ? start.alive : 0;
        start.ranks[r].by[0] = has ? 1 : 0;
        start.ranks[r].settled[0] = r == 0;
    }
    search_push(s, &start);
    while (s->depth > 0 && !s->split) {
        struct state state = s->stack[--s->depth];
        search_judge(s, &state);
        for (int r = 0; r < job->nranks; r++) {
            if ((state.alive >> r & 1) && !(state.left >> r & 1))
                step_rank(s, &state, r);
            step_queries(s, &state, r);
        }
    }
    free(s->seen);
    free(s->stack);
}

/* ---- jobs ---------------------------------------------------------------- */

/* ranks, instances, ballots per rank, deaths, leaves, slow, nodes */
static const struct job quick[] = {
    {2, 2, 2, 1, 1, 0, {0, 1}},
    {2, 2, 2, 1, 0, 0, {0, 0}},
    {3, 1, 1, 2, 1, 0, {0, 1, 2}},
    {3, 1, 1, 2, 1, 0, {0, 0, 1}},
    {3, 1, 1, 1, 1, 0, {0, 1, 1}},
    {3, 1, 1, 1, 0, 0, {0, 0, 0}},
    {3, 2, 1, 1, 0, 1, {0, 1, 2}},
    {3, 2, 1, 1, 0, 1, {0, 0, 1}},
};

/* These take some minutes: only with ULYX_TEST_DRAWS. */
static const struct job slow[] = {
    {3, 2, 1, 1, 1, 1, {0, 1, 2}},
    {3, 1, 2, 1, 0, 0, {0, 1, 2}},
    {3, 1, 2, 1, 0, 0, {0, 0, 1}},
    {3, 2, 1, 1, 0, 0, {0, 1, 2}},
    {3, 2, 1, 1, 0, 0, {0, 0, 1}},
    {4, 1, 1, 1, 0, 0, {0, 0, 1, 1}},
};

static void
run_all(const struct job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct search s;
        search_run(&s, &jobs[i]);
        printf("%d ranks: %zu states, %lld decided, %lld by later ballots, "
               "%lld with ranks left out\n",
            jobs[i].nranks, s.count, (long long)s.decided, (long long)s.late,
            (long long)s.left_out);
        assert_false(s.split);
        assert_true(s.decided > 0 && s.left_out > 0);
        assert_true(jobs[i].ballots == 1 || s.late > 0);
    }
}

static void
living_ranks_never_differ(void **state)
{
    (void)state;
    run_all(quick, sizeof(quick) / sizeof(quick[0]));
    if (test_draws(1) > 1)
        run_all(slow, sizeof(slow) / sizeof(slow[0]));
}

/* Each rule is needed: without it, ranks of some job decide differently. */
static void
search_finds_what_each_rule_prevents(void **state)
{
    (void)state;
    for (int rule = PROMISES_BIND; rule <= EXCLUDED_IS_MARKED; rule++) {
        bool found = false;
        broken = rule;
        for (size_t i = 0; !found && i < sizeof(quick) / sizeof(quick[0]);
             i++) {
            struct search s;
            search_run(&s, &quick[i]);
            found = s.split;
        }
        broken = ALL_HOLD;
        if (!found)
            fail_msg("the search finds no fault without rule %d", rule);
    }
}

static void
each_ballot_is_of_the_rank_that_began_it(void **state)
{
    (void)state;
    for (int32_t nranks = 1; nranks <= RANKS; nranks++)
        for (int32_t rank = 0; rank < nranks; rank++) {
            struct uli_seat seats[RANKS];
            struct uli_proposal proposal = {.nranks = nranks, .seats = seats};
            for (int attempt = 0; attempt < 5; attempt++) {
                uli_proposal_begin(&proposal, rank);
                assert_int_equal(
                    uli_ballot_rank(nranks, proposal.ballot), rank);
            }
        }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_ballot_is_of_the_rank_that_began_it),
    cmocka_unit_test(living_ranks_never_differ),
    cmocka_unit_test(search_finds_what_each_rule_prevents),
};

ULI_TEST_MAIN("Consensus", tests)
