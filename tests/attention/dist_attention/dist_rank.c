/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank of a world: its slices between guards, one forward, one backward,
 * and the copy of its results to global rows.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "attention/element.h"
#include "attention/dist_attention/dist_world.h"
#include "base/dtype.h"
#include "comm/meet.h"
#include "support/buffers.h"
#include "support/ranks.h"

enum { LOCAL_PARTS = 4, PAD = 48 };

/* The parts of an axis that a rank has. */
struct local {
    int32_t parts[LOCAL_PARTS], nparts;
    /* rows of each part, and its first row on the axis */
    int64_t rows[LOCAL_PARTS], first[LOCAL_PARTS];
    int64_t *positions[LOCAL_PARTS];
};

struct tensor {
    const struct local *axis;
    ulyx_dtype_t dtype;
    int64_t heads, dim;
    int64_t strides[LOCAL_PARTS][3];
    int64_t given[LOCAL_PARTS][3]; /* strides that are passed to calls */
    struct test_buffer buffers[LOCAL_PARTS];
    void *base[LOCAL_PARTS];
    void *there[LOCAL_PARTS]; /* addresses that are passed to calls */
};

struct rank {
    struct world *w;
    const struct dist_case *c;
    int me;
    ulyx_comm_t *comm;
    ulyx_dist_attention_t *dist;
    int64_t strides[WORLD_TENSORS][LOCAL_PARTS][3];
    struct local axes[2];
    struct tensor t[WORLD_TENSORS];
    int64_t ceiling, workspace_bytes, saved_bytes;
    struct test_buffer workspace, saved;
    ulyx_mem_t *mem[2];
    void *memory[2]; /* workspace and saved */
    void *memory_there[2];
    struct test_buffer params[3]; /* sinks, slopes, d_sink */
    void *params_there[3];
    void *place; /* made by the case's place, or NULL */
    void *stream;
    /* documents and rows that calls pass, if they do */
    struct case_given given;
    int64_t rows[CASE_PARTS];
    const int64_t *splits[CASE_PARTS];
    bool has_splits;
};

static bool
call_succeeded(ulyx_status_t status, const char *what)
{
    if (status == ULYX_SUCCESS)
        return true;
    fprintf(stderr, "%s: %s: %s\n", what, ulyx_status_name(status),
        ulyx_last_error());
    return false;
}

static int64_t
heads_of(const struct dist_case *c, int tensor)
{
    bool keys = tensor == WORLD_K || tensor == WORLD_V || tensor == WORLD_DK ||
                tensor == WORLD_DV;
    return keys ? c->p.kv_heads : c->p.heads;
}

static int64_t
dim_of(const struct dist_case *c, int tensor)
{
    bool wide = tensor == WORLD_Q || tensor == WORLD_K || tensor == WORLD_DQ ||
                tensor == WORLD_DK;
    return wide || !c->p.dim_v ? c->p.dim_qk : c->p.dim_v;
}

static bool
is_lse(int tensor)
{
    return tensor == WORLD_LSE || tensor == WORLD_DLSE;
}

/* ---- where calls find it ---- */

static void *
address_there(const struct rank *r, const struct test_buffer *buffer)
{
    return r->place ? r->c->place->address(r->place, buffer) : buffer->data;
}

static bool
take_there(const struct rank *r)
{
    return !r->place || r->c->place->before(r->place);
}

static bool
bring_back(const struct rank *r)
{
    return !r->place || r->c->place->after(r->place);
}

/* ---- creation ------------------------------------------------------------ */

static void
choose_strides(struct rank *r)
{
    int64_t elem = uli_dtype_size(r->c->p.dtype);
    for (int t = 0; t < WORLD_TENSORS; t++)
        for (int i = 0; i < LOCAL_PARTS; i++) {
            int64_t *s = r->strides[t][i];
            s[2] = dim_of(r->c, t) * elem + (t == WORLD_DOUT ? 2 * PAD : PAD);
            s[1] = s[2] * heads_of(r->c, t) + PAD * (i + 1);
            s[0] = s[1] * 160;
            if (r->c->p.batch <= 1) /* the stride has no meaning */
                s[0] = t % 2 ? INT64_MIN : 3;
            if (heads_of(r->c, t) == 1)
                s[2] = -1;
        }
}

/* Returns the bytes that creation names as missing for a ceiling of one byte,
 * or 0 if the error is another. */
static int64_t
least_ceiling(struct rank *r, const ulyx_dist_attention_params_t *given)
{
    ulyx_dist_attention_params_t p = *given;
    long long least;
    p.max_workspace_bytes = 1;
    ulyx_status_t status = ulyx_dist_attention_create(r->comm, &p, &r->dist);
    if (status != ULYX_ERR_INVALID_ARGUMENT ||
        sscanf(ulyx_last_error(), "%*[^,], %lld are needed", &least) != 1)
        return 0;
    return least;
}

/* Computes the ceiling of the case and stores it in *p. */
static bool
set_ceiling(struct rank *r, ulyx_dist_attention_params_t *p)
{
    int64_t least, ample;
    if (p->save == ULYX_SAVE_DEFAULT)
        /* what a ceiling selects, so that the first creation, which has none,
         * does too */
        p->save = ULYX_SAVE_NONE;
    least = least_ceiling(r, p);
    if (!ranks_expect(least > 0) ||
        !call_succeeded(
            ulyx_dist_attention_create(r->comm, p, &r->dist), "create") ||
        !call_succeeded(
            ulyx_dist_attention_get_bytes(r->dist, &ample, NULL, NULL),
            "get_bytes") ||
        !call_succeeded(ulyx_dist_attention_destroy(r->dist), "destroy"))
        return false;
    p->max_workspace_bytes = least;
    if (ample > least)
        p->max_workspace_bytes += (ample - least) * r->c->ceiling_eighths / 8;
    return true;
}

/* Returns whether the rows of a rank follow from documents. Such rows are
 * queried before calls. */
static bool
rows_need_docs(const struct dist_case *c)
{
    for (int i = 0; i < c->p.nparts; i++)
        if (c->parts[i].order == ULYX_TOKENS_ZIGZAG_DOCS)
            return true;
    return false;
}

/* Halves the rows, and so the splits, and adds some capacity. */
static void
halve_rows(struct case_given *given, int64_t splits[CASE_PARTS][CASE_RANKS],
    int32_t nranks)
{
    for (int32_t i = 0; i < given->p.nparts; i++) {
        ulyx_part_t *part = &given->parts[i];
        part->row_capacity = part->rows + 1 + i;
        part->rows /= 2;
        if (!part->splits)
            continue;
        part->rows = 0;
        for (int32_t n = 0; n < nranks; n++)
            part->rows += splits[i][n] = part->splits[n] / 2;
        part->splits = splits[i];
    }
}

static bool
update_rows(struct rank *r, const struct case_given *given)
{
    const int64_t *splits[CASE_PARTS];
    int64_t rows[CASE_PARTS];
    bool any = false;
    for (int32_t i = 0; i < given->p.nparts; i++) {
        rows[i] = given->parts[i].rows;
        splits[i] = given->parts[i].splits;
        any |= splits[i] != NULL;
    }
    return call_succeeded(
        ulyx_dist_attention_update_rows(r->dist, rows, any ? splits : NULL,
            given->p.docs_q, given->p.docs_k, r->stream),
        "update_rows");
}

/* Sets what each call passes: documents, rows or both. */
static void
take_given(struct rank *r)
{
    case_params(r->c, &r->given);
    for (int32_t i = 0; i < r->given.p.nparts; i++) {
        r->rows[i] = r->given.parts[i].rows;
        r->splits[i] = r->given.parts[i].splits;
        r->has_splits |= r->splits[i] != NULL;
    }
}

static bool
rank_create(struct rank *r)
{
    int64_t splits[CASE_PARTS][CASE_RANKS];
    struct case_given given;
    take_given(r);
    case_params(r->c, &given);
    if ((r->c->call_docs && !rows_need_docs(r->c)) || r->c->changes_rows)
        given.p.docs_q = given.p.docs_k = NULL;
    if (r->c->changes_rows)
        halve_rows(&given, splits, r->c->nranks);
    if (r->c->strided) {
        choose_strides(r);
        given.p.q_strides = (const int64_t(*)[3])r->strides[WORLD_Q];
        given.p.k_strides = (const int64_t(*)[3])r->strides[WORLD_K];
        given.p.v_strides = (const int64_t(*)[3])r->strides[WORLD_V];
        given.p.out_strides = (const int64_t(*)[3])r->strides[WORLD_OUT];
        given.p.dout_strides = (const int64_t(*)[3])r->strides[WORLD_DOUT];
    }
    given.p.head_memory = r->c->window;
    if (r->c->ceiling && !set_ceiling(r, &given.p))
        return false;
    r->ceiling = r->w->ceilings[r->me] = given.p.max_workspace_bytes;
    return call_succeeded(
               ulyx_dist_attention_create(r->comm, &given.p, &r->dist),
               "create") &&
           world_measured(r->w, r->me, r->dist, given.p) &&
           (!r->c->changes_rows || update_rows(r, &r->given));
}

static bool
take_axis(struct rank *r, int axis)
{
    struct local *local = &r->axes[axis];
    const ulyx_plan_t *plan;
    int own = case_cross(r->c) ? axis : 0;
    int64_t first = 0;
    if (!call_succeeded(
            ulyx_dist_attention_get_plan(r->dist, 0, &plan, NULL), "get_plan"))
        return false;
    for (int i = 0; i < r->c->p.nparts; i++) {
        if (r->c->parts[i].axis != own)
            continue;
        int n = local->nparts++;
        local->parts[n] = i;
        local->first[n] = first;
        first += r->c->parts[i].rows;
        if (!call_succeeded(
                ulyx_plan_get_seq_rows(plan, i, r->me, &local->rows[n]),
                "get_seq_rows"))
            return false;
        local->positions[n] =
            calloc((size_t)local->rows[n] + 1, sizeof(int64_t));
        if (!call_succeeded(ulyx_plan_get_positions(plan, i, r->me,
                                local->rows[n], local->positions[n]),
                "get_positions"))
            return false;
    }
    return true;
}

/* ---- tensors ------------------------------------------------------------- */

static int
strides_like(int tensor)
{
    return tensor == WORLD_DQ   ? WORLD_Q
           : tensor == WORLD_DK ? WORLD_K
           : tensor == WORLD_DV ? WORLD_V
                                : tensor;
}

static int64_t
max_rows(const struct rank *r, const struct local *axis, int n)
{
    int64_t rows = axis->rows[n];
    const ulyx_part_t *part = &r->c->parts[axis->parts[n]];
    if (part->order == ULYX_TOKENS_ZIGZAG_DOCS)
        rows = r->c->p.max_local_rows;
    return rows > 0 ? rows : 1;
}

/* Returns whether the rank's calls pass strides. */
static bool
brings_strides(const struct rank *r)
{
    return r->c->call_strides && (r->me + (int)(r->c->seed >> 4)) % 3 != 0;
}

/* Sets strides of one of the orders that frameworks use, padded. Zeros stand
 * for dense tensors. */
static void
own_strides(const struct rank *r, int tensor, int n)
{
    struct tensor *t = (struct tensor *)&r->t[tensor];
    int64_t *s = t->strides[n], run = uli_dtype_size(t->dtype) * t->dim;
    int64_t rows = t->axis->rows[n] ? t->axis->rows[n] : 1;
    int order = (tensor + n + r->me) % 4;
    if (order == 0) { /* bhsd */
        s[1] = run + PAD;
        s[2] = s[1] * rows + PAD;
        s[0] = s[2] * t->heads;
    } else if (order == 1) { /* sbhd */
        s[2] = run;
        s[0] = s[2] * t->heads + PAD;
        s[1] = s[0] * r->c->p.batch + PAD;
    } else { /* bshd */
        s[2] = run + (order == 2) * PAD;
        s[1] = s[2] * t->heads + (order == 2) * PAD;
        s[0] = s[1] * rows;
    }
    memcpy(t->given[n], s, sizeof(t->given[n]));
    if (order == 3)
        memset(t->given[n], 0, sizeof(t->given[n]));
    else if (r->c->p.batch <= 1) /* the stride has no meaning */
        t->given[n][0] = tensor % 2 ? INT64_MIN : 3;
}

static const int64_t (*given_strides(const struct rank *r, int tensor))[3]
{
    return brings_strides(r) ? (const int64_t(*)[3])r->t[tensor].given : NULL;
}

static void
set_strides(const struct rank *r, int tensor, int n)
{
    struct tensor *t = (struct tensor *)&r->t[tensor];
    int64_t *s = t->strides[n], elem = uli_dtype_size(t->dtype);
    if (is_lse(tensor)) {
        s[1] = elem;
        s[2] = elem * max_rows(r, t->axis, n);
        s[0] = s[2] * t->heads;
    } else if (brings_strides(r)) {
        own_strides(r, tensor, n);
    } else if (r->c->strided) {
        memcpy(s, r->strides[strides_like(tensor)][n], 3 * sizeof(*s));
    } else {
        s[2] = elem * t->dim;
        s[1] = s[2] * t->heads;
        s[0] = s[1] * t->axis->rows[n];
    }
}

static void
make_tensor(struct rank *r, int tensor)
{
    struct tensor *t = &r->t[tensor];
    bool keys = heads_of(r->c, tensor) != r->c->p.heads || tensor == WORLD_K ||
                tensor == WORLD_V || tensor == WORLD_DK || tensor == WORLD_DV;
    t->axis = &r->axes[keys];
    t->heads = heads_of(r->c, tensor);
    t->dim = is_lse(tensor) ? 1 : dim_of(r->c, tensor);
    t->dtype = r->c->p.dtype;
    if (is_lse(tensor) && t->dtype != ULYX_DTYPE_F64)
        t->dtype = ULYX_DTYPE_F32;
    for (int n = 0; n < t->axis->nparts; n++) {
        set_strides(r, tensor, n);
        const int64_t *s = t->strides[n];
        int64_t rows = t->axis->rows[n], bytes = 0;
        if (rows && r->c->p.batch)
            bytes = (r->c->p.batch - 1) * s[0] + (rows - 1) * s[1] +
                    (t->heads - 1) * s[2] + t->dim * uli_dtype_size(t->dtype);
        test_buffer_init(&t->buffers[n], (size_t)bytes, 0);
        t->base[n] = bytes ? t->buffers[n].data : NULL;
        t->there[n] = bytes ? address_there(r, &t->buffers[n]) : NULL;
    }
}

/* Returns the global index of element (b, row, h, 0) of a tensor. */
static int64_t
global_at(const struct rank *r, int tensor, int64_t b, int64_t row, int64_t h)
{
    const struct tensor *t = &r->t[tensor];
    int64_t rows = case_rows(r->c, t->axis == &r->axes[1]);
    if (is_lse(tensor))
        return (b * t->heads + h) * rows + row;
    return ((b * rows + row) * t->heads + h) * t->dim;
}

typedef void (*element_fn)(void *at, ulyx_dtype_t dtype, double *global);

static void
element_load(void *at, ulyx_dtype_t dtype, double *global)
{
    uli_element_store(at, dtype, 0, *global);
}

static void
element_store(void *at, ulyx_dtype_t dtype, double *global)
{
    *global = uli_element_load(at, dtype, 0);
}

static void
each_element(struct rank *r, int tensor, double *global, element_fn visit)
{
    struct tensor *t = &r->t[tensor];
    int64_t elem = uli_dtype_size(t->dtype);
    for (int n = 0; n < t->axis->nparts; n++)
        for (int64_t b = 0; b < r->c->p.batch; b++)
            for (int64_t i = 0; i < t->axis->rows[n]; i++)
                for (int64_t h = 0; h < t->heads; h++) {
                    const int64_t *s = t->strides[n];
                    char *at =
                        (char *)t->base[n] + b * s[0] + i * s[1] + h * s[2];
                    int64_t row = t->axis->first[n] + t->axis->positions[n][i];
                    double *g = global + global_at(r, tensor, b, row, h);
                    for (int64_t c = 0; c < t->dim; c++)
                        visit(at + c * elem, t->dtype, g + c);
                }
}

/* ---- workspace, saved, parameters ---------------------------------------- */

static bool
make_memory(struct rank *r)
{
    struct test_buffer *buffers[2] = {&r->workspace, &r->saved};
    int64_t bytes[2];
    if (!call_succeeded(
            ulyx_dist_attention_get_bytes(r->dist, &bytes[0], &bytes[1], NULL),
            "get_bytes"))
        return false;
    if (!ranks_expect(!r->ceiling || bytes[0] <= r->ceiling))
        return false;
    r->workspace_bytes = bytes[0];
    r->saved_bytes = bytes[1];
    if (!call_succeeded(ulyx_dist_attention_get_saved_bytes(r->dist, &bytes[1]),
            "get_saved_bytes") ||
        !ranks_expect(bytes[1] <= r->saved_bytes))
        return false;
    r->saved_bytes = bytes[1];
    for (int i = 0; i < 2; i++) {
        if (!r->c->window) {
            test_buffer_init(buffers[i], (size_t)bytes[i], 0);
            r->memory[i] = buffers[i]->data;
            r->memory_there[i] = address_there(r, buffers[i]);
            continue;
        }
        if (!call_succeeded(
                ulyx_mem_alloc(bytes[i] + 64, NULL, &r->mem[i], &r->memory[i]),
                "mem_alloc") ||
            !call_succeeded(ulyx_mem_attach(r->comm, r->mem[i]), "mem_attach"))
            return false;
        r->memory_there[i] = r->memory[i];
        memset(r->memory[i], 0xff, (size_t)bytes[i] + 64);
    }
    return true;
}

static ulyx_dtype_t
param_dtype(const struct rank *r)
{
    const ulyx_dist_attention_params_t *p = &r->c->p;
    ulyx_dtype_t given = p->param_dtype ? p->param_dtype : p->dtype;
    return given == ULYX_DTYPE_F64 ? ULYX_DTYPE_F64 : ULYX_DTYPE_F32;
}

static void
make_params(struct rank *r)
{
    ulyx_dtype_t dtype = param_dtype(r);
    const double *values[2] = {r->w->sinks, r->w->slopes};
    for (int i = 0; i < 3; i++) {
        test_buffer_init(
            &r->params[i], (size_t)(r->c->p.heads * uli_dtype_size(dtype)), 0);
        for (int64_t h = 0; i < 2 && h < r->c->p.heads; h++)
            uli_element_store(r->params[i].data, dtype, h, values[i][h]);
        r->params_there[i] = address_there(r, &r->params[i]);
    }
}

/* ---- the calls ----------------------------------------------------------- */

static void
pause_somewhat(const struct rank *r, struct test_random *random)
{
    if (!r->c->delay_ms)
        return;
    struct timespec nap = {
        0, test_random_in(random, 0, r->c->delay_ms) * 1000000};
    nanosleep(&nap, NULL);
}

static bool
rank_forward(struct rank *r)
{
    ulyx_dist_attention_times_t times = ULYX_DIST_ATTENTION_TIMES_INIT;
    ulyx_dist_attention_forward_t call = ULYX_DIST_ATTENTION_FORWARD_INIT;
    call.q = (const void *const *)r->t[WORLD_Q].there;
    call.k = (const void *const *)r->t[WORLD_K].there;
    call.v = (const void *const *)r->t[WORLD_V].there;
    call.out = r->t[WORLD_OUT].there;
    call.lse = r->t[WORLD_LSE].there;
    call.sinks = r->c->sinks ? r->params_there[0] : NULL;
    call.alibi_slopes = r->c->slopes ? r->params_there[1] : NULL;
    call.workspace = r->memory_there[0];
    call.workspace_bytes = r->workspace_bytes;
    call.saved = r->memory_there[1];
    call.saved_bytes = r->saved_bytes;
    if (r->c->call_docs) {
        call.docs_q = r->given.p.docs_q;
        call.docs_k = r->given.p.docs_k;
    }
    if (r->c->changes_rows) {
        call.rows = r->rows;
        call.splits = r->has_splits ? r->splits : NULL;
    }
    call.q_strides = given_strides(r, WORLD_Q);
    call.k_strides = given_strides(r, WORLD_K);
    call.v_strides = given_strides(r, WORLD_V);
    call.out_strides = given_strides(r, WORLD_OUT);
    bool good =
        take_there(r) &&
        call_succeeded(ulyx_dist_attention_forward(r->dist, &call, r->stream),
            "forward") &&
        bring_back(r) &&
        call_succeeded(
            ulyx_dist_attention_get_times(r->dist, &times), "get_times");
    r->w->scores[r->me][0] = times.scores;
    return good;
}

static bool
rank_backward(struct rank *r)
{
    ulyx_dist_attention_times_t times = ULYX_DIST_ATTENTION_TIMES_INIT;
    ulyx_dist_attention_backward_t call = ULYX_DIST_ATTENTION_BACKWARD_INIT;
    if (r->c->p.save == ULYX_SAVE_NONE || r->ceiling) {
        call.q = (const void *const *)r->t[WORLD_Q].there;
        call.k = (const void *const *)r->t[WORLD_K].there;
        call.v = (const void *const *)r->t[WORLD_V].there;
    }
    call.out = (const void *const *)r->t[WORLD_OUT].there;
    call.dout = (const void *const *)r->t[WORLD_DOUT].there;
    if (r->c->dlse)
        call.dlse = (const void *const *)r->t[WORLD_DLSE].there;
    call.dq = r->t[WORLD_DQ].there;
    call.dk = r->t[WORLD_DK].there;
    call.dv = r->t[WORLD_DV].there;
    call.sinks = r->c->sinks ? r->params_there[0] : NULL;
    call.alibi_slopes = r->c->slopes ? r->params_there[1] : NULL;
    call.d_sink = r->c->sinks ? r->params_there[2] : NULL;
    call.workspace = r->memory_there[0];
    call.workspace_bytes = r->workspace_bytes;
    call.saved = r->memory_there[1];
    call.saved_bytes = r->saved_bytes;
    if (r->c->call_docs) {
        call.docs_q = r->given.p.docs_q;
        call.docs_k = r->given.p.docs_k;
    }
    if (r->c->changes_rows) {
        call.rows = r->rows;
        call.splits = r->has_splits ? r->splits : NULL;
    }
    call.q_strides = given_strides(r, WORLD_Q);
    call.k_strides = given_strides(r, WORLD_K);
    call.v_strides = given_strides(r, WORLD_V);
    call.out_strides = given_strides(r, WORLD_OUT);
    call.dout_strides = given_strides(r, WORLD_DOUT);
    call.dq_strides = given_strides(r, WORLD_DQ);
    call.dk_strides = given_strides(r, WORLD_DK);
    call.dv_strides = given_strides(r, WORLD_DV);
    bool good =
        take_there(r) &&
        call_succeeded(ulyx_dist_attention_backward(r->dist, &call, r->stream),
            "backward") &&
        bring_back(r) &&
        call_succeeded(
            ulyx_dist_attention_get_times(r->dist, &times), "get_times");
    r->w->scores[r->me][1] = times.scores;
    return good;
}

/* Checks that the call writes every byte of saved. */
static bool
forward_over_poison(struct rank *r)
{
    unsigned char *saved = r->memory[1];
    unsigned char *first = malloc((size_t)r->saved_bytes + 1);
    int64_t now = 0;
    memset(saved, 0xa5, (size_t)r->saved_bytes);
    bool good =
        rank_forward(r) &&
        call_succeeded(ulyx_dist_attention_get_saved_bytes(r->dist, &now),
            "get_saved_bytes");
    size_t bytes = (size_t)now;
    memcpy(first, saved, bytes);
    memset(saved, 0x5a, bytes);
    good =
        good && rank_forward(r) && ranks_expect(!memcmp(first, saved, bytes));
    free(first);
    return good;
}

/* Gives the object other rows and no documents, so that the next call must
 * change them. */
static bool
forget_rows(struct rank *r)
{
    int64_t splits[CASE_PARTS][CASE_RANKS];
    struct case_given given;
    if (!r->c->changes_rows || (r->c->has_docs && !r->c->call_docs))
        return true;
    case_params(r->c, &given);
    given.p.docs_q = given.p.docs_k = NULL;
    halve_rows(&given, splits, r->c->nranks);
    return update_rows(r, &given);
}

static bool
rank_run(struct rank *r)
{
    static const int inputs[] = {
        WORLD_Q, WORLD_K, WORLD_V, WORLD_DOUT, WORLD_DLSE};
    static const int results[] = {
        WORLD_OUT, WORLD_LSE, WORLD_DQ, WORLD_DK, WORLD_DV};
    struct test_random random = {r->c->seed + (uint64_t)r->me};
    for (int t = 0; t < WORLD_D_SINK; t++)
        make_tensor(r, t);
    for (int i = 0; i < 5; i++)
        each_element(r, inputs[i],
            inputs[i] >= WORLD_DOUT
                ? r->w->rank_grad[r->me][inputs[i] - WORLD_DOUT]
                : r->w->input[inputs[i]],
            element_load);
    make_params(r);
    if (!make_memory(r))
        return false;
    pause_somewhat(r, &random);
    if (!forget_rows(r) ||
        !(r->c->seed % 2 ? rank_forward(r) : forward_over_poison(r)))
        return false;
    pause_somewhat(r, &random);
    if (!rank_backward(r))
        return false;
    for (int i = 0; i < 5; i++)
        each_element(
            r, results[i], r->w->result[r->me][results[i]], element_store);
    for (int64_t h = 0; r->c->sinks && h < r->c->p.heads; h++)
        r->w->result[r->me][WORLD_D_SINK][h] =
            uli_element_load(r->params[2].data, param_dtype(r), h);
    return true;
}

/* ---- the end ------------------------------------------------------------- */

/* Returns whether every KV head is, with all its queries, on one rank. */
static bool
keys_own(const struct rank *r)
{
    int32_t groups = 1;
    int32_t k = r->axes[0].nparts;
    for (int32_t g = 0; g < groups; g++) {
        const ulyx_plan_t *plan;
        int64_t end = 0;
        int32_t packed = 0;
        if (ulyx_dist_attention_get_plan(r->dist, g, &plan, &groups))
            return false;
        for (int32_t p = 0; p < r->c->nranks; p++) {
            int64_t first, count, rows;
            ulyx_plan_get_heads(plan, k, p, &first, &count);
            ulyx_plan_get_packed_rows(plan, 0, p, &packed, &rows);
            if (count && (first < end || packed))
                return false;
            end = count ? first + count : end;
        }
    }
    return true;
}

static int32_t
groups_of(const struct rank *r)
{
    const ulyx_plan_t *plan;
    int32_t groups = 0;
    ulyx_dist_attention_get_plan(r->dist, 0, &plan, &groups);
    return groups;
}

static bool
guards_ok(struct rank *r)
{
    bool good = true;
    for (int t = 0; t < WORLD_D_SINK; t++)
        for (int n = 0; r->t[t].axis && n < r->t[t].axis->nparts; n++)
            if (r->t[t].buffers[n].base)
                good &= test_buffer_guards_ok(&r->t[t].buffers[n]);
    for (int i = 0; i < 3; i++)
        if (r->params[i].base)
            good &= test_buffer_guards_ok(&r->params[i]);
    if (r->workspace.base)
        good &= test_buffer_guards_ok(&r->workspace);
    if (r->saved.base)
        good &= test_buffer_guards_ok(&r->saved);
    int64_t bytes[2] = {r->workspace_bytes, r->saved_bytes};
    for (int i = 0; i < 2; i++)
        for (int n = 0; r->c->window && r->memory[i] && n < 64; n++)
            good &= ((unsigned char *)r->memory[i])[bytes[i] + n] == 0xff;
    return good;
}

static bool
rank_end(struct rank *r)
{
    bool good = call_succeeded(ulyx_dist_attention_destroy(r->dist), "destroy");
    for (int i = 0; i < 2; i++)
        if (r->mem[i])
            good &=
                call_succeeded(ulyx_mem_detach(r->comm, r->mem[i]), "detach") &&
                call_succeeded(ulyx_mem_free(r->mem[i]), "free");
    if (r->place)
        good &= r->c->place->close(r->place);
    good &= call_succeeded(ulyx_comm_destroy(r->comm), "comm destroy");
    for (int t = 0; t < WORLD_D_SINK; t++)
        for (int n = 0; r->t[t].axis && n < r->t[t].axis->nparts; n++)
            test_buffer_free(&r->t[t].buffers[n]);
    for (int i = 0; i < 3; i++)
        if (r->params[i].base)
            test_buffer_free(&r->params[i]);
    if (r->workspace.base)
        test_buffer_free(&r->workspace);
    if (r->saved.base)
        test_buffer_free(&r->saved);
    for (int i = 0; i < 2 * LOCAL_PARTS; i++)
        free(r->axes[i / LOCAL_PARTS].positions[i % LOCAL_PARTS]);
    return good;
}

static bool
rank_open(struct rank *r)
{
    const struct case_place *place = r->c->place;
    if (!place)
        return call_succeeded(
            meet_comm(r->w->meet, r->me, 60, &r->comm), "comm");
    bool good = place->open(r->w->meet, r->me, &r->comm, &r->place);
    r->stream = good ? place->stream(r->place) : NULL;
    return good;
}

int
world_rank(int rank, int nranks, void *world)
{
    struct rank *r = calloc(1, sizeof(*r));
    r->w = world;
    r->c = r->w->c;
    r->me = rank;
    (void)nranks;
    if (!rank_open(r))
        return 1;
    bool good =
        rank_create(r) && take_axis(r, 0) && take_axis(r, 1) && rank_run(r);
    if (good) {
        r->w->own_keys[rank] = keys_own(r);
        r->w->groups[rank] = groups_of(r);
        good = ranks_expect(guards_ok(r));
    }
    good &= rank_end(r);
    free(r);
    return !good;
}
