/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns options and S into a plan's parameters, and into the shape of the index
 * maths. seq_to_head and its adjoint move q, k and v; head_to_seq and its
 * adjoint move the output. With replicated tokens each tensor has a second
 * part, which every rank holds.
 */
#include "perf.h"

#include <stdlib.h>
#include <string.h>

/* The sets of tensors of a rank of mean size have at least this many bytes
 * together, more than the caches of one core; but there are at most
 * PERF_MAX_SETS sets. */
enum { ROTATE_BYTES = 64 << 20 };

static bool
moves_qkv(ulyx_direction_t direction)
{
    return direction == ULYX_SEQ_TO_HEAD ||
           direction == ULYX_SEQ_TO_HEAD_ADJOINT;
}

static int64_t
token_bytes(const struct perf_case *one)
{
    int64_t elements = one->heads * one->dim_v;

    if (moves_qkv(one->direction))
        elements = one->heads * one->dim_qk +
                   one->kv_heads * (one->dim_qk + one->dim_v);
    return elements * one->dtype.bytes;
}

int64_t
perf_shape_bytes(const struct perf_options *options,
    const struct perf_case *one, int64_t seq, int32_t nranks)
{
    int64_t rows = (seq + nranks - 1) / nranks + options->replicated;

    return rows * options->batch * token_bytes(one);
}

int64_t
perf_shape_seq(const struct perf_options *options, const struct perf_case *one,
    int64_t bytes, int32_t nranks)
{
    int64_t rows =
        bytes / (options->batch * token_bytes(one)) - options->replicated;

    return rows < 1 ? nranks : rows * nranks;
}

static int
add_tensor(struct perf_shape *shape, const struct perf_dtype *dtype,
    int32_t part, int64_t heads, int64_t dim, int32_t ownership)
{
    ulyx_tensor_t *tensor = &shape->tensors[shape->params.ntensors];
    struct uli_shape_tensor *internal =
        &shape->internal.tensors[shape->params.ntensors];

    *tensor = (ulyx_tensor_t)ULYX_TENSOR_INIT;
    tensor->part = part;
    tensor->dtype = dtype->code;
    tensor->elem_bytes = dtype->code == ULYX_DTYPE_BYTES ? dtype->bytes : 0;
    tensor->heads = heads;
    tensor->dim = dim;
    tensor->ownership = ownership;
    *internal = (struct uli_shape_tensor){.part = part,
        .ownership = ownership,
        .dtype = dtype->code,
        .elem_bytes = dtype->bytes,
        .heads = heads,
        .dim = dim};
    shape->internal.ntensors = ++shape->params.ntensors;
    return shape->params.ntensors;
}

static void
add_part(struct perf_shape *shape, const struct perf_options *options,
    int32_t kind, int64_t rows)
{
    int32_t order =
        kind == ULYX_PART_SHARDED && !strcmp(options->order, "zigzag")
            ? ULYX_TOKENS_ZIGZAG
            : ULYX_TOKENS_CONTIGUOUS;
    ulyx_part_t *part = &shape->parts[shape->params.nparts];

    *part = (ulyx_part_t)ULYX_PART_INIT;
    part->kind = kind;
    part->order = order;
    part->rows = rows;
    shape->internal.parts[shape->params.nparts] =
        (struct uli_shape_part){.kind = kind, .order = order, .rows = rows};
    shape->internal.nparts = ++shape->params.nparts;
}

static int
sets_of(int64_t pair_bytes, int nalgos)
{
    int64_t sets = (ROTATE_BYTES + pair_bytes - 1) / pair_bytes;

    sets = sets < PERF_MAX_SETS ? sets : PERF_MAX_SETS;
    return (int)((sets + nalgos - 1) / nalgos * nalgos);
}

void
perf_shape_fill(const struct perf_options *options, const struct perf_case *one,
    int64_t seq, int32_t nranks, struct perf_shape *shape)
{
    int32_t pointer =
        options->register_memory ? ULYX_POINTER_WINDOW : ULYX_POINTER_ANY;
    int32_t work = strcmp(options->work, "balanced") == 0 ? ULYX_WORK_BALANCED
                                                          : ULYX_WORK_HEADS;

    memset(shape, 0, sizeof(*shape));
    shape->seq = seq;
    shape->nranks = nranks;
    shape->params = (ulyx_plan_params_t)ULYX_PLAN_PARAMS_INIT;
    shape->params.batch = options->batch;
    shape->params.heads = one->heads;
    shape->params.parts = shape->parts;
    shape->params.tensors = shape->tensors;
    shape->params.seq_memory = shape->params.head_memory = pointer;
    shape->params.work_split = work;
    shape->params.mask_kind = ULYX_MASK_CAUSAL;
    shape->params.flags = options->copy_engine ? ULYX_PLAN_COPY_ENGINE : 0;
    shape->params.directions = UINT64_C(1) << one->direction;
    if (one->direction < 2)
        shape->params.directions = 3; /* also the inverse, for round trips */
    shape->internal = (struct uli_shape){.nranks = nranks,
        .batch = options->batch,
        .heads = one->heads,
        .work_split = work,
        .mask_kind = ULYX_MASK_CAUSAL};
    add_part(shape, options, ULYX_PART_SHARDED, seq);
    if (options->replicated > 0)
        add_part(shape, options, ULYX_PART_REPLICATED, options->replicated);
    for (int32_t p = 0; p < shape->params.nparts; p++) {
        if (!moves_qkv(one->direction)) {
            add_tensor(shape, &one->dtype, p, one->heads, one->dim_v,
                ULYX_HEADS_QUERY);
            continue;
        }
        add_tensor(
            shape, &one->dtype, p, one->heads, one->dim_qk, ULYX_HEADS_QUERY);
        add_tensor(
            shape, &one->dtype, p, one->kv_heads, one->dim_qk, ULYX_HEADS_KV);
        add_tensor(
            shape, &one->dtype, p, one->kv_heads, one->dim_v, ULYX_HEADS_KV);
    }
    shape->full_bytes =
        (seq + options->replicated) * options->batch * token_bytes(one);
    shape->sets = sets_of(2 * shape->full_bytes / nranks + 1, options->nalgos);
}
