/* SPDX-License-Identifier: Apache-2.0 */
#include "emulate/attention/api_world.h"
#include <stdlib.h>
#include <string.h>
#include "attention/element.h"
#include "base/mask.h"
#ifdef ULI_EMULATE
#include "emulate.h"
#else
#include "emulate/card/card.h"
#endif

enum { POISON = 0xA5 };

int
world_open(void **state)
{
    (void)state;
#ifdef ULI_EMULATE
    const struct emu_config config = {.devices = 2};
    return emu_open(&config);
#else
    return 0;
#endif
}

int
world_close(void **state)
{
    (void)state;
#ifdef ULI_EMULATE
    size_t faults = emu_fault_count();
    emu_close();
    return faults != 0;
#else
    return 0;
#endif
}

/* ---- problems ------------------------------------------------------------ */

void
world_init(struct world *w, ulyx_attention_pass_t pass, uint64_t seed)
{
    const ulyx_attention_t problem = ULYX_ATTENTION_INIT;
    const ulyx_attention_exec_t exec = ULYX_ATTENTION_EXEC_INIT;
#ifndef ULI_EMULATE
    card_devices(1); /* skips the test where there is no card */
#endif
    memset(w, 0, sizeof(*w));
    w->random.state = seed;
    w->pass = pass;
    w->tensors = pass == ULYX_ATTENTION_PASS_FORWARD ? FORWARD_TENSORS
                                                     : BACKWARD_TENSORS;
    w->problem = problem;
    w->exec = exec;
    w->exec.memory = ULYX_MEMORY_CUDA;
}

int64_t
world_below(struct world *w, int64_t bound)
{
    return test_random_in(&w->random, 0, bound - 1);
}

void
world_draw_problem(struct world *w)
{
    static const ulyx_dtype_t dtypes[] = {
        ULYX_DTYPE_F32, ULYX_DTYPE_BF16, ULYX_DTYPE_F16};
    ulyx_attention_t *p = &w->problem;
    int64_t group = 1 + world_below(w, 3);
    p->dtype = dtypes[world_below(w, 3)];
    p->mask = (ulyx_mask_kind_t)world_below(w, ULI_MASKS);
    p->batch = 1 + world_below(w, 2);
    p->heads_kv = 1 + world_below(w, 2);
    p->heads_q = p->heads_kv * group;
    p->len_q = 1 + world_below(w, 90);
    p->len_k = 1 + world_below(w, 150);
    p->dim_qk = 8 * (1 + world_below(w, 16));
    p->dim_v = 8 * (1 + world_below(w, 16));
    p->window_left = world_below(w, 40);
    p->window_right = world_below(w, 10);
    p->softcap = world_below(w, 4) ? 0 : 5;
}

void
world_draw_docs(struct world *w, bool on_device)
{
    const ulyx_docs_t docs = ULYX_DOCS_INIT;
    ulyx_attention_t *p = &w->problem;
    p->len_k = p->len_q;
    p->batch = 1;
    w->docs = docs;
    w->docs.count = 1 + world_below(w, DOCS_MAX);
    for (int64_t n = 0; n <= w->docs.count; n++)
        w->begins[n] = (int32_t)(n * p->len_q / w->docs.count);
    good(cudaMalloc((void **)&w->begins_there, sizeof(w->begins)));
    good(cudaMemcpy(
        w->begins_there, w->begins, sizeof(w->begins), cudaMemcpyHostToDevice));
    w->docs.index_bytes = 4;
    w->docs.begin = on_device ? w->begins_there : w->begins;
    p->docs_q = &w->docs;
    p->docs_memory = on_device ? ULYX_MEMORY_CUDA : ULYX_MEMORY_HOST;
}

/* Uploads the parameters of HEADS_MAX heads, of which the problem has those
 * from a drawn offset on. */
static float *
upload_params(struct world *w, const float params[HEADS_MAX])
{
    float *there;
    size_t bytes = HEADS_MAX * sizeof(params[0]);
    good(cudaMalloc((void **)&there, bytes));
    good(cudaMemcpy(there, params, bytes, cudaMemcpyHostToDevice));
    if (!w->problem.heads_global)
        w->problem.head_offset =
            world_below(w, HEADS_MAX + 1 - w->problem.heads_q);
    w->problem.heads_global = HEADS_MAX;
    return there;
}

void
world_draw_sinks(struct world *w)
{
    for (int n = 0; n < HEADS_MAX; n++)
        w->sinks[n] = (float)test_random_normal(&w->random);
    w->problem.sinks = w->sinks_there = upload_params(w, w->sinks);
}

void
world_draw_slopes(struct world *w)
{
    for (int n = 0; n < HEADS_MAX; n++)
        w->slopes[n] = n % 3 ? 0.5f / (float)(1 << n) : 0;
    w->problem.alibi_slopes = w->slopes_there = upload_params(w, w->slopes);
}

/* ---- tensors ------------------------------------------------------------- */

static void
set_shape(const struct world *w, int n, struct tensor *t)
{
    const ulyx_attention_t *p = &w->problem;
    bool keys = n == K || n == V || n == DK || n == DV;
    bool statistic = n == LSE || n == DELTA || n == DLSE;
    bool values = n == V || n == OUT || n == DOUT || n == DV;
    t->heads = keys ? p->heads_kv : p->heads_q;
    t->rows = keys ? p->len_k : p->len_q;
    t->columns = statistic ? 1 : values ? p->dim_v : p->dim_qk;
    t->dtype = statistic || (w->wide && n >= DQ) ? ULYX_DTYPE_F32 : p->dtype;
    t->element = t->dtype == ULYX_DTYPE_F32 ? 4 : 2;
}

static void
set_strides(ulyx_attention_tensor_t *tensor, int64_t batch, int64_t row,
    int64_t head, int64_t element)
{
    const ulyx_attention_tensor_t init = ULYX_ATTENTION_TENSOR_INIT;
    *tensor = init;
    tensor->batch_stride = batch * element;
    tensor->row_stride = row * element;
    tensor->head_stride = head * element;
}

/* Makes a tensor [b, h, s, d] or [b, s, h, d] with gaps between its rows and
 * guard bytes at both ends. */
static void
make_tensor(struct world *w, int n)
{
    struct tensor *t = &w->t[n];
    set_shape(w, n, t);
    t->pitch = t->columns + (t->columns == 1 ? 0 : 8 * world_below(w, 3));
    int64_t batch = t->heads * t->rows * t->pitch;
    bool seq_first = world_below(w, 2);
    int64_t row = seq_first ? t->heads * t->pitch : t->pitch;
    int64_t head = seq_first ? t->pitch : t->rows * t->pitch;
    t->count = w->problem.batch * batch;
    t->bytes = t->count * t->element + 2 * GUARD;
    t->values = calloc((size_t)t->count + 1, sizeof(double));
    t->image = malloc((size_t)t->bytes);
    good(cudaMalloc((void **)&t->memory, (size_t)t->bytes));
    set_strides(&t->device, batch, row, head, t->element);
    set_strides(&t->host, batch, row, head, 8);
    t->host.base = t->values;
    t->device.base = t->memory + GUARD;
    if (t->dtype == ULYX_DTYPE_F32)
        t->device.dtype = ULYX_DTYPE_F32;
    world_fill_poison(w, n);
}

void
world_make(struct world *w)
{
    for (int n = 0; n < w->tensors; n++)
        make_tensor(w, n);
    good(cudaMalloc((void **)&w->cause, sizeof(*w->cause)));
    good(cudaMemset(w->cause, 0, sizeof(*w->cause)));
    good(cudaStreamCreate(&w->stream));
    w->exec.cause = w->cause;
    assert_status(ulyx_attention_workspace(
                      &w->problem, w->pass, &w->exec, &w->workspace_bytes),
        ULYX_SUCCESS);
    good(cudaMalloc(&w->workspace, (size_t)w->workspace_bytes));
}

void
world_free(struct world *w)
{
    good(cudaStreamSynchronize(w->stream));
    good(cudaStreamDestroy(w->stream));
    for (int n = 0; n < w->tensors; n++) {
        free(w->t[n].values);
        free(w->t[n].image);
        good(cudaFree(w->t[n].memory));
    }
    good(cudaFree(w->workspace));
    good(cudaFree(w->cause));
    good(cudaFree(w->sinks_there));
    good(cudaFree(w->slopes_there));
    good(cudaFree(w->begins_there));
}

static bool
in_gap(const struct tensor *t, int64_t element)
{
    return element % t->pitch >= t->columns;
}

static void
tensor_upload(struct tensor *t)
{
    good(cudaMemcpy(
        t->memory, t->image, (size_t)t->bytes, cudaMemcpyHostToDevice));
}

void
world_fill_values(struct world *w, int n)
{
    struct tensor *t = &w->t[n];
    memset(t->image, POISON, (size_t)t->bytes);
    for (int64_t i = 0; i < t->count; i++) {
        unsigned char *at = t->image + GUARD + i * t->element;
        if (n >= DQ && in_gap(t, i))
            continue;
        uli_element_store(at, t->dtype, 0, t->values[i]);
        t->values[i] = uli_element_load(at, t->dtype, 0);
    }
    tensor_upload(t);
}

void
world_fill_random(struct world *w, int n)
{
    for (int64_t i = 0; i < w->t[n].count; i++)
        w->t[n].values[i] = test_random_normal(&w->random);
    world_fill_values(w, n);
}

void
world_fill_poison(struct world *w, int n)
{
    memset(w->t[n].image, POISON, (size_t)w->t[n].bytes);
    tensor_upload(&w->t[n]);
}

/* ---- the reference on the host ------------------------------------------- */

ulyx_attention_t
world_host_problem(const struct world *w, ulyx_docs_t *docs_p)
{
    ulyx_attention_t problem = w->problem;
    *docs_p = w->docs;
    docs_p->begin = w->begins;
    problem.dtype = ULYX_DTYPE_F64;
    /* sinks and slopes are floats on both sides */
    problem.param_dtype = ULYX_DTYPE_F32;
    problem.docs_memory = ULYX_MEMORY_HOST;
    problem.docs_q = problem.docs_q ? docs_p : NULL;
    problem.sinks = problem.sinks ? w->sinks : NULL;
    problem.alibi_slopes = problem.alibi_slopes ? w->slopes : NULL;
    return problem;
}

void *
world_host_workspace(const ulyx_attention_t *problem,
    ulyx_attention_pass_t pass, ulyx_attention_exec_t *exec_p, int64_t *bytes_p)
{
    const ulyx_attention_exec_t init = ULYX_ATTENTION_EXEC_INIT;
    *exec_p = init;
    exec_p->kernel = "reference";
    exec_p->threads = 1;
    assert_status(
        ulyx_attention_workspace(problem, pass, exec_p, bytes_p), ULYX_SUCCESS);
    return aligned_alloc(64, (size_t)*bytes_p + 64);
}

/* ---- comparison ---------------------------------------------------------- */

void
world_compare(struct world *w, int n, bool checked, world_near near_enough)
{
    struct tensor *t = &w->t[n];
    good(cudaMemcpy(
        t->image, t->memory, (size_t)t->bytes, cudaMemcpyDeviceToHost));
    for (int64_t i = 0; checked && i < t->count; i++) {
        unsigned char *at = t->image + GUARD + i * t->element;
        double is = uli_element_load(at, t->dtype, 0);
        if (in_gap(t, i))
            continue;
        if (!near_enough(w, n, is, t->values[i]))
            fail_msg("tensor %d: element %d is %g, not %g", n, (int)i, is,
                t->values[i]);
        memset(at, POISON, (size_t)t->element);
    }
    for (int64_t i = 0; i < t->bytes; i++)
        if (t->image[i] != POISON)
            fail_msg("tensor %d: byte %d outside is written", n, (int)i);
}

void
world_expect_error(const char *word)
{
    if (!strstr(ulyx_last_error(), word))
        fail_msg("'%s' does not name %s", ulyx_last_error(), word);
}

void
world_expect_cause(struct world *w, ulyx_status_t status, const char *word)
{
    uint64_t cause = 77;
    good(cudaMemcpy(&cause, w->cause, sizeof(cause), cudaMemcpyDeviceToHost));
    assert_status(ulyx_attention_status(cause), status);
    if (word)
        world_expect_error(word);
}
