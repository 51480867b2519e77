/* SPDX-License-Identifier: Apache-2.0
 *
 * Head groups, and where tensors lie in workspace and saved.
 *
 * A pass of a group needs, on the head side of a rank (n_q rows x heads of
 * queries, n_k of keys, u bytes an element):
 *   forward   n_q (dim_qk + dim_v) u + n_k (dim_qk + dim_v) u
 *   backward  n_q (dim_qk + dim_v) u + dq + n_k (dim_qk + dim_v) u + dk + dv
 *             + delta on both sides
 * without q, k, v where they are saved. Several groups take two such slots, so
 * that one is exchanged while the other is attended; one slot where a ceiling
 * does not leave room for two. The workspace of the attention comes once.
 *
 * All ranks must choose alike, so they compare the ceiling with what the
 * neediest rank needs, which every rank can compute from the shape.
 */
#include "attention/operator.h"

#include <stdlib.h>
#include <string.h>
#include "base/status.h"

enum { SAVED_HEADER_BYTES = 64, ALIGN = 64 };

/* ---- one pass ------------------------------------------------------------ */

static bool
uses(const struct ulyx_operator *op, int pass, enum uli_head_tensor tensor)
{
    switch (tensor) {
    case ULI_HEAD_Q:
    case ULI_HEAD_K:
    case ULI_HEAD_V:
        return !op->saves_heads;
    case ULI_HEAD_OUT:
        return pass == 0;
    case ULI_HEAD_LSE: /* saved where there is a backward */
        return pass == 0 && !op->has_backward &&
               op->params->p.flags & ULYX_OPERATOR_LSE;
    default:
        return pass == 1;
    }
}

static int64_t
take(int64_t *bytes, int64_t more)
{
    int64_t at = *bytes;
    *bytes = uli_sat_add(at, uli_round_up(more, ALIGN));
    return at;
}

/* sizes: the largest of a rank's groups, per tensor. */
static void
lay_out(const struct ulyx_operator *op, const struct uli_head_sizes *sizes,
    int32_t slots, int pass, struct uli_pass_layout *layout_p)
{
    layout_p->bytes = 0;
    for (int s = 0; s < ULI_OPERATOR_SLOTS; s++) {
        for (int t = 0; t < ULI_HEAD_TENSORS; t++) {
            layout_p->tensors[s][t] = -1;
            if (s < slots && uses(op, pass, t))
                layout_p->tensors[s][t] =
                    take(&layout_p->bytes, sizes->bytes[t]);
        }
    }
    layout_p->d_sink =
        pass ? take(&layout_p->bytes, op->params->p.heads * 8) : -1;
    layout_p->attention_bytes = sizes->attention_bytes[pass];
    layout_p->attention = take(&layout_p->bytes, layout_p->attention_bytes);
}

static void
raise_sizes(struct uli_head_sizes *most, const struct uli_head_sizes *sizes)
{
    for (int t = 0; t < ULI_HEAD_TENSORS; t++)
        most->bytes[t] = uli_max(most->bytes[t], sizes->bytes[t]);
    for (int pass = 0; pass < 2; pass++)
        most->attention_bytes[pass] =
            uli_max(most->attention_bytes[pass], sizes->attention_bytes[pass]);
}

/* Of this rank, once its groups are known. */
static void
lay_out_groups(const struct ulyx_operator *op, int32_t slots, int pass,
    struct uli_pass_layout *layout_p)
{
    struct uli_head_sizes most = {0};
    for (int32_t g = 0; g < op->ngroups; g++)
        raise_sizes(&most, &op->groups[g].sizes);
    lay_out(op, &most, slots, pass, layout_p);
}

static int64_t
workspace_bytes(const struct ulyx_operator *op,
    const struct uli_head_sizes *most, int32_t slots)
{
    int64_t bytes = 0;
    for (int pass = 0; pass < (op->has_backward ? 2 : 1); pass++) {
        struct uli_pass_layout layout;
        lay_out(op, most, slots, pass, &layout);
        bytes = uli_max(bytes, layout.bytes);
    }
    return bytes;
}

/* ---- groups -------------------------------------------------------------- */

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
    for (int32_t i = 0; i < op->params->p.nparts; i++) {
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

static ulyx_status_t
try_groups(struct ulyx_operator *op, int32_t ngroups, int32_t threads,
    struct trial *trial_p)
{
    size_t cells = (size_t)ngroups * (size_t)op->comm->nranks;
    trial_p->ngroups = ngroups;
    trial_p->groups = calloc((size_t)ngroups, sizeof(*trial_p->groups));
    trial_p->sizes = calloc(cells, sizeof(*trial_p->sizes));
    if (!trial_p->groups || !trial_p->sizes)
        return uli_error(ULYX_ERR_NO_MEMORY,
            "operator: no memory for %d head groups", ngroups);
    deal_heads(op, ngroups, trial_p->groups);
    for (int32_t g = 0; g < ngroups; g++)
        ULI_TRY(measure_group(op, threads, g, trial_p));
    return ULYX_SUCCESS;
}

static int64_t
neediest(
    const struct ulyx_operator *op, const struct trial *trial, int32_t slots)
{
    int64_t most = 0;
    for (int32_t r = 0; r < op->comm->nranks; r++) {
        struct uli_head_sizes sizes = {0};
        for (int32_t g = 0; g < trial->ngroups; g++)
            raise_sizes(&sizes, &trial->sizes[r * trial->ngroups + g]);
        most = uli_max(most, workspace_bytes(op, &sizes, slots));
    }
    return most;
}

/* ---- the choice ---------------------------------------------------------- */

/* The first count of groups, from `least` on, that fits with that many slots;
 * *needed_p: the smallest need seen. returns SUCCESS with trial_p->groups
 * NULL when none does. */
static ulyx_status_t
search(struct ulyx_operator *op, int32_t least, int32_t most_slots,
    int32_t threads, int64_t *needed_p, struct trial *trial_p)
{
    int64_t most = op->params->p.kv_heads;
    if (op->params->p.head_splits)
        most = 1;
    for (int32_t n = least; n <= most; n++) {
        int32_t slots = (int32_t)uli_min(n, most_slots);
        ulyx_status_t status = try_groups(op, n, threads, trial_p);
        if (status != ULYX_SUCCESS) {
            trial_free(trial_p);
            return status;
        }
        int64_t need = neediest(op, trial_p, slots);
        *needed_p = uli_min(*needed_p, need);
        if (!op->ceiling || need <= op->ceiling) {
            op->slots = slots;
            return ULYX_SUCCESS;
        }
        trial_free(trial_p);
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
choose(struct ulyx_operator *op, int32_t threads, struct trial *trial_p)
{
    int64_t wanted = uli_max(op->params->p.head_groups, 1);
    int32_t least = (int32_t)uli_min(wanted, op->params->p.kv_heads);
    int64_t needed = INT64_MAX;
    memset(trial_p, 0, sizeof(*trial_p));
    for (int32_t slots = ULI_OPERATOR_SLOTS; slots > 0; slots--) {
        ULI_TRY(search(op, least, slots, threads, &needed, trial_p));
        if (trial_p->groups)
            return ULYX_SUCCESS;
    }
    return uli_error(ULYX_ERR_INVALID_ARGUMENT,
        "max_workspace_bytes is %lld, %lld are needed even by the smallest "
        "head groups",
        (long long)op->ceiling, (long long)needed);
}

/* ---- taking it ----------------------------------------------------------- */

/* Bytes of saved in a mode; write: also where its tensors lie. */
static int64_t
place_saved(const struct ulyx_operator *op, bool heads, bool write)
{
    static const enum uli_head_tensor kept[] = {
        ULI_HEAD_Q, ULI_HEAD_K, ULI_HEAD_V, ULI_HEAD_LSE};
    int64_t bytes = op->has_backward ? SAVED_HEADER_BYTES : 0;
    for (int32_t g = 0; g < op->ngroups; g++) {
        struct uli_head_group *group = &op->groups[g];
        for (int t = 0; t < ULI_HEAD_TENSORS && write; t++)
            group->saved[t] = -1;
        for (int i = 0; i < 4 && op->has_backward; i++) {
            if (!heads && kept[i] != ULI_HEAD_LSE)
                continue;
            int64_t at = take(&bytes, group->sizes.bytes[kept[i]]);
            if (write)
                group->saved[kept[i]] = at;
        }
    }
    return bytes;
}

void
uli_operator_bytes_of(const struct ulyx_operator *op, ulyx_save_mode_t save,
    int64_t *workspace_p, int64_t *saved_p)
{
    struct ulyx_operator other = {.params = op->params,
        .has_backward = op->has_backward,
        .saves_heads = op->has_backward && save == ULYX_SAVE_HEADS,
        .ngroups = op->ngroups,
        .groups = op->groups};
    *saved_p = place_saved(&other, other.saves_heads, false);
    *workspace_p = 0;
    for (int pass = 0; pass < (op->has_backward ? 2 : 1); pass++) {
        struct uli_pass_layout layout;
        lay_out_groups(&other, op->slots, pass, &layout);
        *workspace_p = uli_max(*workspace_p, layout.bytes);
    }
}

static ulyx_status_t
allocate(struct uli_head_group *group)
{
    const struct uli_head_sizes *sizes = &group->sizes;
    bool ok = true;
    if (!sizes->packed) {
        group->kv_map =
            calloc((size_t)uli_max(sizes->q_heads, 1), sizeof(int64_t));
        ok = group->kv_map != NULL;
    }
    for (int i = 0; i < 2 && sizes->packed; i++) {
        group->segments[i] = calloc(
            (size_t)uli_max(sizes->max_segments[i], 1), sizeof(ulyx_segment_t));
        ok &= group->segments[i] != NULL;
    }
    return ok ? ULYX_SUCCESS
              : uli_error(ULYX_ERR_NO_MEMORY,
                    "operator: no memory for the tables of a head group");
}

ulyx_status_t
uli_operator_chunk(struct ulyx_operator *op, int32_t threads)
{
    struct trial trial;
    ULI_TRY(choose(op, threads, &trial));
    const struct uli_head_sizes *mine =
        trial.sizes + (int64_t)op->comm->rank * trial.ngroups;
    op->ngroups = trial.ngroups;
    op->groups = trial.groups;
    for (int32_t g = 0; g < op->ngroups; g++)
        op->groups[g].sizes = mine[g];
    for (int pass = 0; pass < 2; pass++)
        lay_out_groups(op, op->slots, pass, &op->passes[pass]);
    free(trial.sizes);
    op->saved_bytes = place_saved(op, op->saves_heads, true);
    for (int32_t g = 0; g < op->ngroups; g++)
        ULI_TRY(allocate(&op->groups[g]));
    return ULYX_SUCCESS;
}
