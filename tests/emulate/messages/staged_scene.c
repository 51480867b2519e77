/* SPDX-License-Identifier: Apache-2.0
 *
 * See staged_scene.h.
 */
#include "emulate/messages/staged_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/status.h"
#include "base/system/clock.h"
#include "comm/device/gpu.h"
#include "emulate.h"
#include "emulate/driver/driver.h"
#include "support/ranks.h"
#include "transport/staged/staged.h"

#define OPS           (uli_tr_staged_ops.batch)
#define well(call)    ranks_expect((call) == ULYX_SUCCESS)
#define well_cu(call) ranks_expect((call) == cudaSuccess)

enum { POISON = 0xA5, FEW = 10 };

void
staged_sleep(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

void
staged_meet(struct staged_case *c)
{
    int now = atomic_fetch_add(&c->met, 1) + 1;
    int all = (now + c->nranks - 1) / c->nranks * c->nranks;
    while (!c->processes && atomic_load(&c->met) < all)
        staged_sleep(1);
}

/* ---- ranks --------------------------------------------------------------- */

static bool
open_comm(struct staged_case *c, int rank)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    params.memory_kind = ULYX_MEMORY_CUDA;
    params.device = c->processes ? 0 : rank % c->devices;
    params.timeout_s = c->timeout_s;
    cudaSetDevice(params.device);
    return well(ulyx_comm_create(
               &c->id, c->nranks, rank, &params, &c->comms[rank])) &&
           well_cu(cudaStreamCreateWithFlags(
               &c->streams[rank], cudaStreamNonBlocking));
}

static bool
make_room(struct staged_case *c, int rank)
{
    return well_cu(cudaMalloc((void **)&c->room[rank], STAGED_ROOM));
}

/* All ranks return the failure at once, and none keeps a batch. */
static bool
is_refused(
    struct staged_case *c, int rank, const struct uli_batch_params *params)
{
    ulyx_status_t status =
        rank == 1 ? uli_staged_memory_refuse(
                        params, uli_error(ULYX_ERR_NO_MEMORY, "it has none"))
                  : OPS->open(params, &c->batches[rank]);
    return ranks_expect(status == ULYX_ERR_NO_MEMORY) &&
           ranks_expect(strstr(uli_error_text(), "rank 1: it has none")) &&
           ranks_expect(!c->batches[rank]) &&
           ranks_expect(atomic_load(&c->comms[rank]->failed) == 0);
}

static bool
open_batch(struct staged_case *c, int rank)
{
    unsigned char id[ULI_BATCH_ID_BYTES];
    ulyx_comm_t *comm = c->comms[rank];
    comm->settings.stage_chunk_bytes = c->chunk_bytes;
    c->contexts[rank] = (struct uli_batch_context){comm, c->cards[rank]};
    struct uli_batch_params params = uli_batch_params_of(&c->contexts[rank]);
    params.id = id;
    params.deadline = uli_deadline_in(c->timeout_s);
    if (!well(OPS->make_id(&comm->settings, id)))
        return false;
    return c->refused ? is_refused(c, rank, &params)
                      : well(OPS->open(&params, &c->batches[rank]));
}

int
staged_rank(int rank, int nranks, void *context)
{
    struct staged_case *c = context;
    const struct emu_config config = {.devices = 1,
        .sm_count = 8,
        /* one more than here, because peers are in other processes */
        .host_threads = 2,
        .wall_time = true};
    (void)nranks;
    if (c->processes && emu_open(&config))
        return 1;
    if (c->processes)
        emu_driver_no_peers(true);
    bool good = open_comm(c, rank) && make_room(c, rank) && open_batch(c, rank);
    good = good && (c->refused || c->play(c, rank) == 0);
    staged_meet(c);
    if (c->batches[rank])
        OPS->close(c->batches[rank], uli_deadline_in(5));
    staged_meet(c);
    if (c->streams[rank])
        cudaStreamDestroy(c->streams[rank]);
    cudaFree(c->room[rank]);
    if (c->comms[rank])
        good = well(ulyx_comm_destroy(c->comms[rank])) && good;
    if (c->processes) {
        good = ranks_expect(emu_fault_count() == 0) && good;
        good = ranks_expect(emu_driver_live() == 0) && good;
        emu_close();
    }
    return !good;
}

/* ---- pieces -------------------------------------------------------------- */

static int64_t
draw_bytes(struct test_random *random, int64_t longest)
{
    switch (test_random_in(random, 0, 3)) {
    case 0:
        return test_random_in(random, 1, 40);
    case 1:
        return test_random_in(random, 1, longest);
    default:
        return 16 * test_random_in(random, 1, longest / 16);
    }
}

static size_t
room_of(const struct staged_piece *piece)
{
    return (size_t)(piece->bytes + piece->skew) + 2 * STAGED_GUARD;
}

bool
staged_add(struct staged_case *c, int rank, const struct staged_piece *piece)
{
    int i = c->npieces[rank]++;
    c->pieces[rank][i] = *piece;
    c->memory[rank][i] = c->room[rank] + c->used[rank];
    c->used[rank] += (int64_t)(room_of(piece) + 255) / 256 * 256;
    return ranks_expect(c->used[rank] <= STAGED_ROOM);
}

/* All ranks draw the same sequence, and each keeps the pieces that concern it.
 * A pair may have no piece, or several in each direction. */
bool
staged_draw(struct staged_case *c, int rank, int n)
{
    struct test_random random = {c->seed + (uint64_t)n * 977};
    bool good = true;
    c->npieces[rank] = 0;
    c->used[rank] = 0;
    for (int i = 0; i < FEW; i++) {
        struct staged_piece piece = {
            .from = (int)test_random_in(&random, 0, c->nranks - 1),
            .to = (int)test_random_in(&random, 0, c->nranks - 1),
            .bytes = draw_bytes(&random, c->longest),
            .skew =
                test_random_in(&random, 0, 2) * test_random_in(&random, 0, 16)};
        if (piece.from == piece.to || (piece.from != rank && piece.to != rank))
            continue;
        good = good && staged_add(c, rank, &piece);
    }
    return good;
}

static unsigned char
byte_of(const struct staged_piece *piece, int n, int i, int64_t at)
{
    return (unsigned char)(at * 31 + at / 251 + piece->from * 7 +
                           piece->to * 13 + n * 17 + i * 3);
}

/* Computes what the memory of piece i holds in run n. With `come` these are the
 * bytes of the piece, which its sender has before the run and both ranks have
 * after it; else poison. The pieces of a pair are distinguished by a number
 * that both ranks count. */
static void
bytes_expect(const struct staged_case *c, int rank, int n, int i, bool come,
    unsigned char *bytes_p)
{
    const struct staged_piece *piece = &c->pieces[rank][i];
    int64_t at = STAGED_GUARD + piece->skew;
    int number = 0;
    for (int k = 0; k < i; k++)
        number += c->pieces[rank][k].from == piece->from &&
                  c->pieces[rank][k].to == piece->to;
    memset(bytes_p, POISON, (size_t)(piece->bytes + at + STAGED_GUARD));
    for (int64_t b = 0; come && b < piece->bytes; b++)
        bytes_p[at + b] = byte_of(piece, n, number, b);
}

bool
staged_fill(struct staged_case *c, int rank, int n)
{
    bool good = true;
    for (int i = 0; good && i < c->npieces[rank]; i++) {
        size_t bytes = room_of(&c->pieces[rank][i]);
        unsigned char *host = malloc(bytes);
        bytes_expect(c, rank, n, i, c->pieces[rank][i].from == rank, host);
        good = well_cu(cudaMemcpyAsync(c->memory[rank][i], host, bytes,
                   cudaMemcpyHostToDevice, c->streams[rank])) &&
               staged_sync(c, rank);
        free(host);
    }
    return good;
}

bool
staged_check(struct staged_case *c, int rank, int n)
{
    bool good = true;
    for (int i = 0; good && i < c->npieces[rank]; i++) {
        size_t bytes = room_of(&c->pieces[rank][i]);
        unsigned char *wanted = malloc(bytes), *got = malloc(bytes);
        bytes_expect(c, rank, n, i, true, wanted);
        good = well_cu(cudaMemcpyAsync(got, c->memory[rank][i], bytes,
                   cudaMemcpyDeviceToHost, c->streams[rank])) &&
               staged_sync(c, rank) &&
               ranks_expect(memcmp(got, wanted, bytes) == 0);
        free(wanted);
        free(got);
    }
    return good;
}

/* ---- runs ---------------------------------------------------------------- */

ulyx_status_t
staged_run(struct staged_case *c, int rank, double timeout_s)
{
    struct uli_batch_message pieces[STAGED_PIECES];
    for (int i = 0; i < c->npieces[rank]; i++) {
        const struct staged_piece *piece = &c->pieces[rank][i];
        bool send = piece->from == rank;
        pieces[i] = (struct uli_batch_message){
            .data = c->memory[rank][i] + STAGED_GUARD + piece->skew,
            .bytes = piece->bytes,
            .peer = send ? piece->to : piece->from,
            .send = send};
    }
    return OPS->run(c->batches[rank], pieces, c->npieces[rank],
        c->streams[rank], uli_deadline_in(timeout_s));
}

bool
staged_sync(struct staged_case *c, int rank)
{
    return well_cu(cudaStreamSynchronize(c->streams[rank]));
}
