/* SPDX-License-Identifier: Apache-2.0
 *
 * Save modes, head groups and ceilings give the same bits; documents that
 * change; one thread that drives all ranks; descriptions of objects.
 */
#include <stdio.h>
#include <string.h>
#include "attention/dist_attention/dist_small.h"
#include "attention/dist_attention/dist_world.h"
#include "support/ranks.h"
#include "support/test.h"
#include "topology/node.h"

/* ---- the same bits ------------------------------------------------------- */

static void
check_variant(const struct world *first, const struct dist_case *base,
    int32_t groups, int32_t save, int64_t ceiling, bool window)
{
    struct dist_case c = *base;
    struct world w;
    c.p.head_groups = groups;
    c.p.save = save;
    c.p.max_workspace_bytes = ceiling;
    c.window = window;
    world_like(&w, &c, first);
    assert_true(world_run(&w, false));
    assert_true(world_same(&w, first, true, w.own_keys[0]));
    world_free(&w);
}

/* 2 ranks and 4 KV heads of 2 queries. With 1 or 2 groups every KV head is on
 * one rank, and then the bits of dk and dv are the same too. */
static void
groups_and_modes_give_the_same_bits(void **state)
{
    (void)state;
    struct dist_case c;
    struct world first;
    case_plain(&c, 2, 150, 8, 4, 16);
    c.p.dtype = ULYX_DTYPE_BF16;
    c.p.flags = ULYX_DIST_ATTENTION_LSE;
    c.sinks = c.slopes = true;
    world_init(&first, &c);
    assert_true(world_run(&first, false));
    assert_true(first.own_keys[0]);
    for (int32_t groups = 1; groups <= 4; groups++)
        for (int32_t save = ULYX_SAVE_HEADS; save <= ULYX_SAVE_NONE; save++)
            check_variant(&first, &c, groups, save, 0, groups == 2);
    world_free(&first);
}

/* ---- ceilings ------------------------------------------------------------ */

static int
ceiling_body(int rank, int nranks, void *context)
{
    struct small *s = context;
    ulyx_dist_attention_params_t p;
    ulyx_part_t part;
    ulyx_dist_attention_t *dist;
    const ulyx_plan_t *plan;
    (void)nranks;
    small_params(&p, &part);
    p.max_workspace_bytes = s->ceiling[rank];
    p.threads = s->all_cores ? 0 : 1;
    ulyx_status_t status =
        ulyx_dist_attention_create(s->comms[rank], &p, &dist);
    if (status != ULYX_SUCCESS)
        return !(status == ULYX_ERR_INVALID_ARGUMENT &&
                 error_has("are needed") && s->ceiling[0] == 1000);
    bool good = ranks_expect(
        !ulyx_dist_attention_get_plan(dist, 0, &plan, &s->groups[rank]));
    good &= ranks_expect(
        !ulyx_dist_attention_get_bytes(dist, &s->bytes[rank], NULL, NULL));
    return !(good & ranks_expect(!ulyx_dist_attention_destroy(dist)));
}

static int64_t
run_ceiling(struct small *s)
{
    int64_t most = 0;
    assert_int_equal(ranks_run_threads(RANKS, ceiling_body, s, LIMIT_S), 0);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(s->groups[r], s->groups[0]);
        most = s->bytes[r] > most ? s->bytes[r] : most;
    }
    return most;
}

static void
ceilings_choose_groups(void **state)
{
    (void)state;
    struct small s;
    small_open(&s);
    for (int r = 0; r < RANKS; r++)
        s.ceiling[r] = 1 << 30;
    int64_t whole = run_ceiling(&s);
    assert_int_equal(s.groups[0], 1);
    s.ceiling[2] = whole; /* the smallest ceiling of all ranks holds */
    assert_int_equal(run_ceiling(&s), whole);
    assert_int_equal(s.groups[0], 1);
    s.all_cores = true; /* the number of cores does not matter */
    assert_true(run_ceiling(&s) <= whole);
    assert_int_equal(s.groups[0], 1);
    s.all_cores = false;
    s.ceiling[2] = whole - 1;
    assert_true(run_ceiling(&s) < whole);
    assert_int_equal(s.groups[0], 2);
    for (int r = 0; r < RANKS; r++)
        s.ceiling[r] = 1000; /* less than one KV head needs */
    run_ceiling(&s);
    small_close(&s);
}

/* ---- sizes without a communicator ---------------------------------------- */

static ulyx_status_t
dist_measure(
    const ulyx_dist_attention_params_t *p, int32_t nranks, int32_t rank)
{
    int64_t workspace, saved;
    return ulyx_dist_attention_measure(p, nranks, rank, &workspace, &saved);
}

static void
measure_requires_what_sizes_depend_on(void **state)
{
    (void)state;
    ulyx_dist_attention_params_t p;
    ulyx_part_t part;
    ulyx_saved_tensor_t tensors[4];
    int64_t saved = -1, count = -1;
    small_params(&p, &part);
    assert_status(dist_measure(&p, RANKS, 0), ULYX_ERR_INVALID_ARGUMENT);
    assert_true(error_has("kernel is NULL"));
    p.kernel = "portable";
    p.threads = 0;
    assert_status(dist_measure(&p, RANKS, 0), ULYX_ERR_INVALID_ARGUMENT);
    assert_true(error_has("threads is 0: the workspace"));
    /* saved depends neither on the kernel nor on the threads */
    p.kernel = NULL;
    assert_status(
        ulyx_dist_attention_measure(&p, RANKS, 3, NULL, &saved), ULYX_SUCCESS);
    assert_true(saved > 0);
    /* but it depends on the groups, which follow from the ceiling */
    p.max_workspace_bytes = 1 << 20;
    assert_status(ulyx_dist_attention_measure(&p, RANKS, 3, NULL, &saved),
        ULYX_ERR_INVALID_ARGUMENT);
    assert_true(error_has("max_workspace_bytes"));
    p.max_workspace_bytes = 0;
    assert_status(dist_measure(&p, 0, 0), ULYX_ERR_INVALID_ARGUMENT);
    assert_true(error_has("nranks is 0"));
    assert_status(dist_measure(&p, 2, 2), ULYX_ERR_INVALID_ARGUMENT);
    assert_true(error_has("rank is 2, must be 0 to 1"));
    assert_status(ulyx_dist_attention_measure_saved(
                      &p, RANKS, 0, 2, sizeof(*tensors), tensors, &count),
        ULYX_ERR_INVALID_ARGUMENT);
    assert_int_equal(count, 4);
    assert_true(error_has("needed are 4"));
    p.heads = 5;
    assert_status(ulyx_dist_attention_measure(&p, RANKS, 0, NULL, &saved),
        ULYX_ERR_INVALID_ARGUMENT);
    assert_true(error_has("heads is 5, must be a multiple of kv_heads (2)"));
}

/* ---- documents that change ----------------------------------------------- */

static bool
update_to(struct own *o, const int64_t *begin, int64_t count)
{
    ulyx_docs_t docs = ULYX_DOCS_INIT;
    docs.count = count;
    docs.begin = begin;
    return ranks_expect(
        !ulyx_dist_attention_update(o->dist, &docs, NULL, NULL));
}

/* An object that has had other tables gives the results of a new one. */
static int
update_body(int rank, int nranks, void *context)
{
    static const int64_t first[] = {0, 7, 23, ROWS}, second[] = {0, 31, ROWS};
    struct small *s = context;
    ulyx_dist_attention_params_t p;
    ulyx_docs_t docs = ULYX_DOCS_INIT;
    ulyx_part_t part;
    struct own o, fresh;
    (void)nranks;
    small_params(&p, &part);
    p.work_split = s->groups[1];
    p.row_round = 1;
    p.head_groups = s->groups[0];
    docs.count = 3;
    docs.begin = first;
    p.docs_q = &docs;
    p.max_docs = 3;
    bool good = own_open(&o, s->comms[rank], &p);
    docs.count = 2;
    docs.begin = second;
    if (!good || !own_open(&fresh, s->comms[rank], &p))
        return 1;
    own_fill(&o, rank);
    own_fill(&fresh, rank);
    good &= ranks_expect(!ulyx_dist_attention_forward(o.dist, &o.f, NULL));
    good &= update_to(&o, second, 2);
    good &= ranks_expect(ulyx_dist_attention_backward(o.dist, &o.b, NULL) ==
                             ULYX_ERR_INVALID_ARGUMENT &&
                         error_has("other documents"));
    good &= ranks_expect(!ulyx_dist_attention_forward(o.dist, &o.f, NULL));
    good &= ranks_expect(!ulyx_dist_attention_backward(o.dist, &o.b, NULL));
    good &=
        ranks_expect(!ulyx_dist_attention_forward(fresh.dist, &fresh.f, NULL));
    good &=
        ranks_expect(!ulyx_dist_attention_backward(fresh.dist, &fresh.b, NULL));
    size_t bytes = ROWS / RANKS * HEADS * DIM * 4;
    good &= ranks_expect(!memcmp(o.out, fresh.out, bytes));
    good &= ranks_expect(!memcmp(o.dq, fresh.dq, bytes));
    good &= ranks_expect(!memcmp(o.dk, fresh.dk, bytes / HEADS * KV));
    static const int64_t many[] = {0, 1, 2, 3, 4};
    docs.count = 4;
    docs.begin = many;
    good &= ranks_expect(ulyx_dist_attention_update(o.dist, &docs, NULL,
                             NULL) == ULYX_ERR_INVALID_ARGUMENT &&
                         error_has("max_docs is 3"));
    good &= ranks_expect(!ulyx_dist_attention_backward(o.dist, &o.b, NULL));
    good &= own_close(&o);
    return !(own_close(&fresh) & good);
}

static void
documents_change_without_a_new_plan(void **state)
{
    (void)state;
    for (int variant = 0; variant < 4; variant++)
        small_run(update_body, variant / 2 + 1,
            variant % 2 ? ULYX_WORK_BALANCED : ULYX_WORK_HEADS, 0);
}

/* ---- windows ------------------------------------------------------------- */

/* Moves everything to which a call points into one window. */
static void
into_window(struct own *o, char *at)
{
    void **tensors[] = {
        &o->q, &o->k, &o->v, &o->out, &o->dout, &o->dq, &o->dk, &o->dv};
    const int64_t bytes = ROWS * HEADS * DIM * 4;
    for (int i = 0; i < 8; i++, at += bytes) {
        memcpy(at, *tensors[i], (size_t)bytes);
        *tensors[i] = at;
    }
    o->f.workspace = o->b.workspace = at;
    at += o->workspace_bytes;
    o->b.saved = o->f.saved = at;
}

static int
window_body(int rank, int nranks, void *context)
{
    struct small *s = context;
    ulyx_dist_attention_params_t p;
    ulyx_part_t part;
    struct own plain, w, kept;
    ulyx_mem_t *mem;
    void *at;
    (void)nranks;
    small_params(&p, &part);
    p.head_groups = s->groups[0];
    p.work_split = s->groups[1];
    p.save = s->groups[2];
    bool good = own_open(&plain, s->comms[rank], &p);
    p.seq_memory = p.head_memory = ULYX_POINTER_WINDOW;
    if (!good || !own_open(&w, s->comms[rank], &p))
        return 1;
    own_fill(&plain, rank);
    own_fill(&w, rank);
    plain.b.q = plain.f.q, plain.b.k = plain.f.k, plain.b.v = plain.f.v;
    w.b.q = w.f.q, w.b.k = w.f.k, w.b.v = w.f.v;
    kept = w;
    good &= ranks_expect(!ulyx_mem_alloc(1 << 20, NULL, &mem, &at));
    good &= ranks_expect(!ulyx_mem_attach(s->comms[rank], mem));
    into_window(&w, at);
    good &=
        ranks_expect(!ulyx_dist_attention_forward(plain.dist, &plain.f, NULL));
    good &=
        ranks_expect(!ulyx_dist_attention_backward(plain.dist, &plain.b, NULL));
    good &= ranks_expect(!ulyx_dist_attention_forward(w.dist, &w.f, NULL));
    good &= ranks_expect(!ulyx_dist_attention_backward(w.dist, &w.b, NULL));
    size_t bytes = ROWS / RANKS * HEADS * DIM * 4;
    good &= ranks_expect(!memcmp(w.out, plain.out, bytes));
    good &= ranks_expect(!memcmp(w.dq, plain.dq, bytes));
    good &= ranks_expect(!memcmp(w.dk, plain.dk, bytes / HEADS * KV));
    good &= ranks_expect(!memcmp(w.dv, plain.dv, bytes / HEADS * KV));
    w.f.q = plain.f.q; /* on no rank does q lie in a window */
    good &= ranks_expect(ulyx_dist_attention_forward(w.dist, &w.f, NULL) ==
                         ULYX_ERR_INVALID_ARGUMENT);
    good &= own_close(&plain);
    good &= own_close(&kept);
    good &= ranks_expect(!ulyx_mem_detach(s->comms[rank], mem));
    return !(good & ranks_expect(!ulyx_mem_free(mem)));
}

static void
windows_give_the_same_bits(void **state)
{
    (void)state;
    for (int variant = 0; variant < 8; variant++)
        small_run(window_body, variant % 2 + 1, variant / 2 % 2,
            variant / 4 ? ULYX_SAVE_NONE : ULYX_SAVE_HEADS);
}

/* ---- groups, words, forward only ----------------------------------------- */

static void
one_thread_drives_all_ranks(void **state)
{
    (void)state;
    struct small s;
    ulyx_dist_attention_params_t p;
    ulyx_part_t part;
    struct own o[RANKS];
    ulyx_dist_attention_t *ops[RANKS];
    small_open(&s);
    small_params(&p, &part);
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    for (int r = 0; r < RANKS; r++)
        assert_status(
            ulyx_dist_attention_create(s.comms[r], &p, &ops[r]), ULYX_SUCCESS);
    assert_status(ulyx_group_end(), ULYX_SUCCESS);
    for (int r = 0; r < RANKS; r++) {
        own_take(&o[r], ops[r]);
        own_fill(&o[r], r);
    }
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    for (int r = 0; r < RANKS; r++) {
        assert_status(
            ulyx_dist_attention_forward(ops[r], &o[r].f, NULL), ULYX_SUCCESS);
        assert_status(
            ulyx_dist_attention_backward(ops[r], &o[r].b, NULL), ULYX_SUCCESS);
    }
    assert_status(ulyx_group_end(), ULYX_SUCCESS);
    for (int r = 0; r < RANKS; r++) {
        assert_true(((float *)o[r].out)[5] != 0);
        assert_true(((float *)o[r].dv)[5] != 0);
        assert_true(own_close(&o[r]));
    }
    small_close(&s);
}

static bool
describe_small(ulyx_comm_t *comm, const ulyx_dist_attention_params_t *p,
    char *text_p, size_t text_bytes)
{
    ulyx_dist_attention_t *dist;
    return !ulyx_dist_attention_create(comm, p, &dist) &&
           !ulyx_dist_attention_describe(dist, text_p, text_bytes) &&
           !ulyx_dist_attention_destroy(dist);
}

static int
words_body(int rank, int nranks, void *context)
{
    struct small *s = context;
    ulyx_dist_attention_params_t p;
    ulyx_saved_tensor_t tensors[8];
    ulyx_dist_attention_times_t times = ULYX_DIST_ATTENTION_TIMES_INIT;
    ulyx_part_t part;
    char text[4096];
    int64_t count, end = 64;
    struct own o;
    bool good = true;
    (void)nranks;
    small_params(&p, &part);
    good &=
        ranks_expect(describe_small(s->comms[rank], &p, text, sizeof(text)));
    good &= ranks_expect(strstr(text, "bytes, shared with 1 other\n"));
    p.threads = 0; /* the ranks of the process share its cores */
    int32_t each = uli_node_cores() / RANKS;
    char threads[64];
    snprintf(threads, sizeof(threads), "at most %d thread%s,",
        each > 1 ? each : 1, each > 1 ? "s" : "");
    good &=
        ranks_expect(describe_small(s->comms[rank], &p, text, sizeof(text)));
    good &= ranks_expect(strstr(text, threads));
    p.threads = 1;
    p.head_groups = 2;
    if (!own_open(&o, s->comms[rank], &p))
        return 1;
    good &=
        ranks_expect(!ulyx_dist_attention_describe(o.dist, text, sizeof(text)));
    good &= ranks_expect(
        strstr(text, "SAVE_NONE: workspace") && strstr(text, "rank 3") &&
        strstr(text, " (this one): ") &&
        strstr(text, "bytes, shared with 2 others\n") &&
        strstr(text, "bytes, not shared\n") && strstr(text, "head groups: 2"));
    good &= ranks_expect(!ulyx_dist_attention_describe(o.dist, text, 10));
    good &= ranks_expect(strlen(text) == 9 && !strcmp(text + 6, "..."));
    good &= ranks_expect(!ulyx_dist_attention_get_saved(
        o.dist, 8, sizeof(*tensors), tensors, &count));
    good &= ranks_expect(count == 8);
    for (int i = 0; i < 8; i++) {
        good &= ranks_expect(tensors[i].offset == end);
        end += tensors[i].bytes;
    }
    good &= ranks_expect(end == o.saved_bytes);
    good &= ranks_expect(!ulyx_dist_attention_forward(o.dist, &o.f, NULL));
    good &= ranks_expect(!ulyx_dist_attention_get_times(o.dist, &times));
    good &= ranks_expect(times.sent_bytes > 0 && times.attention_s > 0 &&
                         times.exposed_s <= times.total_s);
    return !(own_close(&o) & good);
}

static void
dist_describes_itself(void **state)
{
    (void)state;
    small_run(words_body, 0, 0, 0);
}

/* Ranks that leave the dtype of sinks open agree with ranks that name it. */
static int
precision_body(int rank, int nranks, void *context)
{
    struct small *s = context;
    ulyx_dist_attention_params_t p;
    ulyx_part_t part;
    ulyx_dist_attention_t *dist = NULL;
    (void)nranks;
    small_params(&p, &part);
    p.dtype = ULYX_DTYPE_F64;
    p.param_dtype = rank ? ULYX_DTYPE_F64 : 0;
    return !(
        ranks_expect(!ulyx_dist_attention_create(s->comms[rank], &p, &dist)) &&
        ranks_expect(!ulyx_dist_attention_destroy(dist)));
}

static void
default_precision_equals_the_named_one(void **state)
{
    (void)state;
    const ulyx_tensor_t tensor = ULYX_TENSOR_INIT;
    const ulyx_dist_attention_params_t params = ULYX_DIST_ATTENTION_PARAMS_INIT;
    assert_int_equal(params.dtype, tensor.dtype);
    small_run(precision_body, 0, 0, 0);
}

static int
forward_only_body(int rank, int nranks, void *context)
{
    struct small *s = context;
    ulyx_dist_attention_params_t p;
    ulyx_part_t part;
    struct own o;
    (void)nranks;
    small_params(&p, &part);
    p.flags = ULYX_DIST_ATTENTION_FORWARD_ONLY;
    if (!own_open(&o, s->comms[rank], &p))
        return 1;
    bool good = ranks_expect(o.saved_bytes == 0);
    o.f.saved = NULL;
    good &= ranks_expect(!ulyx_dist_attention_forward(o.dist, &o.f, NULL));
    good &= ranks_expect(ulyx_dist_attention_backward(o.dist, &o.b, NULL) ==
                             ULYX_ERR_INVALID_ARGUMENT &&
                         error_has("FORWARD_ONLY"));
    return !(own_close(&o) & good);
}

static void
forward_alone_saves_nothing(void **state)
{
    (void)state;
    small_run(forward_only_body, 0, 0, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(groups_and_modes_give_the_same_bits),
    cmocka_unit_test(ceilings_choose_groups),
    cmocka_unit_test(measure_requires_what_sizes_depend_on),
    cmocka_unit_test(documents_change_without_a_new_plan),
    cmocka_unit_test(windows_give_the_same_bits),
    cmocka_unit_test(one_thread_drives_all_ranks),
    cmocka_unit_test(dist_describes_itself),
    cmocka_unit_test(forward_alone_saves_nothing),
    cmocka_unit_test(default_precision_equals_the_named_one),
};

ULI_TEST_MAIN("DistAttention", tests)
