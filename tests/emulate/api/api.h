/* SPDX-License-Identifier: Apache-2.0
 *
 * The runtime's objects, shared by the files of api/. All functions here
 * expect emu.lock to be held.
 */
#ifndef EMULATE_API_API_H
#define EMULATE_API_API_H

#include "emulate/memory/memory.h"
#include "emulate/include/cuda_runtime.h"

struct emu_stream {
    int device;
    struct emu_op *tail; /* the last operation in the stream, or NULL */
    /* the graph that a capture records into, or NULL */
    struct emu_graph *capture;
    /* the last node that the capture recorded; -1 = none */
    int last;
    bool origin; /* whether the capture began on this stream */
    int capture_mode;
    pthread_t capture_thread;
    struct emu_stream *next;
};

struct emu_event {
    int device;
    struct emu_op *op; /* the operation that the event marks, or NULL */
    struct emu_graph *capture;
    int node;
};

struct emu_node {
    struct emu_op *op; /* a template, which each launch copies */
    int *after;
    int after_count, followers;
};

struct emu_graph {
    struct emu_node *nodes;
    size_t count, room;
    int references;
};

/* Returns the stream; NULL names the default stream of the current device. */
struct emu_stream *emu_stream_of(cudaStream_t stream);
/* Puts the operation at the end of the stream, or into the graph that the
 * stream is captured into. The caller's reference passes to the stream or
 * graph. */
void emu_stream_push(struct emu_stream *stream, struct emu_op *op);
void emu_graph_add(
    struct emu_graph *graph, struct emu_op *op, int after_a, int after_b);
void emu_graph_drop(struct emu_graph *graph);
/* Waits for the operation (NULL = for all work); from then on the host is
 * ordered after it. */
cudaError_t emu_host_wait(struct emu_op *op);
/* Enqueues a copy of rows, each of so many bytes. Unlike the other functions,
 * takes the lock itself. */
void emu_copy_rows(void *dst, const void *src, size_t bytes,
    const struct emu_rect *rows, cudaStream_t stream);
void emu_streams_free(void);
void emu_streams_each(
    void (*act)(const struct emu_graph *, struct emu_stream *),
    const struct emu_graph *graph);
void emu_kernels_reset(void);
/* Keeps the error for cudaGetLastError and returns it. */
cudaError_t emu_result(cudaError_t error);
int emu_current_device(void);
/* Makes the device the calling thread's current one, without a check. */
void emu_set_device(int device);
/* Waits for what the streams of the device hold at the time of the call; -1 =
 * the streams of all devices. */
cudaError_t emu_device_wait(int device);
/* Does a capture in progress forbid a call of this kind to the calling thread,
 * which has this capture mode? */
bool emu_capture_forbids(int mode);
/* Takes the lock; opens the emulator with the defaults first, if it is not
 * open. */
void emu_enter(void);
/* As emu_enter, for a call that changes nothing: counts it in emu.queries. */
void emu_enter_query(void);
void emu_leave(void);

#endif
