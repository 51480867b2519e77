/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensors of a row of the card's bench in device memory, and our calls on
 * them, timed between two events.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cuda_runtime.h>
#include "attention/cuda/device_call.h"
#include "attention/cuda/hopper/forward_sm90.h"
#include "attention/element.h"
#include "attention/kernelcheck/bench/bench_card.h"
#include "attention/kernels/kernels.h"

enum { NORMALS = (1 << 20) + 8 /* number of values, which a tensor repeats */ };

static bool
cuda_succeeded(cudaError_t error, const char *what)
{
    if (error != cudaSuccess)
        fprintf(stderr, "kernelcheck: %s: %s\n", what, cudaGetErrorName(error));
    return error == cudaSuccess;
}

static unsigned char *
setup_take(struct kc_card_setup *s, int64_t bytes)
{
    void *p = NULL;
    if (!cuda_succeeded(cudaMalloc(&p, (size_t)bytes), "cudaMalloc"))
        return NULL;
    s->memory[s->count++] = p;
    return p;
}

static bool
is_statistic(enum uli_attn_tensor name)
{
    return name == ULI_ATTN_LSE;
}

/* Returns which set of values an input has; -1 for tensors that our kernels
 * write. */
static int
value_set(enum uli_attn_tensor name)
{
    return name <= ULI_ATTN_V ? (int)name : name == ULI_ATTN_DOUT ? 3 : -1;
}

static struct uli_attn_view
view_of(const struct kc_card_row *row, enum uli_attn_tensor name)
{
    bool key = name == ULI_ATTN_K || name == ULI_ATTN_V ||
               name == ULI_ATTN_DK || name == ULI_ATTN_DV;
    bool value = name == ULI_ATTN_V || name == ULI_ATTN_OUT ||
                 name == ULI_ATTN_DOUT || name == ULI_ATTN_DV;
    int64_t size = is_statistic(name) ? 4 : 2;
    int64_t heads = key ? row->heads_kv : row->heads;
    int64_t columns = is_statistic(name) ? 1 : value ? row->dim_v : row->dim_qk;
    return (struct uli_attn_view){.name = "tensor",
        .head_stride = columns * size,
        .row_stride = heads * columns * size,
        .batch_stride = row->len * heads * columns * size,
        .dtype = is_statistic(name) ? ULYX_DTYPE_F32 : ULYX_DTYPE_BF16,
        .element_bytes = size,
        .row_bytes = columns * size,
        .rows = row->len,
        .heads = heads,
        .columns = columns,
        .batch = row->batch,
        .packed_rows = -1,
        .given = true,
        .output = name >= ULI_ATTN_OUT};
}

/* Q, K, V and dout have different values. If a query were also a key, that key
 * would have most of its row's weight and set the row's maximum, as in no
 * model. */
static bool
setup_lay(
    struct kc_card_setup *s, enum uli_attn_tensor name, const uint16_t *values)
{
    struct uli_attn_view *view = &s->call.views[name];
    *view = view_of(&s->row, name);
    int64_t bytes = view->batch_stride * view->batch, set = value_set(name);
    view->base = setup_take(s, bytes);
    for (int64_t at = 0; view->base && set >= 0 && at < bytes;
         at += 2 * NORMALS) {
        int64_t n = bytes - at < 2 * NORMALS ? bytes - at : 2 * NORMALS;
        if (!cuda_succeeded(cudaMemcpy(view->base + at, values + set * NORMALS,
                                (size_t)n, cudaMemcpyHostToDevice),
                "cudaMemcpy"))
            return false;
    }
    return view->base != NULL;
}

/* The documents lie on the device, as those of the peers do. */
static bool
setup_documents(struct kc_card_setup *s)
{
    struct uli_attn_problem *problem = &s->call.problem;
    int64_t count = s->row.docs * s->row.batch;
    int64_t length = s->row.docs ? s->row.len / s->row.docs : 0;
    if (count == 0)
        return true;
    int32_t *begins = malloc((size_t)(count + 1) * sizeof(*begins));
    void *device = setup_take(s, (count + 1) * (int64_t)sizeof(*begins));
    for (int64_t n = 0; begins && n <= count; n++)
        begins[n] = (int32_t)(n * length);
    bool ok = begins && device &&
              cuda_succeeded(cudaMemcpy(device, begins,
                                 (size_t)(count + 1) * sizeof(*begins),
                                 cudaMemcpyHostToDevice),
                  "cudaMemcpy");
    free(begins);
    problem->has_docs = problem->docs_on_device = true;
    problem->doc_count = problem->max_docs = count;
    problem->docs_q.begins = device;
    problem->docs_q.index_bytes = sizeof(*begins);
    problem->docs_k = problem->docs_q;
    return ok;
}

static void
set_problem(struct uli_attn_problem *problem_p, const struct kc_card_row *row)
{
    *problem_p = (struct uli_attn_problem){.dtype = ULYX_DTYPE_BF16,
        .stat_dtype = ULYX_DTYPE_F32,
        .param_dtype = ULYX_DTYPE_F32,
        .batch = row->batch,
        .len_q = row->len,
        .len_k = row->len,
        .heads_q = row->heads,
        .heads_kv = row->heads_kv,
        .dim_qk = row->dim_qk,
        .dim_v = row->dim_v,
        .scale = 1 / sqrt((double)row->dim_qk),
        .left = ULYX_UNBOUNDED,
        .right = row->causal ? 0 : ULYX_UNBOUNDED,
        .bottom_right = true,
        .heads_global = row->heads,
        .memory = ULYX_MEMORY_CUDA,
        .doc_count = row->batch,
        .q_rows = row->batch * row->len};
}

/* Returns the row of the table that takes the problem's pass, or the row with
 * the name, if one is given. */
static const struct uli_attn_kernel *
kernel_of(
    const struct uli_attn_problem *problem, bool backward, const char *name)
{
    const struct uli_attn_kernel *kernel;
    for (int n = 0; (kernel = uli_attn_device_kernel_at(n)) != NULL; n++)
        if ((!name || strcmp(name, kernel->name) == 0) && kernel->usable() &&
            !kernel->refuses(problem) && (!backward || kernel->backward))
            return kernel;
    return NULL;
}

/* Computes out and lse, which backward reads. */
static bool
setup_forward(struct kc_card_setup *s)
{
    s->call.kernel = kernel_of(&s->call.problem, false, NULL);
    if (!s->row.backward || !s->call.kernel)
        return s->call.kernel != NULL;
    s->call.kernel->forward(&s->call);
    return atomic_load(&s->call.failed) == 0 &&
           cuda_succeeded(cudaDeviceSynchronize(), s->call.kernel->name);
}

/* Makes a workspace that is large enough for any row and pass. */
static bool
setup_workspace(struct kc_card_setup *s)
{
    const struct uli_attn_kernel *kernel;
    int64_t most = 0;
    for (int n = 0; (kernel = uli_attn_device_kernel_at(n)) != NULL; n++)
        for (int pass = 0; pass < 2; pass++) {
            int64_t bytes = kernel->refuses(&s->call.problem)
                                ? 0
                                : kernel->workspace(&s->call.problem,
                                      (ulyx_attention_pass_t)pass, 1);
            most = bytes > most ? bytes : most;
        }
    s->call.workspace_bytes = most;
    s->call.workspace = setup_take(s, most);
    return s->call.workspace != NULL;
}

bool
kc_setup_init(struct kc_card_setup *s, const struct kc_card_row *row)
{
    const int64_t count = 4 * NORMALS;
    uint16_t *values = malloc((size_t)count * 2);
    struct test_random random = {7};
    memset(s, 0, sizeof(*s));
    s->row = *row;
    s->call.timeout_s = 60;
    set_problem(&s->call.problem, row);
    for (int64_t n = 0; values && n < count; n++)
        values[n] = uli_bf16_of_float((float)test_random_normal(&random));
    bool ok = values != NULL;
    for (int t = ULI_ATTN_Q; ok && t <= ULI_ATTN_LSE; t++)
        ok = setup_lay(s, (enum uli_attn_tensor)t, values);
    for (int t = ULI_ATTN_DOUT; ok && row->backward && t <= ULI_ATTN_DV; t++)
        if (t != ULI_ATTN_DELTA && t != ULI_ATTN_DLSE)
            ok = setup_lay(s, (enum uli_attn_tensor)t, values);
    free(values);
    return ok && setup_documents(s) && setup_workspace(s) &&
           cuda_succeeded(
               cudaEventCreate((cudaEvent_t *)&s->begin), "cudaEventCreate") &&
           cuda_succeeded(
               cudaEventCreate((cudaEvent_t *)&s->end), "cudaEventCreate") &&
           cuda_succeeded(cudaStreamCreate((cudaStream_t *)&s->call.stream),
               "cudaStreamCreate") &&
           setup_forward(s);
}

void
kc_setup_free(struct kc_card_setup *s)
{
    for (int n = 0; n < s->count; n++)
        cudaFree(s->memory[n]);
    if (s->begin)
        cudaEventDestroy(s->begin);
    if (s->end)
        cudaEventDestroy(s->end);
    if (s->call.stream)
        cudaStreamDestroy(s->call.stream);
}

bool
kc_setup_choose(struct kc_card_setup *s, const struct kc_card_variant *variant)
{
    const struct uli_attn_problem *problem = &s->call.problem;
    s->family = NULL;
    s->call.why_portable = NULL;
    s->call.kernel = kernel_of(problem, s->row.backward, variant->row);
    if (!variant->families || !s->call.kernel)
        return s->call.kernel != NULL;
    for (int n = 0; variant->families[n] && !s->family; n++)
        if (problem->dim_qk == variant->families[n]->dim_qk &&
            problem->dim_v == variant->families[n]->dim_v)
            s->family = variant->families[n];
    return s->family && !s->row.backward;
}

bool
kc_setup_enqueue(struct kc_card_setup *s)
{
    if (s->family)
        uli_gpu_attn_sm90(&s->call, s->family);
    else if (s->row.backward)
        s->call.kernel->backward(&s->call);
    else
        s->call.kernel->forward(&s->call);
    return atomic_load(&s->call.failed) == 0;
}

double
kc_setup_run(struct kc_card_setup *s, int repeats)
{
    struct uli_gpu_attn_state state;
    float ms = -1;
    bool ok =
        cuda_succeeded(cudaEventRecord(s->begin, s->call.stream), "event");
    for (int n = 0; ok && n < repeats; n++)
        ok = kc_setup_enqueue(s);
    ok = ok &&
         cuda_succeeded(cudaEventRecord(s->end, s->call.stream), "event") &&
         cuda_succeeded(cudaEventSynchronize(s->end), s->call.kernel->name) &&
         cuda_succeeded(cudaEventElapsedTime(&ms, s->begin, s->end), "event") &&
         cuda_succeeded(cudaMemcpy(&state, s->call.workspace, sizeof(state),
                            cudaMemcpyDeviceToHost),
             "cudaMemcpy");
    if (ok && state.failed)
        uli_gpu_attn_error(state.failed);
    return ok && !state.failed ? ms / repeats : -1;
}
