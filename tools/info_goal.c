/* SPDX-License-Identifier: Apache-2.0
 *
 * A schedule in GOAL: each rank's sends and receives with a label each, and for
 * each label the labels that must be complete before. In hier, the sends of the
 * wire phase require all messages of the gather phase, and the sends of the
 * spread phase require all messages of the wire phase. One empty calculation
 * between two phases stands for these requirements, so that the file grows with
 * the number of messages and not with the number of pairs of messages.
 *
 *     num_ranks 2
 *     rank 0 {
 *     l1: send 8b to 1 tag 0
 *     l2: recv 8b from 1 tag 0
 *     }
 */
#include "info_goal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "topology/model/schedule_model.h"

#define MESSAGES_MAX (1 << 24)

enum goal_phase { GOAL_GATHER, GOAL_WIRE, GOAL_SPREAD };

struct goal_writer {
    const struct uli_demand *x;
    struct uli_factors f;
    int64_t peers; /* ranks of other nodes to send to at one time; 0: all */
    FILE *file;
    int64_t label;       /* the last one written for the present rank */
    int64_t gate;        /* label that sends require; 0: none */
    int64_t phase_first; /* label of the phase's first message */
    int64_t *carries;    /* [n]: what node n has to send; [nodes]: all nodes */
    int64_t *window;     /* [peers + 1]: labels of the last receives */
};

/* ---- lines --------------------------------------------------------------- */

/* Writes a send of the present rank to rank `to` under the next label. Messages
 * of 0 bytes are left out. */
static void
goal_send(
    struct goal_writer *w, int64_t bytes, int32_t to, enum goal_phase phase)
{
    if (bytes <= 0)
        return;
    fprintf(w->file, "l%" PRId64 ": send %" PRId64 "b to %" PRId32 " tag %d\n",
        ++w->label, bytes, to, phase);
    if (w->gate)
        fprintf(
            w->file, "l%" PRId64 " requires l%" PRId64 "\n", w->label, w->gate);
}

static void
goal_receive(
    struct goal_writer *w, int64_t bytes, int32_t from, enum goal_phase phase)
{
    if (bytes > 0)
        fprintf(w->file,
            "l%" PRId64 ": recv %" PRId64 "b from %" PRId32 " tag %d\n",
            ++w->label, bytes, from, phase);
}

static void
goal_close_phase(struct goal_writer *w)
{
    int64_t last = w->label;
    fprintf(w->file, "l%" PRId64 ": calc 0\n", ++w->label);
    for (int64_t l = w->phase_first; l <= last; l++)
        fprintf(w->file, "l%" PRId64 " requires l%" PRId64 "\n", w->label, l);
    w->gate = w->label;
    w->phase_first = w->label + 1;
}

/* ---- direct, pairwise ---------------------------------------------------- */

static int64_t
pair_bytes(const struct goal_writer *w, int32_t from, int32_t to)
{
    return uli_holding_all(&w->f.from, from) * uli_holding_all(&w->f.to, to);
}

/* Pairwise (w->peers > 0): the steps whose send goes to another node are
 * numbered 0, 1, 2, ...; the send of step i requires the receive of step
 * i - w->peers. The other steps have no number, and their sends require
 * nothing. Direct (w->peers 0): no send requires anything. */
static void
direct_write(struct goal_writer *w, int32_t r)
{
    const struct uli_demand *x = w->x;
    int64_t away = 0;
    memset(w->window, 0, (size_t)(w->peers + 1) * sizeof(*w->window));
    for (int32_t step = 1; step < x->nranks; step++) {
        int32_t to = (r + step) % x->nranks;
        int32_t from = (r - step + x->nranks) % x->nranks;
        bool gated = w->peers > 0 && x->node[to] != x->node[r];
        int64_t *earlier = &w->window[gated ? away % w->peers : 0];
        w->gate = gated ? *earlier : 0;
        goal_send(w, pair_bytes(w, r, to), to, GOAL_GATHER);
        goal_receive(w, pair_bytes(w, from, r), from, GOAL_GATHER);
        if (gated)
            *earlier = w->label;
        away += gated;
    }
}

static int64_t
direct_messages(const struct uli_demand *x)
{
    return (int64_t)x->nranks * (x->nranks - 1);
}

/* ---- hier ---------------------------------------------------------------- */

/* Does rank `from` send the message of the wire phase to rank `to` of another
 * node? */
static bool
is_rail_peer(const struct uli_demand *x, int32_t from, int32_t to)
{
    int32_t here = uli_demand_node_ranks(x, x->node[from]);
    return x->place[to] % here == x->place[from];
}

/* Bytes that rank `from` sends to rank `to` of its node in the gather phase:
 * what `to` itself needs, and what `to` sends on to other nodes. */
static int64_t
gathered_bytes(const struct goal_writer *w, int32_t from, int32_t to)
{
    const struct uli_demand *x = w->x;
    int64_t taken = uli_holding_all(&w->f.to, to);
    int32_t step = uli_demand_node_ranks(x, x->node[to]);
    for (int32_t n = 0; n < x->nodes; n++)
        for (int32_t i = x->first[n] + x->place[to];
             n != x->node[to] && i < x->first[n + 1]; i += step)
            taken += uli_demand_carried(x, &w->f.to, x->members[i]);
    return uli_holding_all(&w->f.from, from) * taken;
}

static int64_t
wired_bytes(const struct goal_writer *w, int32_t from, int32_t to)
{
    return w->carries[w->x->node[from]] *
           uli_demand_carried(w->x, &w->f.to, to);
}

static int64_t
spread_bytes(const struct goal_writer *w, int32_t from, int32_t to)
{
    const struct uli_demand *x = w->x;
    return (w->carries[x->nodes] - w->carries[x->node[to]]) *
           uli_demand_handed(x, &w->f.to, from, to);
}

static void
hier_write_wire(struct goal_writer *w, int32_t r)
{
    const struct uli_demand *x = w->x;
    for (int32_t n = 1; n < x->nodes; n++) {
        int32_t node = (x->node[r] + n) % x->nodes;
        for (int32_t i = x->first[node]; i < x->first[node + 1]; i++) {
            int32_t peer = x->members[i];
            if (is_rail_peer(x, r, peer))
                goal_send(w, wired_bytes(w, r, peer), peer, GOAL_WIRE);
            if (is_rail_peer(x, peer, r))
                goal_receive(w, wired_bytes(w, peer, r), peer, GOAL_WIRE);
        }
    }
}

static void
hier_write(struct goal_writer *w, int32_t r)
{
    const struct uli_demand *x = w->x;
    const int32_t *members = &x->members[x->first[x->node[r]]];
    int32_t g = uli_demand_node_ranks(x, x->node[r]);
    for (int32_t l = 1; l < g; l++) {
        int32_t peer = members[(x->place[r] + l) % g];
        goal_send(w, gathered_bytes(w, r, peer), peer, GOAL_GATHER);
        goal_receive(w, gathered_bytes(w, peer, r), peer, GOAL_GATHER);
    }
    goal_close_phase(w);
    hier_write_wire(w, r);
    goal_close_phase(w);
    for (int32_t l = 1; l < g; l++) {
        int32_t peer = members[(x->place[r] + l) % g];
        goal_send(w, spread_bytes(w, r, peer), peer, GOAL_SPREAD);
        goal_receive(w, spread_bytes(w, peer, r), peer, GOAL_SPREAD);
    }
}

/* In the gather and spread phases each rank sends to all others of its node; in
 * the wire phase each rank gets one message from every other node. */
static int64_t
hier_messages(const struct uli_demand *x)
{
    int64_t messages = (int64_t)x->nranks * (x->nodes - 1);
    for (int32_t n = 0; n < x->nodes; n++) {
        int64_t ranks = uli_demand_node_ranks(x, n);
        messages += 2 * ranks * (ranks - 1);
    }
    return messages;
}

/* ---- the file ------------------------------------------------------------ */

/* Per schedule: messages is the number of messages that all ranks send, for the
 * limit of the file's size; write writes all lines of rank r. */
static const struct {
    int64_t (*messages)(const struct uli_demand *x);
    void (*write)(struct goal_writer *w, int32_t r);
} goal_rows[ULI_ALGOS] = {
    [ULI_ALGO_DIRECT] = {direct_messages, direct_write},
    [ULI_ALGO_PAIRWISE] = {direct_messages, direct_write},
    [ULI_ALGO_HIER] = {hier_messages, hier_write},
};

static ulyx_status_t
goal_prepare(struct goal_writer *w, uint32_t traits, bool sums)
{
    const struct uli_demand *x = w->x;
    bool limits = traits & ULI_SCHEDULE_LIMITS_PEERS;
    if (!limits || sums || w->peers >= x->nranks)
        w->peers = 0;
    w->carries =
        calloc((size_t)x->nodes + 2 + (size_t)w->peers, sizeof(*w->carries));
    if (!w->carries)
        return uli_error(ULYX_ERR_NO_MEMORY, "GOAL: no memory");
    w->window = w->carries + x->nodes + 1;
    for (int32_t r = 0; r < x->nranks; r++)
        w->carries[x->node[r]] += w->f.from.own[r];
    for (int32_t n = 0; n < x->nodes; n++) {
        w->carries[n] += w->f.from.node_shared[n];
        w->carries[x->nodes] += w->carries[n];
    }
    return ULYX_SUCCESS;
}

ulyx_status_t
info_write_goal(const struct uli_demand *x, ulyx_direction_t direction,
    enum uli_algo algo, int64_t peers, FILE *file)
{
    if (!goal_rows[algo].write)
        return uli_error(ULYX_ERR_UNSUPPORTED, "%s is not written as GOAL",
            uli_algo_name(algo));
    int64_t messages = goal_rows[algo].messages(x);
    if (messages > MESSAGES_MAX)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s on %" PRId32 " ranks: %" PRId64 " messages, at most %d are "
            "written",
            uli_algo_name(algo), x->nranks, messages, MESSAGES_MAX);
    struct goal_writer w = {.x = x,
        .f = uli_demand_factors(x, direction),
        .peers = peers,
        .file = file};
    ULI_TRY(goal_prepare(&w, uli_schedule_model_of(algo)->traits,
        direction == ULYX_SEQ_TO_HEAD_ADJOINT && x->sums));
    fprintf(file, "num_ranks %" PRId32 "\n", x->nranks);
    for (int32_t r = 0; r < x->nranks; r++) {
        w.label = w.gate = 0;
        w.phase_first = 1;
        fprintf(file, "rank %" PRId32 " {\n", r);
        goal_rows[algo].write(&w, r);
        fprintf(file, "}\n");
    }
    free(w.carries);
    return fflush(file) || ferror(file) ? uli_error_errno("writing GOAL")
                                        : ULYX_SUCCESS;
}
