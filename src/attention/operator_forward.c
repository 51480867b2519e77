/* SPDX-License-Identifier: Apache-2.0
 *
 * Forward: for each head group, q, k, v to the head side, attention, out (and
 * lse) back. With two slots the next group's exchange runs while this one is
 * attended, and the last one's results go home meanwhile.
 *
 * A slot's q, k, v are free once its attention is done, its out once that has
 * been sent: so at most the flights of one IN and one OUT a slot are open.
 */
#include "attention/operator_pass.h"

#include "attention/translate.h"
#include "base/status.h"

struct forward {
    struct uli_pass *pass;
    struct uli_flight in[ULI_OPERATOR_SLOTS], out[ULI_OPERATOR_SLOTS];
};

static void
start_in(struct forward *f, int32_t g)
{
    struct ulyx_operator *op = f->pass->op;
    struct uli_head_group *group = &op->groups[g];
    int32_t slot = g % op->slots;
    struct uli_pointers src = {.count = 0}, dst = {.count = 0};
    uli_pass_seq(f->pass, group, ULI_OP_Q, 0, &src);
    uli_pass_seq(f->pass, group, ULI_OP_K, 1, &src);
    uli_pass_seq(f->pass, group, ULI_OP_V, 1, &src);
    uli_pass_add_head(f->pass, group, slot, ULI_HEAD_Q, 0, &dst);
    uli_pass_add_head(f->pass, group, slot, ULI_HEAD_K, 1, &dst);
    uli_pass_add_head(f->pass, group, slot, ULI_HEAD_V, 1, &dst);
    uli_pass_start(f->pass, &group->bundles[ULI_BUNDLE_IN], ULYX_SEQ_TO_HEAD,
        &src, &dst, &f->in[slot]);
}

static void
start_out(struct forward *f, int32_t g)
{
    struct ulyx_operator *op = f->pass->op;
    struct uli_head_group *group = &op->groups[g];
    int32_t slot = g % op->slots;
    struct uli_pointers src = {.count = 0}, dst = {.count = 0};
    uli_pass_add_head(f->pass, group, slot, ULI_HEAD_OUT, 0, &src);
    uli_pass_seq(f->pass, group, ULI_OP_OUT, 0, &dst);
    if (op->params->p.flags & ULYX_OPERATOR_LSE) {
        uli_pass_add_head(f->pass, group, slot, ULI_HEAD_LSE, 0, &src);
        uli_pass_seq(f->pass, group, ULI_OP_LSE, 0, &dst);
    }
    uli_pass_start(f->pass, &group->bundles[ULI_BUNDLE_OUT], ULYX_HEAD_TO_SEQ,
        &src, &dst, &f->out[slot]);
}

static ulyx_status_t
translate(const struct uli_pass *pass, const struct uli_head_group *group,
    int32_t slot, struct uli_attn_call *attention)
{
    struct uli_attention_setup setup;
    ulyx_attention_tensor_t q = uli_pass_view(pass, group, slot, ULI_HEAD_Q);
    ulyx_attention_tensor_t k = uli_pass_view(pass, group, slot, ULI_HEAD_K);
    ulyx_attention_tensor_t v = uli_pass_view(pass, group, slot, ULI_HEAD_V);
    ulyx_attention_tensor_t out =
        uli_pass_view(pass, group, slot, ULI_HEAD_OUT);
    ulyx_attention_tensor_t lse =
        uli_pass_view(pass, group, slot, ULI_HEAD_LSE);
    ulyx_attention_forward_t tensors = {.size = sizeof(tensors),
        .q = &q,
        .k = &k,
        .v = &v,
        .out = &out,
        .lse = lse.base ? &lse : NULL};
    uli_operator_problem(pass->op, group, &group->sizes, &setup);
    setup.problem.sinks = pass->call->sinks;
    setup.problem.alibi_slopes = pass->call->alibi_slopes;
    ULI_TRY(uli_attn_translate(&setup.problem, ULYX_ATTENTION_PASS_FORWARD,
        &setup.exec, true, attention));
    return uli_attn_translate_forward(&tensors, attention);
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
    if (pass->status == ULYX_SUCCESS)
        uli_pass_attend(pass, &attention, ULYX_ATTENTION_PASS_FORWARD);
}

void
uli_operator_forward(struct uli_pass *pass)
{
    struct forward f = {.pass = pass};
    int32_t ngroups = pass->op->ngroups, slots = pass->op->slots;
    start_in(&f, 0);
    for (int32_t g = 0; g < ngroups; g++) {
        if (slots > 1 && g + 1 < ngroups)
            start_in(&f, g + 1);
        uli_pass_wait(pass, &f.in[g % slots]);
        uli_pass_wait(pass, &f.out[g % slots]);
        attend(pass, g);
        start_out(&f, g);
        if (slots == 1 && g + 1 < ngroups)
            start_in(&f, g + 1);
    }
    for (int32_t s = 0; s < slots; s++)
        uli_pass_wait(pass, &f.out[(ngroups + s) % slots]);
}
