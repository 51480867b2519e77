/* SPDX-License-Identifier: Apache-2.0
 *
 * See exchange_ranks.h.
 */
#include "exchange_ranks.h"

#include <stdlib.h>
#include <string.h>
#include "emulate/exchange/payload.h"
#include "support/test.h"

#ifdef ULI_EMULATE
#define PATIENCE_NS UINT64_C(3600000000000)
#else
#define PATIENCE_NS UINT64_C(10000000000)
#endif
#define good(call) assert_int_equal((call), cudaSuccess)

/* Device memory of the present world, which ranks_close frees. */
static struct {
    void **at;
    size_t count;
} taken;

static void *
device_zeros(size_t bytes)
{
    void *p;
    good(cudaMalloc(&p, bytes + 1));
    good(cudaMemset(p, 0, bytes + 1));
    taken.at = realloc(taken.at, (taken.count + 1) * sizeof(*taken.at));
    assert_non_null(taken.at);
    taken.at[taken.count++] = p;
    return p;
}

static void
free_taken(void)
{
    for (size_t i = 0; i < taken.count; i++)
        (void)cudaFree(taken.at[i]);
    free(taken.at);
    taken.at = NULL;
    taken.count = 0;
}

/* Copies from pageable memory and zeros may still be on their way when their
 * call has returned, and the ranks' streams do not wait for them. */
static void
ranks_settle(const struct ranks_world *g)
{
    for (int d = 0; d < g->config.devices; d++) {
        good(cudaSetDevice(d));
        good(cudaDeviceSynchronize());
    }
}

static void *
device_copy(const void *host, size_t bytes)
{
    void *p = device_zeros(bytes);
    if (bytes)
        good(cudaMemcpy(p, host, bytes, cudaMemcpyHostToDevice));
    return p;
}

struct world *
ranks_new_world(int32_t nranks, struct world_ranks *storage)
{
    struct world *w = calloc(1, sizeof(*w));
    memset(storage, 0, sizeof(*storage));
    storage->nranks = nranks;
    storage->only = -1;
    w->ranks = storage;
    return w;
}

/* ---- devices ------------------------------------------------------------- */

static int
window_id(int direction, bool dst, int32_t tensor)
{
    return (direction * 2 + dst) * ULI_TENSORS + tensor;
}

/* A card loads a kernel at its first use and waits for running kernels then, so
 * kernels are loaded before one spins. The emulator has as many devices as are
 * requested. */
static void
ready_card(struct ranks_world *g)
{
#ifdef ULI_EMULATE
    (void)g;
#else
    int32_t blocks = 0;
    for (int d = 0; d < g->config.devices; d++) {
        good(cudaSetDevice(d));
        good(uli_gpu_exchange_prepare(g->config.threads, true, &blocks));
        assert_in_range(blocks, 1, 64);
    }
#endif
}

/* An earlier world may have enabled the access already. */
static void
enable_peer(int peer)
{
    cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled)
        (void)cudaGetLastError();
    else
        good(error);
}

static void
open_devices(struct ranks_world *g)
{
#ifndef ULI_EMULATE
    g->config.devices = card_devices(g->config.devices);
#endif
    struct emu_config config = {.devices = g->config.devices,
        .sm_count = 8,
        .seed = g->config.seed,
        .host_threads = g->config.host_threads,
        .quiet = g->config.quiet};
    assert_int_equal(emu_open(&config), 0);
    for (int d = 0; d < g->config.devices; d++)
        for (int p = 0; p < g->config.devices; p++) {
            good(cudaSetDevice(d));
            if (p != d)
                enable_peer(p);
        }
    ready_card(g);
}

static void
make_scratch(struct ranks_world *g, int32_t r)
{
    for (int32_t t = 0; t < g->w->c.shape.ntensors; t++) {
        int64_t bytes = 0;
        for (int op = 0; op < ULYX_DIRECTIONS; op++)
            bytes = bytes < g->w->dst[op][r][t].bytes
                        ? g->w->dst[op][r][t].bytes
                        : bytes;
        g->at[r].scratch[t] = device_zeros((size_t)bytes);
    }
}

static void
make_rank(struct ranks_world *g, int32_t r)
{
    struct ranks_one *one = &g->at[r];
    size_t n = (size_t)g->nranks;
    one->device = r % g->config.devices;
    good(cudaSetDevice(one->device));
    good(cudaStreamCreateWithFlags(&one->stream, cudaStreamNonBlocking));
    one->state = device_zeros(sizeof(*one->state));
    one->words = device_zeros(n * sizeof(*one->words));
    one->slots = device_zeros(n * 2 * RANKS_SLOT_BYTES);
    good(cudaHostAlloc(
        (void **)&one->poison, sizeof(*one->poison), cudaHostAllocMapped));
    *one->poison = 0;
    for (int op = 0; op < ULYX_DIRECTIONS; op++)
        for (int32_t t = 0; t < g->w->c.shape.ntensors; t++) {
            one->src[op][t] = device_zeros((size_t)g->w->src[op][r][t].bytes);
            one->dst[op][t] = device_zeros((size_t)g->w->dst[op][r][t].bytes);
        }
    make_scratch(g, r);
}

void *
ranks_device_copy(
    struct ranks_world *g, int32_t rank, const void *host, size_t bytes)
{
    good(cudaSetDevice(g->at[rank].device));
    return device_copy(host, bytes);
}

/* Makes rank r's tables about its peers. */
static void
meet_peers(struct ranks_world *g, int32_t r)
{
    struct uli_gpu_peer peers[RANKS_MAX];
    memset(peers, 0, sizeof(peers));
    good(cudaSetDevice(g->at[r].device));
    for (int32_t p = 0; p < g->nranks; p++) {
        unsigned char *windows[RANKS_WINDOWS] = {NULL};
        for (int op = 0; op < ULYX_DIRECTIONS; op++)
            for (int32_t t = 0; t < g->w->c.shape.ntensors; t++) {
                windows[window_id(op, false, t)] = g->at[p].src[op][t];
                windows[window_id(op, true, t)] = g->at[p].dst[op][t];
            }
        peers[p].mine = &g->at[r].words[p];
        peers[p].yours = &g->at[p].words[r];
        peers[p].slot_in = g->at[r].slots + 2 * (size_t)p * RANKS_SLOT_BYTES;
        peers[p].slot_out = g->at[p].slots + 2 * (size_t)r * RANKS_SLOT_BYTES;
        peers[p].windows = device_copy(windows, sizeof(windows));
        peers[p].nwindows = RANKS_WINDOWS;
        peers[p].shares = p != r;
    }
    g->at[r].peers = device_copy(peers, sizeof(peers));
}

/* ---- tables -------------------------------------------------------------- */

static void
fill_record(struct ranks_world *g, int32_t r, int op, struct uli_gpu_args *args)
{
    /* no tensor is in a window */
    memset(args->record, 0xFF, sizeof(args->record));
    args->record[ULI_GPU_RECORD_CALL] = (uint64_t)op << 32;
    args->record[ULI_GPU_RECORD_HASH] = uli_layout_table_hash(g->w->layout);
    for (int32_t t = 0; t < g->w->c.shape.ntensors; t++) {
        const struct image *src = &g->w->src[op][r][t];
        const struct image *dst = &g->w->dst[op][r][t];
        uint64_t *at = &args->record[ULI_GPU_RECORD_SRC + 2 * t];
        if (src->data) {
            at[0] = (uint64_t)window_id(op, false, t);
            at[1] = (uint64_t)src->at;
            args->src[t] = g->at[r].src[op][t] + src->at;
        }
        at = &args->record[ULI_GPU_RECORD_DST + 2 * t];
        if (dst->data) {
            at[0] = (uint64_t)window_id(op, true, t);
            at[1] = (uint64_t)dst->at;
            args->dst[t] = g->at[r].dst[op][t] + dst->at;
        }
    }
}

/* Builds the table in memory of exactly the documented size. */
static void
build_table(
    const struct uli_gpu_table_params *params, struct uli_gpu_table *table)
{
    struct uli_gpu_scratch scratch;
    int64_t items, sources;
    assert_status(
        uli_gpu_scratch_create(params->layout, &scratch), ULYX_SUCCESS);
    uli_gpu_table_room(params->layout, params->direction, params->rank,
        &scratch, &items, &sources);
    table->items = calloc((size_t)items + 1, sizeof(*table->items));
    table->sources = calloc((size_t)sources + 1, sizeof(*table->sources));
    assert_true(table->items && table->sources);
    assert_status(uli_gpu_table_fill(params, &scratch, items, sources, table),
        ULYX_SUCCESS);
    uli_gpu_scratch_free(&scratch);
}

static void
make_table(struct ranks_world *g, int32_t r, int op)
{
    static const int32_t nodes[RANKS_MAX] = {0, 0, 0, 0};
    struct ranks_one *one = &g->at[r];
    uli_strides_t *strides[RANKS_MAX];
    for (int32_t p = 0; p < g->nranks; p++)
        strides[p] = g->w->strides[p];
    struct uli_gpu_table_params params = {.layout = g->w->layout,
        .direction = op,
        .rank = r,
        .nodes = nodes,
        .strides = strides,
        .slot_bytes = g->config.slot_bytes,
        .workers = g->config.blocks * g->config.threads / 32};
    struct uli_gpu_table *table = &one->table[op];
    build_table(&params, table);
    good(cudaSetDevice(one->device));
    struct uli_gpu_args args = {
        .items = device_copy(
            table->items, (size_t)table->nitems * sizeof(*table->items)),
        .sources = device_copy(
            table->sources, (size_t)table->nsources * sizeof(*table->sources)),
        .nitems = table->nitems,
        .nfirst = table->nfirst,
        .ntiles = table->ntiles,
        .nfirst_tiles = table->nfirst_tiles,
        .tile_bytes = table->tile_bytes,
        .state = one->state,
        .peers = one->peers,
        .rank = r,
        .nranks = g->nranks,
        .poison = one->poison,
        .timeout_ns = g->config.timeout_ns ? g->config.timeout_ns : PATIENCE_NS,
        .slot_bytes = RANKS_SLOT_BYTES,
        .slots = table->slots,
        .sums = table->sums};
    fill_record(g, r, op, &args);
    one->args[op] = args;
}

void
ranks_open(
    struct ranks_world *g, struct world *w, const struct ranks_config *config)
{
    memset(g, 0, sizeof(*g));
    g->config = *config;
    if (!g->config.launch)
        g->config.launch = uli_gpu_exchange_launch;
    g->w = w;
    g->nranks = w->c.shape.nranks;
    open_devices(g);
    for (int32_t r = 0; r < g->nranks; r++)
        make_rank(g, r);
    for (int32_t r = 0; r < g->nranks; r++) {
        meet_peers(g, r);
        for (int op = 0; op < ULYX_DIRECTIONS; op++)
            if (w->directions >> op & 1)
                make_table(g, r, op);
    }
    ranks_settle(g);
}

void
ranks_close(struct ranks_world *g)
{
    for (int32_t r = 0; r < g->nranks; r++) {
        (void)cudaSetDevice(g->at[r].device);
        (void)cudaStreamDestroy(g->at[r].stream);
        (void)cudaFreeHost(g->at[r].poison);
        for (int op = 0; op < ULYX_DIRECTIONS; op++) {
            struct uli_gpu_table *table = &g->at[r].table[op];
            free(table->items);
            free(table->sources);
            memset(table, 0, sizeof(*table));
        }
    }
    free_taken();
    emu_close();
}

/* ---- calls --------------------------------------------------------------- */

void
ranks_enqueue_step(
    struct ranks_world *g, int32_t rank, int direction, int32_t step)
{
    struct ranks_one *one = &g->at[rank];
    struct uli_gpu_args args = one->args[direction];
    bool wide = step & ULI_GPU_MOVE;
    args.steps = step;
    good(cudaSetDevice(one->device));
    good(g->config.launch(&args, wide ? g->config.blocks : 1,
        wide ? g->config.threads : 32, one->stream));
}

void
ranks_enqueue(struct ranks_world *g, int32_t rank, int direction)
{
    static const int32_t steps[3] = {ULI_GPU_OPEN, ULI_GPU_MOVE, ULI_GPU_CLOSE};
    if (!g->config.split || g->at[rank].args[direction].slots) {
        ranks_enqueue_step(g, rank, direction, ULI_GPU_ALL);
        return;
    }
    for (int i = 0; i < 3; i++)
        ranks_enqueue_step(g, rank, direction, steps[i]);
}

void
ranks_enqueue_all(struct ranks_world *g, int direction)
{
    for (int32_t r = 0; r < g->nranks; r++)
        ranks_enqueue(g, r, direction);
}

bool
ranks_sync(struct ranks_world *g)
{
    bool well = true;
    for (int32_t r = 0; r < g->nranks; r++) {
        good(cudaSetDevice(g->at[r].device));
        well = cudaStreamSynchronize(g->at[r].stream) == cudaSuccess && well;
    }
    return well;
}

struct uli_gpu_state
ranks_state(struct ranks_world *g, int32_t rank)
{
    struct uli_gpu_state state;
    good(cudaMemcpy(
        &state, g->at[rank].state, sizeof(state), cudaMemcpyDeviceToHost));
    return state;
}

/* ---- images -------------------------------------------------------------- */

static void
each_image(struct ranks_world *g, bool up)
{
    for (int op = 0; op < ULYX_DIRECTIONS; op++)
        for (int32_t r = 0; r < g->nranks; r++)
            for (int32_t t = 0; t < g->w->c.shape.ntensors; t++) {
                struct image *images[2] = {
                    &g->w->src[op][r][t], &g->w->dst[op][r][t]};
                unsigned char *device[2] = {
                    g->at[r].src[op][t], g->at[r].dst[op][t]};
                for (int i = 0; i < 2; i++)
                    good(cudaMemcpy(up ? device[i] : images[i]->base,
                        up ? images[i]->base : device[i],
                        (size_t)images[i]->bytes,
                        up ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost));
            }
}

void
ranks_upload(struct ranks_world *g)
{
    each_image(g, true);
    ranks_settle(g);
}

void
ranks_download(struct ranks_world *g)
{
    each_image(g, false);
}

#ifdef ULI_EMULATE
/* ---- every byte once ----------------------------------------------------- */

void
ranks_track(struct ranks_world *g, int direction)
{
    for (int32_t r = 0; r < g->nranks; r++)
        for (int32_t t = 0; t < g->w->c.shape.ntensors; t++)
            assert_int_equal(emu_track(g->at[r].dst[direction][t],
                                 (size_t)g->w->dst[direction][r][t].bytes),
                0);
}

bool
ranks_track_check(struct ranks_world *g, int direction)
{
    bool well = true;
    for (int32_t r = 0; r < g->nranks; r++)
        for (int32_t t = 0; t < g->w->c.shape.ntensors; t++) {
            int64_t bytes = g->w->dst[direction][r][t].bytes;
            well = well &&
                   emu_track_check(g->at[r].dst[direction][t], (size_t)bytes) ==
                       bytes - payload_bytes(g->w, r, direction, t);
        }
    return well;
}
#endif
