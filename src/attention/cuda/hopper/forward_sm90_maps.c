/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor maps of the Hopper kernels: which tensors TMA can read, and how.
 * Strides of dimensions of extent 1 have no effect, so they are replaced where
 * the encoder would refuse the caller's.
 */
#include "attention/cuda/hopper/forward_sm90.h"
#include <string.h>
#include "device/cuda/tensor_map.h"
#include "ulyx/types.h"

#define STRIDE_LIMIT (INT64_C(1) << 40)
#define EXTENT_LIMIT INT64_C(0x7fffffff) /* coordinates are 32-bit signed */
#define COLUMNS      64                  /* of a box: 128 bytes */

/* Rows that lie evenly: of a tensor or of one piece. */
struct stretch {
    unsigned char *base;
    int64_t rows, row_stride, head_stride, batch_stride;
};

static struct stretch
stretch_of(const struct uli_sm90_source *source, int64_t n)
{
    const struct uli_gpu_attn_tensor *t = source->tensor;
    if (source->piece_at) {
        struct uli_gpu_attn_piece p = source->piece_at(source->pieces, n);
        return (struct stretch){
            p.base, p.rows, p.row_stride, p.head_stride, p.batch_stride};
    }
    return (struct stretch){
        t->base, source->rows, t->row_stride, t->head_stride, t->batch_stride};
}

static bool
same_strides(const struct stretch *a, const struct stretch *b)
{
    return a->row_stride == b->row_stride && a->head_stride == b->head_stride &&
           a->batch_stride == b->batch_stride;
}

/* Do the pieces continue one another (one map), or are they alike and evenly
 * spaced (a piece coordinate)? *step_p: the distance of pieces in the latter
 * case. */
static enum uli_sm90_maps_kind
kind_of(const struct uli_sm90_source *source, int64_t *step_p)
{
    int64_t count = source->piece_at ? source->tensor->npieces : 1;
    struct stretch first = stretch_of(source, 0);
    bool one = true, even = true;
    *step_p = 0;
    struct stretch before = first;
    for (int64_t n = 1; n < count; n++) {
        struct stretch next = stretch_of(source, n);
        int64_t step = (int64_t)((uintptr_t)next.base - (uintptr_t)before.base);
        if (n == 1)
            *step_p = step;
        one = one && same_strides(&first, &next) &&
              step == before.rows * before.row_stride;
        even = even && same_strides(&first, &next) && step == *step_p &&
               next.rows == first.rows && step > 0 && step < STRIDE_LIMIT;
        before = next;
    }
    return one ? ULI_SM90_ONE : even ? ULI_SM90_EVEN : ULI_SM90_EACH;
}

static bool
good_stride(int64_t stride, int64_t extent)
{
    return extent <= 1 ||
           (stride > 0 && stride < STRIDE_LIMIT && stride % 16 == 0);
}

static const char *
refuses_source(const struct uli_sm90_source *source)
{
    int64_t step, count = source->piece_at ? source->tensor->npieces : 1;
    if (source->rows > EXTENT_LIMIT || source->heads > EXTENT_LIMIT ||
        source->batch > EXTENT_LIMIT)
        return "2^31 rows, heads or batch items";
    if (count > ULI_SM90_MAPS && kind_of(source, &step) == ULI_SM90_EACH)
        return "more than 8 pieces that are neither even nor continuous";
    for (int64_t n = 0; n < count; n++) {
        struct stretch s = stretch_of(source, n);
        if (s.rows == 0)
            continue;
        if ((uintptr_t)s.base % 16 != 0)
            return "rows not at multiples of 16 bytes";
        if (!good_stride(s.row_stride, s.rows) ||
            !good_stride(s.head_stride, source->heads) ||
            !good_stride(s.batch_stride, source->batch))
            return "a stride that is 0 or not a multiple of 16";
    }
    return NULL;
}

const char *
uli_sm90_refuses(const struct uli_gpu_attn_args *args,
    const struct uli_sm90_source sources[3])
{
    if (args->dtype != ULYX_DTYPE_BF16 && args->dtype != ULYX_DTYPE_F16)
        return "not a 16-bit dtype";
    if (args->len_q > EXTENT_LIMIT || args->len_k > EXTENT_LIMIT)
        return "2^31 rows";
    if (args->out.align != 16)
        return "rows of out not at multiples of 16 bytes";
    for (int n = 0; n < 3; n++) {
        const char *why = refuses_source(&sources[n]);
        if (why)
            return why;
    }
    return NULL;
}

static uint64_t
stride_or(int64_t stride, int64_t extent, uint64_t instead)
{
    return extent > 1 ? (uint64_t)stride : instead;
}

/* {column, head, row, batch, piece}; pieces is 1 unless pieces are evenly
 * spaced. */
static cudaError_t
map_encode(CUtensorMap *map, const struct uli_sm90_source *source,
    const struct stretch *s, int64_t pieces, int64_t step, int32_t box_rows,
    bool f16)
{
    uint64_t row = (uint64_t)source->columns * 2;
    struct uli_tensor_map_spec spec = {
        .type = f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                    : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        .rank = 5,
        .base = s->base,
        .extents = {(uint64_t)source->columns, (uint64_t)source->heads,
            (uint64_t)s->rows, (uint64_t)source->batch, (uint64_t)pieces},
        .strides = {stride_or(s->head_stride, source->heads, row),
            stride_or(s->row_stride, s->rows, row),
            stride_or(s->batch_stride, source->batch, row),
            stride_or(step, pieces, row)},
        .box = {COLUMNS, 1, (uint32_t)box_rows, 1, 1},
        .swizzle_bytes = 128};
    return uli_tensor_map_encode(map, &spec);
}

/* A tensor without elements has no map: nothing will be loaded. */
static cudaError_t
make_maps(const struct uli_sm90_source *source, int32_t box_rows, bool f16,
    struct uli_sm90_maps *maps_p, int32_t *kind_p)
{
    int64_t step, count = source->piece_at ? source->tensor->npieces : 1;
    *kind_p = ULI_SM90_ONE;
    if (source->rows == 0 || source->heads == 0 || source->batch == 0)
        return cudaSuccess;
    enum uli_sm90_maps_kind kind = kind_of(source, &step);
    *kind_p = kind;
    for (int64_t n = 0; n < (kind == ULI_SM90_EACH ? count : 1); n++) {
        struct stretch s = stretch_of(source, n);
        if (kind == ULI_SM90_ONE)
            s.rows = source->rows;
        if (s.rows == 0)
            continue;
        cudaError_t error = map_encode(&maps_p->map[n], source, &s,
            kind == ULI_SM90_EVEN ? count : 1, step, box_rows, f16);
        if (error != cudaSuccess)
            return error;
    }
    return cudaSuccess;
}

/* Does map 0 describe any rows? */
static bool
has_first_map(const struct uli_sm90_source *source)
{
    return source->rows > 0 && source->heads > 0 && source->batch > 0 &&
           stretch_of(source, 0).rows > 0;
}

int
uli_sm90_params_init(const struct uli_gpu_attn_args *args,
    const struct uli_sm90_source sources[3],
    const struct uli_sm90_family *family, struct uli_sm90_params *params_p)
{
    bool f16 = args->dtype == ULYX_DTYPE_F16;
    memset(params_p, 0, sizeof(*params_p));
    params_p->args = *args;
    params_p->mapped = has_first_map(&sources[0]) &&
                       has_first_map(&sources[1]) && has_first_map(&sources[2]);
    cudaError_t error = make_maps(
        &sources[0], family->tile_rows, f16, &params_p->q, &params_p->q_kind);
    if (error == cudaSuccess)
        error = make_maps(&sources[1], family->tile_keys, f16, &params_p->k,
            &params_p->k_kind);
    if (error == cudaSuccess)
        error = make_maps(&sources[2], family->tile_keys, f16, &params_p->v,
            &params_p->v_kind);
    return error;
}
