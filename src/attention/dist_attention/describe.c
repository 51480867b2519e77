/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of a distributed attention, and its description.
 */
#include "attention/dist_attention/memory.h"

#include <string.h>
#include "attention/kernels/kernels.h"
#include "attention/translate/translate.h"
#include "base/dtype.h"
#include "base/text.h"

/* ---- sizes --------------------------------------------------------------- */

int64_t
uli_dist_held_bytes(const struct ulyx_dist_attention *dist)
{
    int64_t docs = dist->docs[0][0].begin ? dist->params->p.max_docs + 1 : 0;
    int64_t bytes =
        (int64_t)(sizeof(*dist) + sizeof(*dist->params)) + docs * 64;
    for (int32_t g = 0; g < dist->ngroups; g++) {
        const struct uli_head_group *group = &dist->groups[g];
        const struct uli_head_sizes *sizes = &group->sizes;
        bytes += (int64_t)sizeof(*group);
        bytes += sizes->packed
                     ? (sizes->max_segments[0] + sizes->max_segments[1]) *
                           (int64_t)sizeof(ulyx_segment_t)
                     : sizes->q_heads * 8;
        for (int kind = 0; kind < ULI_PLAN_SETS; kind++)
            for (int32_t i = 0; i < group->plan_sets[kind].nplans; i++)
                bytes += uli_plan_bytes(group->plan_sets[kind].plans[i]);
    }
    return bytes;
}

bool
uli_dist_saved_tensor(const struct ulyx_dist_attention *dist,
    int32_t group_index, int i, ulyx_saved_tensor_t *tensor_p)
{
    static const struct {
        enum uli_head_tensor tensor;
        const char *name;
    } kept[ULI_SAVED_TENSORS] = {{ULI_HEAD_Q, "q"}, {ULI_HEAD_K, "k"},
        {ULI_HEAD_V, "v"}, {ULI_HEAD_LSE, "lse"}};
    const struct uli_head_group *group = &dist->groups[group_index];
    enum uli_head_tensor tensor = kept[i].tensor;
    *tensor_p = (ulyx_saved_tensor_t){.name = kept[i].name,
        .group = group_index,
        .dtype = group->sizes.dtypes[tensor],
        .offset = group->saved[tensor],
        .bytes = uli_dist_bytes_now(dist, group, tensor)};
    return group->saved[tensor] >= 0;
}

void
uli_dist_traffic(const struct ulyx_dist_attention *dist, int64_t *sent_p,
    int64_t *received_p)
{
    static const struct {
        enum uli_plan_set_kind kind;
        ulyx_direction_t direction;
        bool backward, only_none, only_whole;
    } steps[] = {{ULI_PLAN_SET_IN, ULYX_SEQ_TO_HEAD, false, false, false},
        {ULI_PLAN_SET_OUT, ULYX_HEAD_TO_SEQ, false, false, false},
        {ULI_PLAN_SET_IN, ULYX_SEQ_TO_HEAD, true, true, false},
        {ULI_PLAN_SET_GRAD, ULYX_HEAD_TO_SEQ_ADJOINT, true, false, false},
        {ULI_PLAN_SET_IN, ULYX_SEQ_TO_HEAD_ADJOINT, true, false, true},
        {ULI_PLAN_SET_DQ, ULYX_SEQ_TO_HEAD_ADJOINT, true, false, false},
        {ULI_PLAN_SET_DKV, ULYX_SEQ_TO_HEAD_ADJOINT, true, false, false}};
    *sent_p = *received_p = 0;
    for (size_t s = 0; s < sizeof(steps) / sizeof(steps[0]); s++) {
        if (steps[s].backward != dist->last_backward ||
            (steps[s].only_none && dist->saves_heads) ||
            (steps[s].only_whole && dist->pieces > 1))
            continue;
        for (int32_t g = 0; g < dist->ngroups; g++) {
            const struct uli_plan_set *b =
                &dist->groups[g].plan_sets[steps[s].kind];
            for (int32_t i = 0; i < b->nplans; i++) {
                ulyx_traffic_t traffic = ULYX_TRAFFIC_INIT;
                if (uli_plan_traffic(b->plans[i], steps[s].direction, &traffic))
                    continue;
                *sent_p += traffic.sent_bytes;
                *received_p += traffic.received_bytes;
            }
        }
    }
}

/* ---- text ---------------------------------------------------------------- */

static void
describe_memory(const struct ulyx_dist_attention *dist, struct uli_text *text)
{
    for (int mode = ULYX_SAVE_HEADS; mode <= ULYX_SAVE_NONE; mode++) {
        int64_t workspace, saved;
        uli_dist_bytes_of(dist, mode, &workspace, &saved);
        uli_text_add(text, "%s: workspace %lld bytes, saved %lld bytes%s\n",
            mode == ULYX_SAVE_HEADS ? "SAVE_HEADS" : "SAVE_NONE",
            (long long)workspace, (long long)saved,
            !dist->has_backward                              ? " (forward only)"
            : dist->saves_heads == (mode == ULYX_SAVE_HEADS) ? " (chosen)"
                                                             : "");
    }
}

/* Whether two ranks hold a common row of keys. */
static bool
share_keys(const struct uli_layout *layout, int32_t k, int32_t a, int32_t b)
{
    int64_t first[2], count[2];
    if (!uli_layout_packed(layout)) {
        uli_layout_heads(layout, k, a, &first[0], &count[0]);
        uli_layout_heads(layout, k, b, &first[1], &count[1]);
        return uli_max(first[0], first[1]) <
               uli_min(first[0] + count[0], first[1] + count[1]);
    }
    const struct uli_run *x = uli_layout_runs(layout, k, a, &count[0]);
    const struct uli_run *y = uli_layout_runs(layout, k, b, &count[1]);
    for (int64_t i = 0; i < count[0]; i++)
        for (int64_t j = 0; j < count[1]; j++)
            if (x[i].head == y[j].head && x[i].batch == y[j].batch &&
                uli_max(x[i].row_begin, y[j].row_begin) <
                    uli_min(x[i].row_end, y[j].row_end))
                return true;
    return false;
}

/* Rows x heads that a rank has of a tensor now. */
static int64_t
rows_of(const struct ulyx_dist_attention *dist, const struct uli_layout *layout,
    int32_t tensor, int axis, int32_t rank)
{
    int64_t first, count;
    if (uli_layout_packed(layout))
        return uli_layout_packed_rows(layout, tensor, rank);
    uli_layout_heads(layout, tensor, rank, &first, &count);
    return dist->params->p.batch * dist->rows[axis] * count;
}

static void
describe_ranks(const struct ulyx_dist_attention *dist, struct uli_text *text)
{
    const ulyx_dist_attention_params_t *p = &dist->params->p;
    int32_t k = dist->nparts[0], nranks = dist->nranks;
    for (int32_t r = 0; r < nranks; r++) {
        int64_t q_rows = 0, k_rows = 0;
        int32_t sharers = 0;
        for (int32_t g = 0; g < dist->ngroups; g++) {
            const struct uli_layout *layout =
                dist->groups[g].plan_sets[ULI_PLAN_SET_IN].plans[0]->layout;
            q_rows += rows_of(dist, layout, 0, 0, r);
            k_rows += rows_of(dist, layout, k, 1, r);
            for (int32_t o = 0; o < nranks && g == 0; o++)
                sharers += o != r && share_keys(layout, k, r, o);
        }
        uli_text_add(text, "rank %d%s: %lld query rows x heads, K/V %lld bytes",
            r, r == dist->rank ? " (this one)" : "", (long long)q_rows,
            (long long)(k_rows * (p->dim_qk + p->dim_v) * dist->elem_bytes));
        if (sharers)
            uli_text_add(text, ", shared with %d other%s\n", sharers,
                uli_plural(sharers));
        else
            uli_text_add(text, ", not shared\n");
    }
}

static void
describe_kernels(const struct ulyx_dist_attention *dist, struct uli_text *text)
{
    for (int pass = 0; pass < (dist->has_backward ? 2 : 1); pass++) {
        struct uli_attention_setup setup;
        struct uli_attn_call call = {0};
        uli_dist_problem(
            dist, &dist->groups[0], &dist->groups[0].sizes, &setup);
        if (uli_attn_translate(&setup.problem, pass, &setup.exec, false, &call))
            continue;
        uli_text_add(text, "%s: kernel %s (%s)", pass ? "backward" : "forward",
            call.kernel->name, call.kernel->what);
        if (dist->memory->kind == ULYX_MEMORY_HOST)
            uli_text_add(text, ", at most %d thread%s", call.threads,
                uli_plural(call.threads));
        uli_text_add(text, ", %lld bytes\n",
            (long long)dist->passes[pass].attention_bytes);
    }
}

static void
describe_plans(const struct ulyx_dist_attention *dist, struct uli_text *text)
{
    static const char *const names[ULI_PLAN_SETS] = {
        "q k v", "out", "dout", "dq", "dk dv"};
    char line[512];
    for (int kind = 0; kind < ULI_PLAN_SETS; kind++) {
        int32_t g = kind == ULI_PLAN_SET_DKV ? dist->pieces - 1 : 0;
        for (int32_t i = 0; i < dist->groups[g].plan_sets[kind].nplans; i++) {
            uli_plan_describe(
                dist->groups[g].plan_sets[kind].plans[i], line, sizeof(line));
            uli_text_add(text, "%s: %s\n", names[kind], line);
        }
    }
}

void
uli_dist_describe(
    const struct ulyx_dist_attention *dist, char *text_p, size_t text_bytes)
{
    const ulyx_dist_attention_params_t *p = &dist->params->p;
    const struct uli_head_group *group = &dist->groups[0];
    struct uli_text text = {text_p, text_bytes, 0};
    uli_text_add(&text,
        "distributed attention: %d rank%s, batch %lld, %lld queries, %lld "
        "keys, %lld/%lld heads of %lld/%lld, %s%s\n",
        dist->nranks, uli_plural(dist->nranks), (long long)p->batch,
        (long long)dist->rows[0], (long long)dist->rows[1], (long long)p->heads,
        (long long)p->kv_heads, (long long)p->dim_qk, (long long)p->dim_v,
        p->work_split == ULYX_WORK_BALANCED ? "BALANCED" : "HEADS",
        group->sizes.packed ? ", packed" : "");
    uli_text_add(&text, "head groups: %d of at most %lld heads, ",
        dist->ngroups, (long long)group->q_heads);
    if (dist->pieces > 1)
        uli_text_add(&text,
            "%d pieces of each KV head, dk and dv carried by %d rank%s, ",
            dist->pieces, group->holders, uli_plural(group->holders));
    uli_text_add(&text, "%d slot%s (%s)\n", dist->slots,
        uli_plural(dist->slots),
        dist->ceiling        ? "a ceiling of the workspace"
        : p->head_groups > 1 ? "as asked for"
                             : "no ceiling");
    describe_memory(dist, &text);
    describe_ranks(dist, &text);
    describe_kernels(dist, &text);
    describe_plans(dist, &text);
    uli_text_mark_cut(&text);
}
