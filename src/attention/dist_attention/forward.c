/* SPDX-License-Identifier: Apache-2.0
 *
 * Forward, for each head group: sends q, k, v to the head side, attends, and
 * sends out (and lse) back.
 */
#include "attention/dist_attention/pass.h"

#include "attention/translate/translate.h"
#include "base/status.h"

static void
send_results(struct uli_pass *pass, int32_t g)
{
    struct ulyx_dist_attention *dist = pass->dist;
    struct uli_head_group *group = &dist->groups[g];
    int32_t slot = g % dist->slots;
    struct uli_pointers src = {.count = 0}, dst = {.count = 0};
    uli_pass_add_head(pass, group, slot, ULI_HEAD_OUT, 0, &src);
    uli_pass_seq(pass, group, ULI_DIST_OUT, 0, &dst);
    if (dist->params->p.flags & ULYX_DIST_ATTENTION_LSE) {
        uli_pass_add_head(pass, group, slot, ULI_HEAD_LSE, 0, &src);
        uli_pass_seq(pass, group, ULI_DIST_LSE, 0, &dst);
    }
    uli_pass_start(pass, &group->plan_sets[ULI_PLAN_SET_OUT], ULYX_HEAD_TO_SEQ,
        &src, &dst, &pass->transfers[ULI_TRANSFER_BACK][slot]);
}

static ulyx_status_t
dist_forward_translate(const struct uli_pass *pass,
    const struct uli_head_group *group, int32_t slot,
    struct uli_attn_call *attention)
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
    uli_dist_problem(pass->dist, group, &group->sizes, &setup);
    setup.problem.sinks = pass->call->sinks;
    setup.problem.alibi_slopes = pass->call->alibi_slopes;
    ULI_TRY(uli_attn_translate(&setup.problem, ULYX_ATTENTION_PASS_FORWARD,
        &setup.exec, true, attention));
    return uli_attn_translate_forward(&tensors, attention);
}

static void
dist_forward_attend(struct uli_pass *pass, int32_t g)
{
    const struct uli_head_group *group = &pass->dist->groups[g];
    struct uli_attn_call attention = {0};
    uli_pass_fail(pass,
        dist_forward_translate(pass, group, g % pass->dist->slots, &attention));
    if (pass->status == ULYX_SUCCESS)
        uli_pass_attend(pass, &attention, ULYX_ATTENTION_PASS_FORWARD);
}

void
uli_dist_forward(struct uli_pass *pass)
{
    static const struct uli_steps steps = {.bring = uli_pass_bring_inputs,
        .attend = dist_forward_attend,
        .send = send_results};
    uli_pass_groups(pass, &steps);
}
