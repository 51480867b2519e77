/* SPDX-License-Identifier: Apache-2.0
 *
 * The attention of a head group on its head side: the rank's tensors become a
 * problem of attention.h.
 *
 * HEADS: batch x rows x the rank's heads, by strides; kv_map gives the KV head
 * of each of these heads.
 * PACKED: the plan's segments, which name heads of the group.
 */
#include "attention/dist_attention/memory.h"

#include <stdlib.h>
#include <string.h>
#include "attention/attention.h"
#include "attention/translate/translate.h"
#include "base/status.h"

void
uli_dist_problem(const struct ulyx_dist_attention *dist,
    const struct uli_head_group *group, const struct uli_head_sizes *sizes,
    struct uli_attention_setup *setup_p)
{
    const ulyx_dist_attention_params_t *p = &dist->params->p;
    memset(setup_p, 0, sizeof(*setup_p));
    setup_p->problem = (ulyx_attention_t){
        .size = sizeof(ulyx_attention_t),
        .segment_size = sizeof(ulyx_segment_t),
        .dtype = p->dtype,
        .mask = p->mask_kind,
        .align = p->mask_align,
        .param_dtype = p->param_dtype,
        .batch = p->batch,
        .len_q = dist->rows[0],
        .len_k = dist->rows[1],
        .heads_q = sizes->q_heads,
        .heads_kv = sizes->kv_heads,
        .dim_qk = p->dim_qk,
        .dim_v = p->dim_v,
        .scale = p->scale,
        .softcap = p->softcap,
        .window_left = p->mask_left,
        .window_right = p->mask_right,
        .diagonal = p->mask_diagonal,
        .kv_map = sizes->packed ? NULL : group->kv_map,
        .head_offset = group->q_first + sizes->q_first,
        .heads_global = p->heads,
        .docs_q = uli_dist_docs_of(dist, 0),
        .docs_k = uli_dist_docs_of(dist, 1),
        .max_docs = uli_max(p->max_docs, p->batch),
        .q_segments = group->segments[0],
        .k_segments = group->segments[1],
        .q_segment_count = group->nsegments[0],
        .k_segment_count = group->nsegments[1],
        .max_rows = sizes->packed ? sizes->q_rows : 0,
    };
    setup_p->exec = (ulyx_attention_exec_t)ULYX_ATTENTION_EXEC_INIT;
    setup_p->exec.memory = dist->memory->kind;
    setup_p->exec.threads = dist->threads;
    setup_p->exec.kernel = p->kernel;
}

/* The problem has as many segments and documents as there may be, all without
 * rows, and a map of zeros. The size depends on these numbers only, so it is
 * the size for all tables. */
ulyx_status_t
uli_dist_attention_bytes(const struct ulyx_dist_attention *dist,
    const struct uli_head_group *group, const struct uli_head_sizes *sizes,
    int32_t threads, ulyx_attention_pass_t pass, int64_t *bytes_p)
{
    struct uli_attention_setup setup;
    struct uli_attn_call call = {0};
    ulyx_docs_t docs = ULYX_DOCS_INIT;
    ulyx_attention_t *problem = &setup.problem;
    int64_t nsegments = sizes->max_segments[0], heads = sizes->q_heads;
    size_t bytes = (size_t)uli_max(
        uli_max(nsegments, 1) * (int64_t)sizeof(ulyx_segment_t), heads * 8);
    void *zeros = calloc(1, bytes);
    if (!zeros)
        return uli_error(ULYX_ERR_NO_MEMORY,
            "dist attention: no memory for %lld segments",
            (long long)nsegments);
    uli_dist_problem(dist, group, sizes, &setup);
    problem->len_q = dist->most_rows[0];
    problem->len_k = dist->most_rows[1];
    setup.exec.threads = threads;
    problem->kv_map = sizes->packed ? NULL : zeros;
    problem->q_segments = problem->k_segments = sizes->packed ? zeros : NULL;
    problem->q_segment_count = sizes->packed ? nsegments : 0;
    problem->k_segment_count = sizes->packed ? sizes->max_segments[1] : 0;
    problem->docs_q = problem->docs_k = dist->params->p.max_docs ? &docs : NULL;
    ulyx_status_t status =
        uli_attn_translate(problem, pass, &setup.exec, false, &call);
    if (status == ULYX_SUCCESS)
        status = uli_attn_workspace(&call, pass, bytes_p);
    free(zeros);
    return status;
}
