/* SPDX-License-Identifier: Apache-2.0
 *
 * A small dense problem for the tests of the public calls.
 */
#include "attention/setup.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "support/random.h"
#include "support/test.h"

static void
set_tensor(struct bench *b, int n)
{
    const ulyx_attention_t *p = &b->problem;
    ulyx_attention_tensor_t init = ULYX_ATTENTION_TENSOR_INIT;
    bool keys = n == K || n == V || n == DK || n == DV;
    bool wide = n == V || n == OUT || n == DOUT || n == DV;
    int64_t columns = n == LSE ? 1 : wide ? p->dim_v : p->dim_qk;
    int64_t rows = keys ? p->len_k : p->len_q;
    int64_t heads = keys ? p->heads_kv : p->heads_q;
    b->t[n] = init;
    b->floats[n] = p->batch * heads * rows * columns;
    b->data[n] = calloc((size_t)b->floats[n] + 1, 4);
    b->t[n].base = b->data[n];
    b->t[n].row_stride = 4 * columns;
    b->t[n].head_stride = b->t[n].row_stride * rows;
    b->t[n].batch_stride = b->t[n].head_stride * heads;
}

void
bench_init(struct bench *b, int64_t batch, int64_t heads, int64_t heads_kv,
    int64_t len, int64_t dim)
{
    struct test_random random = {11};
    ulyx_attention_t problem = ULYX_ATTENTION_INIT;
    ulyx_attention_forward_t forward = ULYX_ATTENTION_FORWARD_INIT;
    ulyx_attention_backward_t backward = ULYX_ATTENTION_BACKWARD_INIT;
    ulyx_attention_exec_t exec = ULYX_ATTENTION_EXEC_INIT;
    memset(b, 0, sizeof(*b));
    b->problem = problem;
    b->problem.dtype = ULYX_DTYPE_F32;
    b->problem.batch = batch;
    b->problem.heads_q = heads, b->problem.heads_kv = heads_kv;
    b->problem.len_q = b->problem.len_k = len;
    b->problem.dim_qk = b->problem.dim_v = dim;
    for (int n = 0; n < TENSORS; n++) {
        set_tensor(b, n);
        for (int64_t i = 0; i < b->floats[n]; i++)
            b->data[n][i] = (float)test_random_normal(&random);
    }
    b->forward = forward, b->backward = backward, b->exec = exec;
    b->forward.q = b->backward.q = &b->t[Q];
    b->forward.k = b->backward.k = &b->t[K];
    b->forward.v = b->backward.v = &b->t[V];
    b->forward.out = b->backward.out = &b->t[OUT];
    b->forward.lse = b->backward.lse = &b->t[LSE];
    b->backward.dout = &b->t[DOUT];
    b->backward.dq = &b->t[DQ];
    b->backward.dk = &b->t[DK];
    b->backward.dv = &b->t[DV];
    b->bytes = 64 << 20;
    b->workspace = aligned_alloc(64, (size_t)b->bytes);
}

void
bench_free(struct bench *b)
{
    for (int n = 0; n < TENSORS; n++)
        free(b->data[n]);
    free(b->workspace);
}

ulyx_status_t
forward(struct bench *b)
{
    return ulyx_attention_forward(
        &b->problem, &b->forward, &b->exec, b->workspace, b->bytes, NULL);
}

ulyx_status_t
backward(struct bench *b)
{
    return ulyx_attention_backward(
        &b->problem, &b->backward, &b->exec, b->workspace, b->bytes, NULL);
}

void
refused(struct bench *b, ulyx_status_t expected, const char *word)
{
    size_t bytes = (size_t)b->floats[OUT] * 4;
    float *before = malloc(bytes + 1);
    memcpy(before, b->data[OUT], bytes);
    assert_status(forward(b), expected);
    if (!strstr(ulyx_last_error(), word))
        fail_msg("'%s' does not name %s", ulyx_last_error(), word);
    assert_memory_equal(before, b->data[OUT], bytes);
    free(before);
}
