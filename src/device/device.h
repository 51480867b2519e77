/* SPDX-License-Identifier: Apache-2.0
 *
 * Kinds of memory behind one table of operations: host memory, and the memory
 * of CUDA devices. Streams and events are void pointers: a CUstream (the same
 * object as a cudaStream_t) or CUevent; host memory has none.
 *
 * Any thread may call; the calling thread's current device is as before. A
 * capture of a graph that is going on in the process is not disturbed.
 * Errors name the call and the driver's own words.
 */
#ifndef ULI_DEVICE_DEVICE_H
#define ULI_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>
#include "ulyx/types.h"

/* What a pointer points into. */
struct uli_device_range {
    int32_t memory_kind; /* ULYX_MEMORY_... */
    int32_t device;      /* CUDA ordinal; -1 = host */
    void *base;          /* of the allocation; host: the pointer itself */
    int64_t bytes;       /* of the allocation; 0 = unknown */
    bool managed;        /* may move between host and devices */
    bool legacy_ipc;     /* an IPC handle of the allocation can be made */
};

/* depth x height rows of width bytes; from row to row a pitch, from one of
 * depth to the next a slice, both in bytes. */
struct uli_device_rect {
    int64_t width, height, depth;
    int64_t dst_pitch, dst_slice, src_pitch, src_slice;
};

/* Can one strided copy of the driver do it? It can where rows do not overlap,
 * pitches are below its limit, and slices are whole numbers of pitches.
 * (rect.c) */
bool uli_device_rect_fits(const struct uli_device_rect *rect);

struct uli_device_ops {
    const char *name;
    int32_t memory_kind;
    /* Makes the kind usable; calling it again costs nothing. returns
     * ERR_UNSUPPORTED with the reason: no driver, too old a driver, no device.
     */
    ulyx_status_t (*open)(void);
    ulyx_status_t (*count)(int32_t *count_p);
    /* The calling thread's current device, 0 if it has none. */
    ulyx_status_t (*current)(int32_t *device_p);
    /* Which device it is: the same in all processes of the machine. */
    ulyx_status_t (*uuid)(int32_t device, unsigned char uuid_p[16]);
    /* Where it is on the machine's PCI: "0000:1b:00.0". */
    ulyx_status_t (*bus_id)(int32_t device, char text_p[32]);
    /* Lets work of `device` reach the plain allocations of `peer`, a device of
     * this process, until the process ends; calling it again costs nothing.
     * returns ERR_UNSUPPORTED naming both where the machine cannot. */
    ulyx_status_t (*peer_enable)(int32_t device, int32_t peer);
    /* Which memory is this? Of any pointer, host pointers included. */
    ulyx_status_t (*range)(
        const void *address, struct uli_device_range *range_p);
    ulyx_status_t (*alloc)(int32_t device, int64_t bytes, void **address_p);
    ulyx_status_t (*free)(int32_t device, void *address);
    /* Host memory that stays where it is and that work of any device reaches,
     * at *device_address_p, without a copy. Contents undefined. */
    ulyx_status_t (*host_alloc)(int32_t device, int64_t bytes, void **address_p,
        void **device_address_p);
    ulyx_status_t (*host_free)(int32_t device, void *address);
    /* Enqueues; host: copies. Either side may be host memory. */
    ulyx_status_t (*copy)(int32_t device, void *dst, const void *src,
        int64_t bytes, void *stream);
    /* The same for a rect that fits, from src's first row to dst's. */
    ulyx_status_t (*copy_rect)(int32_t device, void *dst, const void *src,
        const struct uli_device_rect *rect, void *stream);
    /* Enqueues zeros; host: writes them. */
    ulyx_status_t (*zero)(
        int32_t device, void *address, int64_t bytes, void *stream);
    ulyx_status_t (*stream_create)(int32_t device, void **stream_p);
    ulyx_status_t (*stream_destroy)(int32_t device, void *stream);
    ulyx_status_t (*stream_wait)(int32_t device, void *stream);
    /* Is a graph being captured from it? */
    ulyx_status_t (*stream_capturing)(
        int32_t device, void *stream, bool *capturing_p);
    /* Enqueues a call of the host's: on a thread of the driver's, which must
     * not call the driver nor wait. Graphs that capture it repeat it. */
    ulyx_status_t (*host_call)(
        int32_t device, void *stream, void (*call)(void *data), void *data);
    ulyx_status_t (*event_create)(int32_t device, void **event_p);
    ulyx_status_t (*event_destroy)(int32_t device, void *event);
    ulyx_status_t (*event_record)(int32_t device, void *event, void *stream);
    /* Makes later work of the stream wait for the event. */
    ulyx_status_t (*event_order)(int32_t device, void *event, void *stream);
    /* SUCCESS, or IN_PROGRESS (which sets no error). */
    ulyx_status_t (*event_test)(int32_t device, void *event);
    /* An event that notes when it happened, destroyed as others are; elapsed
     * is between two that have happened. */
    ulyx_status_t (*timer_create)(int32_t device, void **event_p);
    ulyx_status_t (*timer_elapsed)(
        int32_t device, void *from, void *to, double *seconds_p);
    /* What this thread enqueues on the stream until end is not executed but
     * recorded as a graph that can be launched; end frees the graph when it
     * fails. */
    ulyx_status_t (*graph_begin)(int32_t device, void *stream);
    ulyx_status_t (*graph_end)(int32_t device, void *stream, void **graph_p);
    ulyx_status_t (*graph_launch)(int32_t device, void *graph, void *stream);
    ulyx_status_t (*graph_destroy)(int32_t device, void *graph);
};

/* ULYX_MEMORY_HOST or ULYX_MEMORY_CUDA; NULL for others. Never loads a driver:
 * open does. */
const struct uli_device_ops *uli_device_ops(int32_t memory_kind);

extern const struct uli_device_ops uli_device_host, uli_device_cuda;

/* Whether this build has kernels for CUDA devices. Without them no communicator
 * of CUDA memory is made, and attention takes none. (cuda/built.c) */
bool uli_device_kernels_built(void);

#endif
