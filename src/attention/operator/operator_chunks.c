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
 * Pieces of a KV head have dk and dv as accumulators (operator.h).
 */
#include "attention/operator/operator.h"

#include <stdlib.h>
#include <string.h>
#include "base/status.h"

enum { SAVED_HEADER_BYTES = 64, ALIGN = 64 };

/* ---- one pass ------------------------------------------------------------ */

static bool
operator_uses(const struct ulyx_operator *op, int pass, int slot,
    enum uli_head_tensor tensor)
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
    case ULI_HEAD_PIECE_DK: /* while it is attended only */
    case ULI_HEAD_PIECE_DV:
        return pass == 1 && slot == 0;
    default:
        return pass == 1;
    }
}

static int64_t
operator_chunks_take(int64_t *bytes, int64_t more)
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
            if (s < slots && operator_uses(op, pass, s, t))
                layout_p->tensors[s][t] =
                    operator_chunks_take(&layout_p->bytes, sizes->bytes[t]);
        }
    }
    layout_p->d_sink =
        pass ? operator_chunks_take(&layout_p->bytes, op->params->p.heads * 8)
             : -1;
    layout_p->attention_bytes = sizes->attention_bytes[pass];
    layout_p->attention =
        operator_chunks_take(&layout_p->bytes, layout_p->attention_bytes);
}

void
uli_operator_raise_sizes(
    struct uli_head_sizes *most, const struct uli_head_sizes *sizes)
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
        uli_operator_raise_sizes(&most, &op->groups[g].sizes);
    lay_out(op, &most, slots, pass, layout_p);
}

int64_t
uli_operator_pass_bytes(const struct ulyx_operator *op,
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
            int64_t at =
                operator_chunks_take(&bytes, group->sizes.bytes[kept[i]]);
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
                    "operator: no memory for the tables of a head group");
}

ulyx_status_t
uli_operator_chunk(struct ulyx_operator *op, int32_t threads)
{
    ULI_TRY(uli_operator_choose(op, threads));
    for (int32_t g = 0; g < op->ngroups; g++)
        op->groups[g].kv_slot = g / op->pieces % op->slots;
    for (int pass = 0; pass < 2; pass++)
        lay_out_groups(op, op->slots, pass, &op->passes[pass]);
    op->saved_bytes = place_saved(op, op->saves_heads, true);
    for (int32_t g = 0; g < op->ngroups; g++)
        ULI_TRY(head_group_allocate(&op->groups[g]));
    return ULYX_SUCCESS;
}
