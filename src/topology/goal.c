/* SPDX-License-Identifier: Apache-2.0
 *
 * A schedule in GOAL: for each rank its sends and receives, labelled, and which
 * of them require others. The wire's sends require all that was gathered, the
 * spread's all that came by wire, each through one empty calculation, so that
 * the file grows with the messages and not with their pairs.
 *
 *     num_ranks 2
 *     rank 0 {
 *     l1: send 8b to 1 tag 0
 *     l2: recv 8b from 1 tag 0
 *     }
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "topology/schedule.h"

#define MESSAGES_MAX (1 << 24)

enum { GATHER, WIRE, SPREAD };

struct writer {
    const struct uli_demand *x;
    struct uli_factors f;
    int64_t peers;
    FILE *file;
    int64_t label;
    int64_t gate;        /* label that sends require; 0 for none */
    int64_t phase_first; /* label of the phase's first message */
    int64_t *carries;    /* [nodes], then of all */
    int64_t *window;     /* [peers] */
};

static void
message(struct writer *w, const char *verb, const char *direction,
    int64_t bytes, int32_t peer, int tag)
{
    if (bytes <= 0)
        return;
    fprintf(w->file, "l%" PRId64 ": %s %" PRId64 "b %s %" PRId32 " tag %d\n",
        ++w->label, verb, bytes, direction, peer, tag);
    if (w->gate && verb[0] == 's')
        fprintf(
            w->file, "l%" PRId64 " requires l%" PRId64 "\n", w->label, w->gate);
}

/* What follows requires all messages of the phase that ends. */
static void
close_phase(struct writer *w)
{
    int64_t last = w->label;
    fprintf(w->file, "l%" PRId64 ": calc 0\n", ++w->label);
    for (int64_t l = w->phase_first; l <= last; l++)
        fprintf(w->file, "l%" PRId64 " requires l%" PRId64 "\n", w->label, l);
    w->gate = w->label;
    w->phase_first = w->label + 1;
}

static int64_t
sent(const struct writer *w, int32_t from, int32_t to)
{
    return uli_holding_all(&w->f.from, from) * uli_holding_all(&w->f.to, to);
}

/* Pairwise: a send to another node waits for what came from the rank that is
 * w->peers such steps before; 0 is direct. */
static void
write_direct(struct writer *w, int32_t r)
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
        message(w, "send", "to", sent(w, r, to), to, GATHER);
        message(w, "recv", "from", sent(w, from, r), from, GATHER);
        if (gated)
            *earlier = w->label;
        away += gated;
    }
}

/* Does rank `from` send to `to`, of another node, by wire? */
static bool
is_rail(const struct uli_demand *x, int32_t from, int32_t to)
{
    int32_t here = uli_demand_node_ranks(x, x->node[from]);
    return x->place[to] % here == x->place[from];
}

/* What rank `from` hands to `to` of its node: to's own share, and what `to`
 * sends to other nodes. */
static int64_t
gathered(const struct writer *w, int32_t from, int32_t to)
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
wired(const struct writer *w, int32_t from, int32_t to)
{
    return w->carries[w->x->node[from]] *
           uli_demand_carried(w->x, &w->f.to, to);
}

static int64_t
spread(const struct writer *w, int32_t from, int32_t to)
{
    const struct uli_demand *x = w->x;
    return (w->carries[x->nodes] - w->carries[x->node[to]]) *
           uli_demand_handed(x, &w->f.to, from, to);
}

static void
write_wire(struct writer *w, int32_t r)
{
    const struct uli_demand *x = w->x;
    for (int32_t n = 1; n < x->nodes; n++) {
        int32_t node = (x->node[r] + n) % x->nodes;
        for (int32_t i = x->first[node]; i < x->first[node + 1]; i++) {
            int32_t peer = x->members[i];
            if (is_rail(x, r, peer))
                message(w, "send", "to", wired(w, r, peer), peer, WIRE);
            if (is_rail(x, peer, r))
                message(w, "recv", "from", wired(w, peer, r), peer, WIRE);
        }
    }
}

static void
write_hier(struct writer *w, int32_t r)
{
    const struct uli_demand *x = w->x;
    const int32_t *members = &x->members[x->first[x->node[r]]];
    int32_t g = uli_demand_node_ranks(x, x->node[r]);
    for (int32_t l = 1; l < g; l++) {
        int32_t peer = members[(x->place[r] + l) % g];
        message(w, "send", "to", gathered(w, r, peer), peer, GATHER);
        message(w, "recv", "from", gathered(w, peer, r), peer, GATHER);
    }
    close_phase(w);
    write_wire(w, r);
    close_phase(w);
    for (int32_t l = 1; l < g; l++) {
        int32_t peer = members[(x->place[r] + l) % g];
        message(w, "send", "to", spread(w, r, peer), peer, SPREAD);
        message(w, "recv", "from", spread(w, peer, r), peer, SPREAD);
    }
}

static ulyx_status_t
prepare(struct writer *w, enum uli_algo algo, bool sums)
{
    const struct uli_demand *x = w->x;
    if (algo != ULI_ALGO_PAIRWISE || sums || w->peers >= x->nranks)
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
uli_schedule_write_goal(const struct uli_demand *x, ulyx_operation_t operation,
    enum uli_algo algo, int64_t peers, FILE *file)
{
    bool hier = algo == ULI_ALGO_HIER;
    int64_t each = hier ? (int64_t)x->nodes + 2 * x->ranks_per_node : x->nranks;
    if (each * x->nranks > MESSAGES_MAX)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s on %" PRId32 " ranks: %" PRId64 " messages, at most %d are "
            "written",
            uli_algo_name(algo), x->nranks, each * x->nranks, MESSAGES_MAX);
    struct writer w = {.x = x,
        .f = uli_demand_factors(x, operation),
        .peers = peers,
        .file = file};
    ULI_TRY(
        prepare(&w, algo, operation == ULYX_SEQ_TO_HEAD_ADJOINT && x->sums));
    fprintf(file, "num_ranks %" PRId32 "\n", x->nranks);
    for (int32_t r = 0; r < x->nranks; r++) {
        w.label = w.gate = 0;
        w.phase_first = 1;
        fprintf(file, "rank %" PRId32 " {\n", r);
        if (hier)
            write_hier(&w, r);
        else
            write_direct(&w, r);
        fprintf(file, "}\n");
    }
    free(w.carries);
    return fflush(file) || ferror(file) ? uli_error_errno("writing GOAL")
                                        : ULYX_SUCCESS;
}
