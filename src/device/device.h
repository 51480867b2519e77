/* SPDX-License-Identifier: Apache-2.0
 *
 * Kinds of memory behind one table of operations: host memory, and the memory
 * of CUDA devices. Streams and events are void pointers: a CUstream (the same
 * object as a cudaStream_t) or CUevent. Host memory has no streams and no
 * events.
 *
 * Any thread may call; the calling thread's current device does not change. The
 * operations do not disturb captures of graphs in the process. The text of an
 * error has the driver call and the driver's own text.
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

/* A rectangle in memory: depth times height rows of width bytes. A pitch is the
 * distance from one row to the next, a slice the distance from one group of
 * height rows to the next, both in bytes. */
struct uli_device_rect {
    int64_t width, height, depth;
    int64_t dst_pitch, dst_slice, src_pitch, src_slice;
};

/* Can one strided copy of the driver copy the rect? It can if rows do not
 * overlap, pitches are within the driver's limit, and slices are whole numbers
 * of pitches. (rect.c) */
bool uli_device_rect_fits(const struct uli_device_rect *rect);

struct uli_device_ops {
    const char *name;
    int32_t memory_kind;
    /* Makes the kind of memory usable; repeated calls cost nothing. returns
     * ERR_UNSUPPORTED with the reason: no driver, too old a driver, no device.
     */
    ulyx_status_t (*open)(void);
    ulyx_status_t (*count)(int32_t *count_p);
    /* The calling thread's current device, 0 if it has none. */
    ulyx_status_t (*current)(int32_t *device_p);
    /* Identifies the device: the same in all processes of the machine. */
    ulyx_status_t (*uuid)(int32_t device, unsigned char uuid_p[16]);
    /* The device's PCI address: "0000:1b:00.0". */
    ulyx_status_t (*bus_id)(int32_t device, char text_p[32]);
    /* Lets work of `device` access the plain allocations of `peer`, another
     * device of this process, until the process ends; repeated calls cost
     * nothing. returns ERR_UNSUPPORTED naming both devices if the machine
     * cannot. */
    ulyx_status_t (*peer_enable)(int32_t device, int32_t peer);
    /* The memory to which an address belongs; takes any pointer, host pointers
     * included. */
    ulyx_status_t (*range)(
        const void *address, struct uli_device_range *range_p);
    ulyx_status_t (*alloc)(int32_t device, int64_t bytes, void **address_p);
    ulyx_status_t (*free)(int32_t device, void *address);
    /* Pinned host memory that work of any device accesses directly, at
     * *device_address_p. Contents undefined. */
    ulyx_status_t (*host_alloc)(int32_t device, int64_t bytes, void **address_p,
        void **device_address_p);
    ulyx_status_t (*host_free)(int32_t device, void *address);
    /* Enqueues a copy; the host kind copies at once. Either side may be host
     * memory. */
    ulyx_status_t (*copy)(int32_t device, void *dst, const void *src,
        int64_t bytes, void *stream);
    /* As copy, for a rect for which uli_device_rect_fits is true. src and dst
     * are the addresses of the first rows. */
    ulyx_status_t (*copy_rect)(int32_t device, void *dst, const void *src,
        const struct uli_device_rect *rect, void *stream);
    /* Enqueues a fill with zeros; the host kind fills at once. */
    ulyx_status_t (*zero)(
        int32_t device, void *address, int64_t bytes, void *stream);
    ulyx_status_t (*stream_create)(int32_t device, void **stream_p);
    ulyx_status_t (*stream_destroy)(int32_t device, void *stream);
    ulyx_status_t (*stream_wait)(int32_t device, void *stream);
    /* Is a graph being captured from the stream? */
    ulyx_status_t (*stream_capturing)(
        int32_t device, void *stream, bool *capturing_p);
    /* Enqueues call(data), which a thread of the driver makes; `call` must
     * neither call the driver nor wait. A graph that has captured it repeats it
     * at each launch. */
    ulyx_status_t (*host_call)(
        int32_t device, void *stream, void (*call)(void *data), void *data);
    ulyx_status_t (*event_create)(int32_t device, void **event_p);
    ulyx_status_t (*event_destroy)(int32_t device, void *event);
    ulyx_status_t (*event_record)(int32_t device, void *event, void *stream);
    /* Makes later work of the stream wait for the event. */
    ulyx_status_t (*event_order)(int32_t device, void *event, void *stream);
    /* SUCCESS, or IN_PROGRESS (which sets no error). */
    ulyx_status_t (*event_test)(int32_t device, void *event);
    /* timer_create: an event that records its time; event_destroy destroys it.
     * timer_elapsed: the time between two such events, which must have
     * happened. */
    ulyx_status_t (*timer_create)(int32_t device, void **event_p);
    ulyx_status_t (*timer_elapsed)(
        int32_t device, void *from, void *to, double *seconds_p);
    /* From graph_begin to graph_end, what this thread enqueues on the stream is
     * not executed, but recorded as a graph that can be launched. If graph_end
     * fails, there is no graph to destroy. */
    ulyx_status_t (*graph_begin)(int32_t device, void *stream);
    ulyx_status_t (*graph_end)(int32_t device, void *stream, void **graph_p);
    ulyx_status_t (*graph_launch)(int32_t device, void *graph, void *stream);
    ulyx_status_t (*graph_destroy)(int32_t device, void *graph);
};

/* The operations of ULYX_MEMORY_HOST or ULYX_MEMORY_CUDA; NULL for other kinds.
 * Never loads a driver: `open` does. */
const struct uli_device_ops *uli_device_ops(int32_t memory_kind);

extern const struct uli_device_ops uli_device_host, uli_device_cuda;

/* Does this build have kernels for CUDA devices? Without them communicators and
 * attention refuse CUDA memory. (cuda/built.c) */
bool uli_device_kernels_built(void);

#endif
