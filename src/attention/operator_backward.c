/* SPDX-License-Identifier: Apache-2.0
 *
 * Backward: for each head group, delta where out and dout lie, both to the
 * head side (with q, k, v, where these were not saved), attention, and dq, dk,
 * dv home by the adjoint of the exchange that brought q, k, v.
 *
 * delta is computed by the routine of plain backward from the same out and
 * dout, so the bits agree and out need not be exchanged again.
 */
#include "attention/operator_pass.h"

#include <string.h>
#include "attention/statistics.h"
#include "attention/translate.h"
#include "base/dtype.h"
#include "base/status.h"

struct backward {
    struct uli_pass *pass;
    struct uli_flight grad[ULI_OPERATOR_SLOTS]; /* dout, delta */
    struct uli_flight in[ULI_OPERATOR_SLOTS];   /* q, k, v */
    struct uli_flight out[ULI_OPERATOR_SLOTS];  /* dq, dk, dv */
};

/* delta[b][h][s] of query part i from the group's heads. */
static void
compute_delta(struct uli_pass *pass, const struct uli_head_group *group,
    int32_t slot, int32_t i)
{
    const struct ulyx_operator *op = pass->op;
    const ulyx_operator_params_t *p = &op->params->p;
    int32_t part = op->part_of[0][i];
    const int64_t sizes[4] = {
        p->batch, op->seq_rows[part], group->q_heads, p->dim_v};
    int64_t strides[2][3], delta[3];
    uli_operator_seq_strides(op, ULI_OP_DOUT, 0, i, strides[0]);
    uli_operator_seq_strides(op, ULI_OP_OUT, 0, i, strides[1]);
    delta[1] = op->stat_bytes;
    delta[2] = op->stat_bytes * uli_max(op->seq_rows_max[part], 1);
    delta[0] = delta[2] * group->q_heads;
    const char *dout = pass->call->tensors[ULI_OP_DOUT][i];
    const char *out = pass->call->tensors[ULI_OP_OUT][i];
    if (!sizes[0] || !sizes[1])
        return;
    if (!dout || !out) {
        uli_pass_fail(pass, uli_error(ULYX_ERR_INVALID_ARGUMENT,
                                "%s[%d] is NULL, the part has %lld rows here",
                                dout ? "out" : "dout", i, (long long)sizes[1]));
        return;
    }
    uli_attn_delta(p->dtype, sizes, dout + group->q_first * strides[0][2],
        strides[0], out + group->q_first * strides[1][2], strides[1],
        uli_pass_seq_delta(pass, group, slot, i), delta);
}

static void
start_grad(struct backward *b, int32_t g)
{
    struct uli_pass *pass = b->pass;
    struct ulyx_operator *op = pass->op;
    struct uli_head_group *group = &op->groups[g];
    int32_t slot = g % op->slots;
    struct uli_pointers src = {.count = 0}, dst = {.count = 0};
    uli_pass_seq(pass, group, ULI_OP_DOUT, 0, &src);
    for (int32_t i = 0; i < op->nparts[0]; i++) {
        if (pass->status == ULYX_SUCCESS)
            compute_delta(pass, group, slot, i);
        src.at[src.count++] = uli_pass_seq_delta(pass, group, slot, i);
    }
    uli_pass_add_head(pass, group, slot, ULI_HEAD_DOUT, 0, &dst);
    uli_pass_add_head(pass, group, slot, ULI_HEAD_DELTA, 0, &dst);
    uli_pass_start(pass, &group->bundles[ULI_BUNDLE_GRAD],
        ULYX_HEAD_TO_SEQ_ADJOINT, &src, &dst, &b->grad[slot]);
}

static void
start_in(struct backward *b, int32_t g)
{
    struct uli_pass *pass = b->pass;
    struct uli_head_group *group = &pass->op->groups[g];
    int32_t slot = g % pass->op->slots;
    start_grad(b, g);
    if (pass->op->saves_heads)
        return;
    struct uli_pointers src = {.count = 0}, dst = {.count = 0};
    uli_pass_seq(pass, group, ULI_OP_Q, 0, &src);
    uli_pass_seq(pass, group, ULI_OP_K, 1, &src);
    uli_pass_seq(pass, group, ULI_OP_V, 1, &src);
    uli_pass_add_head(pass, group, slot, ULI_HEAD_Q, 0, &dst);
    uli_pass_add_head(pass, group, slot, ULI_HEAD_K, 1, &dst);
    uli_pass_add_head(pass, group, slot, ULI_HEAD_V, 1, &dst);
    uli_pass_start(pass, &group->bundles[ULI_BUNDLE_IN], ULYX_SEQ_TO_HEAD, &src,
        &dst, &b->in[slot]);
}

static void
start_out(struct backward *b, int32_t g)
{
    struct uli_pass *pass = b->pass;
    struct uli_head_group *group = &pass->op->groups[g];
    int32_t slot = g % pass->op->slots;
    struct uli_pointers src = {.count = 0}, dst = {.count = 0};
    uli_pass_add_head(pass, group, slot, ULI_HEAD_DQ, 0, &src);
    uli_pass_add_head(pass, group, slot, ULI_HEAD_DK, 1, &src);
    uli_pass_add_head(pass, group, slot, ULI_HEAD_DV, 1, &src);
    uli_pass_seq(pass, group, ULI_OP_DQ, 0, &dst);
    uli_pass_seq(pass, group, ULI_OP_DK, 1, &dst);
    uli_pass_seq(pass, group, ULI_OP_DV, 1, &dst);
    uli_pass_start(pass, &group->bundles[ULI_BUNDLE_IN],
        ULYX_SEQ_TO_HEAD_ADJOINT, &src, &dst, &b->out[slot]);
}

static ulyx_status_t
translate(const struct uli_pass *pass, const struct uli_head_group *group,
    int32_t slot, struct uli_attn_call *attention)
{
    static const enum uli_head_tensor order[] = {ULI_HEAD_Q, ULI_HEAD_K,
        ULI_HEAD_V, ULI_HEAD_DOUT, ULI_HEAD_LSE, ULI_HEAD_DELTA, ULI_HEAD_DQ,
        ULI_HEAD_DK, ULI_HEAD_DV};
    struct uli_attention_setup setup;
    ulyx_attention_tensor_t t[9];
    for (int i = 0; i < 9; i++)
        t[i] = uli_pass_view(pass, group, slot, order[i]);
    ulyx_attention_backward_t tensors = {.size = sizeof(tensors),
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
    uli_operator_problem(pass->op, group, &group->sizes, &setup);
    setup.exec.deterministic = 1;
    setup.problem.sinks = pass->call->sinks;
    setup.problem.alibi_slopes = pass->call->alibi_slopes;
    ULI_TRY(uli_attn_translate(&setup.problem, ULYX_ATTENTION_PASS_BACKWARD,
        &setup.exec, true, attention));
    return uli_attn_translate_backward(&tensors, attention);
}

static void
attend(struct uli_pass *pass, int32_t g)
{
    const struct uli_head_group *group = &pass->op->groups[g];
    struct uli_attn_call attention = {0};
    if (pass->status != ULYX_SUCCESS)
        return;
    uli_pass_fail(
        pass, translate(pass, group, g % pass->op->slots, &attention));
    if (pass->status != ULYX_SUCCESS)
        return;
    uli_pass_attend(pass, &attention, ULYX_ATTENTION_PASS_BACKWARD);
    if (!pass->call->d_sink || pass->status != ULYX_SUCCESS)
        return;
    /* The call wrote all heads; only the group's are its to give. */
    int64_t elem = pass->op->params->p.param_dtype == ULYX_DTYPE_F64 ? 8 : 4;
    const char *all = (char *)pass->call->workspace + pass->layout->d_sink;
    memcpy((char *)pass->call->d_sink + group->q_first * elem,
        all + group->q_first * elem, (size_t)(group->q_heads * elem));
}

void
uli_operator_backward(struct uli_pass *pass)
{
    struct backward b = {.pass = pass};
    int32_t ngroups = pass->op->ngroups, slots = pass->op->slots;
    start_in(&b, 0);
    for (int32_t g = 0; g < ngroups; g++) {
        if (slots > 1 && g + 1 < ngroups)
            start_in(&b, g + 1);
        uli_pass_wait(pass, &b.grad[g % slots]);
        uli_pass_wait(pass, &b.in[g % slots]);
        uli_pass_wait(pass, &b.out[g % slots]);
        attend(pass, g);
        start_out(&b, g);
        if (slots == 1 && g + 1 < ngroups)
            start_in(&b, g + 1);
    }
    for (int32_t s = 0; s < slots; s++)
        uli_pass_wait(pass, &b.out[(ngroups + s) % slots]);
}
