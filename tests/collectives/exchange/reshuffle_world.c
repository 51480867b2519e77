/* SPDX-License-Identifier: Apache-2.0
 *
 * See reshuffle_world.h.
 */
#include "collectives/exchange/reshuffle_world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/dtype.h"
#include "base/size.h"
#include "support/ranks.h"
#include "support/test.h"

enum { GUARD = 64 };

/* ---- ranks --------------------------------------------------------------- */

static int64_t
window_bytes(const struct world_ranks *ranks)
{
    return ranks->window_bytes ? ranks->window_bytes : WORLD_WINDOW_BYTES;
}

void
world_ranks_attach(struct world_ranks *ranks)
{
    int64_t bytes = window_bytes(ranks);
    for (int32_t r = 0; r < ranks->nranks; r++) {
        ranks->windows[r] = aligned_alloc(4096, (size_t)bytes);
        assert_non_null(ranks->windows[r]);
        assert_status(ulyx_mem_register(ranks->windows[r], (size_t)bytes, NULL,
                          &ranks->mems[r]),
            ULYX_SUCCESS);
        assert_status(
            ulyx_mem_attach(ranks->comms[r], ranks->mems[r]), ULYX_SUCCESS);
    }
}

void
world_ranks_init_sized(struct world_ranks *ranks, int32_t nranks, int64_t bytes)
{
    memset(ranks, 0, sizeof(*ranks));
    ranks->nranks = nranks;
    ranks->only = -1;
    ranks->window_bytes = bytes;
    assert_status(
        ulyx_comm_create_local(nranks, NULL, ranks->comms), ULYX_SUCCESS);
    world_ranks_attach(ranks);
}

void
world_ranks_init(struct world_ranks *ranks, int32_t nranks)
{
    world_ranks_init_sized(ranks, nranks, 0);
}

void
world_ranks_init_process(
    struct world_ranks *ranks, ulyx_comm_t *comm, int32_t rank, int32_t nranks)
{
    void *address;
    memset(ranks, 0, sizeof(*ranks));
    ranks->nranks = nranks;
    ranks->only = rank;
    ranks->comms[rank] = comm;
    for (int32_t r = 0; r < nranks; r++)
        if (r != rank)
            ranks->windows[r] = aligned_alloc(4096, WORLD_WINDOW_BYTES);
    if (ulyx_mem_alloc(
            WORLD_WINDOW_BYTES, NULL, &ranks->mems[rank], &address) ||
        ulyx_mem_attach(comm, ranks->mems[rank])) {
        fprintf(stderr, "rank %d: %s\n", rank, ulyx_last_error());
        abort();
    }
    ranks->windows[rank] = address;
}

static void
free_process(struct world_ranks *ranks)
{
    for (int32_t r = 0; r < ranks->nranks; r++)
        if (r != ranks->only)
            free(ranks->windows[r]);
    if (ulyx_mem_detach(ranks->comms[ranks->only], ranks->mems[ranks->only]) ||
        ulyx_mem_free(ranks->mems[ranks->only])) {
        fprintf(stderr, "rank %d: %s\n", ranks->only, ulyx_last_error());
        abort();
    }
}

void
world_ranks_free(struct world_ranks *ranks)
{
    if (ranks->only >= 0) {
        free_process(ranks);
        return;
    }
    for (int32_t r = 0; r < ranks->nranks; r++) {
        assert_status(
            ulyx_mem_detach(ranks->comms[r], ranks->mems[r]), ULYX_SUCCESS);
        assert_status(ulyx_mem_free(ranks->mems[r]), ULYX_SUCCESS);
        free(ranks->windows[r]);
    }
    for (int32_t r = 0; r < ranks->nranks; r++)
        assert_status(ulyx_comm_destroy(ranks->comms[r]), ULYX_SUCCESS);
}

/* ---- images -------------------------------------------------------------- */

static void
image_init(struct world *w, struct image *image, int32_t rank, bool window,
    int64_t extent, int64_t offset)
{
    struct world_ranks *ranks = w->ranks;
    image->at = GUARD + offset;
    image->bytes = extent + 2 * GUARD + 16;
    image->owned =
        !window || ranks->used[rank] + image->bytes > window_bytes(ranks);
    if (window && image->owned) {
        fprintf(stderr, "the window is too small for this draw\n");
        abort();
    }
    if (window) {
        image->base = ranks->windows[rank] + ranks->used[rank];
        ranks->used[rank] += (image->bytes + 63) / 64 * 64;
    } else {
        image->base = aligned_alloc(64, (size_t)(image->bytes + 63) / 64 * 64);
    }
    image->expected = malloc((size_t)image->bytes);
    image->data = extent ? image->base + image->at : NULL;
}

static bool
image_same(const struct image *image)
{
    return memcmp(image->base, image->expected, (size_t)image->bytes) == 0;
}

/* ---- shapes of tensors --------------------------------------------------- */

int64_t
world_elem_bytes(const struct world *w, int32_t t, enum uli_side side)
{
    return uli_plan_elem_bytes(w->layout, t, side);
}

int32_t
world_dtype(const struct world *w, int32_t t, enum uli_side side)
{
    const struct uli_shape_tensor *tensor =
        &uli_layout_shape(w->layout)->tensors[t];
    return side == ULI_SIDE_PARTIAL ? tensor->partial_dtype : tensor->dtype;
}

/* Draws nested strides in a random order of the dimensions, with gaps. */
static void
nest_strides(struct test_random *random, const int64_t counts[3],
    int64_t run_bytes, int64_t bytes, int64_t strides[3])
{
    int order[3] = {0, 1, 2};
    for (int i = 2; i > 0; i--) {
        int j = (int)test_random_in(random, 0, i), held = order[i];
        order[i] = order[j];
        order[j] = held;
    }
    int64_t span = run_bytes;
    for (int i = 0; i < 3; i++) {
        strides[order[i]] = span + bytes * test_random_in(random, 0, 2);
        span = strides[order[i]] * (counts[order[i]] ? counts[order[i]] : 1);
    }
}

/* With `most` there is room for all updates, else for the present rows. */
static void
draw_strides(struct world *w, struct test_random *random, int32_t rank,
    int32_t t, enum uli_side side, bool most)
{
    const struct uli_shape_tensor *tensor = &w->c.shape.tensors[t];
    const struct uli_layout *l = w->layout;
    int32_t axis = w->c.shape.parts[tensor->part].axis;
    int64_t bytes = world_elem_bytes(w, t, side), first, heads = tensor->heads;
    int64_t rows = most ? uli_layout_max_axis_rows(l, axis)
                        : uli_layout_axis_rows(l, axis);
    if (side != ULI_SIDE_SEQ)
        uli_layout_heads(l, t, rank, &first, &heads);
    else
        rows = most ? uli_layout_max_seq_rows(l, tensor->part, rank)
                    : uli_layout_seq_rows(l, tensor->part, rank);
    if (uli_layout_packed(l) && side != ULI_SIDE_SEQ)
        rows = most ? uli_layout_max_packed_rows(l, t)
                    : uli_layout_packed_rows(l, t, rank);
    int64_t counts[3] = {w->c.shape.batch, rows, heads};
    nest_strides(
        random, counts, tensor->dim * bytes, bytes, w->strides[rank][t][side]);
}

static void
draw_rank(struct world *w, struct test_random *random, int32_t rank, int memory)
{
    for (int side = 0; side < 2; side++)
        w->memory[rank][side] =
            memory == 2 ? (int32_t)test_random_in(random, 0, 1) : memory;
    w->dense[rank] = test_random_in(random, 0, 3) == 0 || w->all_dense;
    for (int32_t t = 0; t < w->c.shape.ntensors; t++)
        for (int side = 0; side < ULI_SIDES; side++)
            draw_strides(w, random, rank, t, (enum uli_side)side, true);
}

void
world_fill_dense(struct world *w)
{
    for (int32_t r = 0; r < w->ranks->nranks; r++) {
        if (!w->dense[r])
            continue;
        memset(w->strides[r], 0, sizeof(w->strides[r]));
        if (uli_plan_fix_strides(w->layout, r, w->strides[r]))
            abort();
    }
}

static int64_t
max_extent(const struct world *w, int32_t rank, int32_t t, enum uli_side side)
{
    const int64_t *strides = w->strides[rank][t][side];
    const struct uli_shape_tensor *tensor = &w->c.shape.tensors[t];
    int64_t first, heads = tensor->heads;
    int64_t rows = uli_layout_max_axis_rows(
        w->layout, w->c.shape.parts[tensor->part].axis);
    if (side == ULI_SIDE_SEQ)
        rows = uli_layout_max_seq_rows(w->layout, tensor->part, rank);
    else if (uli_layout_packed(w->layout))
        return uli_layout_max_packed_rows(w->layout, t) * strides[1] +
               tensor->dim * world_elem_bytes(w, t, side);
    else
        uli_layout_heads(w->layout, t, rank, &first, &heads);
    int64_t batch_stride = strides[0];
    if (w->dense[rank]) /* dense for any later splits */
        batch_stride = uli_max(batch_stride, rows * strides[1]);
    return w->c.shape.batch * batch_stride + rows * strides[1] +
           heads * strides[2];
}

static int64_t
present_extent(
    const struct world *w, int32_t rank, int32_t t, enum uli_side side)
{
    struct uli_grid grid;
    uli_plan_grid(w->layout, t, rank, side, w->strides[rank][t][side], &grid);
    return uli_grid_extent(&grid);
}

static void
draw_images(struct world *w, struct test_random *random, int op, int32_t rank)
{
    for (int32_t t = 0; t < w->c.shape.ntensors; t++)
        for (int source = 0; source < 2; source++) {
            enum uli_side side = uli_plan_side(op, source);
            int32_t dtype = world_dtype(w, t, side);
            int64_t align = uli_dtype_size(dtype);
            int64_t offset = test_random_in(random, 0, 15);
            bool window = w->memory[rank][side == ULI_SIDE_SEQ ? 0 : 1] ==
                          ULYX_POINTER_WINDOW;
            offset = align ? offset / align * align : offset;
            image_init(w, source ? &w->src[op][rank][t] : &w->dst[op][rank][t],
                rank, window,
                w->moved[rank][side] ? present_extent(w, rank, t, side)
                                     : max_extent(w, rank, t, side),
                offset);
        }
}

static void
draw_all_images(struct world *w, struct test_random *random)
{
    memset(w->ranks->used, 0, sizeof(w->ranks->used));
    for (int op = 0; op < ULYX_DIRECTIONS; op++)
        for (int32_t r = 0; r < w->ranks->nranks; r++)
            draw_images(w, random, op, r);
}

void
world_plain_case(struct world *w, int32_t nranks, int64_t rows, int64_t heads,
    int64_t kv_heads, int64_t dim, int32_t dtype)
{
    struct uli_shape *shape = &w->c.shape;
    memset(&w->c, 0, sizeof(w->c));
    shape->nranks = nranks;
    shape->batch = 1;
    shape->heads = heads;
    shape->nparts = 1;
    shape->parts[0].rows = rows;
    shape->ntensors = 3;
    for (int t = 0; t < 3; t++) {
        struct uli_shape_tensor *tensor = &shape->tensors[t];
        tensor->dtype = dtype;
        tensor->elem_bytes = uli_dtype_size(dtype);
        tensor->heads = t ? kv_heads : heads;
        tensor->ownership = t ? ULYX_HEADS_KV : ULYX_HEADS_QUERY;
        tensor->dim = dim;
    }
    w->c.docs[0].none = w->c.docs[1].none = true;
}

static void
world_relax(struct world *w)
{
    ulyx_docs_t docs_q, docs_k;
    if (uli_layout_relax(w->layout, case_docs(&w->c, 0, &docs_q),
            case_docs(&w->c, 1, &docs_k)))
        abort();
    world_fill_dense(w);
}

bool
world_draw(struct world *w, struct world_ranks *ranks,
    struct test_random *random, int memory)
{
    int64_t cuts[ORACLE_MAX_RANKS + 1];
    w->ranks = ranks;
    w->layout = NULL;
    if (case_create(&w->c, &w->layout) != ULYX_SUCCESS)
        return false;
    oracle_init(&w->oracle, &w->c, case_cuts(&w->c, w->layout, cuts));
    static const int64_t slots[] = {-1, -1, 0, 64, 512};
    static const int64_t flight[] = {0, 512, 1024};
    if (!w->fixed_limits) {
        w->slot_bytes = slots[test_random_in(random, 0, 4)];
        w->bytes_in_flight = flight[test_random_in(random, 0, 2)];
    }
    w->directions = 0;
    for (int op = 0; op < ULYX_DIRECTIONS; op++)
        if (uli_layout_direction_exists(w->layout, op))
            w->directions |= UINT64_C(1) << op;
    memset(w->src, 0, sizeof(w->src));
    memset(w->dst, 0, sizeof(w->dst));
    memset(w->moved, 0, sizeof(w->moved));
    for (int32_t r = 0; r < ranks->nranks; r++)
        draw_rank(w, random, r, memory);
    uli_layout_stretch(w->layout); /* images have room for the most rows */
    world_fill_dense(w);
    draw_all_images(w, random);
    world_relax(w);
    memcpy(w->usual, w->strides, sizeof(w->usual));
    w->norder = 0;
    while (w->norder < 6) {
        int op = (int)test_random_in(random, 0, 3);
        if (w->directions >> op & 1)
            w->order[w->norder++] = op;
    }
    return true;
}

static void
image_free(struct image *image)
{
    if (image->owned)
        free(image->base);
    free(image->expected);
}

bool
world_replace_docs(struct world *w, struct test_random *random)
{
    struct oracle_case old = w->c;
    ulyx_docs_t docs_q, docs_k;
    int64_t cuts[ORACLE_MAX_RANKS + 1];
    case_random_docs(&w->c, random);
    if (uli_layout_update(w->layout, case_docs(&w->c, 0, &docs_q),
            case_docs(&w->c, 1, &docs_k)) != ULYX_SUCCESS) {
        memcpy(w->c.docs, old.docs, sizeof(old.docs));
        return false;
    }
    oracle_free(&w->oracle);
    oracle_init(&w->oracle, &w->c, case_cuts(&w->c, w->layout, cuts));
    return true;
}

static void
free_images(struct world *w)
{
    for (int op = 0; op < ULYX_DIRECTIONS; op++)
        for (int32_t r = 0; r < w->ranks->nranks; r++)
            for (int32_t t = 0; t < w->c.shape.ntensors; t++) {
                image_free(&w->src[op][r][t]);
                image_free(&w->dst[op][r][t]);
            }
}

/* Sets the strides of one side: drawn ones, or dense ones that a call passes as
 * zeros. */
static void
move_side(struct world *w, struct test_random *random, int32_t rank,
    enum uli_side side)
{
    uli_strides_t dense[ULI_TENSORS];
    memset(dense, 0, sizeof(dense));
    if (uli_plan_fix_strides(w->layout, rank, dense))
        abort();
    for (int32_t t = 0; t < w->c.shape.ntensors; t++) {
        int64_t *strides = w->strides[rank][t][side];
        w->zeros[rank][t][side] = test_random_in(random, 0, 3) == 0;
        if (w->zeros[rank][t][side])
            memcpy(strides, dense[t][side], sizeof(dense[t][side]));
        else if (test_random_in(random, 0, 3))
            draw_strides(w, random, rank, t, side, false);
    }
}

void
world_move(struct world *w, struct test_random *random, int one_in)
{
    memcpy(w->strides, w->usual, sizeof(w->strides));
    world_fill_dense(w);
    memset(w->zeros, 0, sizeof(w->zeros));
    for (int32_t r = 0; r < w->ranks->nranks; r++)
        for (int side = 0; side < ULI_SIDES; side++) {
            w->moved[r][side] =
                one_in && test_random_in(random, 1, one_in) == 1;
            if (w->moved[r][side])
                move_side(w, random, r, (enum uli_side)side);
        }
    free_images(w);
    draw_all_images(w, random);
}

void
world_free(struct world *w)
{
    free_images(w);
    oracle_free(&w->oracle);
    uli_layout_destroy(w->layout);
}

/* ---- checking ------------------------------------------------------------ */

static void
print_difference(const struct world *w, int op, int32_t rank, int32_t t,
    const char *name, const struct image *image)
{
    int64_t i = 0;
    while (image->base[i] == image->expected[i])
        i++;
    fprintf(stderr,
        "%s of operation %d at rank %d, tensor %d: byte %" PRId64 " of %" PRId64
        " is 0x%02x, must be 0x%02x\n",
        name, op, rank, t, i - image->at, image->bytes - image->at,
        image->base[i], image->expected[i]);
    fprintf(stderr, "slots %" PRId64 ", in flight %" PRId64 ", memory",
        w->slot_bytes, w->bytes_in_flight);
    for (int32_t r = 0; r < w->ranks->nranks; r++)
        fprintf(stderr, " %d%d", w->memory[r][0], w->memory[r][1]);
    fprintf(stderr, "\n");
    case_print(&w->c);
}

bool
world_check_rank(struct world *w, int op, int32_t rank)
{
    for (int32_t t = 0; t < w->c.shape.ntensors; t++) {
        if (!image_same(&w->src[op][rank][t])) {
            print_difference(w, op, rank, t, "source", &w->src[op][rank][t]);
            return false;
        }
        if (!image_same(&w->dst[op][rank][t])) {
            print_difference(
                w, op, rank, t, "destination", &w->dst[op][rank][t]);
            return false;
        }
    }
    return true;
}

bool
world_check(struct world *w)
{
    bool ran[ULYX_DIRECTIONS] = {false, false, false, false};
    for (int i = 0; i < w->norder; i++)
        ran[w->order[i]] = true;
    for (int op = 0; op < ULYX_DIRECTIONS; op++)
        for (int32_t r = 0; ran[op] && r < w->ranks->nranks; r++)
            if ((w->ranks->only < 0 || w->ranks->only == r) &&
                !world_check_rank(w, op, r))
                return false;
    return true;
}

/* ---- a rank -------------------------------------------------------------- */

/* Strides of dimensions without a second index have no meaning, so any value is
 * valid. */
static void
spoil_strides(const struct world *w, int32_t rank, int32_t t,
    enum uli_side side, int64_t strides[3])
{
    static const int64_t odd[] = {-8, 1, 3, INT64_MAX, INT64_MIN};
    const struct uli_shape_tensor *tensor = &w->c.shape.tensors[t];
    int64_t first, heads = tensor->heads;
    int64_t rows = uli_layout_max_axis_rows(
        w->layout, w->c.shape.parts[tensor->part].axis);
    bool packed = uli_layout_packed(w->layout) && side != ULI_SIDE_SEQ;
    if (side == ULI_SIDE_SEQ)
        rows = uli_layout_max_seq_rows(w->layout, tensor->part, rank);
    else
        uli_layout_heads(w->layout, t, rank, &first, &heads);
    if (packed)
        rows = uli_layout_max_packed_rows(w->layout, t);
    const int64_t counts[3] = {
        packed ? 1 : w->c.shape.batch, rows, packed ? 1 : heads};
    bool empty = !counts[0] || !counts[1] || !counts[2];
    for (int d = 0; d < 3; d++)
        if (empty || counts[d] <= 1)
            strides[d] = odd[(w->salt + rank + t + side + d) % 5];
}

static void
fill_tensor(struct world *w, int32_t rank, int32_t t, ulyx_tensor_t *out)
{
    const struct uli_shape_tensor *in = &w->c.shape.tensors[t];
    out->part = in->part;
    out->dtype = in->dtype;
    out->elem_bytes = in->dtype == ULYX_DTYPE_BYTES ? in->elem_bytes : 0;
    out->heads = in->heads;
    out->dim = in->dim;
    out->ownership = in->ownership;
    out->partial_dtype = in->partial_dtype;
    out->flags = in->flags;
    if (w->dense[rank])
        return;
    memcpy(out->seq_strides, w->strides[rank][t][ULI_SIDE_SEQ], 24);
    memcpy(out->head_strides, w->strides[rank][t][ULI_SIDE_HEAD], 24);
    memcpy(out->partial_strides, w->strides[rank][t][ULI_SIDE_PARTIAL], 24);
    spoil_strides(w, rank, t, ULI_SIDE_SEQ, out->seq_strides);
    spoil_strides(w, rank, t, ULI_SIDE_HEAD, out->head_strides);
    spoil_strides(w, rank, t, ULI_SIDE_PARTIAL, out->partial_strides);
}

static void
fill_scalars(const struct uli_shape *shape, ulyx_plan_params_t *params)
{
    params->batch = shape->batch;
    params->heads = shape->heads;
    params->head_splits = shape->head_splits;
    params->work_split = shape->work_split;
    params->mask_kind = shape->mask_kind;
    params->mask_align = shape->mask_align;
    params->mask_diagonal = shape->mask_diagonal;
    params->mask_left = shape->mask_left;
    params->mask_right = shape->mask_right;
    params->row_cost = shape->row_cost;
    params->row_round = shape->row_round;
    params->max_rows = shape->max_rows;
    params->max_kv_rows = shape->max_kv_rows;
    params->max_segments = shape->max_segments;
    params->max_local_rows = shape->max_local_rows;
    params->max_docs = shape->max_docs;
}

ulyx_status_t
world_create(struct world *w, int32_t rank)
{
    const struct uli_shape *shape = &w->c.shape;
    ulyx_plan_params_t params = ULYX_PLAN_PARAMS_INIT;
    ulyx_part_t parts[ULI_MAX_PARTS];
    ulyx_tensor_t tensors[ULI_TENSORS];
    ulyx_docs_t docs_q, docs_k;
    memset(tensors, 0, sizeof(tensors));
    for (int32_t i = 0; i < shape->nparts; i++) {
        const struct uli_shape_part *in = &shape->parts[i];
        ulyx_part_t part = {in->axis, in->kind, in->order, in->rows, in->splits,
            in->row_capacity};
        parts[i] = part;
    }
    for (int32_t t = 0; t < shape->ntensors; t++)
        fill_tensor(w, rank, t, &tensors[t]);
    fill_scalars(shape, &params);
    params.parts = parts;
    params.nparts = shape->nparts;
    params.tensors = tensors;
    params.ntensors = shape->ntensors;
    params.seq_memory = w->memory[rank][0];
    params.head_memory = w->memory[rank][1];
    params.docs_q = case_docs(&w->c, 0, &docs_q);
    params.docs_k = case_docs(&w->c, 1, &docs_k);
    params.slot_bytes = w->slot_bytes;
    params.bytes_in_flight = w->bytes_in_flight;
    params.max_sms = w->max_sms;
    params.flags = w->flags;
    params.directions = w->directions;
    params.algo = w->algo;
    return ulyx_plan_create(w->ranks->comms[rank], &params, &w->plans[rank]);
}

void
world_pointers(struct world *w, int32_t rank, int direction,
    const void *src[ULI_TENSORS], void *dst[ULI_TENSORS])
{
    for (int32_t t = 0; t < w->c.shape.ntensors; t++) {
        src[t] = w->src[direction][rank][t].data;
        dst[t] = w->dst[direction][rank][t].data;
    }
}

static void
side_strides(const struct world *w, int32_t rank, enum uli_side side,
    int64_t strides[ULI_TENSORS][3])
{
    for (int32_t t = 0; t < w->c.shape.ntensors; t++) {
        memset(strides[t], 0, sizeof(strides[t]));
        if (w->zeros[rank][t][side])
            continue;
        memcpy(strides[t], w->strides[rank][t][side], sizeof(strides[t]));
        spoil_strides(w, rank, t, side, strides[t]);
    }
}

void
world_call_strides(const struct world *w, int32_t rank, int direction,
    struct world_strides *strides)
{
    enum uli_side from = uli_plan_side(direction, true);
    enum uli_side to = uli_plan_side(direction, false);
    strides->src_p = strides->dst_p = NULL;
    if (w->moved[rank][from]) {
        side_strides(w, rank, from, strides->src);
        strides->src_p = (const int64_t(*)[3])strides->src;
    }
    if (w->moved[rank][to]) {
        side_strides(w, rank, to, strides->dst);
        strides->dst_p = (const int64_t(*)[3])strides->dst;
    }
}

bool
world_wire_agrees(struct world *w, int32_t rank, int direction)
{
    ulyx_traffic_t traffic = ULYX_TRAFFIC_INIT;
    if (w->ranks->comms[rank]->nnodes == 1)
        return true;
    if (ulyx_plan_get_traffic(w->plans[rank], direction, &traffic))
        return false;
    if (traffic.wire_bytes == traffic.wire_counted)
        return true;
    fprintf(stderr,
        "rank %d has put %" PRId64 " bytes to other nodes, not %" PRId64 "\n",
        rank, traffic.wire_counted, traffic.wire_bytes);
    return false;
}

ulyx_status_t
world_execute(struct world *w, int32_t rank, int direction)
{
    const void *src[ULI_TENSORS];
    void *dst[ULI_TENSORS];
    struct world_strides strides;
    world_pointers(w, rank, direction, src, dst);
    world_call_strides(w, rank, direction, &strides);
    return ulyx_reshuffle_execute_strided(w->plans[rank], direction, src,
        strides.src_p, dst, strides.dst_p, NULL);
}

bool
world_runs(struct world *w, int32_t rank)
{
    if (!ranks_expect(world_create(w, rank) == ULYX_SUCCESS))
        return false;
    for (int i = 0; i < w->norder; i++)
        if (!ranks_expect(
                world_execute(w, rank, w->order[i]) == ULYX_SUCCESS) ||
            !ranks_expect(world_wire_agrees(w, rank, w->order[i])))
            return false;
    return true;
}

void
world_scene_run(const struct world_scene *scene,
    void (*draws)(const struct world_scene *scene))
{
    if (scene->name)
        setenv(scene->name, scene->value, 1);
    draws(scene);
    if (scene->name)
        unsetenv(scene->name);
}
