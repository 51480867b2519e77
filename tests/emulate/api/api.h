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
    struct emu_op *tail;       /* the last operation, or NULL */
    struct emu_graph *capture; /* what it records into, or NULL */
    int last;                  /* the last node that it recorded; -1 = none */
    bool origin;               /* the capture began on it */
    int capture_mode;
    pthread_t capture_thread;
    struct emu_stream *next;
};

struct emu_event {
    int device;
    struct emu_op *op; /* the record, or NULL */
    struct emu_graph *capture;
    int node;
};

struct emu_node {
    struct emu_op *op; /* a template: copied at each launch */
    int *after;
    int after_count, followers;
};

struct emu_graph {
    struct emu_node *nodes;
    size_t count, room;
    int references;
};

/* NULL = the current device's default stream. */
struct emu_stream *emu_stream_of(cudaStream_t stream);
/* Puts the operation at the end of the stream, or into the graph that the
 * stream records. Takes the caller's reference. */
void emu_stream_push(struct emu_stream *stream, struct emu_op *op);
void emu_graph_add(
    struct emu_graph *graph, struct emu_op *op, int after_a, int after_b);
void emu_graph_drop(struct emu_graph *graph);
/* Waits for the operation (NULL = for all work), then takes its end. */
cudaError_t emu_host_wait(struct emu_op *op);
/* Enqueues a copy of rows of so many bytes; takes the lock itself. */
void emu_copy_rows(void *dst, const void *src, size_t bytes,
    const struct emu_rect *rows, cudaStream_t stream);
void emu_streams_free(void);
void emu_streams_each(
    void (*act)(const struct emu_graph *, struct emu_stream *),
    const struct emu_graph *graph);
void emu_kernels_reset(void);
/* Notes the error for cudaGetLastError and returns it. */
cudaError_t emu_result(cudaError_t error);
int emu_current_device(void);
/* Makes it the calling thread's, unchecked. */
void emu_set_device(int device);
/* Waits for what streams of the device hold now; -1 = of all devices. */
cudaError_t emu_device_wait(int device);
/* Does a capture that is going on forbid a call of this kind to the calling
 * thread, which is in the capture mode? */
bool emu_capture_forbids(int mode);
/* Opens with defaults when nothing is open, then takes the lock. */
void emu_enter(void);
/* As emu_leave, for a call that changes nothing. */
void emu_enter_query(void);
void emu_leave(void);

#endif
