/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensors of each pass, as tables of rules.
 */
#include "attention/translate/translate.h"
#include <inttypes.h>
#include "attention/translate/attention_fields.h"
#include "attention/translate/view.h"
#include "base/dtype.h"
#include "base/status.h"

/* The offsets of a segment list are bytes, in units of the row stride of q
 * (k). */
static ulyx_status_t
set_offset_unit(const char *name, struct uli_attn_runs *runs,
    const ulyx_attention_tensor_t *tensor)
{
    if (!runs->segments || !tensor)
        return ULYX_SUCCESS;
    if (tensor->row_stride <= 0)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s: row_stride is %" PRId64 ", must be at least 1 with segments",
            name, tensor->row_stride);
    runs->offset_unit = tensor->row_stride;
    return ULYX_SUCCESS;
}

static ulyx_status_t
call_take(struct uli_attn_call *call, enum uli_attn_tensor tensor,
    const ulyx_attention_tensor_t *given,
    const struct uli_attn_tensor_rule *rule)
{
    return uli_attn_view_init(
        &call->problem, rule, given, &call->views[tensor]);
}

#define FORWARD  "ulyx_attention_forward_t"
#define BACKWARD "ulyx_attention_backward_t"

static struct uli_attn_tensor_rule
tensor_rule(const char *type, const char *name, bool keys, int64_t columns,
    ulyx_dtype_t dtype)
{
    return (struct uli_attn_tensor_rule){.type = type,
        .name = name,
        .keys = keys,
        .required = true,
        .columns = columns,
        .dtype = dtype,
        .also_dtype = dtype};
}

static struct uli_attn_tensor_rule
rule_optional(struct uli_attn_tensor_rule rule)
{
    rule.required = false;
    return rule;
}

static struct uli_attn_tensor_rule
rule_output(struct uli_attn_tensor_rule rule, ulyx_dtype_t also_dtype)
{
    rule.output = true;
    rule.also_dtype = also_dtype;
    return rule;
}

static ulyx_status_t
take_inputs(struct uli_attn_call *call, const char *type,
    const ulyx_attention_tensor_t *q, const ulyx_attention_tensor_t *k,
    const ulyx_attention_tensor_t *v)
{
    struct uli_attn_problem *problem = &call->problem;
    ULI_TRY(set_offset_unit("q", &problem->q_runs, q));
    ULI_TRY(set_offset_unit("k", &problem->k_runs, k));
    ULI_TRY(uli_attn_check_segments(problem));
    struct uli_attn_tensor_rule rules[3] = {
        tensor_rule(type, "q", false, problem->dim_qk, problem->dtype),
        tensor_rule(type, "k", true, problem->dim_qk, problem->dtype),
        tensor_rule(type, "v", true, problem->dim_v, problem->dtype)};
    ULI_TRY(call_take(call, ULI_ATTN_Q, q, &rules[0]));
    ULI_TRY(call_take(call, ULI_ATTN_K, k, &rules[1]));
    return call_take(call, ULI_ATTN_V, v, &rules[2]);
}

ulyx_status_t
uli_attn_translate_forward(
    const ulyx_attention_forward_t *given, struct uli_attn_call *call)
{
    struct uli_attn_problem *problem = &call->problem;
    ULI_TRY(take_inputs(call, FORWARD, given->q, given->k, given->v));
    struct uli_attn_tensor_rule out = rule_output(
        tensor_rule(FORWARD, "out", false, problem->dim_v, problem->dtype),
        problem->dtype);
    struct uli_attn_tensor_rule lse = rule_optional(
        rule_output(tensor_rule(FORWARD, "lse", false, 1, problem->stat_dtype),
            problem->stat_dtype));
    ULI_TRY(call_take(call, ULI_ATTN_OUT, given->out, &out));
    ULI_TRY(call_take(call, ULI_ATTN_LSE, given->lse, &lse));
    call->max_logit = given->max_logit;
    ULI_TRY(uli_attn_overlap_check(call));
    return uli_attn_array_check(call, "max_logit", call->max_logit,
        problem->heads_q, uli_dtype_size(problem->stat_dtype));
}

static ulyx_status_t
take_gradients(
    const ulyx_attention_backward_t *given, struct uli_attn_call *call)
{
    struct uli_attn_problem *problem = &call->problem;
    ulyx_dtype_t wide =
        problem->dtype == ULYX_DTYPE_F64 ? ULYX_DTYPE_F64 : ULYX_DTYPE_F32;
    struct uli_attn_tensor_rule rules[3] = {
        rule_output(
            tensor_rule(BACKWARD, "dq", false, problem->dim_qk, problem->dtype),
            wide),
        rule_output(
            tensor_rule(BACKWARD, "dk", true, problem->dim_qk, problem->dtype),
            wide),
        rule_output(
            tensor_rule(BACKWARD, "dv", true, problem->dim_v, problem->dtype),
            wide)};
    ULI_TRY(call_take(call, ULI_ATTN_DQ, given->dq, &rules[0]));
    ULI_TRY(call_take(call, ULI_ATTN_DK, given->dk, &rules[1]));
    ULI_TRY(call_take(call, ULI_ATTN_DV, given->dv, &rules[2]));
    call->accumulate = given->flags & ULYX_ATTENTION_ACCUMULATE;
    ULI_TRY(uli_fields_check(&uli_attention_backward_fields, given));
    if (call->accumulate && (call->views[ULI_ATTN_DK].dtype != wide ||
                                call->views[ULI_ATTN_DV].dtype != wide))
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "backward: ACCUMULATE is not supported for dk or dv of 16 bits");
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_attn_translate_backward(
    const ulyx_attention_backward_t *given, struct uli_attn_call *call)
{
    struct uli_attn_problem *problem = &call->problem;
    ULI_TRY(take_inputs(call, BACKWARD, given->q, given->k, given->v));
    struct uli_attn_tensor_rule dout =
        tensor_rule(BACKWARD, "dout", false, problem->dim_v, problem->dtype);
    struct uli_attn_tensor_rule out =
        tensor_rule(BACKWARD, "out", false, problem->dim_v, problem->dtype);
    struct uli_attn_tensor_rule lse =
        tensor_rule(BACKWARD, "lse", false, 1, problem->stat_dtype);
    struct uli_attn_tensor_rule delta = rule_optional(
        tensor_rule(BACKWARD, "delta", false, 1, problem->stat_dtype));
    struct uli_attn_tensor_rule dlse = rule_optional(
        tensor_rule(BACKWARD, "dlse", false, 1, problem->stat_dtype));
    out.required = !given->delta;
    ULI_TRY(call_take(call, ULI_ATTN_DOUT, given->dout, &dout));
    ULI_TRY(call_take(call, ULI_ATTN_OUT, given->out, &out));
    ULI_TRY(call_take(call, ULI_ATTN_LSE, given->lse, &lse));
    ULI_TRY(call_take(call, ULI_ATTN_DELTA, given->delta, &delta));
    ULI_TRY(call_take(call, ULI_ATTN_DLSE, given->dlse, &dlse));
    ULI_TRY(take_gradients(given, call));
    call->d_sink = given->d_sink;
    if (call->d_sink && !problem->sinks)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "backward: d_sink is given without sinks");
    ULI_TRY(uli_attn_overlap_check(call));
    return uli_attn_array_check(call, "d_sink", call->d_sink,
        problem->heads_global, uli_dtype_size(problem->param_dtype));
}
