/* SPDX-License-Identifier: Apache-2.0
 *
 * Head groups, and where tensors lie in workspace and saved.
 *
 * A pass of a group needs, on the head side of a rank (n_q rows x heads of
 * queries, n_k of keys, u bytes per element):
 *   forward   n_q (dim_qk + dim_v) u + n_k (dim_qk + dim_v) u
 *   backward  n_q (dim_qk + dim_v) u + dq + n_k (dim_qk + dim_v) u + dk + dv
 *             + delta on both sides
 * If q, k and v are saved, they lie in saved, and the workspace has no room for
 * them. This memory is a slot. Several groups share two slots, so that one
 * group is exchanged while another is attended; they share one slot where a
 * ceiling leaves no room for two. All groups share one workspace of attention.
 * Pieces of a KV head have accumulators in place of dk and dv
 * (dist_attention.h).
 */
#include "attention/dist_attention/dist_attention.h"

#include <stdlib.h>
#include <string.h>
#include "base/status.h"

enum { ALIGN = 64 };

/* ---- one pass ------------------------------------------------------------ */

static bool
dist_uses(const struct ulyx_dist_attention *dist, int pass, int slot,
    enum uli_head_tensor tensor)
{
    switch (tensor) {
    case ULI_HEAD_Q:
    case ULI_HEAD_K:
    case ULI_HEAD_V:
        return !dist->saves_heads;
    case ULI_HEAD_OUT:
        return pass == 0;
    case ULI_HEAD_LSE: /* saved where there is a backward */
        return pass == 0 && !dist->has_backward &&
               dist->params->p.flags & ULYX_DIST_ATTENTION_LSE;
    case ULI_HEAD_PART_DK: /* only while a group is attended */
    case ULI_HEAD_PART_DV:
        return pass == 1 && slot == 0;
    default:
        return pass == 1;
    }
}

static int64_t
dist_chunks_take(int64_t *bytes, int64_t more)
{
    int64_t at = *bytes;
    *bytes = uli_sat_add(at, uli_round_up(more, ALIGN));
    return at;
}

/* Lays out a pass. sizes: of each tensor, the largest size among a rank's
 * groups. */
static void
lay_out(const struct ulyx_dist_attention *dist,
    const struct uli_head_sizes *sizes, int32_t slots, int pass,
    struct uli_pass_layout *layout_p)
{
    layout_p->bytes = 0;
    for (int s = 0; s < ULI_DIST_SLOTS; s++) {
        for (int t = 0; t < ULI_HEAD_TENSORS; t++) {
            layout_p->tensors[s][t] = -1;
            if (s < slots && dist_uses(dist, pass, s, t))
                layout_p->tensors[s][t] =
                    dist_chunks_take(&layout_p->bytes, sizes->bytes[t]);
        }
    }
    layout_p->d_sink =
        pass ? dist_chunks_take(&layout_p->bytes, dist->params->p.heads * 8)
             : -1;
    layout_p->attention_bytes = sizes->attention_bytes[pass];
    layout_p->attention =
        dist_chunks_take(&layout_p->bytes, layout_p->attention_bytes);
}

void
uli_dist_raise_sizes(
    struct uli_head_sizes *most, const struct uli_head_sizes *sizes)
{
    for (int t = 0; t < ULI_HEAD_TENSORS; t++)
        most->bytes[t] = uli_max(most->bytes[t], sizes->bytes[t]);
    for (int pass = 0; pass < 2; pass++)
        most->attention_bytes[pass] =
            uli_max(most->attention_bytes[pass], sizes->attention_bytes[pass]);
}

/* Lays out this rank's workspace, once the groups are known. */
static void
lay_out_groups(const struct ulyx_dist_attention *dist, int32_t slots, int pass,
    struct uli_pass_layout *layout_p)
{
    struct uli_head_sizes most = {0};
    for (int32_t g = 0; g < dist->ngroups; g++)
        uli_dist_raise_sizes(&most, &dist->groups[g].sizes);
    lay_out(dist, &most, slots, pass, layout_p);
}

int64_t
uli_dist_pass_bytes(const struct ulyx_dist_attention *dist,
    const struct uli_head_sizes *most, int32_t slots)
{
    int64_t bytes = 0;
    for (int pass = 0; pass < (dist->has_backward ? 2 : 1); pass++) {
        struct uli_pass_layout layout;
        lay_out(dist, most, slots, pass, &layout);
        bytes = uli_max(bytes, layout.bytes);
    }
    return bytes;
}

/* ---- saved tensors and the layout ---------------------------------------- */

static const enum uli_head_tensor kept[ULI_SAVED_TENSORS] = {
    ULI_HEAD_Q, ULI_HEAD_K, ULI_HEAD_V, ULI_HEAD_LSE};

/* Whether tensor kept[i] is saved. heads: the save mode is HEADS. */
static bool
dist_keeps(const struct ulyx_dist_attention *dist, bool heads, int i)
{
    return dist->has_backward && (heads || kept[i] == ULI_HEAD_LSE);
}

/* Bytes of saved in a save mode, for the most rows. */
static int64_t
measure_saved(const struct ulyx_dist_attention *dist, bool heads)
{
    int64_t bytes = dist->has_backward ? ULI_SAVED_HEADER_BYTES : 0;
    for (int32_t g = 0; g < dist->ngroups; g++)
        for (int i = 0; i < ULI_SAVED_TENSORS; i++)
            if (dist_keeps(dist, heads, i))
                dist_chunks_take(&bytes, dist->groups[g].sizes.bytes[kept[i]]);
    return bytes;
}

void
uli_dist_place_saved(struct ulyx_dist_attention *dist)
{
    dist->saved_now = dist->has_backward ? ULI_SAVED_HEADER_BYTES : 0;
    for (int32_t g = 0; g < dist->ngroups; g++) {
        struct uli_head_group *group = &dist->groups[g];
        for (int t = 0; t < ULI_HEAD_TENSORS; t++)
            group->saved[t] = -1;
        for (int i = 0; i < ULI_SAVED_TENSORS; i++)
            if (dist_keeps(dist, dist->saves_heads, i))
                group->saved[kept[i]] = dist_chunks_take(
                    &dist->saved_now, uli_dist_bytes_now(dist, group, kept[i]));
    }
}

void
uli_dist_bytes_of(const struct ulyx_dist_attention *dist, ulyx_save_mode_t save,
    int64_t *workspace_p, int64_t *saved_p)
{
    struct ulyx_dist_attention other = {.params = dist->params,
        .has_backward = dist->has_backward,
        .saves_heads = dist->has_backward && save == ULYX_SAVE_HEADS,
        .ngroups = dist->ngroups,
        .groups = dist->groups};
    *saved_p = measure_saved(&other, other.saves_heads);
    *workspace_p = 0;
    for (int pass = 0; pass < (dist->has_backward ? 2 : 1); pass++) {
        struct uli_pass_layout layout;
        lay_out_groups(&other, dist->slots, pass, &layout);
        *workspace_p = uli_max(*workspace_p, layout.bytes);
    }
}

static ulyx_status_t
head_group_allocate(struct uli_head_group *group)
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
                    "dist attention: no memory for the tables of a head group");
}

ulyx_status_t
uli_dist_chunk(struct ulyx_dist_attention *dist, int32_t threads)
{
    ULI_TRY(uli_dist_choose(dist, threads));
    ULI_TRY(uli_dist_check_strides(dist));
    ULI_TRY(uli_dist_fit_threads(dist));
    for (int32_t g = 0; g < dist->ngroups; g++)
        dist->groups[g].kv_slot = g / dist->pieces % dist->slots;
    for (int pass = 0; pass < 2; pass++)
        lay_out_groups(dist, dist->slots, pass, &dist->passes[pass]);
    dist->saved_bytes = measure_saved(dist, dist->saves_heads);
    uli_dist_place_saved(dist);
    for (int32_t g = 0; g < dist->ngroups; g++)
        ULI_TRY(head_group_allocate(&dist->groups[g]));
    return ULYX_SUCCESS;
}
