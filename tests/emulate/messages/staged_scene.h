/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks with the transport "staged" on emulated devices that cannot map each
 * other's memory: random pieces from each rank to each, of which every byte is
 * compared with what was sent, with guards around them.
 */
#ifndef TESTS_EMULATE_MESSAGES_STAGED_SCENE_H
#define TESTS_EMULATE_MESSAGES_STAGED_SCENE_H

#include <cuda_runtime.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "comm/messages/batch_hooks.h"
#include "comm/comm.h"
#include "support/random.h"
#include "ulyx/comm.h"

enum {
    STAGED_RANKS = 4,
    STAGED_PIECES = 16,
    STAGED_GUARD = 64,
    STAGED_ROOM = 4 << 20,
};

/* A piece from one rank to another. Both ranks have the same values. */
struct staged_piece {
    int from, to;
    int64_t bytes, skew; /* skew: offset of its address, at both ends */
};

/* All ranks share this; processes have copies from fork. */
struct staged_case {
    ulyx_unique_id_t id;
    int nranks, devices, ranks_per_node;
    double timeout_s;
    int64_t chunk_bytes, longest; /* longest: bytes of the longest piece */
    uint64_t seed;
    bool processes; /* each rank opens its own emulator */
    bool refused;   /* rank 1 has no memory for its batch */
    int (*play)(struct staged_case *c, int rank);
    void *context;
    _Atomic int met; /* counts ranks that are threads */
    struct uli_batch *batches[STAGED_RANKS];
    struct uli_batch_context contexts[STAGED_RANKS];
    unsigned char cards[STAGED_RANKS][STAGED_RANKS * ULI_BATCH_ADDRESS_BYTES];
    ulyx_comm_t *comms[STAGED_RANKS];
    cudaStream_t streams[STAGED_RANKS];
    /* the pieces of the present run, which all ranks draw alike */
    struct staged_piece pieces[STAGED_RANKS][STAGED_PIECES];
    int npieces[STAGED_RANKS];
    unsigned char *memory[STAGED_RANKS][STAGED_PIECES];
    /* The memory of the pieces is made once, because freeing waits for all work
     * of a device. */
    unsigned char *room[STAGED_RANKS];
    int64_t used[STAGED_RANKS];
};

/* The body of a rank: makes communicator, batch and stream, calls c->play, and
 * destroys them. */
int staged_rank(int rank, int nranks, void *context);

/* Draws the pieces of run n that concern this rank and makes their memory. */
bool staged_draw(struct staged_case *c, int rank, int n);
/* Writes new bytes into pieces to send and poison into pieces to receive; waits
 * for these copies. */
bool staged_fill(struct staged_case *c, int rank, int n);
/* Checks every byte that arrived in run n, and the guards. */
bool staged_check(struct staged_case *c, int rank, int n);
/* Adds one more piece of this rank. */
bool staged_add(
    struct staged_case *c, int rank, const struct staged_piece *piece);
ulyx_status_t staged_run(struct staged_case *c, int rank, double timeout_s);
bool staged_sync(struct staged_case *c, int rank);
/* Waits until all ranks of the process are here, or have given up. */
void staged_meet(struct staged_case *c);
void staged_sleep(int ms);

#endif
