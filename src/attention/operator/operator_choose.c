/* SPDX-License-Identifier: Apache-2.0
 *
 * Which head groups an operator has.
 *
 * All ranks must choose alike, so they compare the ceiling with what the
 * neediest rank needs, which every rank can compute from the shape.
 *
 * The order of trial: whole KV heads in more and more groups, then with one
 * slot, and only then pieces of KV heads, which bring k and v once a piece and
 * carry dk and dv in accumulators of twice the size (16 bits).
 */
#include "attention/operator/operator.h"

#include <stdlib.h>
#include <string.h>
#include "base/status.h"

/* ---- groups -------------------------------------------------------------- */

static int64_t
div_up(int64_t a, int64_t unit)
{
    return (a + unit - 1) / unit;
}

/* KV heads are dealt as evenly as they go, the first groups one more. */
static void
deal_heads(const struct ulyx_operator *op, int32_t ngroups,
    struct uli_head_group *groups)
{
    int64_t kv = op->params->p.kv_heads, each = op->params->p.heads / kv;
    int64_t first = 0;
    for (int32_t g = 0; g < ngroups; g++) {
        memset(&groups[g], 0, sizeof(groups[g]));
        groups[g].kv_first = first;
        groups[g].kv_heads = kv / ngroups + (g < kv % ngroups);
        groups[g].q_first = first * each;
        groups[g].q_heads = groups[g].kv_heads * each;
        first += groups[g].kv_heads;
    }
}

/* The queries of each KV head likewise: group g is piece g % pieces. */
static void
deal_pieces(const struct ulyx_operator *op, int32_t pieces,
    struct uli_head_group *groups)
{
    int64_t kv = op->params->p.kv_heads, each = op->params->p.heads / kv;
    int64_t nranks = op->comm->nranks, largest = div_up(each, pieces);
    bool balanced = op->params->p.work_split == ULYX_WORK_BALANCED;
    int64_t first = 0;
    for (int64_t g = 0; g < kv * pieces; g++) {
        int64_t piece = g % pieces;
        groups[g] = (struct uli_head_group){.cut = true,
            .first_piece = piece == 0,
            .last_piece = piece == pieces - 1,
            .carriers = (int32_t)(balanced ? nranks : uli_min(nranks, largest)),
            .q_first = first,
            .q_heads = each / pieces + (piece < each % pieces),
            .kv_first = g / pieces,
            .kv_heads = 1};
        first += groups[g].q_heads;
    }
}

static ulyx_status_t
layout_of(const struct ulyx_operator *op, const struct uli_head_group *group,
    struct uli_layout **layout_p)
{
    struct uli_plan_params params;
    uli_operator_plan_params(op, group, ULI_BUNDLE_IN, 0, &params);
    return uli_layout_create(
        &params.shape, params.docs_q, params.docs_k, layout_p);
}

static void
take_seq_rows(struct ulyx_operator *op, const struct uli_layout *layout)
{
    for (int32_t i = 0; i < op->params->shape.nparts; i++) {
        op->seq_rows[i] = uli_layout_seq_rows(layout, i, op->comm->rank);
        op->seq_rows_max[i] =
            uli_layout_max_seq_rows(layout, i, op->comm->rank);
    }
}

/* A choice on trial: sizes[rank][group] of all ranks. */
struct trial {
    int32_t ngroups;
    struct uli_head_group *groups;
    struct uli_head_sizes *sizes;
};

static void
trial_free(struct trial *trial)
{
    free(trial->groups);
    free(trial->sizes);
    memset(trial, 0, sizeof(*trial));
}

static ulyx_status_t
measure_group(
    struct ulyx_operator *op, int32_t threads, int32_t g, struct trial *trial)
{
    struct uli_layout *layout = NULL;
    ulyx_status_t status = layout_of(op, &trial->groups[g], &layout);
    if (status != ULYX_SUCCESS)
        return status;
    int32_t me = op->comm->rank;
    take_seq_rows(op, layout);
    for (int32_t r = 0; r < op->comm->nranks && status == ULYX_SUCCESS; r++)
        status = uli_operator_measure(op, &trial->groups[g], layout, r,
            op->ceiling || r != me ? threads : op->threads,
            &trial->sizes[r * trial->ngroups + g]);
    uli_layout_destroy(layout);
    return status;
}

/* pieces > 1: ngroups is so many for each KV head. */
static ulyx_status_t
try_groups(struct ulyx_operator *op, int32_t ngroups, int32_t pieces,
    int32_t threads, struct trial *trial_p)
{
    size_t cells = (size_t)ngroups * (size_t)op->comm->nranks;
    trial_p->ngroups = ngroups;
    trial_p->groups = calloc((size_t)ngroups, sizeof(*trial_p->groups));
    trial_p->sizes = calloc(cells, sizeof(*trial_p->sizes));
    if (!trial_p->groups || !trial_p->sizes)
        return uli_error(ULYX_ERR_NO_MEMORY,
            "operator: no memory for %d head groups", ngroups);
    if (pieces > 1)
        deal_pieces(op, pieces, trial_p->groups);
    else
        deal_heads(op, ngroups, trial_p->groups);
    for (int32_t g = 0; g < ngroups; g++)
        ULI_TRY(measure_group(op, threads, g, trial_p));
    return ULYX_SUCCESS;
}

static int64_t
operator_neediest(
    const struct ulyx_operator *op, const struct trial *trial, int32_t slots)
{
    int64_t most = 0;
    for (int32_t r = 0; r < op->comm->nranks; r++) {
        struct uli_head_sizes sizes = {0};
        for (int32_t g = 0; g < trial->ngroups; g++)
            uli_operator_raise_sizes(
                &sizes, &trial->sizes[r * trial->ngroups + g]);
        most = uli_max(most, uli_operator_pass_bytes(op, &sizes, slots));
    }
    return most;
}

/* ---- the choice ---------------------------------------------------------- */

/* *fits_p: op's choice; else the trial is undone. *needed_p: the smallest need
 * seen. */
static ulyx_status_t
try_one(struct ulyx_operator *op, int32_t ngroups, int32_t pieces,
    int32_t most_slots, int32_t threads, int64_t *needed_p, bool *fits_p,
    struct trial *trial_p)
{
    int32_t slots = (int32_t)uli_min(ngroups, most_slots);
    ulyx_status_t status = try_groups(op, ngroups, pieces, threads, trial_p);
    *fits_p = false;
    if (status == ULYX_SUCCESS) {
        int64_t need = operator_neediest(op, trial_p, slots);
        *needed_p = uli_min(*needed_p, need);
        *fits_p = !op->ceiling || need <= op->ceiling;
    }
    if (*fits_p) {
        op->slots = slots;
        op->pieces = pieces;
    } else {
        trial_free(trial_p);
    }
    return status;
}

/* Whole KV heads: the first count of groups, from `least` on, that fits with
 * that many slots. */
static ulyx_status_t
search_groups(struct ulyx_operator *op, int32_t least, int32_t slots,
    int32_t threads, int64_t *needed_p, bool *fits_p, struct trial *trial_p)
{
    int64_t most = op->params->shape.head_splits ? 1 : op->params->p.kv_heads;
    for (int32_t n = least; n <= most && !*fits_p; n++)
        ULI_TRY(try_one(op, n, 1, slots, threads, needed_p, fits_p, trial_p));
    return ULYX_SUCCESS;
}

/* Can the queries of a KV head be cut without a change of bits? The reference
 * sums in fp64, which accumulators in fp32 would round. */
static bool
may_cut(const struct ulyx_operator *op)
{
    const ulyx_operator_params_t *p = &op->params->p;
    bool reference = p->kernel && strcmp(p->kernel, "reference") == 0;
    return !op->params->shape.head_splits &&
           p->heads / p->kv_heads <= INT32_MAX &&
           (!reference || !op->has_backward || p->dtype == ULYX_DTYPE_F64);
}

/* Pieces: only counts that leave the busiest rank less. With HEADS a rank has
 * whole heads, so below one a rank nothing is gained. */
static ulyx_status_t
search_pieces(struct ulyx_operator *op, int32_t slots, int32_t threads,
    int64_t *needed_p, bool *fits_p, struct trial *trial_p)
{
    const ulyx_operator_params_t *p = &op->params->p;
    int64_t each = p->heads / p->kv_heads, unit = op->comm->nranks;
    if (p->work_split == ULYX_WORK_BALANCED)
        unit = 1;
    int64_t most = div_up(each, unit);
    for (int64_t n = 2; n <= each && !*fits_p && may_cut(op); n++) {
        int64_t share = div_up(div_up(each, n), unit);
        if (share == most || p->kv_heads * n > INT32_MAX)
            continue;
        most = share;
        ULI_TRY(try_one(op, (int32_t)(p->kv_heads * n), (int32_t)n, slots,
            threads, needed_p, fits_p, trial_p));
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
operator_choose_choose(
    struct ulyx_operator *op, int32_t threads, struct trial *trial_p)
{
    int64_t wanted = uli_max(op->params->p.head_groups, 1);
    int32_t least = (int32_t)uli_min(wanted, op->params->p.kv_heads);
    int64_t needed = INT64_MAX;
    bool fits = false;
    memset(trial_p, 0, sizeof(*trial_p));
    for (int32_t slots = ULI_OPERATOR_SLOTS; slots > 0 && !fits; slots--)
        ULI_TRY(
            search_groups(op, least, slots, threads, &needed, &fits, trial_p));
    for (int32_t slots = ULI_OPERATOR_SLOTS; slots > 0 && !fits; slots--)
        ULI_TRY(search_pieces(op, slots, threads, &needed, &fits, trial_p));
    if (fits)
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_INVALID_ARGUMENT,
        "max_workspace_bytes is %lld, %lld are needed even by the smallest "
        "head groups",
        (long long)op->ceiling, (long long)needed);
}

ulyx_status_t
uli_operator_choose(struct ulyx_operator *op, int32_t threads)
{
    struct trial trial;
    ULI_TRY(operator_choose_choose(op, threads, &trial));
    const struct uli_head_sizes *mine =
        trial.sizes + (int64_t)op->comm->rank * trial.ngroups;
    op->ngroups = trial.ngroups;
    op->groups = trial.groups;
    for (int32_t g = 0; g < op->ngroups; g++)
        op->groups[g].sizes = mine[g];
    free(trial.sizes);
    return ULYX_SUCCESS;
}
