/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the verb of a link's large puts. Neither a version nor a device
 * decides it: UCX 1.13's put over TCP collapses where several are in flight; in
 * later versions it is as fast as active messages or faster. So the first large
 * put starts a probe of the link, while AM moves the data: each verb moves a
 * few puts into the other end's scratch, in turn, five times, and verb_choice.c
 * evaluates the times. A verb that takes three times as long as AM in two
 * rounds has no more turns. A probe ends after half a second. A probe without a
 * result is repeated a second later, twice; after that AM stays.
 *
 *   lower rank                       higher rank
 *                     <-- PREFERENCE (its first large put)
 *   requests a key  -->
 *                     <-- KEY        (of its scratch, and the verb it forces)
 *   probes          --> PUT ...      receives them in its scratch
 *                     <-- PROBED ...
 *   VERB v          -->              sends by v from now on
 *                     <-- AGREED v   binding for both
 *
 * A setting other than AUTO is a forced proposal: it needs no probe and wins
 * over a probe. Two different forced proposals give AM. PUT needs remote memory
 * access at both ends: an end without it sends no key, uses no key of a peer,
 * and forces AM where the other end forces PUT. When the probes of several
 * links have all had one result, further links take that result without a
 * probe, because a rank's links use one NIC.
 */
#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "base/status.h"
#include "base/system/clock.h"
#include "transport/ucx/net.h"

enum {
    TURNS = ULI_UCX_PROBE_ROUNDS * ULI_UCX_VERBS,
    ENOUGH = 3,         /* links with equal results */
    ATTEMPTS = 3,       /* probes of a link */
    TRIED = 2,          /* rounds in which every verb has its turn */
    EXCLUDED_ABOVE = 3, /* a verb that takes this many times as long as AM has
                         * no more turns */
};
static const int64_t limit_ns = 500000000; /* the most time of a probe */
static const int64_t rest_ns = 1000000000; /* after a probe without a result */

static const char *const names[ULI_UCX_VERBS + 1] = {
    [ULI_UCX_BY_AM] = "active messages",
    [ULI_UCX_BY_PUT] = "puts",
    [ULI_UCX_BY_TAG] = "tagged messages",
    [ULI_UCX_BY_PROBE] = "what a probe finds",
};

const char *
uli_ucx_verb_name(enum uli_ucx_verb verb)
{
    return names[verb];
}

enum uli_ucx_verb
uli_ucx_verb_of(const struct uli_settings *settings)
{
    const char *text = settings->ucx_verb;
    return strcmp(text, "AM") == 0    ? ULI_UCX_BY_AM
           : strcmp(text, "PUT") == 0 ? ULI_UCX_BY_PUT
           : strcmp(text, "TAG") == 0 ? ULI_UCX_BY_TAG
                                      : ULI_UCX_BY_PROBE;
}

/* ---- agreement ----------------------------------------------------------- */

static void
head_send_later(struct uli_ucx_peer *peer, enum uli_ucx_kind kind)
{
    peer->link.to_send |= 1u << kind;
    uli_ucx_due(peer->net, peer);
}

static void
peer_propose(struct uli_ucx_peer *peer, enum uli_ucx_verb verb)
{
    peer->link.state = ULI_UCX_PROPOSED;
    peer->link.preference = verb;
    head_send_later(peer, ULI_UCX_VERB);
}

static void
peer_settle(struct uli_ucx_peer *peer, enum uli_ucx_verb verb)
{
    struct uli_ucx_link *link = &peer->link;
    if (link->state == ULI_UCX_SETTLED && link->verb == verb)
        return;
    link->verb = verb;
    link->state = ULI_UCX_SETTLED;
    ULI_INFO(ULI_LOG_TRANS, peer->net->rank, "ucx: rank %d by %s", peer->rank,
        names[verb]);
}

static enum uli_ucx_verb
verb_possible(const struct uli_net *net, enum uli_ucx_verb verb)
{
    return verb == ULI_UCX_BY_PUT && !net->may_put ? ULI_UCX_BY_AM : verb;
}

/* The answer to a proposal; the same at both ends, also when two proposals
 * cross. */
static enum uli_ucx_verb
verb_agree(const struct uli_net *net, enum uli_ucx_verb theirs, bool forced)
{
    if (verb_possible(net, theirs) != theirs)
        return ULI_UCX_BY_AM;
    if (net->verb == ULI_UCX_BY_PROBE || net->verb == theirs)
        return theirs;
    return forced ? ULI_UCX_BY_AM : net->verb;
}

/* ---- the probe ----------------------------------------------------------- */

/* Does the probe still wait for the key of the other end's scratch? With the
 * key comes the verb that the other end forces. This may be the only verb that
 * the other end supports, so no turn begins before the key has arrived. If the
 * other end refuses the key, the probe begins without it, and PUT is
 * excluded. */
static bool
lacks_keys(struct uli_ucx_peer *peer)
{
    uint64_t address;
    bool refused;
    ucp_rkey_h key = uli_ucx_key(
        peer, ULI_UCX_SCRATCH, 0, ULI_UCX_SCRATCH_BYTES, &address, &refused);
    peer->link.excluded[ULI_UCX_BY_PUT] |= refused || !peer->net->may_put;
    return !key && !refused;
}

/* Turn t is round t / VERBS of verb t mod VERBS. */
static enum uli_ucx_verb
verb_of_turn(const struct uli_ucx_link *link)
{
    return (enum uli_ucx_verb)(link->turn % ULI_UCX_VERBS);
}

static void
end_turn(struct uli_ucx_link *link, int64_t now_ns)
{
    enum uli_ucx_verb verb = verb_of_turn(link);
    int64_t took_ns = now_ns - link->since_ns;
    if (link->best_ns[verb] == 0 || took_ns < link->best_ns[verb])
        link->best_ns[verb] = took_ns;
    link->took_ns[link->turn / ULI_UCX_VERBS][verb] = took_ns;
    link->since_ns = 0;
    link->turn++;
}

static bool
has_no_turn(const struct uli_ucx_link *link, enum uli_ucx_verb verb)
{
    return link->excluded[verb] ||
           (link->turn >= TRIED * ULI_UCX_VERBS &&
               link->best_ns[verb] >
                   EXCLUDED_ABOVE * link->best_ns[ULI_UCX_BY_AM]);
}

/* Evaluates the times that were measured. */
static void
verb_conclude(struct uli_net *net, struct uli_ucx_peer *peer, int64_t now_ns)
{
    struct uli_ucx_link *link = &peer->link;
    enum uli_ucx_verb found =
        uli_ucx_verb_choose(link->took_ns, link->turn / ULI_UCX_VERBS);
    if (found == ULI_UCX_VERBS && ++link->attempts < ATTEMPTS) {
        link->state = ULI_UCX_RESTING;
        link->again_ns = now_ns + rest_ns;
        uli_ucx_watch(net, peer);
        return;
    }
    if (found == ULI_UCX_VERBS)
        found = ULI_UCX_BY_AM;
    else
        net->outcomes[found]++;
    peer_propose(peer, found);
}

static void
start_probes(struct uli_ucx_peer *peer)
{
    struct uli_ucx_link *link = &peer->link;
    link->state = ULI_UCX_PROBING;
    link->turn = 0;
    link->begun_ns = 0; /* set with the first turn */
    memset(link->best_ns, 0, sizeof(link->best_ns));
    memset(link->took_ns, 0, sizeof(link->took_ns));
    uli_ucx_due(peer->net, peer);
}

void
uli_ucx_verb_retry(struct uli_ucx_peer *peer, int64_t now_ns)
{
    if (peer->link.state == ULI_UCX_RESTING && now_ns >= peer->link.again_ns)
        start_probes(peer);
}

static void
probe_continue(struct uli_net *net, struct uli_ucx_peer *peer)
{
    struct uli_ucx_link *link = &peer->link;
    int64_t now_ns = uli_clock_ns();
    if (link->unanswered > 0)
        return;
    if (link->since_ns)
        end_turn(link, now_ns);
    if (lacks_keys(peer))
        return;
    if (!link->begun_ns)
        link->begun_ns = now_ns;
    while (link->turn < TURNS && has_no_turn(link, verb_of_turn(link)))
        link->turn++;
    if (link->turn == TURNS || now_ns - link->begun_ns > limit_ns) {
        verb_conclude(net, peer, now_ns);
        return;
    }
    link->since_ns = now_ns;
    for (int i = 0; i < ULI_UCX_PROBE_DEPTH; i++)
        if (uli_ucx_probe(net, peer, verb_of_turn(link)) == ULYX_SUCCESS)
            link->unanswered++;
    if (link->unanswered > 0)
        return;
    link->since_ns = 0; /* no memory: this turn has no result */
    link->turn++;
    uli_ucx_due(net, peer);
}

void
uli_ucx_verb_forced(struct uli_ucx_peer *peer, uint32_t verb)
{
    if (peer->link.state != ULI_UCX_PROBING || verb >= ULI_UCX_VERBS)
        return;
    peer->link.forced = verb == ULI_UCX_BY_PUT && !peer->net->may_put;
    peer_propose(
        peer, peer->link.forced ? ULI_UCX_BY_AM : (enum uli_ucx_verb)verb);
}

/* ---- the first large put ------------------------------------------------- */

/* The result of all probes so far; BY_PROBE: too few, or different results. */
static enum uli_ucx_verb
verb_known(const struct uli_net *net)
{
    enum uli_ucx_verb found = ULI_UCX_BY_PROBE;
    for (enum uli_ucx_verb v = 0; v < ULI_UCX_VERBS; v++) {
        if (net->outcomes[v] && found != ULI_UCX_BY_PROBE)
            return ULI_UCX_BY_PROBE;
        if (net->outcomes[v] >= ENOUGH)
            found = v;
        else if (net->outcomes[v])
            return ULI_UCX_BY_PROBE;
    }
    return found;
}

static void
verb_begin(struct uli_net *net, struct uli_ucx_peer *peer)
{
    enum uli_ucx_verb sure = net->verb;
    if (sure == ULI_UCX_BY_PROBE && net->rank > peer->rank) {
        peer->link.state = ULI_UCX_PREFERRED;
        head_send_later(peer, ULI_UCX_VERB_PREFERENCE);
        return;
    }
    if (sure == ULI_UCX_BY_PROBE)
        sure = verb_known(net);
    if (sure != ULI_UCX_BY_PROBE) {
        peer_propose(peer, sure);
        return;
    }
    start_probes(peer);
}

enum uli_ucx_verb
uli_ucx_verb(struct uli_net *net, struct uli_ucx_peer *peer)
{
    if (peer->link.state == ULI_UCX_UNUSED)
        verb_begin(net, peer);
    return peer->link.verb;
}

/* ---- steps and messages -------------------------------------------------- */

void
uli_ucx_do_verb(struct uli_net *net, struct uli_ucx_peer *peer)
{
    struct uli_ucx_link *link = &peer->link;
    bool forced = net->verb != ULI_UCX_BY_PROBE || link->forced;
    uint64_t forced_bit = forced ? ULI_UCX_VERBS : 0;
    uint32_t due = link->to_send;
    if (peer->bye)
        return;
    link->to_send = 0;
    if (due & 1u << ULI_UCX_VERB_PREFERENCE)
        (void)uli_ucx_send_head(net, peer, ULI_UCX_VERB_PREFERENCE, 0, 0);
    if (due & 1u << ULI_UCX_VERB)
        (void)uli_ucx_send_head(
            net, peer, ULI_UCX_VERB, 0, link->preference + forced_bit);
    if (due & 1u << ULI_UCX_VERB_AGREED)
        (void)uli_ucx_send_head(net, peer, ULI_UCX_VERB_AGREED, 0, link->verb);
    for (; link->to_acknowledge > 0; link->to_acknowledge--)
        (void)uli_ucx_send_head(net, peer, ULI_UCX_PROBED, 0, 0);
    if (link->state == ULI_UCX_PROBING)
        probe_continue(net, peer);
}

static void
proposal_receive(struct uli_ucx_peer *peer, uint64_t value)
{
    bool forced = value >= ULI_UCX_VERBS;
    if (forced)
        value -= ULI_UCX_VERBS;
    if (value >= ULI_UCX_VERBS) {
        uli_ucx_refuse(peer->net, peer, "it proposed an unknown verb");
        return;
    }
    peer_settle(peer, verb_agree(peer->net, (enum uli_ucx_verb)value, forced));
    head_send_later(peer, ULI_UCX_VERB_AGREED);
}

void
uli_ucx_verb_receive(struct uli_ucx_peer *peer, const struct uli_ucx_head *head)
{
    struct uli_ucx_link *link = &peer->link;
    switch (head->kind) {
    case ULI_UCX_PROBED:
        if (link->unanswered > 0 && --link->unanswered == 0)
            uli_ucx_due(peer->net, peer);
        break;
    case ULI_UCX_VERB_PREFERENCE:
        if (link->state == ULI_UCX_UNUSED || link->state == ULI_UCX_PREFERRED)
            verb_begin(peer->net, peer);
        break;
    case ULI_UCX_VERB:
        proposal_receive(peer, head->signal);
        break;
    default:
        if (head->signal < ULI_UCX_VERBS)
            peer_settle(peer,
                verb_possible(peer->net, (enum uli_ucx_verb)head->signal));
    }
}
