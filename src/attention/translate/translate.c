/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the problem and of how to run it: each field by its row of
 * attention_fields.c, then the relations between fields, in the order of the
 * header.
 */
#include "attention/translate/translate.h"
#include <inttypes.h>
#include <math.h>
#include "attention/translate/attention_fields.h"
#include "attention/device_memory.h"
#include "attention/kernels/kernels.h"
#include "attention/pool.h"
#include "base/dtype.h"
#include "base/params/held.h"
#include "base/status.h"
#include "base/text.h"

#define INVALID(...)     uli_error(ULYX_ERR_INVALID_ARGUMENT, __VA_ARGS__)
#define UNSUPPORTED(...) uli_error(ULYX_ERR_UNSUPPORTED, __VA_ARGS__)

/* Sinks and slopes have the precision of the statistics unless the caller gives
 * a dtype: in an F64 problem they are doubles, not floats. */
static ulyx_dtype_t
param_dtype_of(const ulyx_attention_t *given)
{
    if (given->param_dtype)
        return given->param_dtype;
    return given->dtype == ULYX_DTYPE_F64 ? ULYX_DTYPE_F64 : ULYX_DTYPE_F32;
}

static ulyx_status_t
check_dtypes(const ulyx_attention_t *given)
{
    if (given->dtype < ULYX_DTYPE_F64 || given->dtype > ULYX_DTYPE_F16)
        return UNSUPPORTED(
            "attention: dtype is %d: set dtype of ulyx_attention_t to "
            "ULYX_DTYPE_F64, _F32, _BF16 or _F16",
            given->dtype);
    ulyx_dtype_t param = param_dtype_of(given);
    if (param != ULYX_DTYPE_F32 && param != ULYX_DTYPE_F64)
        return UNSUPPORTED(
            "attention: param_dtype is %d, must be F32 or F64", param);
    if (given->mask == ULYX_MASK_WINDOW &&
        (given->window_left < 0 || given->window_right < 0))
        return INVALID("attention: window is (%" PRId64 ", %" PRId64
                       "), neither side may be negative",
            given->window_left, given->window_right);
    return ULYX_SUCCESS;
}

/* Products of sizes, where 0 counts as 1: tables and loops use some sizes even
 * where others are 0. */
static bool
sizes_fit(const ulyx_attention_t *given)
{
    int64_t rows = uli_max(uli_max(given->len_q, given->len_k), 1);
    int64_t heads = uli_max(uli_max(given->heads_q, given->heads_kv), 1);
    int64_t product = uli_max(given->batch, 1);
    return uli_size_mul(product, rows, &product) &&
           uli_size_mul(product, heads, &product) &&
           uli_size_mul(product, 8 * 512, &product);
}

/* Device kernels load rows in units of 16 bytes. */
static ulyx_status_t
check_dims(const ulyx_attention_t *given, ulyx_memory_kind_t memory)
{
    const int64_t dims[2] = {given->dim_qk, given->dim_v};
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "dim_v" : "dim_qk";
        if (dims[i] == 0)
            return UNSUPPORTED("attention: %s is 0, must be 1 to 512: set %s "
                               "of ulyx_attention_t",
                name, name);
        if (dims[i] < 1 || dims[i] > 512)
            return UNSUPPORTED("attention: %s is %" PRId64 ", must be 1 to 512",
                name, dims[i]);
        if (memory != ULYX_MEMORY_HOST && dims[i] % 8)
            return UNSUPPORTED("attention: %s is %" PRId64
                               ", must be a multiple of 8 in device memory",
                name, dims[i]);
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
check_sizes(const ulyx_attention_t *given, ulyx_memory_kind_t memory)
{
    if (given->heads_q && !given->heads_kv)
        return INVALID("attention: heads_q is %" PRId64 " and heads_kv %" PRId64
                       ": queries need KV heads: set heads_kv of "
                       "ulyx_attention_t",
            given->heads_q, given->heads_kv);
    if (!given->kv_map && given->heads_q && given->heads_q % given->heads_kv)
        return INVALID("attention: heads_q is %" PRId64
                       ", must be a multiple of heads_kv (%" PRId64
                       ") without a kv_map",
            given->heads_q, given->heads_kv);
    ULI_TRY(check_dims(given, memory));
    if (!sizes_fit(given))
        return uli_error(ULYX_ERR_OVERFLOW,
            "attention: batch * length * heads * dim does not fit 64 bits");
    return ULYX_SUCCESS;
}

static ulyx_status_t
check_aligned(const char *name, const void *array, int64_t unit)
{
    if ((uintptr_t)array % (uintptr_t)unit == 0)
        return ULYX_SUCCESS;
    return INVALID("%s: array is not aligned to %" PRId64 " bytes", name, unit);
}

static ulyx_status_t
check_arrays(const ulyx_attention_t *given)
{
    int64_t param = uli_dtype_size(param_dtype_of(given));
    ULI_TRY(check_aligned("kv_map", given->kv_map, 8));
    ULI_TRY(check_aligned("head_ids", given->head_ids, 8));
    ULI_TRY(check_aligned("sinks", given->sinks, param));
    ULI_TRY(check_aligned("alibi_slopes", given->alibi_slopes, param));
    ULI_TRY(check_aligned("q_segments", given->q_segments, 8));
    return check_aligned("k_segments", given->k_segments, 8);
}

/* Sinks and slopes are indexed by global head. Checks the fields that give each
 * head's global index; the error names the field. */
static ulyx_status_t
check_head_ids(const ulyx_attention_t *given)
{
    int64_t all = given->heads_global, heads = given->heads_q, id;
    if (!all && !given->sinks && !given->alibi_slopes)
        return ULYX_SUCCESS;
    if (given->head_ids) {
        for (int64_t n = 0; n < heads; n++) {
            id = given->head_ids[n];
            if (id < 0 || (all && id >= all))
                return INVALID("attention: head_ids[%" PRId64 "] is %" PRId64
                               ", must be 0 or more and less than heads_global"
                               " (%" PRId64 ")",
                    n, id, all);
        }
    } else if (given->head_offset < 0) {
        return INVALID("attention: head_offset is %" PRId64
                       ", must not be negative",
            given->head_offset);
    }
    if (heads && !all)
        return INVALID("attention: heads_global is 0, %s has an entry for each"
                       " head of the model: set it to their number",
            given->sinks ? "sinks" : "alibi_slopes");
    id = uli_sat_add(given->head_offset, heads);
    if (heads && !given->head_ids && id > all)
        return INVALID("attention: heads_global is %" PRId64
                       ", must be at least head_offset (%" PRId64
                       ") + heads_q (%" PRId64 ")",
            all, given->head_offset, heads);
    return ULYX_SUCCESS;
}

static ulyx_status_t
check_heads(const ulyx_attention_t *given)
{
    for (int64_t n = 0; given->kv_map && n < given->heads_q; n++)
        if (given->kv_map[n] < 0 || given->kv_map[n] >= given->heads_kv)
            return INVALID(
                "attention: kv_map[%" PRId64 "] is %" PRId64
                ", must be 0 or more and less than heads_kv (%" PRId64 ")",
                n, given->kv_map[n], given->heads_kv);
    return check_head_ids(given);
}

static ulyx_status_t
take_docs_axis(const char *name, const ulyx_docs_t *given,
    struct uli_attn_axis_docs *docs_p)
{
    ULI_TRY(uli_docs_check(given, name));
    ULI_TRY(check_aligned(name, given->begin, given->index_bytes));
    ULI_TRY(check_aligned(name, given->length, given->index_bytes));
    *docs_p = (struct uli_attn_axis_docs){.begins = given->begin,
        .lengths = given->length,
        .index_bytes = given->index_bytes};
    return ULYX_SUCCESS;
}

static ulyx_status_t
take_docs(const ulyx_attention_t *given, struct uli_attn_problem *problem)
{
    problem->doc_count = given->batch;
    /* A workspace may be asked for before there are tables. */
    problem->max_docs =
        given->max_docs > given->batch ? given->max_docs : given->batch;
    const ulyx_docs_t *q = given->docs_q;
    const ulyx_docs_t *k = given->docs_k ? given->docs_k : q;
    if (!q && !k)
        return ULYX_SUCCESS;
    if (!q)
        return INVALID("attention: docs_k is given without docs_q");
    problem->docs_on_device = given->docs_memory != ULYX_MEMORY_HOST;
    if (problem->docs_on_device && given->docs_memory != problem->memory)
        return UNSUPPORTED(
            "attention: documents are in memory kind %d, tensors in %d: "
            "documents must be there too, or in HOST",
            given->docs_memory, problem->memory);
    if (problem->docs_on_device && given->q_segments)
        return UNSUPPORTED("attention: segments are not supported with "
                           "documents in device memory");
    if (!given->docs_k && given->len_q != given->len_k)
        return INVALID("attention: docs_k is NULL, len_q %" PRId64
                       " is not len_k %" PRId64 ": set docs_k of "
                       "ulyx_attention_t",
            given->len_q, given->len_k);
    ULI_TRY(take_docs_axis("docs_q", q, &problem->docs_q));
    ULI_TRY(take_docs_axis("docs_k", k, &problem->docs_k));
    if (q->count != k->count)
        return INVALID("attention: docs_q has %" PRId64
                       " document%s, docs_k %" PRId64,
            q->count, uli_plural(q->count), k->count);
    problem->max_docs = given->max_docs ? given->max_docs : q->count;
    if (q->count > problem->max_docs)
        return INVALID("attention: max_docs is %" PRId64
                       ", docs_q needs %" PRId64,
            problem->max_docs, q->count);
    problem->has_docs = true;
    problem->doc_count = q->count;
    return ULYX_SUCCESS;
}

/* Work lists have max_docs times heads entries. */
static ulyx_status_t
check_max_docs(const ulyx_attention_t *given, int64_t max_docs)
{
    int64_t heads = uli_max(uli_max(given->heads_q, given->heads_kv), 1);
    int64_t product;
    if (!uli_size_mul(max_docs, 8 * 512 * heads, &product))
        return uli_error(ULYX_ERR_OVERFLOW,
            "attention: max_docs (%" PRId64 ") * heads does not fit 64 bits",
            max_docs);
    return ULYX_SUCCESS;
}

/* Segments are read in the caller's array. If ulyx_segment_t grows, they must
 * be copied first, because an older program's segment is shorter. */
_Static_assert(sizeof(ulyx_segment_t) == ULI_LEAST(ulyx_segment_t, offset),
    "a caller's segment may be shorter than ours");

static ulyx_status_t
take_runs(const ulyx_attention_t *given, const char *name,
    const ulyx_segment_t *segments, int64_t count, bool keys,
    struct uli_attn_runs *runs_p)
{
    int64_t heads = keys ? given->heads_kv : given->heads_q;
    *runs_p = (struct uli_attn_runs){.count = given->batch * heads,
        .batch = given->batch,
        .rows = keys ? given->len_k : given->len_q,
        .offset_unit = 1};
    if (!given->q_segments != !given->k_segments)
        return INVALID("attention: segments are given for one side only: give "
                       "q_segments and k_segments, or neither");
    if (!segments)
        return ULYX_SUCCESS;
    ULI_TRY(uli_struct_array(&uli_structs[ULI_STRUCT_SEGMENT], segments,
        given->segment_size, count, name));
    runs_p->segments = (const unsigned char *)segments;
    runs_p->segment_size = (int64_t)given->segment_size;
    runs_p->count = count;
    return ULYX_SUCCESS;
}

/* Sets the number of rows of the query runs, or the caller's bound of it. */
static ulyx_status_t
count_rows(const ulyx_attention_t *given, struct uli_attn_problem *problem)
{
    const struct uli_attn_runs *runs = &problem->q_runs;
    int64_t rows = runs->segments ? 0 : runs->count * runs->rows;
    for (int64_t i = 0; runs->segments && i < runs->count; i++) {
        struct uli_attn_run run = uli_attn_run_at(runs, i);
        rows = uli_sat_add(rows, uli_sat_sub(run.row_end, run.row_begin));
    }
    if (given->max_rows && runs->segments && rows > given->max_rows)
        return INVALID("attention: max_rows is %" PRId64
                       ", q_segments needs %" PRId64,
            given->max_rows, rows);
    int64_t all = given->batch * given->heads_q * given->len_q;
    if (rows < 0 || rows > all)
        return INVALID("attention: q_segments have %" PRId64
                       " query rows, the tensor has %" PRId64
                       " (max_rows is %" PRId64 ")",
            rows, all, given->max_rows);
    bool bound = given->max_rows && runs->segments;
    problem->q_rows = bound ? uli_min(given->max_rows, all) : rows;
    return ULYX_SUCCESS;
}

static void
fill_problem(const ulyx_attention_t *given, struct uli_attn_problem *problem)
{
    bool f64 = given->dtype == ULYX_DTYPE_F64;
    *problem = (struct uli_attn_problem){.dtype = given->dtype,
        .stat_dtype = f64 ? ULYX_DTYPE_F64 : ULYX_DTYPE_F32,
        .param_dtype = param_dtype_of(given),
        .batch = given->batch,
        .len_q = given->len_q,
        .len_k = given->len_k,
        .heads_q = given->heads_q,
        .heads_kv = given->heads_kv,
        .dim_qk = given->dim_qk,
        .dim_v = given->dim_v,
        .scale =
            given->scale > 0 ? given->scale : 1 / sqrt((double)given->dim_qk),
        .softcap = given->softcap,
        .diagonal = given->diagonal,
        .bottom_right = given->align == ULYX_ALIGN_BOTTOM_RIGHT,
        .kv_map = given->kv_map,
        .head_ids = given->head_ids,
        .head_offset = given->head_offset,
        .heads_global = given->heads_global,
        .sinks = given->sinks,
        .slopes = given->alibi_slopes};
    uli_mask_sides(given->mask, given->window_left, given->window_right,
        &problem->left, &problem->right);
}

static ulyx_status_t
take_exec(const ulyx_attention_exec_t *given, ulyx_attention_pass_t pass,
    struct uli_attn_call *call)
{
    ulyx_attention_exec_t exec = ULYX_ATTENTION_EXEC_INIT;
    if (given)
        exec = *given;
    if (call->problem.memory != ULYX_MEMORY_HOST && exec.scores_p)
        return UNSUPPORTED(
            "attention: scores_p is not supported on device memory");
    if (call->problem.memory == ULYX_MEMORY_HOST && exec.cause)
        return INVALID("attention: cause is given, and memory kind is HOST: "
                       "cause is for CUDA memory");
    ULI_TRY(uli_fields_check(&uli_attention_exec_fields, &exec));
    if (!(exec.timeout_s >= 0))
        return INVALID(
            "attention: timeout_s is %g, must not be negative", exec.timeout_s);
    call->timeout_s = uli_timeout_or(exec.timeout_s, 0);
    call->max_sms = exec.max_sms;
    call->cause = exec.cause;
    call->threads = uli_pool_threads(
        INFINITY, exec.threads ? exec.threads : uli_pool_cores());
    return uli_attn_kernel_find(
        exec.kernel, &call->problem, pass, &call->kernel);
}

ulyx_status_t
uli_attn_translate(const ulyx_attention_t *given, ulyx_attention_pass_t pass,
    const ulyx_attention_exec_t *exec, bool tensors,
    struct uli_attn_call *call_p)
{
    if (pass != ULYX_ATTENTION_PASS_FORWARD &&
        pass != ULYX_ATTENTION_PASS_BACKWARD)
        return INVALID("attention: pass %d", pass);
    ULI_TRY(uli_fields_check(&uli_attention_fields, given));
    ULI_TRY(check_dtypes(given));
    ULI_TRY(check_sizes(given, exec ? exec->memory : ULYX_MEMORY_HOST));
    if (given->dropout != 0)
        return UNSUPPORTED(
            "attention: dropout is %g, must be 0", given->dropout);
    ULI_TRY(check_arrays(given));
    ULI_TRY(check_heads(given));
    fill_problem(given, &call_p->problem);
    call_p->problem.memory = exec ? exec->memory : ULYX_MEMORY_HOST;
    if (call_p->problem.memory != ULYX_MEMORY_HOST)
        ULI_TRY(uli_attn_device_usable(call_p->problem.memory));
    ULI_TRY(take_docs(given, &call_p->problem));
    ULI_TRY(check_max_docs(given, call_p->problem.max_docs));
    ULI_TRY(take_runs(given, "q_segments", given->q_segments,
        given->q_segment_count, false, &call_p->problem.q_runs));
    ULI_TRY(take_runs(given, "k_segments", given->k_segments,
        given->k_segment_count, true, &call_p->problem.k_runs));
    ULI_TRY(count_rows(given, &call_p->problem));
    if (tensors && !call_p->problem.docs_on_device)
        ULI_TRY(uli_attn_check_docs(&call_p->problem));
    return take_exec(exec, pass, call_p);
}
