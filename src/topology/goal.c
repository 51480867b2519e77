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
#include "topology/model/schedule_model.h"

#define MESSAGES_MAX (1 << 24)

void
uli_goal_send(struct uli_goal_writer *w, int64_t bytes, int32_t to,
    enum uli_goal_phase phase)
{
    if (bytes <= 0)
        return;
    fprintf(w->file, "l%" PRId64 ": send %" PRId64 "b to %" PRId32 " tag %d\n",
        ++w->label, bytes, to, phase);
    if (w->gate)
        fprintf(
            w->file, "l%" PRId64 " requires l%" PRId64 "\n", w->label, w->gate);
}

void
uli_goal_receive(struct uli_goal_writer *w, int64_t bytes, int32_t from,
    enum uli_goal_phase phase)
{
    if (bytes > 0)
        fprintf(w->file,
            "l%" PRId64 ": recv %" PRId64 "b from %" PRId32 " tag %d\n",
            ++w->label, bytes, from, phase);
}

void
uli_goal_close_phase(struct uli_goal_writer *w)
{
    int64_t last = w->label;
    fprintf(w->file, "l%" PRId64 ": calc 0\n", ++w->label);
    for (int64_t l = w->phase_first; l <= last; l++)
        fprintf(w->file, "l%" PRId64 " requires l%" PRId64 "\n", w->label, l);
    w->gate = w->label;
    w->phase_first = w->label + 1;
}

static ulyx_status_t
goal_prepare(struct uli_goal_writer *w, uint32_t traits, bool sums)
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
uli_schedule_write_goal(const struct uli_demand *x, ulyx_direction_t direction,
    enum uli_algo algo, int64_t peers, FILE *file)
{
    const struct uli_schedule_model *schedule = uli_schedule_model_of(algo);
    int64_t each = schedule->messages(x);
    if (each * x->nranks > MESSAGES_MAX)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s on %" PRId32 " ranks: %" PRId64 " messages, at most %d are "
            "written",
            uli_algo_name(algo), x->nranks, each * x->nranks, MESSAGES_MAX);
    struct uli_goal_writer w = {.x = x,
        .f = uli_demand_factors(x, direction),
        .peers = peers,
        .file = file};
    ULI_TRY(goal_prepare(&w, schedule->traits,
        direction == ULYX_SEQ_TO_HEAD_ADJOINT && x->sums));
    fprintf(file, "num_ranks %" PRId32 "\n", x->nranks);
    for (int32_t r = 0; r < x->nranks; r++) {
        w.label = w.gate = 0;
        w.phase_first = 1;
        fprintf(file, "rank %" PRId32 " {\n", r);
        schedule->write(&w, r);
        fprintf(file, "}\n");
    }
    free(w.carries);
    return fflush(file) || ferror(file) ? uli_error_errno("writing GOAL")
                                        : ULYX_SUCCESS;
}
