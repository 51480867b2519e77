/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters that plan creation refuses, on every rank alike: each bad argument
 * by name, each field in which ranks must agree with both values, versions of
 * the structs; and parameters of a queued creation.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "support/ranks.h"
#include "support/test.h"
#include "ulyx/comm.h"
#include "ulyx/reshuffle.h"

enum { RANKS = 3, LIMIT_S = 30 };

/* A complete set of parameters, which a case then spoils. */
struct set {
    ulyx_plan_params_t params;
    ulyx_part_t parts[2];
    ulyx_tensor_t tensors[2];
    int64_t splits[RANKS], head_splits[RANKS];
};

static void
set_init(struct set *s)
{
    ulyx_plan_params_t params = ULYX_PLAN_PARAMS_INIT;
    ulyx_part_t part = ULYX_PART_INIT;
    ulyx_tensor_t tensor = ULYX_TENSOR_INIT;
    memset(s, 0, sizeof(*s));
    s->params = params;
    s->parts[0] = s->parts[1] = part;
    s->tensors[0] = s->tensors[1] = tensor;
    s->parts[0].rows = 30;
    s->parts[1].rows = 12;
    s->parts[1].axis = 1;
    s->tensors[0].heads = 6;
    s->tensors[0].dim = 8;
    s->tensors[1].part = 1;
    s->tensors[1].heads = 2;
    s->tensors[1].dim = 8;
    s->tensors[1].ownership = ULYX_HEADS_KV;
    s->params.heads = 6;
    s->params.parts = s->parts;
    s->params.nparts = 2;
    s->params.tensors = s->tensors;
    s->params.ntensors = 2;
    for (int r = 0; r < RANKS; r++) {
        s->splits[r] = 10;
        s->head_splits[r] = 2;
    }
}

struct spoiler {
    const char *name; /* part of the error text */
    ulyx_status_t status;
    void (*spoil)(struct set *s);
};

#define SPOIL(name, statement)                                                 \
    static void name(struct set *s)                                            \
    {                                                                          \
        statement;                                                             \
    }

SPOIL(size_short, s->params.size = 8)
SPOIL(size_absurd, s->params.size = SIZE_MAX)
SPOIL(no_parts, s->params.parts = NULL)
SPOIL(zero_parts, s->params.nparts = 0)
SPOIL(many_parts, s->params.nparts = 9)
SPOIL(part_size, s->params.part_size = 4)
SPOIL(no_tensors, s->params.tensors = NULL)
SPOIL(many_tensors, s->params.ntensors = 9)
SPOIL(tensor_size, s->params.tensor_size = 4)
SPOIL(batch, s->params.batch = -1)
SPOIL(heads, s->params.heads = 0)
SPOIL(rows, s->parts[0].rows = -1)
SPOIL(axis, s->parts[1].axis = 2)
SPOIL(kind, s->parts[0].kind = 7)
SPOIL(order, s->parts[0].order = 9)
SPOIL(splits, s->splits[1]++; s->parts[0].splits = s->splits)
SPOIL(head_splits, s->head_splits[0] = 5;
      s->params.head_splits = s->head_splits)
SPOIL(tensor_part, s->tensors[0].part = 2)
SPOIL(dtype, s->tensors[0].dtype = 99)
SPOIL(elem_bytes, s->tensors[0].elem_bytes = 2)
SPOIL(bytes_size, s->tensors[0].dtype = ULYX_DTYPE_BYTES)
SPOIL(tensor_heads, s->tensors[0].heads = 5)
SPOIL(kv_heads, s->tensors[1].heads = 4)
SPOIL(dim, s->tensors[0].dim = 0)
SPOIL(ownership, s->tensors[0].ownership = 2)
SPOIL(partial, s->tensors[0].partial_dtype = ULYX_DTYPE_F16)
SPOIL(tensor_flags, s->tensors[0].flags = 64)
SPOIL(negative_stride, s->tensors[0].seq_strides[1] = -16)
SPOIL(overlapping, s->tensors[0].head_strides[1] = 8)
SPOIL(huge, s->tensors[0].dim = INT64_MAX / 4)
SPOIL(far_rows, s->tensors[0].seq_strides[1] = INT64_MAX / 8;
      s->tensors[0].seq_strides[2] = 16)

/* The strides of heads are larger than those of rows, with room for the 10 rows
 * that this rank has at creation. */
static void
set_head_major(struct set *s)
{
    s->tensors[0].seq_strides[1] = 16;
    s->tensors[0].seq_strides[2] = 160;
}

SPOIL(capacity_rows, set_head_major(s); s->parts[0].row_capacity = 120)
SPOIL(document_rows, set_head_major(s); s->params.max_local_rows = 29;
      s->parts[0].order = ULYX_TOKENS_ZIGZAG_DOCS)
SPOIL(memory, s->params.seq_memory = 2)
SPOIL(head_memory, s->params.head_memory = -1)
SPOIL(flags, s->params.flags = 4)
SPOIL(directions, s->params.directions = 16)
SPOIL(algo, s->params.algo = "magic")
SPOIL(slot_bytes, s->params.slot_bytes = INT64_C(1) << 40)
SPOIL(in_flight, s->params.bytes_in_flight = -5)
SPOIL(sms, s->params.max_sms = -1)
SPOIL(timeout, s->params.timeout_s = -1)
SPOIL(work, s->params.work_split = 5)
SPOIL(no_sums, s->tensors[1].dtype = ULYX_DTYPE_F8_E4M3;
      s->params.directions = 4)

#define BAD ULYX_ERR_INVALID_ARGUMENT
static const struct spoiler spoilers[] = {
    {"size", BAD, size_short},
    {"size", BAD, size_absurd},
    {"parts is NULL", BAD, no_parts},
    {"nparts is 0", BAD, zero_parts},
    {"nparts is 9", BAD, many_parts},
    {"parts is 4", BAD, part_size},
    {"tensors is NULL", BAD, no_tensors},
    {"ntensors is 9", BAD, many_tensors},
    {"tensors is 4", BAD, tensor_size},
    {"batch", BAD, batch},
    {"heads", BAD, heads},
    {"rows", BAD, rows},
    {"axis", BAD, axis},
    {"kind", BAD, kind},
    {"order", BAD, order},
    {"splits", BAD, splits},
    {"head_splits", BAD, head_splits},
    {"part", BAD, tensor_part},
    {"dtype", BAD, dtype},
    {"elem_bytes", BAD, elem_bytes},
    {"elem_bytes", BAD, bytes_size},
    {"heads", BAD, tensor_heads},
    {"heads", BAD, kv_heads},
    {"dim", BAD, dim},
    {"ownership", BAD, ownership},
    {"partial_dtype", BAD, partial},
    {"flags", ULYX_ERR_UNSUPPORTED, tensor_flags},
    {"seq_strides[1] is -16", BAD, negative_stride},
    {"head_strides", BAD, overlapping},
    {"", ULYX_ERR_OVERFLOW, huge},
    {"heads 6 x 16 bytes do not fit 64", ULYX_ERR_OVERFLOW, far_rows},
    {"rows 40 (of row_capacity) x heads", BAD, capacity_rows},
    {"rows 29 (max_local_rows) x heads", BAD, document_rows},
    {"seq_memory is 2", BAD, memory},
    {"head_memory is -1", BAD, head_memory},
    {"flags", ULYX_ERR_UNSUPPORTED, flags},
    {"directions", BAD, directions},
    {"algo is \"magic\"", BAD, algo},
    {"slot_bytes", BAD, slot_bytes},
    {"bytes_in_flight", BAD, in_flight},
    {"max_sms", BAD, sms},
    {"timeout_s", BAD, timeout},
    {"work_split", BAD, work},
    {"tensors[1]", ULYX_ERR_UNSUPPORTED, no_sums},
};
enum { SPOILERS = sizeof(spoilers) / sizeof(spoilers[0]) };

/* ---- one rank is wrong: all ranks report it ------------------------------ */

static ulyx_comm_t *comms[RANKS];

static int
spoiled_body(int rank, int nranks, void *context)
{
    const struct spoiler *spoiler = context;
    int bad = (int)(spoiler - spoilers) % nranks;
    ulyx_plan_t *plan = NULL;
    struct set s;
    set_init(&s);
    if (rank == bad)
        spoiler->spoil(&s);
    ulyx_status_t status = ulyx_plan_create(comms[rank], &s.params, &plan);
    bool good = ranks_expect(plan == NULL);
    char name[32];
    snprintf(name, sizeof(name), "rank %d", bad);
    if (rank == bad)
        good &= ranks_expect(status == spoiler->status) &&
                ranks_expect(error_has(spoiler->name));
    else
        good &= ranks_expect(status == ULYX_ERR_PEER_REFUSED) &&
                ranks_expect(error_has(name));
    if (!good)
        fprintf(stderr, "case \"%s\": %s\n", spoiler->name,
            ulyx_status_name(status));
    /* The communicator stays usable. */
    set_init(&s);
    good &= ranks_expect(ulyx_plan_create(comms[rank], &s.params, &plan) ==
                         ULYX_SUCCESS) &&
            ranks_expect(ulyx_plan_destroy(plan) == ULYX_SUCCESS);
    return !good;
}

static void
create_comms(void)
{
    assert_status(ulyx_comm_create_local(RANKS, NULL, comms), ULYX_SUCCESS);
}

static void
destroy_comms(void)
{
    for (int r = 0; r < RANKS; r++)
        assert_status(ulyx_comm_destroy(comms[r]), ULYX_SUCCESS);
}

static void
bad_arguments_are_named_everywhere(void **state)
{
    (void)state;
    create_comms();
    for (int i = 0; i < SPOILERS; i++)
        assert_int_equal(ranks_run_threads(RANKS, spoiled_body,
                             (void *)(uintptr_t)&spoilers[i], LIMIT_S),
            0);
    destroy_comms();
}

/* ---- ranks disagree ------------------------------------------------------ */

SPOIL(m_batch, s->params.batch = 2)
SPOIL(m_heads, s->params.heads = s->tensors[0].heads = 12)
SPOIL(m_nparts, s->tensors[1].part = 0; s->params.nparts = 1)
SPOIL(m_ntensors, s->params.ntensors = 1)
SPOIL(m_kind, s->parts[0].kind = ULYX_PART_REPLICATED)
SPOIL(m_order, s->parts[0].order = ULYX_TOKENS_ZIGZAG)
SPOIL(m_rows, s->parts[1].rows = 15)
SPOIL(m_splits, s->splits[0] = 9; s->splits[1] = 11;
      s->parts[0].splits = s->splits)
SPOIL(m_head_splits, s->head_splits[0] = 1; s->head_splits[2] = 3;
      s->params.head_splits = s->head_splits)
SPOIL(m_part, s->tensors[1].part = 0)
SPOIL(m_dtype, s->tensors[0].dtype = ULYX_DTYPE_F16)
SPOIL(m_elem, s->tensors[0].dtype = ULYX_DTYPE_F32)
SPOIL(m_tensor_heads, s->tensors[1].heads = 3)
SPOIL(m_dim, s->tensors[1].dim = 9)
SPOIL(m_ownership, s->tensors[1].heads = 6;
      s->tensors[1].ownership = ULYX_HEADS_QUERY)
SPOIL(m_partial, s->tensors[1].partial_dtype = ULYX_DTYPE_F64)
SPOIL(m_slots, s->params.slot_bytes = 128)
SPOIL(m_no_slots, s->params.slot_bytes = -1)
SPOIL(m_directions, s->params.directions = 3)
SPOIL(m_work, s->params.work_split = ULYX_WORK_BALANCED)
SPOIL(m_mask_kind, s->params.mask_kind = ULYX_MASK_CAUSAL)
SPOIL(m_mask_align, s->params.mask_align = ULYX_ALIGN_TOP_LEFT)
SPOIL(m_mask_diagonal, s->params.mask_diagonal = 1)
SPOIL(m_row_cost, s->params.row_cost = 5)
SPOIL(m_row_round, s->params.row_round = 32)
SPOIL(m_max_rows, s->params.max_rows = 1000)
SPOIL(m_max_kv_rows, s->params.max_kv_rows = 1000)
SPOIL(m_max_segments, s->params.max_segments = 100)
SPOIL(m_max_local_rows, s->params.max_local_rows = 30)
SPOIL(m_max_docs, s->params.max_docs = 3)

static const struct spoiler mismatches[] = {
    {"batch is", ULYX_ERR_MISMATCH, m_batch},
    {"heads is", ULYX_ERR_MISMATCH, m_heads},
    {"nparts is", ULYX_ERR_MISMATCH, m_nparts},
    {"ntensors is", ULYX_ERR_MISMATCH, m_ntensors},
    {"parts[0].kind is", ULYX_ERR_MISMATCH, m_kind},
    {"parts[0].order is", ULYX_ERR_MISMATCH, m_order},
    {"parts[1].rows is", ULYX_ERR_MISMATCH, m_rows},
    {"parts[0].splits[0] is", ULYX_ERR_MISMATCH, m_splits},
    {"head_splits[0] is", ULYX_ERR_MISMATCH, m_head_splits},
    {"tensors[1].part is", ULYX_ERR_MISMATCH, m_part},
    {"tensors[0].dtype is", ULYX_ERR_MISMATCH, m_dtype},
    {"tensors[0].dtype is", ULYX_ERR_MISMATCH, m_elem},
    {"tensors[1].heads is", ULYX_ERR_MISMATCH, m_tensor_heads},
    {"tensors[1].dim is", ULYX_ERR_MISMATCH, m_dim},
    {"tensors[1].heads is", ULYX_ERR_MISMATCH, m_ownership},
    {"tensors[1].partial_dtype is", ULYX_ERR_MISMATCH, m_partial},
    {"slot_bytes is", ULYX_ERR_MISMATCH, m_slots},
    {"-1 on rank ", ULYX_ERR_MISMATCH, m_no_slots},
    {"directions is", ULYX_ERR_MISMATCH, m_directions},
    {"work_split is", ULYX_ERR_MISMATCH, m_work},
    {"mask_kind is", ULYX_ERR_MISMATCH, m_mask_kind},
    {"mask_align is", ULYX_ERR_MISMATCH, m_mask_align},
    {"mask_diagonal is", ULYX_ERR_MISMATCH, m_mask_diagonal},
    {"row_cost is", ULYX_ERR_MISMATCH, m_row_cost},
    {"row_round is", ULYX_ERR_MISMATCH, m_row_round},
    {"max_rows is", ULYX_ERR_MISMATCH, m_max_rows},
    {"max_kv_rows is", ULYX_ERR_MISMATCH, m_max_kv_rows},
    {"max_segments is", ULYX_ERR_MISMATCH, m_max_segments},
    {"max_local_rows is", ULYX_ERR_MISMATCH, m_max_local_rows},
    {"max_docs is", ULYX_ERR_MISMATCH, m_max_docs},
};
enum { MISMATCHES = sizeof(mismatches) / sizeof(mismatches[0]) };

struct disagreement {
    const struct spoiler *spoiler;
    int odd;
    char texts[RANKS][256];
};

static int
mismatch_body(int rank, int nranks, void *context)
{
    struct disagreement *d = context;
    ulyx_plan_t *plan = NULL;
    struct set s;
    char name[16];
    (void)nranks;
    set_init(&s);
    if (rank == d->odd)
        d->spoiler->spoil(&s);
    ulyx_status_t status = ulyx_plan_create(comms[rank], &s.params, &plan);
    snprintf(d->texts[rank], sizeof(d->texts[rank]), "%s", ulyx_last_error());
    snprintf(name, sizeof(name), "rank %d", d->odd ? d->odd : 1);
    bool good = ranks_expect(status == ULYX_ERR_MISMATCH) &&
                ranks_expect(plan == NULL) &&
                ranks_expect(error_has(d->spoiler->name)) &&
                ranks_expect(error_has(name)) &&
                ranks_expect(error_has("rank 0"));
    return !good;
}

static void
disagreements_are_named_alike(void **state)
{
    (void)state;
    create_comms();
    for (int i = 0; i < MISMATCHES; i++) {
        struct disagreement d = {&mismatches[i], i % RANKS, {{0}}};
        assert_int_equal(
            ranks_run_threads(RANKS, mismatch_body, &d, LIMIT_S), 0);
        for (int r = 1; r < RANKS; r++)
            assert_string_equal(d.texts[0], d.texts[r]);
    }
    destroy_comms();
}

/* ---- versions ------------------------------------------------------------ */

static void
unknown_fields_of_newer_structs_must_be_zero(void **state)
{
    (void)state;
    struct {
        struct set s;
        unsigned char more[64];
    } big;
    struct {
        ulyx_plan_params_t params;
        unsigned char more[64];
    } newer;
    struct {
        ulyx_tensor_t tensor;
        int64_t more;
    } tensors[2];
    ulyx_comm_t *comm;
    ulyx_plan_t *plan;
    memset(&newer, 0, sizeof(newer));
    memset(tensors, 0, sizeof(tensors));
    set_init(&big.s);
    for (int i = 0; i < 2; i++)
        tensors[i].tensor = big.s.tensors[i];
    newer.params = big.s.params;
    newer.params.size = sizeof(newer);
    newer.params.tensors = &tensors[0].tensor;
    newer.params.tensor_size = sizeof(tensors[0]);
    assert_status(ulyx_comm_create_local(1, NULL, &comm), ULYX_SUCCESS);
    assert_status(ulyx_plan_create(comm, &newer.params, &plan), ULYX_SUCCESS);
    assert_status(ulyx_plan_destroy(plan), ULYX_SUCCESS);
    tensors[1].more = 1;
    assert_status(
        ulyx_plan_create(comm, &newer.params, &plan), ULYX_ERR_UNSUPPORTED);
    tensors[1].more = 0;
    newer.more[63] = 1;
    assert_status(
        ulyx_plan_create(comm, &newer.params, &plan), ULYX_ERR_UNSUPPORTED);
    assert_status(
        ulyx_plan_create(comm, NULL, &plan), ULYX_ERR_INVALID_ARGUMENT);
    assert_status(
        ulyx_plan_create(comm, &big.s.params, NULL), ULYX_ERR_INVALID_ARGUMENT);
    assert_status(ulyx_plan_create(NULL, &big.s.params, &plan),
        ULYX_ERR_INVALID_ARGUMENT);
    assert_status(ulyx_plan_destroy(NULL), ULYX_SUCCESS);
    assert_status(ulyx_comm_destroy(comm), ULYX_SUCCESS);
}

/* ---- a queued creation --------------------------------------------------- */

/* The library copies what the struct points to, so the caller may reuse it at
 * once. */
static void
queued_creation_has_copied_its_params(void **state)
{
    (void)state;
    char algo[] = "direct";
    int64_t begins[] = {0, 30};
    ulyx_docs_t docs = ULYX_DOCS_INIT;
    ulyx_comm_t *comm;
    ulyx_plan_t *plan;
    struct set s;
    set_init(&s);
    s.splits[0] = 30, s.head_splits[0] = 6;
    s.parts[0].splits = s.splits;
    s.params.head_splits = s.head_splits;
    s.params.algo = algo;
    s.params.max_docs = 1;
    docs.count = 1, docs.begin = begins;
    s.params.docs_q = s.params.docs_k = &docs;
    assert_status(ulyx_comm_create_local(1, NULL, &comm), ULYX_SUCCESS);
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    assert_status(ulyx_plan_create(comm, &s.params, &plan), ULYX_SUCCESS);
    memset(algo, 'x', 6);
    memset(begins, 0xff, sizeof(begins));
    memset(&docs, 0xff, sizeof(docs));
    memset(&s, 0xff, sizeof(s));
    assert_status(ulyx_group_end(), ULYX_SUCCESS);
    assert_status(ulyx_plan_destroy(plan), ULYX_SUCCESS);
    assert_status(ulyx_comm_destroy(comm), ULYX_SUCCESS);
}

/* No peer makes the call, so it ends by the deadline: the error text ends with
 * this rank's own cause. */
static void
own_cause_is_reported_where_peers_do_not_come(void **state)
{
    (void)state;
    ulyx_comm_t *pair[2];
    ulyx_plan_t *plan = NULL;
    struct set s;
    assert_status(ulyx_comm_create_local(2, NULL, pair), ULYX_SUCCESS);
    set_init(&s);
    s.params.timeout_s = 0.2;
    s.params.heads = 0;
    assert_status(
        ulyx_plan_create(pair[0], &s.params, &plan), ULYX_ERR_TIMEOUT);
    assert_non_null(strstr(ulyx_last_error(), "waiting for rank 1"));
    assert_non_null(strstr(ulyx_last_error(),
        "; this rank had refused: heads is 0, must be at least 1"));
    for (int r = 0; r < 2; r++)
        assert_status(ulyx_comm_destroy(pair[r]), ULYX_SUCCESS);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(bad_arguments_are_named_everywhere),
    cmocka_unit_test(disagreements_are_named_alike),
    cmocka_unit_test(unknown_fields_of_newer_structs_must_be_zero),
    cmocka_unit_test(queued_creation_has_copied_its_params),
    cmocka_unit_test(own_cause_is_reported_where_peers_do_not_come),
};

ULI_TEST_MAIN("ReshuffleParams", tests)
