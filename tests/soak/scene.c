/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange of the soaks; see scene.h. 8 query heads read 2 key heads, so
 * from 3 ranks on a key head has several readers and the adjoint sums.
 */
#include "soak/scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEADS = 8, KV_HEADS = 2, DIM = 16 };

const char *const scene_path_names[SCENE_PATHS] = {
    "window", "ring", "cma", "slot"};

static const int64_t tensor_heads[SCENE_TENSORS] = {HEADS, KV_HEADS, KV_HEADS};

void
scene_environment(enum scene_path path)
{
    unsetenv("ULYX_CMA");
    unsetenv("ULYX_CMA_MIN_ROW");
    if (path == SCENE_RING)
        setenv("ULYX_CMA", "off", 1);
    /* read even where rows are too short for reading to pay */
    if (path == SCENE_CMA) {
        setenv("ULYX_CMA", "on", 1);
        setenv("ULYX_CMA_MIN_ROW", "8", 1);
    }
}

/* A whole number that float adds exactly over all ranks. */
static float
element_value(int tensor, int64_t row, int64_t head, int64_t element)
{
    uint64_t x =
        (uint64_t)(((tensor * INT64_C(1000003) + row) * HEADS + head) * DIM +
                   element);
    x = (x ^ x >> 13) * UINT64_C(0x9E3779B97F4A7C15);
    return (float)(x >> 52) + 1;
}

/* ---- opening ------------------------------------------------------------- */

static int64_t
side_bytes(const struct scene *s)
{
    return (s->rows + 1) * HEADS * DIM * (int64_t)sizeof(float);
}

static ulyx_status_t
open_memory(struct scene *s, bool window)
{
    int64_t bytes = 2 * SCENE_TENSORS * side_bytes(s);
    ulyx_status_t status = ULYX_SUCCESS;
    void *address = NULL;
    if (window) {
        status = ulyx_mem_alloc(bytes, NULL, &s->mem, &address);
        if (status == ULYX_SUCCESS)
            status = ulyx_mem_attach(s->comm, s->mem);
        s->attached = status == ULYX_SUCCESS;
    } else {
        address = calloc(1, (size_t)bytes);
    }
    s->memory = address;
    for (int t = 0; t < SCENE_TENSORS; t++) {
        s->seq[t] = (float *)(void *)(s->memory + t * side_bytes(s));
        s->head[t] =
            (float *)(void *)(s->memory + (SCENE_TENSORS + t) * side_bytes(s));
    }
    return status;
}

static ulyx_status_t
open_plan(struct scene *s, enum scene_path path)
{
    ulyx_part_t part = ULYX_PART_INIT;
    ulyx_tensor_t tensors[SCENE_TENSORS];
    ulyx_plan_params_t params = ULYX_PLAN_PARAMS_INIT;
    part.rows = s->rows;
    part.order = s->rows % 2 ? ULYX_TOKENS_ZIGZAG : ULYX_TOKENS_CONTIGUOUS;
    for (int t = 0; t < SCENE_TENSORS; t++) {
        ulyx_tensor_t tensor = ULYX_TENSOR_INIT;
        tensor.dtype = ULYX_DTYPE_F32;
        tensor.heads = tensor_heads[t];
        tensor.dim = DIM;
        tensor.ownership = t ? ULYX_HEADS_KV : ULYX_HEADS_QUERY;
        tensors[t] = tensor;
    }
    params.heads = HEADS;
    params.parts = &part;
    params.nparts = 1;
    params.tensors = tensors;
    params.ntensors = SCENE_TENSORS;
    params.slot_bytes = path == SCENE_SLOT ? 1 << 16 : -1;
    params.bytes_in_flight = 16 << 10;
    if (path == SCENE_WINDOW)
        params.seq_memory = params.head_memory = ULYX_POINTER_WINDOW;
    return ulyx_plan_create(s->comm, &params, &s->plan);
}

static ulyx_status_t
plan_query(struct scene *s)
{
    ulyx_status_t status =
        ulyx_plan_get_seq_rows(s->plan, 0, s->rank, &s->seq_rows);
    s->positions = calloc((size_t)s->rows + 1, sizeof(*s->positions));
    if (status == ULYX_SUCCESS)
        status = ulyx_plan_get_positions(
            s->plan, 0, s->rank, s->rows + 1, s->positions);
    for (int t = 0; status == ULYX_SUCCESS && t < SCENE_TENSORS; t++)
        status = ulyx_plan_get_heads(
            s->plan, t, s->rank, &s->first[t], &s->count[t]);
    return status;
}

ulyx_status_t
scene_open(
    ulyx_comm_t *comm, enum scene_path path, int64_t rows, struct scene *s)
{
    char text[256];
    memset(s, 0, sizeof(*s));
    s->comm = comm;
    s->rows = rows;
    ulyx_comm_get_rank(comm, &s->rank);
    ulyx_comm_get_nranks(comm, &s->nranks);
    ulyx_status_t status = open_memory(s, path == SCENE_WINDOW);
    if (status == ULYX_SUCCESS)
        status = open_plan(s, path);
    if (status == ULYX_SUCCESS)
        status = plan_query(s);
    if (status == ULYX_SUCCESS)
        return status;
    snprintf(text, sizeof(text), "%s", ulyx_last_error());
    if (!scene_close(s, 10))
        fprintf(stderr, "after: %s\n", text);
    memcpy(s->text, text, sizeof(text));
    return status;
}

/* ---- an operation -------------------------------------------------------- */

static void
fill_seq(struct scene *s, int t, bool poison)
{
    float *at = s->seq[t];
    for (int64_t i = 0; i < s->seq_rows; i++)
        for (int64_t n = 0; n < tensor_heads[t]; n++)
            for (int64_t c = 0; c < DIM; c++)
                *at++ = poison ? -1 : element_value(t, s->positions[i], n, c);
}

static void
fill_head(struct scene *s, int t, bool poison)
{
    float *at = s->head[t];
    for (int64_t row = 0; row < s->rows; row++)
        for (int64_t n = 0; n < s->count[t]; n++)
            for (int64_t c = 0; c < DIM; c++)
                *at++ = poison ? -1 : element_value(t, row, s->first[t] + n, c);
}

void
scene_fill(struct scene *s, ulyx_direction_t direction)
{
    for (int t = 0; t < SCENE_TENSORS; t++) {
        fill_seq(s, t, direction != ULYX_SEQ_TO_HEAD);
        fill_head(s, t, direction == ULYX_SEQ_TO_HEAD);
    }
}

void
scene_spoil(struct scene *s)
{
    memset(s->memory, 0x5a, (size_t)(2 * SCENE_TENSORS * side_bytes(s)));
}

void
scene_pointers(const struct scene *s, ulyx_direction_t direction,
    const void *src[SCENE_TENSORS], void *dst[SCENE_TENSORS])
{
    bool forward = direction == ULYX_SEQ_TO_HEAD;
    for (int t = 0; t < SCENE_TENSORS; t++) {
        src[t] = forward ? s->seq[t] : s->head[t];
        dst[t] = forward ? s->head[t] : s->seq[t];
    }
}

ulyx_status_t
scene_execute(struct scene *s, ulyx_direction_t direction)
{
    const void *src[SCENE_TENSORS];
    void *dst[SCENE_TENSORS];
    scene_fill(s, direction);
    scene_pointers(s, direction, src, dst);
    return ulyx_reshuffle_execute(s->plan, direction, src, dst, NULL);
}

/* Returns how many ranks have this head of the tensor. */
static float
head_holders(const struct scene *s, int t, int64_t head)
{
    int count = 0;
    for (int32_t p = 0; p < s->nranks; p++) {
        int64_t first = 0, heads = 0;
        ulyx_plan_get_heads(s->plan, t, p, &first, &heads);
        count += head >= first && head < first + heads;
    }
    return (float)count;
}

static bool
check_seq(const struct scene *s, int t)
{
    const float *at = s->seq[t];
    float factor[HEADS];
    for (int64_t n = 0; n < tensor_heads[t]; n++)
        factor[n] = head_holders(s, t, n);
    for (int64_t i = 0; i < s->seq_rows; i++)
        for (int64_t n = 0; n < tensor_heads[t]; n++)
            for (int64_t c = 0; c < DIM; c++)
                if (*at++ !=
                    factor[n] * element_value(t, s->positions[i], n, c))
                    return false;
    return true;
}

static bool
check_head(const struct scene *s, int t)
{
    const float *at = s->head[t];
    for (int64_t row = 0; row < s->rows; row++)
        for (int64_t n = 0; n < s->count[t]; n++)
            for (int64_t c = 0; c < DIM; c++)
                if (*at++ != element_value(t, row, s->first[t] + n, c))
                    return false;
    return true;
}

bool
scene_check(const struct scene *s, ulyx_direction_t direction)
{
    for (int t = 0; t < SCENE_TENSORS; t++)
        if (!(direction == ULYX_SEQ_TO_HEAD ? check_head(s, t)
                                            : check_seq(s, t))) {
            fprintf(stderr, "rank %d: tensor %d is wrong\n", s->rank, t);
            return false;
        }
    return true;
}

/* ---- closing ------------------------------------------------------------- */

static bool
scene_expect(struct scene *s, ulyx_status_t status, const char *call)
{
    if (status == ULYX_SUCCESS)
        return true;
    fprintf(stderr, "rank %d: %s: %s: %s\n", s->rank, call,
        ulyx_status_name(status), ulyx_last_error());
    return false;
}

/* Waits for the end of quarantine, which comes when the survivors have left
 * their calls. */
static ulyx_status_t
status_retry(struct scene *s, double limit_s)
{
    ulyx_status_t status = ULYX_ERR_BUSY;
    for (int i = 0; status == ULYX_ERR_BUSY && i < limit_s * 1000; i++) {
        if (i)
            usleep(1000);
        status = ULYX_SUCCESS;
        if (s->attached)
            status = ulyx_mem_detach(s->comm, s->mem);
        if (status != ULYX_SUCCESS)
            continue;
        s->attached = false;
        status = ulyx_mem_free(s->mem);
    }
    return status;
}

bool
scene_close(struct scene *s, double limit_s)
{
    bool good = true;
    good &= scene_expect(s, ulyx_plan_destroy(s->plan), "plan destroy");
    if (s->mem)
        good &= scene_expect(s, status_retry(s, limit_s), "detach and free");
    else
        free(s->memory);
    free(s->positions);
    memset(s, 0, sizeof(*s));
    return good;
}
