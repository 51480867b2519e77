/* SPDX-License-Identifier: Apache-2.0
 *
 * See messages_table.h. The builder of small calls makes the items, in an order
 * that both ends of a pair share, and gives each item an offset as if the pair
 * had one message. A second walk over the same moves finds the places in the
 * streams. Of the moves to a peer this walk visits only those from this rank,
 * unless there are sums: the place of a share depends on what the other sharers
 * send to that peer.
 *
 * Cost: where there are sums, a walk over the moves of all ranks per table.
 */
#include "collectives/device/messages/messages_table.h"

#include <stdlib.h>
#include <string.h>
#include "base/dtype.h"
#include "base/size.h"
#include "base/status.h"
#include "collectives/device/mapped/plan_device.h"

struct walk {
    const struct uli_messages_table_params *params;
    struct uli_messages_scratch *scratch;
    struct uli_messages_table *table; /* its `sent` and `received` are filled */
    int32_t nranks, me, dst;
    enum uli_side from, to;
    struct uli_gpu_item *item; /* this rank's next item; NULL: only counts */
    int64_t end;               /* of the longest stream to or from this rank */
    bool failed;
};

/* ---- scratch ------------------------------------------------------------- */

ulyx_status_t
uli_messages_scratch_create(
    const struct uli_layout *layout, struct uli_messages_scratch *scratch_p)
{
    size_t n = (size_t)uli_layout_shape(layout)->nranks;
    memset(scratch_p, 0, sizeof(*scratch_p));
    ULI_TRY(uli_gpu_scratch_create(layout, &scratch_p->gpu));
    scratch_p->at = calloc(3 * n, sizeof(*scratch_p->at));
    scratch_p->next = calloc(n, sizeof(*scratch_p->next));
    if (!scratch_p->at || !scratch_p->next) {
        uli_messages_scratch_free(scratch_p);
        return uli_error(
            ULYX_ERR_NO_MEMORY, "tables of an exchange by messages: no memory");
    }
    scratch_p->carried = scratch_p->at + n;
    scratch_p->round = scratch_p->carried + n;
    return ULYX_SUCCESS;
}

void
uli_messages_scratch_free(struct uli_messages_scratch *scratch)
{
    uli_gpu_scratch_free(&scratch->gpu);
    free(scratch->at);
    free(scratch->next);
    memset(scratch, 0, sizeof(*scratch));
}

/* ---- places -------------------------------------------------------------- */

/* The bytes that the pair (s, dst) has carried before round k; NULL where this
 * rank is at neither end. */
static int64_t *
carried_before(const struct walk *w, int32_t s, int64_t k)
{
    if (w->dst != w->me && s != w->me)
        return NULL;
    return w->dst == w->me ? &w->table->received[k * w->nranks + s]
                           : &w->table->sent[k * w->nranks + w->dst];
}

/* Gives the next `bytes` bytes of source s the place `at`. For each round that
 * begins before their end, stores what was carried before that round. */
static void
take_place(struct walk *w, int32_t s, int64_t at, int64_t bytes)
{
    struct uli_messages_scratch *scratch = w->scratch;
    int64_t chunk = w->params->chunk_bytes, k = scratch->round[s];
    bool mine = w->dst == w->me || s == w->me;
    for (; mine && w->item && k * chunk < at + bytes; k++) {
        if (k > w->table->round_room)
            w->failed = true;
        else
            *carried_before(w, s, k) =
                scratch->carried[s] + uli_max(k * chunk - at, 0);
    }
    scratch->round[s] = k;
    scratch->carried[s] += bytes;
    scratch->at[s] = at + bytes;
    if (mine)
        w->end = uli_max(w->end, at + bytes);
}

static bool
move_visit(void *context, const struct uli_move *move)
{
    struct walk *w = context;
    const struct uli_shape_tensor *tensor =
        &uli_layout_shape(w->params->gpu.layout)->tensors[move->tensor];
    int64_t element = uli_plan_elem_bytes(w->params->gpu.layout, move->tensor,
        move->kind == ULI_MOVE_SUM ? w->from : w->to);
    int64_t bytes = uli_round_up(
        move->batches * move->rows * move->heads * tensor->dim * element,
        ULI_GPU_SLOT_ALIGN);
    int64_t at = 0;
    bool mine = w->dst == w->me && move->kind == ULI_MOVE_SUM;
    for (int32_t s = 0; s < move->nsources; s++)
        if (move->sources[s].rank != w->dst)
            at = uli_max(at, w->scratch->at[move->sources[s].rank]);
    for (int32_t s = 0; s < move->nsources; s++) {
        int32_t rank = move->sources[s].rank;
        if (rank == w->dst)
            continue;
        take_place(w, rank, at, bytes);
        mine = mine || w->dst == w->me || rank == w->me;
    }
    if (mine && w->item)
        (w->item++)->first_tile = at;
    return !w->failed;
}

/* Walks the moves of all streams to dst. */
static void
walk_to(struct walk *w, int32_t dst)
{
    const struct uli_gpu_table_params *gpu = &w->params->gpu;
    struct uli_messages_scratch *scratch = w->scratch;
    size_t bytes = (size_t)w->nranks * sizeof(*scratch->at);
    bool sums = gpu->direction == ULYX_SEQ_TO_HEAD_ADJOINT ||
                gpu->direction == ULYX_HEAD_TO_SEQ_ADJOINT;
    int32_t src = dst == w->me || sums ? -1 : w->me;
    memset(scratch->at, 0, 3 * bytes);
    w->dst = dst;
    for (int32_t t = 0; t < uli_layout_shape(gpu->layout)->ntensors; t++)
        uli_layout_each_move(gpu->layout, gpu->direction, t, dst, src,
            scratch->gpu.places, move_visit, w);
    for (int32_t s = 0; w->item && s < w->nranks; s++)
        for (int64_t k = scratch->round[s];
             k <= w->table->round_room && carried_before(w, s, k); k++)
            *carried_before(w, s, k) = scratch->carried[s];
}

/* The length of the longest stream to or from this rank. */
static int64_t
count_streams(struct walk *w)
{
    for (int32_t p = 0; p < w->nranks; p++)
        walk_to(w, p);
    return w->end;
}

static struct walk
messages_table_begin(const struct uli_messages_table_params *params,
    struct uli_messages_scratch *scratch, struct uli_messages_table *table)
{
    struct walk w = {.params = params,
        .scratch = scratch,
        .table = table,
        .nranks = uli_layout_shape(params->gpu.layout)->nranks,
        .me = params->gpu.rank,
        .from = uli_plan_side(params->gpu.direction, true),
        .to = uli_plan_side(params->gpu.direction, false)};
    return w;
}

/* ---- rooms --------------------------------------------------------------- */

/* All bytes that can come to rank p, over all document tables. No stream to p
 * is longer: in none of these streams does a place begin behind more bytes than
 * all earlier moves to p have together. */
static int64_t
most_bytes_to(const struct walk *w, int32_t p)
{
    const struct uli_layout *layout = w->params->gpu.layout;
    const struct uli_shape *shape = uli_layout_shape(layout);
    int64_t sum = 0, first;
    for (int32_t t = 0; t < shape->ntensors; t++) {
        const struct uli_shape_tensor *tensor = &shape->tensors[t];
        int64_t heads = tensor->heads, rows = shape->parts[tensor->part].rows;
        int64_t moves =
            uli_layout_max_moves(layout, w->params->gpu.direction, t, p, -1);
        if (w->to == ULI_SIDE_SEQ)
            rows = uli_layout_max_seq_rows(layout, tensor->part, p);
        else if (!uli_layout_packed(layout))
            uli_layout_heads(layout, t, p, &first, &heads);
        rows *= shape->batch * heads;
        if (w->to != ULI_SIDE_SEQ && uli_layout_packed(layout))
            rows = uli_layout_max_packed_rows(layout, t);
        sum += rows * tensor->dim *
               uli_max(uli_plan_elem_bytes(layout, t, w->from),
                   uli_plan_elem_bytes(layout, t, w->to));
        sum = uli_sat_add(sum, uli_min(moves, rows) * ULI_GPU_SLOT_ALIGN);
    }
    return sum;
}

static int64_t
count_rounds(struct walk *w)
{
    int64_t most = 0;
    if (uli_layout_has_tables(w->params->gpu.layout))
        for (int32_t p = 0; p < w->nranks; p++)
            most = uli_max(most, most_bytes_to(w, p));
    else
        most = count_streams(w);
    return uli_max(
        1, (most + w->params->chunk_bytes - 1) / w->params->chunk_bytes);
}

ulyx_status_t
uli_messages_table_measure(const struct uli_messages_table_params *params,
    struct uli_messages_scratch *scratch, struct uli_messages_table *table,
    int64_t *bytes_p)
{
    struct walk w = messages_table_begin(params, scratch, table);
    int64_t n = w.nranks;
    uli_gpu_table_room(params->gpu.layout, params->gpu.direction, w.me,
        &scratch->gpu, &table->item_room, &table->source_room);
    table->round_room = count_rounds(&w);
    table->items_at = uli_plan_device_take(
        bytes_p, table->item_room, sizeof(struct uli_gpu_item));
    table->sources_at = uli_plan_device_take(
        bytes_p, table->source_room, sizeof(struct uli_gpu_source));
    table->order_at =
        uli_plan_device_take(bytes_p, table->item_room, sizeof(int32_t));
    table->lists_at =
        uli_plan_device_take(bytes_p, 2 * n, sizeof(struct uli_messages_list));
    table->peers_at = uli_plan_device_take(
        bytes_p, table->round_room * n, sizeof(struct uli_gpu_peer));
    size_t words = (size_t)((table->round_room + 1) * n);
    table->sent = calloc(2 * words, sizeof(*table->sent));
    if (!table->sent)
        return uli_error(
            ULYX_ERR_NO_MEMORY, "tables of an exchange by messages: no memory");
    table->received = table->sent + words;
    return ULYX_SUCCESS;
}

void
uli_messages_table_free(struct uli_messages_table *table)
{
    free(table->sent);
    table->sent = table->received = NULL;
}

/* ---- lists --------------------------------------------------------------- */

/* The peer in whose stream an item of unpack is; this rank itself if all shares
 * of a sum are here. */
static int32_t
stream_of(const struct uli_gpu_table *table, const struct uli_gpu_item *item,
    int32_t me)
{
    const struct uli_gpu_source *sources = &table->sources[item->first_source];
    if (item->kind != ULI_GPU_SUM)
        return item->src_rank;
    for (int32_t s = 0; s < item->nsources; s++)
        if (sources[s].rank != me)
            return sources[s].rank;
    return me;
}

static int64_t
item_bytes(const struct uli_gpu_item *item)
{
    int64_t bytes =
        item->extent[0] * item->extent[1] * item->extent[2] * item->run;
    if (item->kind == ULI_GPU_SUM)
        bytes *= uli_dtype_size(item->partial_dtype);
    return uli_round_up(bytes, ULI_GPU_SLOT_ALIGN);
}

/* own: the item has no stream; the places of such items follow each other. */
static void
messages_list_append(struct uli_messages_list *list, struct uli_gpu_item *item, bool own)
{
    if (own)
        item->first_tile = list->end;
    list->end = uli_max(list->end, item->first_tile + item_bytes(item));
    list->count++;
}

/* Lists the items of pack, which were made peer by peer, then this rank's own
 * share and zeros. */
static void
list_packed(const struct walk *w, const struct uli_gpu_table *table,
    struct uli_messages_list *lists, int32_t *order)
{
    memset(lists, 0, (size_t)w->nranks * sizeof(*lists));
    for (int32_t i = 0; i < table->nfirst; i++) {
        struct uli_gpu_item *item = &table->items[i];
        int32_t p = item->dst_slot ? item->dst_rank : w->me;
        order[i] = i;
        if (lists[p].count == 0)
            lists[p].first = i;
        messages_list_append(&lists[p], item, p == w->me);
    }
}

static void
list_unpacked(const struct walk *w, const struct uli_gpu_table *table,
    struct uli_messages_list *lists, int32_t *order)
{
    int32_t first = (int32_t)table->nfirst, *next = w->scratch->next;
    memset(lists, 0, (size_t)w->nranks * sizeof(*lists));
    for (int32_t i = first; i < table->nitems; i++) {
        struct uli_gpu_item *item = &table->items[i];
        int32_t p = stream_of(table, item, w->me);
        messages_list_append(&lists[p], item, p == w->me);
    }
    for (int32_t p = 0; p < w->nranks; p++) {
        lists[p].first = next[p] = first;
        first += lists[p].count;
    }
    for (int32_t i = (int32_t)table->nfirst; i < table->nitems; i++)
        order[next[stream_of(table, &table->items[i], w->me)]++] = i;
}

/* ---- filling ------------------------------------------------------------- */

/* Chooses a tile size between ULI_GPU_TILE_MIN and ULI_GPU_TILE_MAX with which
 * each worker has about one tile of the windows of a round. */
static void
cut_tiles(const struct walk *w, struct uli_messages_table *table,
    const struct uli_messages_list *lists)
{
    int64_t window = uli_min(w->end, w->params->chunk_bytes);
    int64_t workers = uli_max(w->params->gpu.workers, 1);
    int64_t tile = window * uli_max(w->nranks - 1, 1) / workers + 1;
    tile = uli_min(uli_round_up(tile, ULI_GPU_TILE_MIN), ULI_GPU_TILE_MAX);
    table->tile_bytes = tile;
    table->tiles = (window + tile - 1) / tile;
    table->pack_own_tiles = (lists[w->me].end + tile - 1) / tile;
    table->unpack_own_tiles = (lists[w->nranks + w->me].end + tile - 1) / tile;
}

/* Places all items, in the order in which they were made. */
static void
place_all(struct walk *w, const struct uli_gpu_table *table)
{
    w->item = table->items;
    for (int32_t q = 1; q < w->nranks; q++)
        walk_to(w, (w->me + q) % w->nranks);
    w->item = table->items + table->nfirst;
    walk_to(w, w->me);
}

ulyx_status_t
uli_messages_table_fill(const struct uli_messages_table_params *params,
    struct uli_messages_scratch *scratch, struct uli_messages_table *table,
    unsigned char *buffer)
{
    struct walk w = messages_table_begin(params, scratch, table);
    struct uli_gpu_table_params gpu = params->gpu;
    struct uli_messages_list *lists = (void *)(buffer + table->lists_at);
    int32_t *order = (void *)(buffer + table->order_at);
    gpu.slot_bytes = INT64_MAX; /* no limit */
    table->table.items = (void *)(buffer + table->items_at);
    table->table.sources = (void *)(buffer + table->sources_at);
    ULI_TRY(uli_gpu_table_fill(&gpu, &scratch->gpu, table->item_room,
        table->source_room, &table->table));
    place_all(&w, &table->table);
    if (w.failed)
        return uli_error(ULYX_ERR_INTERNAL,
            "tables of an exchange by messages: %lld rounds are too few",
            (long long)table->round_room);
    table->rounds = (int32_t)uli_max(
        1, (w.end + params->chunk_bytes - 1) / params->chunk_bytes);
    list_packed(&w, &table->table, lists, order);
    list_unpacked(&w, &table->table, lists + w.nranks, order);
    cut_tiles(&w, table, lists);
    return ULYX_SUCCESS;
}

int64_t
uli_messages_table_longest(
    const struct uli_messages_table *table, int32_t nranks, int32_t p)
{
    int64_t longest = 0;
    for (int64_t k = 0; k < table->rounds; k++) {
        int64_t at = k * nranks + p, next = at + nranks;
        longest = uli_max(longest, table->sent[next] - table->sent[at]);
        longest = uli_max(longest, table->received[next] - table->received[at]);
    }
    return longest;
}
