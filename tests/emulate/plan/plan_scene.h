/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of one process on emulated devices or cards, through the public calls
 * alone: communicators of CUDA memory, a window each, a stream each, and the
 * images of a reshuffle_world in the windows.
 */
#ifndef TESTS_EMULATE_PLAN_SCENE_H
#define TESTS_EMULATE_PLAN_SCENE_H

#include <cuda_runtime.h>
#include "collectives/exchange/reshuffle_world.h"
#ifdef ULI_EMULATE
#include "emulate.h"
#else
#include "emulate/card/card.h"
#endif

enum { PLAN_RANKS = 4, PLAN_RANKS_MAX = 8, PLAN_WINDOW_BYTES = 4 << 20 };

struct plan_scene {
    int32_t nranks, devices;  /* rank r on device r mod devices */
    struct world_ranks ranks; /* its comms */
    ulyx_mem_t *mems[PLAN_RANKS_MAX];
    unsigned char *windows[PLAN_RANKS_MAX];
    int64_t used[PLAN_RANKS_MAX];
    cudaStream_t streams[PLAN_RANKS_MAX];
    bool keep;       /* images of the next world behind those of the last */
    struct world *w; /* of now */
    unsigned char *src[ULYX_DIRECTIONS][PLAN_RANKS_MAX][ULI_TENSORS];
    unsigned char *dst[ULYX_DIRECTIONS][PLAN_RANKS_MAX][ULI_TENSORS];
};

/* The machine: the emulator, of so many devices and multiprocessors, for so
 * many host threads; of a card as many devices as there are, which is returned.
 */
int32_t plan_machine(int32_t devices, int32_t multiprocessors, int32_t hosts);
void plan_machine_close(void);
/* The ranks, on devices of the machine; several scenes may be connected.
 * timeout_s of the communicators. */
void plan_connect(
    struct plan_scene *s, int32_t nranks, int32_t devices, double timeout_s);
void plan_disconnect(struct plan_scene *s);
/* Frees a window of a failed communicator, which has been destroyed. */
void plan_free_window(ulyx_mem_t *mem);
/* Both at once: eight multiprocessors per device. */
void plan_open(
    struct plan_scene *s, int32_t nranks, int32_t devices, double timeout_s);
/* Every part of the library has given back what it took. failed: the
 * communicators are; their windows may be quarantined for a while. */
void plan_close(struct plan_scene *s);

/* Draws a world for the case in w and puts its images into the windows. False:
 * the layout refuses the case. */
bool plan_draw(
    struct plan_scene *s, struct world *w, struct test_random *random);
/* The world's images have been drawn again, for strides of calls
 * (world_move). */
void plan_place(struct plan_scene *s);
/* Plans of all ranks, in one group. */
ulyx_status_t plan_create(struct plan_scene *s, struct world *w);
/* Destroys plans and world. */
void plan_drop(struct plan_scene *s);

/* Sources and poisoned destinations to the windows, and back. */
void plan_upload(struct plan_scene *s);
void plan_download(struct plan_scene *s);

ulyx_status_t plan_execute(struct plan_scene *s, int32_t rank, int op);
/* At all ranks; all well. */
void plan_execute_all(struct plan_scene *s, int op);
void plan_sync(struct plan_scene *s);
/* Uploads, executes all operations, checks every byte. */
void plan_round(struct plan_scene *s);

/* Pinned host memory, zeros. Where ranks are threads of a card, asynchronous
 * copies need it: those of other memory may wait for their stream, so for ranks
 * that the thread itself has yet to serve. */
unsigned char *plan_pinned_take(int64_t bytes);
void plan_pinned_free(unsigned char *memory);

#endif
