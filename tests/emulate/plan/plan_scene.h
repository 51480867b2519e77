/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of one process on emulated devices or cards, through the public calls
 * alone: each has a communicator of CUDA memory, a window and a stream, and the
 * images of a reshuffle_world lie in the windows.
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
    int32_t nranks, devices;  /* rank r is on device r mod devices */
    struct world_ranks ranks; /* the communicators of the ranks */
    ulyx_mem_t *mems[PLAN_RANKS_MAX];
    unsigned char *windows[PLAN_RANKS_MAX];
    int64_t used[PLAN_RANKS_MAX];
    cudaStream_t streams[PLAN_RANKS_MAX];
    /* the images of the next world go behind those of the last one */
    bool keep;
    struct world *w; /* the present world */
    unsigned char *src[ULYX_DIRECTIONS][PLAN_RANKS_MAX][ULI_TENSORS];
    unsigned char *dst[ULYX_DIRECTIONS][PLAN_RANKS_MAX][ULI_TENSORS];
};

/* Opens the emulator with so many devices and multiprocessors, for so many host
 * threads. On a card, uses at most the devices that there are. Returns the
 * number of devices. */
int32_t plan_machine(int32_t devices, int32_t multiprocessors, int32_t hosts);
void plan_machine_close(void);
/* Makes the ranks, on devices of the machine. Several scenes may be connected.
 * timeout_s is that of the communicators. */
void plan_connect(
    struct plan_scene *s, int32_t nranks, int32_t devices, double timeout_s);
void plan_disconnect(struct plan_scene *s);
/* Frees a window whose communicator has failed and been destroyed. */
void plan_free_window(ulyx_mem_t *mem);
/* Opens the machine, with eight multiprocessors per device, and makes the
 * ranks. */
void plan_open(
    struct plan_scene *s, int32_t nranks, int32_t devices, double timeout_s);
/* Closes both, and checks that every part of the library has freed what it
 * took. */
void plan_close(struct plan_scene *s);

/* Draws a world for the case in w and puts its images into the windows. Returns
 * false if the layout refuses the case. */
bool plan_draw(
    struct plan_scene *s, struct world *w, struct test_random *random);
/* Places the images of the world in the windows anew, after world_move has
 * drawn them for the strides of a call. */
void plan_place(struct plan_scene *s);
/* Creates the plans of all ranks, in one group. */
ulyx_status_t plan_create(struct plan_scene *s, struct world *w);
/* Destroys the plans and the world. */
void plan_drop(struct plan_scene *s);

/* Copies sources and poisoned destinations to the windows, and destinations
 * back. */
void plan_upload(struct plan_scene *s);
void plan_download(struct plan_scene *s);

ulyx_status_t plan_execute(struct plan_scene *s, int32_t rank, int op);
/* Makes the call on all ranks; all must succeed. */
void plan_execute_all(struct plan_scene *s, int op);
void plan_sync(struct plan_scene *s);
/* Uploads, executes all operations, and checks every byte. */
void plan_round(struct plan_scene *s);

/* Takes pinned host memory, filled with zeros. On a card whose ranks are driven
 * by one thread, asynchronous copies need pinned memory: a copy of other memory
 * may wait for its stream, and so for ranks that the thread has not yet
 * served. */
unsigned char *plan_pinned_take(int64_t bytes);
void plan_pinned_free(unsigned char *memory);

#endif
