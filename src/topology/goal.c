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
#include "base/status.h"
#include "topology/schedule.h"

#define MESSAGES_MAX (1 << 24)

enum { GATHER, WIRE, SPREAD };

struct writer {
    const struct uli_demand *x;
    FILE *file;
    int64_t label;
    int64_t gate;        /* label that sends require; 0 for none */
    int64_t phase_first; /* label of the phase's first message */
    int64_t *node_rows;
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
reads_of(const struct uli_demand *x, int32_t r)
{
    return x->own_bytes[r] + x->shared_bytes[r];
}

/* Pairwise: a send to another node waits for what came from the rank that is
 * ULI_PAIRWISE_LIMIT such steps before. */
static void
write_direct(struct writer *w, int32_t r, bool pairwise)
{
    const struct uli_demand *x = w->x;
    int64_t window[ULI_PAIRWISE_LIMIT] = {0};
    int32_t away = 0;
    for (int32_t step = 1; step < x->nranks; step++) {
        int32_t to = (r + step) % x->nranks;
        int32_t from = (r - step + x->nranks) % x->nranks;
        int64_t *earlier = &window[away % ULI_PAIRWISE_LIMIT];
        bool gated = pairwise && x->node[to] != x->node[r];
        w->gate = gated ? *earlier : 0;
        message(w, "send", "to", x->rows[r] * reads_of(x, to), to, GATHER);
        message(
            w, "recv", "from", x->rows[from] * reads_of(x, r), from, GATHER);
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
gathered(const struct uli_demand *x, int32_t from, int32_t to)
{
    int64_t bytes = reads_of(x, to);
    int32_t step = uli_demand_node_ranks(x, x->node[to]);
    for (int32_t n = 0; n < x->nodes; n++)
        for (int32_t i = x->first[n] + x->place[to];
             n != x->node[to] && i < x->first[n + 1]; i += step)
            bytes += uli_demand_carried(x, x->members[i]);
    return x->rows[from] * bytes;
}

static int64_t
wired(const struct writer *w, int32_t from, int32_t to)
{
    return w->node_rows[w->x->node[from]] * uli_demand_carried(w->x, to);
}

static int64_t
spread(const struct writer *w, int32_t from, int32_t to)
{
    const struct uli_demand *x = w->x;
    int64_t rows = w->node_rows[x->nodes];
    return (rows - w->node_rows[x->node[to]]) * uli_demand_handed(x, from, to);
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
        message(w, "send", "to", gathered(x, r, peer), peer, GATHER);
        message(w, "recv", "from", gathered(x, peer, r), peer, GATHER);
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

ulyx_status_t
uli_schedule_write_goal(
    const struct uli_demand *x, enum uli_algo algo, FILE *file)
{
    bool hier = algo == ULI_ALGO_HIER;
    int64_t each = hier ? (int64_t)x->nodes + 2 * x->ranks_per_node : x->nranks;
    if (each * x->nranks > MESSAGES_MAX)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s on %" PRId32 " ranks: %" PRId64 " messages, at most %d are "
            "written",
            uli_algo_name(algo), x->nranks, each * x->nranks, MESSAGES_MAX);
    struct writer w = {.x = x, .file = file};
    w.node_rows = calloc((size_t)x->nodes + 1, sizeof(*w.node_rows));
    if (!w.node_rows)
        return uli_error(ULYX_ERR_NO_MEMORY, "GOAL: no memory");
    for (int32_t r = 0; r < x->nranks; r++) {
        w.node_rows[x->node[r]] += x->rows[r];
        w.node_rows[x->nodes] += x->rows[r];
    }
    fprintf(file, "num_ranks %" PRId32 "\n", x->nranks);
    for (int32_t r = 0; r < x->nranks; r++) {
        w.label = w.gate = 0;
        w.phase_first = 1;
        fprintf(file, "rank %" PRId32 " {\n", r);
        if (hier)
            write_hier(&w, r);
        else
            write_direct(&w, r, algo == ULI_ALGO_PAIRWISE);
        fprintf(file, "}\n");
    }
    free(w.node_rows);
    return fflush(file) || ferror(file) ? uli_error_errno("writing GOAL")
                                        : ULYX_SUCCESS;
}
