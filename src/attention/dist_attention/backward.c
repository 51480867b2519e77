/* SPDX-License-Identifier: Apache-2.0
 *
 * Backward, for each head group: computes delta on the sequence side, sends
 * dout and delta to the head side (with q, k, v, where these were not saved),
 * attends, and sends dq, dk, dv back by the adjoint of the exchange of q, k, v.
 * Where a KV head is cut into pieces, each piece is a group that sends only dq
 * back, and the last piece sends dk and dv for all of them.
 *
 * Only delta needs out, so out need not be exchanged again. delta has the bits
 * that it has in attention without distribution, because the same routine
 * computes it from the same out and dout.
 */
#include "attention/dist_attention/memory.h"

#include "attention/translate/translate.h"
#include "base/dtype.h"
#include "base/status.h"
#include "base/text.h"

/* Gives part i of a query-side tensor of the call, from the group's first head
 * on. */
static struct uli_attn_strided
part_of_call(const struct uli_pass *pass, const struct uli_head_group *group,
    enum uli_dist_tensor tensor, int32_t i)
{
    struct uli_attn_strided part = {.base = pass->call->tensors[tensor][i]};
    uli_dist_call_strides(pass->dist, pass->call, tensor, i, part.strides);
    if (part.base)
        part.base += group->q_first * part.strides[2];
    return part;
}

static ulyx_status_t
check_part(
    const char *name, const struct uli_attn_strided *part, int32_t i, int64_t n)
{
    if (part->base)
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_INVALID_ARGUMENT,
        "%s[%d] is NULL, the part has %lld row%s here", name, i, (long long)n,
        uli_plural(n));
}

/* Computes delta[b][h][s] - dlse[b][h][s] of query part i for the group's
 * heads. The gradient of the scores depends on delta and dlse only by this
 * difference, so dlse needs no exchange of its own. */
static ulyx_status_t
compute_delta(struct uli_pass *pass, const struct uli_head_group *group,
    int32_t slot, int32_t i)
{
    const struct ulyx_dist_attention *dist = pass->dist;
    const ulyx_dist_attention_params_t *p = &dist->params->p;
    int32_t part = dist->part_of[0][i];
    int64_t rows = dist->seq_rows[part];
    struct uli_delta_part delta = {.dtype = p->dtype,
        .sizes = {p->batch, rows, group->q_heads, p->dim_v},
        .dout = part_of_call(pass, group, ULI_DIST_DOUT, i),
        .out = part_of_call(pass, group, ULI_DIST_OUT, i),
        .dlse = part_of_call(pass, group, ULI_DIST_DLSE, i),
        .delta = uli_pass_seq_delta(pass, group, slot, i)};
    uli_dist_delta_strides(dist, group, i, delta.delta_strides);
    if (!p->batch || !rows)
        return ULYX_SUCCESS;
    ULI_TRY(check_part("dout", &delta.dout, i, rows));
    ULI_TRY(check_part("out", &delta.out, i, rows));
    if (pass->call->given[ULI_DIST_DLSE])
        ULI_TRY(check_part("dlse", &delta.dlse, i, rows));
    return dist->memory->delta(pass, &delta);
}

static void
bring_grad(struct uli_pass *pass, int32_t g)
{
    struct ulyx_dist_attention *dist = pass->dist;
    struct uli_head_group *group = &dist->groups[g];
    int32_t slot = g % dist->slots;
    struct uli_pointers src = {.count = 0}, dst = {.count = 0};
    uli_pass_seq(pass, group, ULI_DIST_DOUT, 0, &src);
    for (int32_t i = 0; i < dist->nparts[0]; i++) {
        if (pass->status == ULYX_SUCCESS)
            uli_pass_fail(pass, compute_delta(pass, group, slot, i));
        uli_pass_add_seq_delta(pass, group, slot, i, &src);
    }
    uli_pass_add_head(pass, group, slot, ULI_HEAD_DOUT, 0, &dst);
    uli_pass_add_head(pass, group, slot, ULI_HEAD_DELTA, 0, &dst);
    uli_pass_start(pass, &group->plan_sets[ULI_PLAN_SET_GRAD],
        ULYX_HEAD_TO_SEQ_ADJOINT, &src, &dst,
        &pass->transfers[ULI_TRANSFER_GRAD][slot]);
}

static void
pass_prefetch(struct uli_pass *pass, int32_t g)
{
    bring_grad(pass, g);
    if (!pass->dist->saves_heads)
        uli_pass_bring_inputs(pass, g);
}

/* ---- home ---------------------------------------------------------------- */

static void
add_dq(struct uli_pass *pass, const struct uli_head_group *group, int32_t slot,
    struct uli_pointers *src, struct uli_pointers *dst)
{
    uli_pass_add_head(pass, group, slot, ULI_HEAD_DQ, 0, src);
    uli_pass_seq(pass, group, ULI_DIST_DQ, 0, dst);
}

static void
add_dkv(struct uli_pass *pass, const struct uli_head_group *group, int32_t slot,
    struct uli_pointers *src, struct uli_pointers *dst)
{
    uli_pass_add_head(pass, group, slot, ULI_HEAD_DK, 1, src);
    uli_pass_add_head(pass, group, slot, ULI_HEAD_DV, 1, src);
    uli_pass_seq(pass, group, ULI_DIST_DK, 1, dst);
    uli_pass_seq(pass, group, ULI_DIST_DV, 1, dst);
}

static void
send_results(struct uli_pass *pass, int32_t g)
{
    struct uli_head_group *group = &pass->dist->groups[g];
    int32_t slot = g % pass->dist->slots;
    struct uli_pointers src = {.count = 0}, dst = {.count = 0};
    struct uli_pointers sums = {.count = 0}, home = {.count = 0};
    add_dq(pass, group, slot, &src, &dst);
    if (!group->cut)
        add_dkv(pass, group, slot, &src, &dst);
    uli_pass_start(pass,
        &group->plan_sets[group->cut ? ULI_PLAN_SET_DQ : ULI_PLAN_SET_IN],
        ULYX_SEQ_TO_HEAD_ADJOINT, &src, &dst,
        &pass->transfers[ULI_TRANSFER_BACK][slot]);
    if (!group->last_piece)
        return;
    add_dkv(pass, group, slot, &sums, &home);
    uli_pass_start(pass, &group->plan_sets[ULI_PLAN_SET_DKV],
        ULYX_SEQ_TO_HEAD_ADJOINT, &sums, &home,
        &pass->transfers[ULI_TRANSFER_SUMS][group->kv_slot]);
}

/* ---- accumulators of a cut KV head --------------------------------------- */

/* Copies rows of the accumulator [b, S, dim] to the PACKED rows that the piece
 * sees, or back. */
static ulyx_status_t
copy_seen(const struct uli_pass *pass, const struct uli_head_group *group,
    enum uli_head_tensor piece, enum uli_head_tensor sums, bool back)
{
    const struct ulyx_dist_attention *dist = pass->dist;
    char *packed = uli_pass_head(pass, group, 0, piece);
    char *all = uli_pass_head(pass, group, 0, sums);
    int64_t bytes =
        dist->stat_bytes *
        (uli_head_wide(piece) ? dist->params->p.dim_qk : dist->params->p.dim_v);
    for (int64_t i = 0; i < group->nsegments[1]; i++) {
        const ulyx_segment_t *s = &group->segments[1][i];
        int64_t count = (s->row_end - s->row_begin) * bytes;
        char *row = all + (s->batch * dist->rows[1] + s->row_begin) * bytes;
        ULI_TRY(dist->memory->copy(
            pass, back ? row : packed, back ? packed : row, count));
        packed += count;
    }
    return ULYX_SUCCESS;
}

/* Called before a piece is attended (take_sums) and after (give_sums): each
 * piece continues the sums dk, dv of the piece before it. Pieces follow in the
 * order of their heads, so the summands are added in the same order as in one
 * call with all heads. */
static ulyx_status_t
take_sums(const struct uli_pass *pass, const struct uli_head_group *group)
{
    for (int t = ULI_HEAD_DK; t <= ULI_HEAD_DV && group->first_piece; t++)
        ULI_TRY(pass->dist->memory->zero(
            pass, uli_pass_head(pass, group, 0, t), group->sizes.bytes[t]));
    if (!group->cut || !group->sizes.packed)
        return ULYX_SUCCESS;
    ULI_TRY(copy_seen(pass, group, ULI_HEAD_PART_DK, ULI_HEAD_DK, false));
    return copy_seen(pass, group, ULI_HEAD_PART_DV, ULI_HEAD_DV, false);
}

static ulyx_status_t
give_sums(const struct uli_pass *pass, const struct uli_head_group *group)
{
    if (!group->cut || !group->sizes.packed)
        return ULYX_SUCCESS;
    ULI_TRY(copy_seen(pass, group, ULI_HEAD_PART_DK, ULI_HEAD_DK, true));
    return copy_seen(pass, group, ULI_HEAD_PART_DV, ULI_HEAD_DV, true);
}

/* ---- attention ----------------------------------------------------------- */

static ulyx_status_t
pass_translate(const struct uli_pass *pass, const struct uli_head_group *group,
    int32_t slot, struct uli_attn_call *attention)
{
    bool apart = group->cut && group->sizes.packed;
    const enum uli_head_tensor order[] = {ULI_HEAD_Q, ULI_HEAD_K, ULI_HEAD_V,
        ULI_HEAD_DOUT, ULI_HEAD_LSE, ULI_HEAD_DELTA, ULI_HEAD_DQ,
        apart ? ULI_HEAD_PART_DK : ULI_HEAD_DK,
        apart ? ULI_HEAD_PART_DV : ULI_HEAD_DV};
    struct uli_attention_setup setup;
    ulyx_attention_tensor_t t[9];
    for (int i = 0; i < 9; i++)
        t[i] = uli_pass_view(pass, group, slot, order[i]);
    ulyx_attention_backward_t tensors = {.size = sizeof(tensors),
        .flags = group->cut ? ULYX_ATTENTION_ACCUMULATE : 0,
        .q = &t[0],
        .k = &t[1],
        .v = &t[2],
        .dout = &t[3],
        .lse = &t[4],
        .delta = &t[5],
        .dq = &t[6],
        .dk = &t[7],
        .dv = &t[8]};
    if (pass->call->d_sink)
        tensors.d_sink = (char *)pass->call->workspace + pass->layout->d_sink;
    uli_dist_problem(pass->dist, group, &group->sizes, &setup);
    setup.exec.deterministic = 1;
    setup.problem.sinks = pass->call->sinks;
    setup.problem.alibi_slopes = pass->call->alibi_slopes;
    ULI_TRY(uli_attn_translate(&setup.problem, ULYX_ATTENTION_PASS_BACKWARD,
        &setup.exec, true, attention));
    attention->delta_less_dlse = pass->call->given[ULI_DIST_DLSE];
    return uli_attn_translate_backward(&tensors, attention);
}

/* The kernel has written d_sink of all heads, of which those of the group are
 * valid. */
static ulyx_status_t
give_d_sink(const struct uli_pass *pass, const struct uli_head_group *group)
{
    int64_t elem = pass->dist->params->p.param_dtype == ULYX_DTYPE_F64 ? 8 : 4;
    const char *all = (char *)pass->call->workspace + pass->layout->d_sink;
    return pass->dist->memory->copy(pass,
        (char *)pass->call->d_sink + group->q_first * elem,
        all + group->q_first * elem, group->q_heads * elem);
}

static void
pass_attend(struct uli_pass *pass, int32_t g)
{
    const struct uli_head_group *group = &pass->dist->groups[g];
    struct uli_attn_call attention = {0};
    uli_pass_fail(
        pass, pass_translate(pass, group, g % pass->dist->slots, &attention));
    if (pass->status == ULYX_SUCCESS)
        uli_pass_fail(pass, take_sums(pass, group));
    if (pass->status == ULYX_SUCCESS)
        uli_pass_attend(pass, &attention, ULYX_ATTENTION_PASS_BACKWARD);
    if (pass->status == ULYX_SUCCESS)
        uli_pass_fail(pass, give_sums(pass, group));
    if (pass->call->d_sink && pass->status == ULYX_SUCCESS)
        uli_pass_fail(pass, give_d_sink(pass, group));
}

void
uli_dist_backward(struct uli_pass *pass)
{
    static const struct uli_steps steps = {
        .bring = pass_prefetch, .attend = pass_attend, .send = send_results};
    uli_pass_groups(pass, &steps);
}
