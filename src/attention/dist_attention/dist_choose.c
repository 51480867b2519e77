/* SPDX-License-Identifier: Apache-2.0
 *
 * Which head groups a distributed attention has.
 *
 * All ranks must make the same choice. So each rank computes from the shape
 * what every rank needs, and compares the largest need with the ceiling.
 *
 * The order of trials: whole KV heads in more and more groups; the same with
 * one slot; then pieces of KV heads. Pieces come last because k and v are then
 * exchanged once per piece, and dk and dv are carried in accumulators, which
 * are twice as large as 16-bit gradients.
 */
#include "attention/dist_attention/dist_attention.h"

#include <stdlib.h>
#include <string.h>
#include "base/status.h"

/* ---- groups -------------------------------------------------------------- */

static int64_t
div_up(int64_t a, int64_t unit)
{
    return (a + unit - 1) / unit;
}

/* Groups differ by at most one KV head; the first groups have the larger
 * number. */
static void
deal_heads(const struct ulyx_dist_attention *dist, int32_t ngroups,
    struct uli_head_group *groups)
{
    int64_t kv = dist->params->p.kv_heads, each = dist->params->p.heads / kv;
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

/* Deals the queries of each KV head in the same way: group g is piece
 * g % pieces of KV head g / pieces. */
static void
deal_pieces(const struct ulyx_dist_attention *dist, int32_t pieces,
    struct uli_head_group *groups)
{
    int64_t kv = dist->params->p.kv_heads, each = dist->params->p.heads / kv;
    int64_t nranks = dist->nranks, largest = div_up(each, pieces);
    bool balanced = dist->params->p.work_split == ULYX_WORK_BALANCED;
    int64_t first = 0;
    for (int64_t g = 0; g < kv * pieces; g++) {
        int64_t piece = g % pieces;
        groups[g] = (struct uli_head_group){.cut = true,
            .first_piece = piece == 0,
            .last_piece = piece == pieces - 1,
            .holders = (int32_t)(balanced ? nranks : uli_min(nranks, largest)),
            .q_first = first,
            .q_heads = each / pieces + (piece < each % pieces),
            .kv_first = g / pieces,
            .kv_heads = 1};
        first += groups[g].q_heads;
    }
}

static ulyx_status_t
layout_of(const struct ulyx_dist_attention *dist,
    const struct uli_head_group *group, struct uli_layout **layout_p)
{
    struct uli_plan_params params;
    uli_dist_plan_params(dist, group, ULI_PLAN_SET_IN, 0, &params);
    return uli_layout_create(
        &params.shape, params.docs_q, params.docs_k, layout_p);
}

static void
take_seq_rows(struct ulyx_dist_attention *dist, const struct uli_layout *layout)
{
    for (int32_t i = 0; i < dist->params->shape.nparts; i++) {
        dist->seq_rows[i] = uli_layout_seq_rows(layout, i, dist->rank);
        dist->seq_rows_max[i] = uli_layout_max_seq_rows(layout, i, dist->rank);
    }
}

/* A choice that is tried: sizes[rank][group] of all ranks. */
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
measure_group(struct ulyx_dist_attention *dist, int32_t threads, int32_t g,
    struct trial *trial)
{
    struct uli_layout *layout = NULL;
    ulyx_status_t status = layout_of(dist, &trial->groups[g], &layout);
    if (status != ULYX_SUCCESS)
        return status;
    int32_t me = dist->rank;
    take_seq_rows(dist, layout);
    for (int32_t r = 0; r < dist->nranks && status == ULYX_SUCCESS; r++)
        status = uli_dist_measure(dist, &trial->groups[g], layout, r,
            dist->ceiling || r != me ? threads : dist->threads,
            &trial->sizes[r * trial->ngroups + g]);
    uli_layout_destroy(layout);
    return status;
}

/* pieces > 1: ngroups is pieces * kv_heads, a group per piece of a KV head. */
static ulyx_status_t
try_groups(struct ulyx_dist_attention *dist, int32_t ngroups, int32_t pieces,
    int32_t threads, struct trial *trial_p)
{
    size_t cells = (size_t)ngroups * (size_t)dist->nranks;
    trial_p->ngroups = ngroups;
    trial_p->groups = calloc((size_t)ngroups, sizeof(*trial_p->groups));
    trial_p->sizes = calloc(cells, sizeof(*trial_p->sizes));
    if (!trial_p->groups || !trial_p->sizes)
        return uli_error(ULYX_ERR_NO_MEMORY,
            "dist attention: no memory for %d head groups", ngroups);
    if (pieces > 1)
        deal_pieces(dist, pieces, trial_p->groups);
    else
        deal_heads(dist, ngroups, trial_p->groups);
    for (int32_t g = 0; g < ngroups; g++)
        ULI_TRY(measure_group(dist, threads, g, trial_p));
    return ULYX_SUCCESS;
}

static int64_t
dist_neediest(const struct ulyx_dist_attention *dist, const struct trial *trial,
    int32_t slots)
{
    int64_t most = 0;
    for (int32_t r = 0; r < dist->nranks; r++) {
        struct uli_head_sizes sizes = {0};
        for (int32_t g = 0; g < trial->ngroups; g++)
            uli_dist_raise_sizes(&sizes, &trial->sizes[r * trial->ngroups + g]);
        most = uli_max(most, uli_dist_pass_bytes(dist, &sizes, slots));
    }
    return most;
}

/* ---- the choice ---------------------------------------------------------- */

/* *fits_p: whether the ceiling holds; then the trial is the choice, else the
 * trial is freed. *needed_p: lowered to the bytes of this trial if they are
 * fewer. */
static ulyx_status_t
try_one(struct ulyx_dist_attention *dist, int32_t ngroups, int32_t pieces,
    int32_t most_slots, int32_t threads, int64_t *needed_p, bool *fits_p,
    struct trial *trial_p)
{
    int32_t slots = (int32_t)uli_min(ngroups, most_slots);
    ulyx_status_t status = try_groups(dist, ngroups, pieces, threads, trial_p);
    *fits_p = false;
    if (status == ULYX_SUCCESS) {
        int64_t need = dist_neediest(dist, trial_p, slots);
        *needed_p = uli_min(*needed_p, need);
        *fits_p = !dist->ceiling || need <= dist->ceiling;
    }
    if (*fits_p) {
        dist->slots = slots;
        dist->pieces = pieces;
    } else {
        trial_free(trial_p);
    }
    return status;
}

/* Finds the smallest number of groups of whole KV heads, from `least` on, that
 * fits the ceiling with `slots` slots. */
static ulyx_status_t
search_groups(struct ulyx_dist_attention *dist, int32_t least, int32_t slots,
    int32_t threads, int64_t *needed_p, bool *fits_p, struct trial *trial_p)
{
    int64_t most =
        dist->params->shape.head_splits ? 1 : dist->params->p.kv_heads;
    for (int32_t n = least; n <= most && !*fits_p; n++)
        ULI_TRY(try_one(dist, n, 1, slots, threads, needed_p, fits_p, trial_p));
    return ULYX_SUCCESS;
}

/* Whether the queries of a KV head can be cut without changing bits. The
 * reference kernel sums in fp64; accumulators in fp32 would round its sums. */
static bool
may_cut(const struct ulyx_dist_attention *dist)
{
    const ulyx_dist_attention_params_t *p = &dist->params->p;
    bool reference = p->kernel && strcmp(p->kernel, "reference") == 0;
    return !dist->params->shape.head_splits &&
           p->heads / p->kv_heads <= INT32_MAX &&
           (!reference || !dist->has_backward || p->dtype == ULYX_DTYPE_F64);
}

/* Tries only numbers of pieces with which the busiest rank has fewer heads than
 * with the number tried before. With HEADS a rank has whole heads, so pieces of
 * fewer heads than ranks gain nothing. */
static ulyx_status_t
search_pieces(struct ulyx_dist_attention *dist, int32_t slots, int32_t threads,
    int64_t *needed_p, bool *fits_p, struct trial *trial_p)
{
    const ulyx_dist_attention_params_t *p = &dist->params->p;
    int64_t each = p->heads / p->kv_heads, unit = dist->nranks;
    if (p->work_split == ULYX_WORK_BALANCED)
        unit = 1;
    int64_t most = div_up(each, unit);
    for (int64_t n = 2; n <= each && !*fits_p && may_cut(dist); n++) {
        int64_t share = div_up(div_up(each, n), unit);
        if (share == most || p->kv_heads * n > INT32_MAX)
            continue;
        most = share;
        ULI_TRY(try_one(dist, (int32_t)(p->kv_heads * n), (int32_t)n, slots,
            threads, needed_p, fits_p, trial_p));
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
dist_choose_choose(
    struct ulyx_dist_attention *dist, int32_t threads, struct trial *trial_p)
{
    int64_t requested = uli_max(dist->params->p.head_groups, 1);
    int32_t least = (int32_t)uli_min(requested, dist->params->p.kv_heads);
    int64_t needed = INT64_MAX;
    bool fits = false;
    memset(trial_p, 0, sizeof(*trial_p));
    for (int32_t slots = ULI_DIST_SLOTS; slots > 0 && !fits; slots--)
        ULI_TRY(search_groups(
            dist, least, slots, threads, &needed, &fits, trial_p));
    for (int32_t slots = ULI_DIST_SLOTS; slots > 0 && !fits; slots--)
        ULI_TRY(search_pieces(dist, slots, threads, &needed, &fits, trial_p));
    if (fits)
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_INVALID_ARGUMENT,
        "max_workspace_bytes is %lld, %lld are needed even by the smallest "
        "head groups",
        (long long)dist->ceiling, (long long)needed);
}

ulyx_status_t
uli_dist_choose(struct ulyx_dist_attention *dist, int32_t threads)
{
    struct trial trial;
    ULI_TRY(dist_choose_choose(dist, threads, &trial));
    const struct uli_head_sizes *mine =
        trial.sizes + (int64_t)dist->rank * trial.ngroups;
    dist->ngroups = trial.ngroups;
    dist->groups = trial.groups;
    for (int32_t g = 0; g < dist->ngroups; g++)
        dist->groups[g].sizes = mine[g];
    free(trial.sizes);
    return ULYX_SUCCESS;
}

/* ---- threads under a ceiling --------------------------------------------- */

/* The attention's bytes of every group with `threads` threads; most_p: the
 * largest sizes of all groups. */
static ulyx_status_t
groups_with_threads(const struct ulyx_dist_attention *dist, int32_t threads,
    int64_t (*bytes)[2], struct uli_head_sizes *most_p)
{
    memset(most_p, 0, sizeof(*most_p));
    for (int32_t g = 0; g < dist->ngroups; g++) {
        struct uli_head_sizes sizes = dist->groups[g].sizes;
        for (int pass = 0; pass < (dist->has_backward ? 2 : 1); pass++)
            ULI_TRY(uli_dist_attention_bytes(dist, &dist->groups[g], &sizes,
                threads, pass, &sizes.attention_bytes[pass]));
        memcpy(bytes[g], sizes.attention_bytes, sizeof(bytes[g]));
        uli_dist_raise_sizes(most_p, &sizes);
    }
    return ULYX_SUCCESS;
}

/* Finds by bisection the most threads, of 1 to dist->threads, that fit the
 * ceiling: bytes grow with threads. One thread fits, because the groups were
 * chosen for one thread. */
static ulyx_status_t
most_threads(struct ulyx_dist_attention *dist, int64_t (*bytes)[2])
{
    struct uli_head_sizes most;
    int32_t fits = 1, beyond = dist->threads + 1;
    while (beyond - fits > 1) {
        int32_t threads = fits + (beyond - fits) / 2;
        ULI_TRY(groups_with_threads(dist, threads, bytes, &most));
        if (uli_dist_pass_bytes(dist, &most, dist->slots) <= dist->ceiling)
            fits = threads;
        else
            beyond = threads;
    }
    dist->threads = fits;
    ULI_TRY(groups_with_threads(dist, fits, bytes, &most));
    for (int32_t g = 0; g < dist->ngroups; g++)
        memcpy(
            dist->groups[g].sizes.attention_bytes, bytes[g], sizeof(bytes[g]));
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_dist_fit_threads(struct ulyx_dist_attention *dist)
{
    if (!dist->ceiling || dist->params->p.threads)
        return ULYX_SUCCESS;
    int64_t(*bytes)[2] = calloc((size_t)dist->ngroups, sizeof(*bytes));
    if (!bytes)
        return uli_error(ULYX_ERR_NO_MEMORY,
            "dist attention: no memory for %d head groups", dist->ngroups);
    ulyx_status_t status = most_threads(dist, bytes);
    free(bytes);
    return status;
}
