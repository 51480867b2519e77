/* SPDX-License-Identifier: Apache-2.0
 *
 * Shapes on which other systems failed, exchanged: every row of
 * tests/data/reported-shapes.csv with threads as ranks, there and back, each
 * element with its own value. Head dimensions are cut so that a row has at most
 * MOST_ELEMENTS elements; rows, heads and ranks are as reported.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "support/ranks.h"
#include "support/test.h"
#include "ulyx/comm.h"
#include "ulyx/reshuffle.h"

enum { MOST_RANKS = 32, MOST_TENSORS = 6, LIMIT_S = 60, TEXT_ROWS = 1024 };
#define MOST_ELEMENTS (INT64_C(1) << 22)

struct shape {
    char name[64], layout[16];
    int nranks, ntensors, nparts;
    int64_t batch, seq, heads, kv_heads, dk, dv;
    ulyx_part_t parts[2];
    ulyx_tensor_t tensors[MOST_TENSORS];
    ulyx_comm_t *comms[MOST_RANKS];
    bool refused;
    char texts[MOST_RANKS][256];
};

/* ---- reading ------------------------------------------------------------- */

static int64_t
cut_dim(const struct shape *s, int64_t dim)
{
    int64_t rows = s->batch * s->seq * s->heads;
    int64_t most = rows ? MOST_ELEMENTS / rows : dim;
    return most < 1 ? 1 : most < dim ? most : dim;
}

static void
add_tensor(struct shape *s, int part, bool kv, int64_t dim)
{
    ulyx_tensor_t tensor = ULYX_TENSOR_INIT;
    tensor.part = part;
    tensor.dtype = ULYX_DTYPE_BYTES;
    tensor.elem_bytes = 1;
    tensor.heads = kv ? s->kv_heads : s->heads;
    tensor.ownership = kv ? ULYX_HEADS_KV : ULYX_HEADS_QUERY;
    tensor.dim = cut_dim(s, dim);
    s->tensors[s->ntensors++] = tensor;
}

static bool
shape_parse(struct shape *s, const char *line)
{
    long long batch, seq, heads, kv_heads, dk, dv;
    ulyx_part_t part = ULYX_PART_INIT;
    memset(s, 0, sizeof(*s));
    if (sscanf(line, "%63[^,],%d,%lld,%lld,%lld,%lld,%lld,%lld,%15[^,]",
            s->name, &s->nranks, &batch, &seq, &heads, &kv_heads, &dk, &dv,
            s->layout) != 9)
        return false;
    s->batch = batch;
    s->seq = seq;
    s->heads = heads;
    s->kv_heads = kv_heads;
    s->dk = dk;
    s->dv = dv;
    s->refused = heads % kv_heads != 0;
    s->parts[0] = s->parts[1] = part;
    s->parts[0].rows = seq;
    s->nparts = 1;
    bool cross = strstr(s->name, "cross_attention") != NULL;
    bool joint = strstr(s->name, "replicated") != NULL;
    if (cross || joint)
        s->nparts = 2;
    if (cross) {
        s->parts[1].axis = 1;
        s->parts[1].rows = 6300;
    }
    if (joint) {
        s->parts[0].rows = seq - TEXT_ROWS;
        s->parts[1].rows = TEXT_ROWS;
        s->parts[1].kind = ULYX_PART_REPLICATED;
    }
    add_tensor(s, 0, false, dk);
    add_tensor(s, cross, true, dk);
    add_tensor(s, cross, true, dv);
    for (int i = 0; joint && i < 3; i++)
        add_tensor(s, 1, i > 0, i < 2 ? dk : dv);
    return s->nranks <= MOST_RANKS;
}

/* ---- a rank -------------------------------------------------------------- */

static unsigned char
element_value(
    int64_t tensor, int64_t batch, int64_t row, int64_t head, int64_t element)
{
    uint64_t hash =
        (uint64_t)(((tensor * 7 + batch) * 2097169 + row) * 131 + head) *
            UINT64_C(0x9E3779B97F4A7C15) +
        (uint64_t)element * UINT64_C(0xC2B2AE3D27D4EB4F);
    return (unsigned char)((hash ^ hash >> 32) >> 13);
}

/* One side of a tensor at a rank: rows [row, row + rows) of the part, heads
 * [head, head + heads), dense in the reported order. */
struct side {
    int64_t row, rows, head, heads, skip; /* skip: rows of earlier parts */
    int64_t strides[3];
    unsigned char *data;
};

static void
side_init(const struct shape *s, int t, struct side *side, int64_t all_rows)
{
    int64_t dim = s->tensors[t].dim, row = side->heads * dim;
    bool sbhd = !strcmp(s->layout, "sbhd");
    side->strides[2] = dim;
    side->strides[1] = sbhd ? s->batch * row : row;
    side->strides[0] = sbhd ? row : all_rows * row;
    side->data = malloc((size_t)(s->batch * all_rows * row) + 1);
    memset(side->data, 0xEE, (size_t)(s->batch * all_rows * row) + 1);
}

/* Writes or compares every element.
 * returns false at the first wrong one. */
static bool
shape_visit(const struct shape *s, int t, const struct side *side, bool write)
{
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t r = 0; r < side->rows; r++)
            for (int64_t h = 0; h < side->heads; h++) {
                unsigned char *at = side->data + b * side->strides[0] +
                                    (side->skip + r) * side->strides[1] +
                                    h * side->strides[2];
                for (int64_t e = 0; e < s->tensors[t].dim; e++) {
                    unsigned char right =
                        element_value(t, b, side->row + r, side->head + h, e);
                    if (write)
                        at[e] = right;
                    else if (at[e] != right)
                        return false;
                }
            }
    return true;
}

static void
init_sides(
    const struct shape *s, int t, int rank, struct side *seq, struct side *head)
{
    const ulyx_part_t *part = &s->parts[s->tensors[t].part];
    const ulyx_tensor_t *tensor = &s->tensors[t];
    int64_t P = s->nranks, h = s->heads, group = h / tensor->heads;
    int64_t first = rank * (h / P) + (rank < h % P ? rank : h % P);
    int64_t count = h / P + (rank < h % P);
    bool second = s->nparts == 2 && part->axis == 0 && tensor->part == 1;
    int64_t all = s->nparts == 2 && s->parts[1].axis == 0
                      ? s->parts[0].rows + s->parts[1].rows
                      : part->rows;
    memset(seq, 0, sizeof(*seq));
    memset(head, 0, sizeof(*head));
    seq->heads = tensor->heads;
    seq->rows = part->rows;
    if (part->kind == ULYX_PART_SHARDED) {
        seq->rows = part->rows / P + (rank < part->rows % P);
        seq->row = rank * (part->rows / P) +
                   (rank < part->rows % P ? rank : part->rows % P);
    }
    head->rows = part->rows;
    head->skip = second ? s->parts[0].rows : 0;
    head->head = count ? first / group : 0;
    head->heads = count ? (first + count - 1) / group - head->head + 1 : 0;
    side_init(s, t, seq, seq->rows);
    side_init(s, t, head, all);
}

static ulyx_status_t
shape_create(struct shape *s, int rank, const struct side *seq,
    const struct side *head, ulyx_plan_t **plan_p)
{
    ulyx_plan_params_t params = ULYX_PLAN_PARAMS_INIT;
    ulyx_tensor_t tensors[MOST_TENSORS];
    memcpy(tensors, s->tensors, sizeof(tensors));
    for (int t = 0; t < s->ntensors; t++) {
        memcpy(tensors[t].seq_strides, seq[t].strides, sizeof(seq[t].strides));
        memcpy(
            tensors[t].head_strides, head[t].strides, sizeof(head[t].strides));
    }
    params.batch = s->batch;
    params.heads = s->heads;
    params.parts = s->parts;
    params.nparts = s->nparts;
    params.tensors = tensors;
    params.ntensors = s->ntensors;
    params.directions = 3;
    return ulyx_plan_create(s->comms[rank], &params, plan_p);
}

static bool
there_and_back(
    struct shape *s, struct side *seq, struct side *head, ulyx_plan_t *plan)
{
    const void *from[MOST_TENSORS];
    void *to[MOST_TENSORS];
    bool good = true;
    for (int t = 0; t < s->ntensors; t++) {
        shape_visit(s, t, &seq[t], true);
        from[t] = seq[t].data;
        to[t] = head[t].data;
    }
    good = ranks_expect(ulyx_reshuffle_execute(plan, ULYX_SEQ_TO_HEAD, from, to,
                            NULL) == ULYX_SUCCESS);
    for (int t = 0; t < s->ntensors; t++) {
        int64_t bytes = seq[t].rows * s->batch * seq[t].heads;
        good = good && ranks_expect(shape_visit(s, t, &head[t], false));
        memset(seq[t].data, 0xEE, (size_t)(bytes * s->tensors[t].dim));
        from[t] = head[t].data;
        to[t] = seq[t].data;
    }
    good = good && ranks_expect(ulyx_reshuffle_execute(plan, ULYX_HEAD_TO_SEQ,
                                    from, to, NULL) == ULYX_SUCCESS);
    for (int t = 0; t < s->ntensors; t++)
        good = good && ranks_expect(shape_visit(s, t, &seq[t], false));
    return good;
}

static int
shape_rank(int rank, int nranks, void *context)
{
    struct shape *s = context;
    struct side seq[MOST_TENSORS], head[MOST_TENSORS];
    ulyx_plan_t *plan = NULL;
    bool good;
    (void)nranks;
    for (int t = 0; t < s->ntensors; t++)
        init_sides(s, t, rank, &seq[t], &head[t]);
    ulyx_status_t status = shape_create(s, rank, seq, head, &plan);
    if (s->refused) {
        good = ranks_expect(status == ULYX_ERR_INVALID_ARGUMENT);
        snprintf(
            s->texts[rank], sizeof(s->texts[rank]), "%s", ulyx_last_error());
    } else {
        good = ranks_expect(status == ULYX_SUCCESS) &&
               there_and_back(s, seq, head, plan) &&
               ranks_expect(ulyx_plan_destroy(plan) == ULYX_SUCCESS);
    }
    for (int t = 0; t < s->ntensors; t++) {
        free(seq[t].data);
        free(head[t].data);
    }
    return !good;
}

static void
every_reported_shape(void **state)
{
    (void)state;
    char line[1024];
    int rows = 0;
    struct shape *s = calloc(1, sizeof(*s));
    FILE *file = fopen(TEST_DATA_DIR "/reported-shapes.csv", "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file)) {
        if (line[0] == '#' || !strncmp(line, "name,", 5))
            continue;
        assert_true(shape_parse(s, line));
        rows++;
        assert_status(
            ulyx_comm_create_local(s->nranks, NULL, s->comms), ULYX_SUCCESS);
        if (ranks_run_threads(s->nranks, shape_rank, s, LIMIT_S)) {
            printf("%s\n", line);
            fail();
        }
        for (int r = 0; r < s->nranks; r++) {
            if (s->refused)
                assert_string_equal(s->texts[0], s->texts[r]);
            assert_status(ulyx_comm_destroy(s->comms[r]), ULYX_SUCCESS);
        }
    }
    fclose(file);
    free(s);
    assert_int_equal(rows, 28);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_reported_shape),
};

ULI_TEST_MAIN("ReshuffleShapes", tests)
