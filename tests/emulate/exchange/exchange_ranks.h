/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange kernels on emulated devices: ranks whose flags, slots, windows
 * and tables are in device memory, filled from a reshuffle_world whose images
 * are host memory.
 */
#ifndef TESTS_EMULATE_EXCHANGE_EXCHANGE_RANKS_H
#define TESTS_EMULATE_EXCHANGE_EXCHANGE_RANKS_H

#include <stdbool.h>
#include <stdint.h>
#include <cuda_runtime.h>
#include "collectives/device/mapped/exchange_gpu.h"
#include "collectives/device/mapped/exchange_table.h"
#include "collectives/exchange/reshuffle_world.h"
#ifdef ULI_EMULATE
#include "emulate.h"
#else
#include "emulate/card/card.h"
#endif

enum {
    RANKS_MAX = 4,
    /* one window per image */
    RANKS_WINDOWS = ULYX_DIRECTIONS * 2 * ULI_TENSORS,
    RANKS_SLOT_BYTES = 1 << 16,
};

typedef int (*ranks_launch_fn)(const struct uli_gpu_args *args, int32_t blocks,
    int32_t threads, void *stream);

struct ranks_config {
    uint64_t seed;
    int devices; /* rank r runs on device r mod devices */
    int64_t slot_bytes;
    bool split; /* OPEN, MOVE and CLOSE are launches of their own */
    int32_t blocks, threads;
    uint64_t timeout_ns;    /* 0 = an hour of virtual time, or 10 s on a card */
    ranks_launch_fn launch; /* NULL = uli_gpu_exchange_launch */
    bool quiet;             /* faults are expected and not printed */
    int host_threads;       /* host threads that drive devices; 0 = this one */
};

struct ranks_one {
    int device;
    cudaStream_t stream;
    struct uli_gpu_state *state;
    struct uli_gpu_flags *words; /* [nranks], written by the peers */
    unsigned char *slots;        /* [nranks][2][slot_bytes] */
    struct uli_gpu_peer *peers;
    unsigned char *src[ULYX_DIRECTIONS][ULI_TENSORS]; /* one per whole image */
    unsigned char *dst[ULYX_DIRECTIONS][ULI_TENSORS];
    unsigned char *scratch[ULI_TENSORS]; /* as large as any image */
    uint64_t *poison;                    /* host memory */
    struct uli_gpu_table table[ULYX_DIRECTIONS];
    struct uli_gpu_args args[ULYX_DIRECTIONS];
};

struct ranks_world {
    struct ranks_config config;
    struct world *w;
    int32_t nranks;
    struct ranks_one at[RANKS_MAX];
};

/* Opens the emulator and puts the world on its devices. */
void ranks_open(
    struct ranks_world *g, struct world *w, const struct ranks_config *config);
/* Closes the emulator, too. */
void ranks_close(struct ranks_world *g);

/* Enqueues one rank's call of an operation. */
void ranks_enqueue(struct ranks_world *g, int32_t rank, int direction);
/* Enqueues one launch of the call: an enum uli_gpu_step. */
void ranks_enqueue_step(
    struct ranks_world *g, int32_t rank, int direction, int32_t step);
/* Enqueues a call of all ranks. */
void ranks_enqueue_all(struct ranks_world *g, int direction);
/* Waits for all ranks. Returns false on an error of the runtime. */
bool ranks_sync(struct ranks_world *g);

/* Copies the world's sources, and its poisoned destinations, to the devices. */
void ranks_upload(struct ranks_world *g);
/* Copies all images back from the devices. */
void ranks_download(struct ranks_world *g);

/* From ranks_track on, each byte of an operation's destinations may be written
 * once. ranks_track_check returns whether exactly the bytes that the layout
 * names were written. */
void ranks_track(struct ranks_world *g, int direction);
bool ranks_track_check(struct ranks_world *g, int direction);

/* Returns a copy of the bytes in memory of the rank's device, which lives until
 * ranks_close. */
void *ranks_device_copy(
    struct ranks_world *g, int32_t rank, const void *host, size_t bytes);
struct uli_gpu_state ranks_state(struct ranks_world *g, int32_t rank);

/* Returns a world in memory of this process, without a communicator. */
struct world *ranks_new_world(int32_t nranks, struct world_ranks *storage);

#endif
