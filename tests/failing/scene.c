/* SPDX-License-Identifier: Apache-2.0
 *
 * The scene (scene.h). After its first error a rank makes no more collective
 * calls: it aborts and destroys what it has.
 */
#include "failing/scene.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/system/clock.h"

enum { ROWS = 64, HEADS = 4, KV_HEADS = 2, DIM = 8, BYTES = 1 << 17 };
enum { WORKSPACE = 1 << 21, SAVED = 1 << 18, COUNT = 96 };

const char *const scene_steps[STEPS] = {"create", "mem_alloc", "attach",
    "plan_create", "execute", "alltoall", "allreduce", "dist_create", "forward",
    "split", "barrier", "shrink", "destroy"};

struct scene {
    ulyx_comm_t *comm;
    int rank;
    struct scene_end *end;
    ulyx_mem_t *mem;
    char *memory;
    bool attached;
    ulyx_plan_t *plan;
    ulyx_dist_attention_t *dist;
};

bool
scene_note(struct scene_end *end, enum scene_step step, ulyx_status_t status)
{
    if (status != ULYX_SUCCESS && end->status == ULYX_SUCCESS) {
        end->status = status;
        end->step = step;
        snprintf(end->text, sizeof(end->text), "%s", ulyx_last_error());
    }
    return end->status == ULYX_SUCCESS;
}

/* ---- steps --------------------------------------------------------------- */

static bool
take_window(struct scene *s)
{
    void *address;
    if (!scene_note(
            s->end, STEP_MEM, ulyx_mem_alloc(BYTES, NULL, &s->mem, &address)))
        return false;
    s->memory = address;
    s->attached =
        scene_note(s->end, STEP_ATTACH, ulyx_mem_attach(s->comm, s->mem));
    return s->attached;
}

static bool
make_plan(struct scene *s)
{
    ulyx_part_t part = ULYX_PART_INIT;
    ulyx_tensor_t tensor = ULYX_TENSOR_INIT;
    ulyx_plan_params_t params = ULYX_PLAN_PARAMS_INIT;
    part.rows = ROWS;
    tensor.dtype = ULYX_DTYPE_F32;
    tensor.heads = HEADS;
    tensor.dim = DIM;
    params.heads = HEADS;
    params.parts = &part;
    params.nparts = 1;
    params.tensors = &tensor;
    params.ntensors = 1;
    return scene_note(
        s->end, STEP_PLAN, ulyx_plan_create(s->comm, &params, &s->plan));
}

/* Element j of row i has the value 1000 i + j. */
static bool
scene_exchange(struct scene *s, bool window)
{
    static float own[SCENE_RANKS][2][ROWS * HEADS * DIM];
    float *seq = window ? (float *)s->memory : own[s->rank][0];
    float *head = window ? seq + ROWS * HEADS * DIM : own[s->rank][1];
    const void *src[] = {seq};
    void *dst[] = {head};
    int64_t rows, positions[ROWS], first, count;
    ulyx_plan_get_seq_rows(s->plan, 0, s->rank, &rows);
    ulyx_plan_get_positions(s->plan, 0, s->rank, ROWS, positions);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < HEADS * DIM; j++)
            seq[i * HEADS * DIM + j] = (float)(positions[i] * 1000 + j);
    if (!scene_note(s->end, STEP_EXECUTE,
            ulyx_reshuffle_execute(s->plan, ULYX_SEQ_TO_HEAD, src, dst, NULL)))
        return false;
    ulyx_plan_get_heads(s->plan, 0, s->rank, &first, &count);
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t j = 0; j < count * DIM; j++)
            s->end->wrong |= head[i * count * DIM + j] !=
                             (float)(i * 1000 + first * DIM + j);
    return true;
}

static bool
scene_collect(struct scene *s)
{
    int64_t x[SCENE_RANKS], y[SCENE_RANKS];
    float a[COUNT], b[COUNT];
    for (int r = 0; r < SCENE_RANKS; r++)
        x[r] = s->rank * 10 + r;
    if (!scene_note(
            s->end, STEP_ALLTOALL, ulyx_alltoall(s->comm, x, y, 8, NULL)))
        return false;
    for (int r = 0; r < SCENE_RANKS; r++)
        s->end->wrong |= y[r] != r * 10 + s->rank;
    for (int i = 0; i < COUNT; i++)
        a[i] = (float)i;
    if (!scene_note(s->end, STEP_ALLREDUCE,
            ulyx_allreduce(s->comm, a, b, COUNT, ULYX_DTYPE_F32, NULL)))
        return false;
    for (int i = 0; i < COUNT; i++)
        s->end->wrong |= b[i] != (float)(i * SCENE_RANKS);
    return true;
}

static bool
scene_attend(struct scene *s)
{
    static _Alignas(64) unsigned char workspace[SCENE_RANKS][WORKSPACE],
        saved[SCENE_RANKS][SAVED];
    static float tensors[SCENE_RANKS][4][ROWS * HEADS * DIM];
    float(*t)[ROWS * HEADS * DIM] = tensors[s->rank];
    const void *q[] = {t[0]}, *k[] = {t[1]}, *v[] = {t[2]};
    void *out[] = {t[3]};
    ulyx_part_t part = ULYX_PART_INIT;
    ulyx_dist_attention_params_t params = ULYX_DIST_ATTENTION_PARAMS_INIT;
    ulyx_dist_attention_forward_t call = ULYX_DIST_ATTENTION_FORWARD_INIT;
    part.rows = ROWS;
    params.parts = &part;
    params.nparts = 1;
    params.heads = HEADS;
    params.kv_heads = KV_HEADS;
    params.dim_qk = DIM;
    params.dtype = ULYX_DTYPE_F32;
    params.threads = 2;
    if (!scene_note(s->end, STEP_DIST,
            ulyx_dist_attention_create(s->comm, &params, &s->dist)))
        return false;
    ulyx_dist_attention_get_bytes(
        s->dist, &call.workspace_bytes, &call.saved_bytes, NULL);
    s->end->wrong |=
        call.workspace_bytes > WORKSPACE || call.saved_bytes > SAVED;
    if (s->end->wrong)
        return false;
    call.q = q, call.k = k, call.v = v, call.out = out;
    call.workspace = workspace[s->rank];
    call.saved = saved[s->rank];
    return scene_note(s->end, STEP_FORWARD,
        ulyx_dist_attention_forward(s->dist, &call, NULL));
}

static bool
make_offspring(struct scene *s)
{
    ulyx_comm_t *child = NULL;
    if (!scene_note(s->end, STEP_SPLIT,
            ulyx_comm_split(s->comm, s->rank % 2, s->rank, NULL, &child)) ||
        !scene_note(s->end, STEP_DESTROY, ulyx_comm_destroy(child)) ||
        !scene_note(s->end, STEP_BARRIER, ulyx_comm_barrier(s->comm)))
        return false;
    return scene_note(
               s->end, STEP_SHRINK, ulyx_comm_shrink(s->comm, NULL, &child)) &&
           scene_note(s->end, STEP_BARRIER, ulyx_comm_barrier(child)) &&
           scene_note(s->end, STEP_DESTROY, ulyx_comm_destroy(child));
}

/* ---- the end ------------------------------------------------------------- */

/* Repeats give_back while it returns BUSY, because a peer has yet to release
 * the window, or SYSTEM or NO_MEMORY, because the call that fails was in here
 * and has left the window as before. */
static ulyx_status_t
until_free(ulyx_status_t (*give_back)(struct scene *s), struct scene *s)
{
    uli_deadline_t deadline = uli_deadline_in(10);
    ulyx_status_t status;
    do {
        status = give_back(s);
        if (status == ULYX_SUCCESS || uli_deadline_over(deadline))
            return status;
        uli_clock_sleep_ns(1000000);
    } while (status == ULYX_ERR_BUSY || status == ULYX_ERR_SYSTEM ||
             status == ULYX_ERR_NO_MEMORY);
    return status;
}

static ulyx_status_t
window_detach(struct scene *s)
{
    return ulyx_mem_detach(s->comm, s->mem);
}

static ulyx_status_t
window_free(struct scene *s)
{
    return ulyx_mem_free(s->mem);
}

/* Destroys all objects. An object that cannot be destroyed is an error of its
 * own, whatever failed before. */
static void
destroy_all(struct scene *s)
{
    struct scene_end own = {ULYX_SUCCESS};
    if (s->end->status != ULYX_SUCCESS)
        ulyx_comm_abort(s->comm);
    scene_note(&own, STEP_DESTROY, ulyx_dist_attention_destroy(s->dist));
    scene_note(&own, STEP_DESTROY, ulyx_plan_destroy(s->plan));
    if (s->attached)
        scene_note(&own, STEP_DESTROY, until_free(window_detach, s));
    scene_note(&own, STEP_DESTROY, until_free(window_free, s));
    scene_note(&own, STEP_DESTROY, ulyx_comm_destroy(s->comm));
    s->end->wrong |= own.status != ULYX_SUCCESS;
    if (own.status != ULYX_SUCCESS)
        fprintf(stderr, "rank %d, destroy: %s\n", s->rank, own.text);
}

void
scene_run(ulyx_comm_t *comm, int rank, struct scene_end *end_p)
{
    struct scene s = {.comm = comm, .rank = rank, .end = end_p};
    if (take_window(&s) && make_plan(&s) && scene_exchange(&s, true) &&
        scene_exchange(&s, false) && scene_collect(&s) && scene_attend(&s))
        make_offspring(&s);
    destroy_all(&s);
}
