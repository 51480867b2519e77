/* SPDX-License-Identifier: Apache-2.0
 *
 * Every public call that takes or fills a struct, with structs of other
 * versions: each legal shorter size, the longest illegal one, and longer ones
 * that end in zeros or not. A caller's struct is an allocation of its own, so
 * that a sanitizer reports any read beyond its size.
 */
#include <stdlib.h>
#include <string.h>
#include "attention/setup.h"
#include "base/params/structs.h"
#include "support/test.h"
#include "ulyx/ulyx.h"

enum { ROWS = 4, DIM = 8, TAIL = 24, BLOCK = 1 << 20 };

/* One rank, and a complete set of arguments for each call. */
static struct {
    ulyx_comm_t *comm;
    ulyx_plan_t *plan; /* at most one document per table */
    ulyx_dist_attention_t *dist;
    ulyx_part_t part;
    ulyx_tensor_t tensor;
    ulyx_docs_t docs;
    ulyx_plan_params_t plan_params;
    ulyx_dist_attention_params_t dist_params;
    ulyx_dist_attention_forward_t dist_forward;
    ulyx_dist_attention_backward_t dist_backward;
    struct bench bench;
    ulyx_attention_piece_t piece;
    ulyx_segment_t segment;
} world;

static int64_t begins[] = {0, ROWS};
static float data[9][ROWS * DIM];
static const void *inputs[5] = {data[0], data[1], data[2], data[3], data[4]};
static void *outputs[4] = {data[3], data[5], data[6], data[7]};
static _Alignas(64) unsigned char workspace[BLOCK], saved[BLOCK];

static void
open_dist(void)
{
    const ulyx_dist_attention_params_t params = ULYX_DIST_ATTENTION_PARAMS_INIT;
    const ulyx_dist_attention_forward_t forward =
        ULYX_DIST_ATTENTION_FORWARD_INIT;
    const ulyx_dist_attention_backward_t backward =
        ULYX_DIST_ATTENTION_BACKWARD_INIT;
    world.dist_params = params;
    world.dist_params.dtype = ULYX_DTYPE_F32;
    world.dist_params.heads = 1, world.dist_params.dim_qk = DIM;
    world.dist_params.parts = &world.part, world.dist_params.nparts = 1;
    world.dist_params.max_docs = 1;
    world.dist_forward = forward;
    world.dist_forward.q = &inputs[0], world.dist_forward.k = &inputs[1];
    world.dist_forward.v = &inputs[2], world.dist_forward.out = &outputs[0];
    world.dist_forward.workspace = workspace, world.dist_forward.saved = saved;
    world.dist_forward.workspace_bytes = world.dist_forward.saved_bytes = BLOCK;
    world.dist_backward = backward;
    world.dist_backward.out = &inputs[3], world.dist_backward.dout = &inputs[4];
    world.dist_backward.dq = &outputs[1], world.dist_backward.dk = &outputs[2];
    world.dist_backward.dv = &outputs[3];
    world.dist_backward.workspace = workspace,
    world.dist_backward.saved = saved;
    world.dist_backward.workspace_bytes = world.dist_backward.saved_bytes =
        BLOCK;
    assert_status(
        ulyx_dist_attention_create(world.comm, &world.dist_params, &world.dist),
        0);
    assert_status(
        ulyx_dist_attention_forward(world.dist, &world.dist_forward, NULL), 0);
}

static void
open_attention(void)
{
    struct bench *b = &world.bench;
    bench_init(b, 1, 1, 1, ROWS, DIM);
    world.piece = (ulyx_attention_piece_t){.rows = ROWS, .base = b->t[Q].base};
    world.segment = (ulyx_segment_t){.row_end = ROWS};
}

static int
open_world(void **state)
{
    const ulyx_plan_params_t params = ULYX_PLAN_PARAMS_INIT;
    const ulyx_part_t part = ULYX_PART_INIT;
    const ulyx_tensor_t tensor = ULYX_TENSOR_INIT;
    const ulyx_docs_t docs = ULYX_DOCS_INIT;
    (void)state;
    world.part = part;
    world.part.rows = ROWS;
    world.tensor = tensor;
    world.docs = docs;
    world.docs.count = 1, world.docs.begin = begins;
    world.plan_params = params;
    world.plan_params.parts = &world.part, world.plan_params.nparts = 1;
    world.plan_params.tensors = &world.tensor, world.plan_params.ntensors = 1;
    world.plan_params.max_docs = 1;
    assert_status(ulyx_comm_create_local(1, NULL, &world.comm), 0);
    open_dist();
    world.part.order = ULYX_TOKENS_ZIGZAG_DOCS;
    assert_status(
        ulyx_plan_create(world.comm, &world.plan_params, &world.plan), 0);
    open_attention();
    return 0;
}

static int
close_world(void **state)
{
    (void)state;
    bench_free(&world.bench);
    assert_status(ulyx_dist_attention_destroy(world.dist), 0);
    assert_status(ulyx_plan_destroy(world.plan), 0);
    assert_status(ulyx_comm_destroy(world.comm), 0);
    return 0;
}

/* ---- the calls: `given` has `size` bytes --------------------------------- */

static ulyx_status_t
comm_params(void *given, size_t size)
{
    ulyx_comm_t *comm = NULL;
    (void)size;
    ulyx_status_t status = ulyx_comm_create_local(1, given, &comm);
    ulyx_comm_destroy(comm);
    return status;
}

static ulyx_status_t
split_params(void *given, size_t size)
{
    ulyx_comm_t *comm = NULL;
    (void)size;
    ulyx_status_t status = ulyx_comm_split(world.comm, 0, 0, given, &comm);
    ulyx_comm_destroy(comm);
    return status;
}

static ulyx_status_t
launch_of(void *given, size_t size)
{
    (void)size;
    return ulyx_launch_query(given);
}

static ulyx_status_t
mem_params(void *given, size_t size)
{
    ulyx_mem_t *mem = NULL;
    void *address;
    (void)size;
    ulyx_status_t status = ulyx_mem_alloc(4096, given, &mem, &address);
    ulyx_mem_free(mem);
    return status;
}

static ulyx_status_t
make_plan(const ulyx_plan_params_t *params)
{
    ulyx_plan_t *plan = NULL;
    ulyx_status_t status = ulyx_plan_create(world.comm, params, &plan);
    ulyx_plan_destroy(plan);
    return status;
}

static ulyx_status_t
plan_params(void *given, size_t size)
{
    (void)size;
    return make_plan(given);
}

static ulyx_status_t
plan_part(void *given, size_t size)
{
    ulyx_plan_params_t params = world.plan_params;
    params.parts = given, params.part_size = size;
    return make_plan(&params);
}

static ulyx_status_t
plan_tensor(void *given, size_t size)
{
    ulyx_plan_params_t params = world.plan_params;
    params.tensors = given, params.tensor_size = size;
    return make_plan(&params);
}

static ulyx_status_t
plan_docs(void *given, size_t size)
{
    ulyx_plan_params_t params = world.plan_params;
    (void)size;
    params.docs_q = given;
    return make_plan(&params);
}

static ulyx_status_t
update_docs(void *given, size_t size)
{
    (void)size;
    return ulyx_plan_update(world.plan, given, NULL, NULL);
}

static ulyx_status_t
traffic_call(void *given, size_t size)
{
    (void)size;
    return ulyx_plan_get_traffic(world.plan, ULYX_SEQ_TO_HEAD, given);
}

static ulyx_status_t
make_dist(const ulyx_dist_attention_params_t *params)
{
    ulyx_dist_attention_t *dist = NULL;
    ulyx_status_t status =
        ulyx_dist_attention_create(world.comm, params, &dist);
    ulyx_dist_attention_destroy(dist);
    return status;
}

static ulyx_status_t
dist_params(void *given, size_t size)
{
    (void)size;
    return make_dist(given);
}

static ulyx_status_t
dist_part(void *given, size_t size)
{
    ulyx_dist_attention_params_t params = world.dist_params;
    params.parts = given, params.part_size = size;
    return make_dist(&params);
}

static ulyx_status_t
dist_docs(void *given, size_t size)
{
    ulyx_dist_attention_params_t params = world.dist_params;
    (void)size;
    params.docs_q = given;
    return make_dist(&params);
}

static ulyx_status_t
dist_update(void *given, size_t size)
{
    (void)size;
    ulyx_status_t status =
        ulyx_dist_attention_update(world.dist, given, NULL, NULL);
    ulyx_dist_attention_update(world.dist, NULL, NULL, NULL);
    return status;
}

static ulyx_status_t
dist_forward(void *given, size_t size)
{
    (void)size;
    return ulyx_dist_attention_forward(world.dist, given, NULL);
}

static ulyx_status_t
dist_backward(void *given, size_t size)
{
    (void)size;
    return ulyx_dist_attention_backward(world.dist, given, NULL);
}

static ulyx_status_t
dist_times(void *given, size_t size)
{
    (void)size;
    return ulyx_dist_attention_get_times(world.dist, given);
}

static ulyx_status_t
dist_saved(void *given, size_t size)
{
    int64_t count;
    unsigned char *parts = malloc(4 * size);
    ulyx_status_t status = ulyx_dist_attention_get_saved(
        world.dist, 4, size, (void *)parts, &count);
    if (status == ULYX_SUCCESS) {
        assert_int_equal(count, 4);
        memcpy(given, parts, size);
    }
    free(parts);
    return status;
}

static ulyx_status_t
attend_call(const ulyx_attention_t *problem,
    const ulyx_attention_forward_t *forward, const ulyx_attention_exec_t *exec)
{
    return ulyx_attention_forward(
        problem, forward, exec, world.bench.workspace, world.bench.bytes, NULL);
}

static ulyx_status_t
attention_call(void *given, size_t size)
{
    (void)size;
    return attend_call(given, &world.bench.forward, &world.bench.exec);
}

static ulyx_status_t
attention_exec(void *given, size_t size)
{
    (void)size;
    return attend_call(&world.bench.problem, &world.bench.forward, given);
}

static ulyx_status_t
attention_forward(void *given, size_t size)
{
    (void)size;
    return attend_call(&world.bench.problem, given, &world.bench.exec);
}

static ulyx_status_t
attention_backward(void *given, size_t size)
{
    (void)size;
    return ulyx_attention_backward(&world.bench.problem, given,
        &world.bench.exec, world.bench.workspace, world.bench.bytes, NULL);
}

static ulyx_status_t
attention_tensor(void *given, size_t size)
{
    ulyx_attention_forward_t forward = world.bench.forward;
    (void)size;
    forward.q = given;
    return attention_forward(&forward, sizeof(forward));
}

static ulyx_status_t
attention_piece(void *given, size_t size)
{
    ulyx_attention_tensor_t q = world.bench.t[Q];
    q.pieces = given, q.piece_count = 1, q.piece_size = size;
    return attention_tensor(&q, sizeof(q));
}

static ulyx_status_t
attention_segment(void *given, size_t size)
{
    ulyx_attention_t problem = world.bench.problem;
    problem.q_segments = problem.k_segments = given;
    problem.q_segment_count = problem.k_segment_count = 1;
    problem.segment_size = size;
    return attention_call(&problem, sizeof(problem));
}

static ulyx_status_t
attention_docs(void *given, size_t size)
{
    ulyx_attention_t problem = world.bench.problem;
    (void)size;
    problem.docs_q = given;
    return attention_call(&problem, sizeof(problem));
}

/* ---- all of them --------------------------------------------------------- */

static const ulyx_comm_params_t comm_good = ULYX_COMM_PARAMS_INIT;
static const ulyx_mem_params_t mem_good = ULYX_MEM_PARAMS_INIT;
static const ulyx_launch_t launch_good = ULYX_LAUNCH_INIT;
static const ulyx_traffic_t traffic_good = ULYX_TRAFFIC_INIT;
static const ulyx_dist_attention_times_t times_good =
    ULYX_DIST_ATTENTION_TIMES_INIT;
static const ulyx_saved_tensor_t saved_good;

static const struct subject {
    const char *name;
    enum uli_struct_id id;
    const void *good;
    ulyx_status_t (*call)(void *given, size_t size);
    enum { SIZED, ELEMENT } is;
    bool output;
} subjects[] = {
    {"comm create", ULI_STRUCT_COMM_PARAMS, &comm_good, comm_params},
    {"comm split", ULI_STRUCT_COMM_PARAMS, &comm_good, split_params},
    {"launch query", ULI_STRUCT_LAUNCH, &launch_good, launch_of, SIZED, true},
    {"mem alloc", ULI_STRUCT_MEM_PARAMS, &mem_good, mem_params},
    {"plan", ULI_STRUCT_PLAN_PARAMS, &world.plan_params, plan_params},
    {"plan, part", ULI_STRUCT_PART, &world.part, plan_part, ELEMENT},
    {"plan, tensor", ULI_STRUCT_TENSOR, &world.tensor, plan_tensor, ELEMENT},
    {"plan, docs", ULI_STRUCT_DOCS, &world.docs, plan_docs},
    {"plan update", ULI_STRUCT_DOCS, &world.docs, update_docs},
    {"traffic", ULI_STRUCT_TRAFFIC, &traffic_good, traffic_call, SIZED, true},
    {"dist attention", ULI_STRUCT_DIST_ATTENTION_PARAMS, &world.dist_params,
        dist_params},
    {"dist attention, part", ULI_STRUCT_PART, &world.part, dist_part, ELEMENT},
    {"dist attention, docs", ULI_STRUCT_DOCS, &world.docs, dist_docs},
    {"dist attention update", ULI_STRUCT_DOCS, &world.docs, dist_update},
    {"dist attention forward", ULI_STRUCT_DIST_ATTENTION_FORWARD,
        &world.dist_forward, dist_forward},
    {"dist attention backward", ULI_STRUCT_DIST_ATTENTION_BACKWARD,
        &world.dist_backward, dist_backward},
    {"dist attention times", ULI_STRUCT_DIST_ATTENTION_TIMES, &times_good,
        dist_times, SIZED, true},
    {"dist attention saved", ULI_STRUCT_SAVED_TENSOR, &saved_good, dist_saved,
        ELEMENT, true},
    {"attention", ULI_STRUCT_ATTENTION, &world.bench.problem, attention_call},
    {"attention exec", ULI_STRUCT_ATTENTION_EXEC, &world.bench.exec,
        attention_exec},
    {"attention forward", ULI_STRUCT_ATTENTION_FORWARD, &world.bench.forward,
        attention_forward},
    {"attention backward", ULI_STRUCT_ATTENTION_BACKWARD, &world.bench.backward,
        attention_backward},
    {"attention tensor", ULI_STRUCT_ATTENTION_TENSOR, &world.bench.t[Q],
        attention_tensor},
    {"attention piece", ULI_STRUCT_PIECE, &world.piece, attention_piece,
        ELEMENT},
    {"attention segment", ULI_STRUCT_SEGMENT, &world.segment, attention_segment,
        ELEMENT},
    {"attention docs", ULI_STRUCT_DOCS, &world.docs, attention_docs},
};
enum { SUBJECTS = sizeof(subjects) / sizeof(subjects[0]) };

/* Makes the call with a struct of size bytes; the byte at `set`, unless 0, is
 * 1. */
static void
subject_expect(
    const struct subject *s, size_t size, size_t set, ulyx_status_t expected)
{
    size_t known = uli_structs[s->id].bytes;
    unsigned char *given = calloc(1, size);
    memcpy(given, s->good, size < known ? size : known);
    if (s->is == SIZED)
        memcpy(given, &size, sizeof(size));
    if (set)
        given[set] = 1;
    ulyx_status_t status = s->call(given, size);
    if (status != expected)
        fail_msg("%s with %zu bytes, byte %zu set: %s \"%s\", not %s", s->name,
            size, set, ulyx_status_name(status), ulyx_last_error(),
            ulyx_status_name(expected));
    for (size_t at = known; s->output && !status && at < size; at++)
        assert_int_equal(given[at], 0);
    free(given);
}

static void
structs_of_every_size_are_taken_or_refused(void **state)
{
    (void)state;
    for (int i = 0; i < SUBJECTS; i++) {
        const struct subject *s = &subjects[i];
        const struct uli_struct *kind = &uli_structs[s->id];
        size_t step = s->is == ELEMENT ? 8 : 1;
        for (size_t size = kind->least_bytes; size <= kind->bytes; size += step)
            subject_expect(s, size, 0, ULYX_SUCCESS);
        subject_expect(
            s, kind->least_bytes - step, 0, ULYX_ERR_INVALID_ARGUMENT);
        subject_expect(s, sizeof(size_t), 0, ULYX_ERR_INVALID_ARGUMENT);
        subject_expect(s, kind->bytes + TAIL, 0, ULYX_SUCCESS);
        for (size_t set = kind->bytes; set < kind->bytes + TAIL; set += 23)
            subject_expect(s, kind->bytes + TAIL, set,
                s->output ? ULYX_SUCCESS : ULYX_ERR_UNSUPPORTED);
    }
}

/* reshuffle_query_test checks the segments that the library fills. */
static void
every_public_struct_is_tested(void **state)
{
    bool seen[ULI_STRUCTS] = {false};
    (void)state;
    for (int i = 0; i < SUBJECTS; i++)
        seen[subjects[i].id] = true;
    for (int i = 0; i < ULI_STRUCTS; i++)
        if (!seen[i])
            fail_msg("%s is not", uli_structs[i].name);
}

static void
struct_sizes_are_found_by_name(void **state)
{
    size_t bytes = 0;
    (void)state;
    assert_int_equal(ulyx_get_struct_size("ulyx_part_t", &bytes), ULYX_SUCCESS);
    assert_int_equal(bytes, sizeof(ulyx_part_t));
    assert_int_equal(
        ulyx_get_struct_size("ulyx_plan_params_t", &bytes), ULYX_SUCCESS);
    assert_int_equal(bytes, sizeof(ulyx_plan_params_t));

    bytes = 7;
    assert_int_equal(
        ulyx_get_struct_size("ulyx_pear_t", &bytes), ULYX_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(ulyx_last_error(), "ulyx_pear_t"));
    assert_int_equal(
        ulyx_get_struct_size(NULL, &bytes), ULYX_ERR_INVALID_ARGUMENT);
    assert_int_equal(bytes, 7);
    assert_int_equal(
        ulyx_get_struct_size("ulyx_part_t", NULL), ULYX_ERR_INVALID_ARGUMENT);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(
        structs_of_every_size_are_taken_or_refused, open_world, close_world),
    cmocka_unit_test(every_public_struct_is_tested),
    cmocka_unit_test(struct_sizes_are_found_by_name),
};
ULI_TEST_MAIN("Versions", tests)
