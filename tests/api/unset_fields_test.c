/* SPDX-License-Identifier: Apache-2.0
 *
 * A field that was forgotten is refused with the name of the field and of the
 * struct in which to set it. Each test starts from the ..._INIT macro and sets
 * what the refusals name, until the call succeeds.
 */
#include <stdlib.h>
#include <string.h>
#include "support/test.h"
#include "ulyx/ulyx.h"

enum { ROWS = 3, HEADS = 2, DIM = 8, ALL = ROWS * HEADS * DIM };

static float in[ALL], out[ALL];

static void
call_refused(ulyx_status_t status, const char *text)
{
    assert_true(
        status == ULYX_ERR_INVALID_ARGUMENT || status == ULYX_ERR_UNSUPPORTED);
    if (!strstr(ulyx_last_error(), text))
        fail_msg("\"%s\" does not have \"%s\"", ulyx_last_error(), text);
}

/* ---- attention ----------------------------------------------------------- */

static ulyx_status_t
workspace_ask(const ulyx_attention_t *problem, int64_t *bytes_p)
{
    return ulyx_attention_workspace(
        problem, ULYX_ATTENTION_PASS_FORWARD, NULL, bytes_p);
}

static ulyx_attention_t
problem_complete(int64_t *bytes_p)
{
    ulyx_attention_t p = {0};
    const ulyx_attention_t init = ULYX_ATTENTION_INIT;
    call_refused(workspace_ask(&p, bytes_p),
        "ulyx_attention_t.size is 0, expected at least");
    call_refused(workspace_ask(&p, bytes_p), "start from ULYX_ATTENTION_INIT");
    p = init;
    call_refused(workspace_ask(&p, bytes_p),
        "dtype is 0: set dtype of ulyx_attention_t to ULYX_DTYPE_F64, _F32");
    p.dtype = ULYX_DTYPE_F32;
    p.batch = 1, p.len_q = p.len_k = ROWS, p.heads_q = HEADS;
    call_refused(
        workspace_ask(&p, bytes_p), "set heads_kv of ulyx_attention_t");
    p.heads_kv = HEADS;
    call_refused(workspace_ask(&p, bytes_p),
        "dim_qk is 0, must be 1 to 512: set dim_qk of ulyx_attention_t");
    p.dim_qk = DIM;
    call_refused(workspace_ask(&p, bytes_p), "set dim_v of ulyx_attention_t");
    p.dim_v = DIM;
    assert_status(workspace_ask(&p, bytes_p), ULYX_SUCCESS);
    return p;
}

static void
attention_names_what_to_set(void **state)
{
    (void)state;
    int64_t bytes = 0;
    const ulyx_attention_t p = problem_complete(&bytes);
    void *workspace = aligned_alloc(64, (size_t)bytes);
    ulyx_attention_tensor_t x = ULYX_ATTENTION_TENSOR_INIT, y = x;
    ulyx_attention_forward_t f = ULYX_ATTENTION_FORWARD_INIT;
#define FORWARD(memory, size)                                                  \
    ulyx_attention_forward(&p, &f, NULL, memory, size, NULL)
    call_refused(FORWARD(workspace, bytes), "q: tensor is NULL: set q of "
                                            "ulyx_attention_forward_t");
    f.q = f.k = f.v = &x;
    call_refused(FORWARD(workspace, bytes), "set base of its "
                                            "ulyx_attention_tensor_t");
    x.base = in; /* strides of 0 repeat one row */
    call_refused(
        FORWARD(workspace, bytes), "set out of ulyx_attention_forward_t");
    f.out = &y, y.base = out;
    call_refused(FORWARD(workspace, bytes),
        "out overlaps itself: set head_stride of its ulyx_attention_tensor_t");
    y.head_stride = DIM * (int64_t)sizeof(float);
    call_refused(FORWARD(workspace, bytes),
        "out overlaps itself: set row_stride of its ulyx_attention_tensor_t");
    y.row_stride = HEADS * y.head_stride;
    call_refused(FORWARD(NULL, bytes), "workspace is NULL, ");
    call_refused(
        FORWARD(workspace, 0), "as many as ulyx_attention_workspace gives");
    assert_status(FORWARD(workspace, bytes), ULYX_SUCCESS);
#undef FORWARD
    ulyx_attention_backward_t b = ULYX_ATTENTION_BACKWARD_INIT;
    b.q = b.k = b.v = &x;
    call_refused(ulyx_attention_backward(&p, &b, NULL, workspace, bytes, NULL),
        "dout: tensor is NULL: set dout of ulyx_attention_backward_t");
    free(workspace);
}

/* ---- plans --------------------------------------------------------------- */

static void
plan_names_what_to_set(void **state)
{
    (void)state;
    ulyx_comm_t *comm = NULL;
    ulyx_plan_t *plan = NULL;
    ulyx_part_t part = ULYX_PART_INIT;
    ulyx_tensor_t tensor = {0};
    ulyx_plan_params_t p = ULYX_PLAN_PARAMS_INIT;
    assert_status(ulyx_comm_create_local(1, NULL, &comm), ULYX_SUCCESS);
#define CREATE ulyx_plan_create(comm, &p, &plan)
    call_refused(CREATE, "set parts and nparts of ulyx_plan_params_t");
    p.nparts = 1;
    call_refused(CREATE, "parts is NULL, must be an array of 1 ulyx_part_t");
    p.parts = &part, part.rows = ROWS;
    call_refused(CREATE, "set tensors and ntensors of ulyx_plan_params_t");
    p.tensors = &tensor, p.ntensors = 1;
    call_refused(CREATE, "set elem_bytes, or another dtype, of ulyx_tensor_t");
    tensor.dtype = ULYX_DTYPE_F32;
    call_refused(CREATE,
        "tensors[0].heads is 0, must be at least 1: set heads of "
        "ulyx_tensor_t");
    tensor.heads = 1;
    call_refused(CREATE, "set dim of ulyx_tensor_t");
    tensor.dim = DIM, p.heads = 0;
    call_refused(CREATE, "set heads of ulyx_plan_params_t");
    p.heads = 1;
    assert_status(CREATE, ULYX_SUCCESS);
#undef CREATE
    assert_status(ulyx_plan_destroy(plan), ULYX_SUCCESS);
    assert_status(ulyx_comm_destroy(comm), ULYX_SUCCESS);
}

/* ---- distributed attention ----------------------------------------------- */

static ulyx_dist_attention_t *
dist_complete(ulyx_comm_t *comm)
{
    static ulyx_part_t part = ULYX_PART_INIT;
    ulyx_dist_attention_t *dist = NULL;
    ulyx_dist_attention_params_t p = ULYX_DIST_ATTENTION_PARAMS_INIT;
#define CREATE ulyx_dist_attention_create(comm, &p, &dist)
    call_refused(
        CREATE, "set parts and nparts of ulyx_dist_attention_params_t");
    p.parts = &part, p.nparts = 1, part.rows = ROWS;
    call_refused(CREATE, "set heads of ulyx_dist_attention_params_t");
    p.heads = HEADS, p.dtype = 0;
    call_refused(
        CREATE, "set dtype of ulyx_dist_attention_params_t to ULYX_DTYPE_");
    p.dtype = ULYX_DTYPE_F32;
    call_refused(CREATE, "set dim_qk of ulyx_dist_attention_params_t");
    p.dim_qk = DIM;
    assert_status(CREATE, ULYX_SUCCESS);
#undef CREATE
    return dist;
}

static void
dist_attention_names_what_to_set(void **state)
{
    (void)state;
    ulyx_comm_t *comm = NULL;
    assert_status(ulyx_comm_create_local(1, NULL, &comm), ULYX_SUCCESS);
    ulyx_dist_attention_t *dist = dist_complete(comm);
    ulyx_dist_attention_forward_t f = ULYX_DIST_ATTENTION_FORWARD_INIT;
    const void *in_of[] = {in};
    void *out_of[] = {out};
    int64_t bytes, saved;
    assert_status(ulyx_dist_attention_get_bytes(dist, &bytes, &saved, NULL), 0);
#define FORWARD ulyx_dist_attention_forward(dist, &f, NULL)
    call_refused(FORWARD, "set workspace and workspace_bytes, by "
                          "ulyx_dist_attention_get_bytes");
    f.workspace = aligned_alloc(64, (size_t)bytes / 64 * 64 + 64);
    f.workspace_bytes = bytes;
    call_refused(FORWARD, "set saved and saved_bytes, by ");
    f.saved = aligned_alloc(64, (size_t)saved / 64 * 64 + 64);
    f.saved_bytes = saved;
    call_refused(FORWARD, "q is NULL: set q of ulyx_dist_attention_forward_t");
    f.q = f.k = f.v = in_of;
    call_refused(FORWARD, "set out of ulyx_dist_attention_forward_t");
    f.out = out_of;
    assert_status(FORWARD, ULYX_SUCCESS);
#undef FORWARD
    free(f.workspace), free(f.saved);
    assert_status(ulyx_dist_attention_destroy(dist), ULYX_SUCCESS);
    assert_status(ulyx_comm_destroy(comm), ULYX_SUCCESS);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(attention_names_what_to_set),
    cmocka_unit_test(plan_names_what_to_set),
    cmocka_unit_test(dist_attention_names_what_to_set),
};
ULI_TEST_MAIN("UnsetFields", tests)
