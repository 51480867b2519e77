/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator of CUDA memory. Its control block, host arenas, agreement and
 * doorbells stay in host memory; in addition it has
 *
 *   windows in device memory, in the same tables and by the same ids as host
 *   ones: uli_window_find and uli_window_address serve both. An address is
 *   what this rank's device uses, not the host;
 *   a copy of the tables in device memory, for kernels;
 *   arenas in device memory;
 *   a poison word that kernels read, in pinned host memory.
 *
 * Order in the table on the device. An entry is written before attach returns
 * at the window's owner, so before the owner can name the window to a peer's
 * kernel. Detach clears the entry, when no rank may use the window. Kernels
 * read an entry by an ordinary load, because a kernel learns of a window only
 * after the entry was written.
 *
 * Where memory of a pair of ranks cannot be mapped, the communicator exists all
 * the same, with one reason on all ranks (uli_gpu_unmapped). It then refuses
 * attach and device arenas; other transports may serve.
 */
#ifndef ULI_COMM_DEVICE_GPU_H
#define ULI_COMM_DEVICE_GPU_H

#include "comm/comm.h"
#include "device/share.h"

enum { ULI_GPU_ARENA_LINE = 128 }; /* alignment of blocks */

struct uli_channel_gpu; /* of collectives */

/* Functions that collectives provide, about their calls on the device. */
struct uli_gpu_calls {
    /* Whether the device has work of this rank that may touch windows of peers.
     * Called by detach of a failed communicator and by destroy, from any
     * thread, under the registry's lock: it must not wait. */
    bool (*in_flight)(struct ulyx_comm *comm);
    /* Fails the communicator if the device has recorded a failure that no host
     * thread has read. Any thread; takes plans_lock, does not wait for the
     * device. */
    void (*look)(struct ulyx_comm *comm);
};

struct uli_gpu {
    struct uli_list node; /* in the process's list, while it has a stream */
    const struct uli_device_ops *ops;
    int32_t device;  /* ordinal in this process */
    int32_t sharers; /* ranks on the same device, this one included */

    pthread_mutex_t lock; /* stream, event, staging; taken last */
    void *stream, *event; /* for the small work of this layer */
    double timeout_s;     /* of that work, the communicator's */
    bool stuck;           /* earlier small work did not end in time */

    /* One allocation of pinned memory. poison: status and rank as in control.h,
     * 0 while the communicator has not failed. */
    _Atomic uint64_t *poison;
    void *poison_there;
    void **staging; /* an entry of the table on its way to the device */

    /* unsigned char *[nrows][ULI_WINDOW_CHUNK * ULI_WINDOW_CHUNKS] on the
     * device: table[row[r]][window], a row for each rank whose memory can be
     * mapped. */
    unsigned char **table;
    int32_t nrows;
    int32_t *row;         /* [nranks], the rank's row; -1 = none */
    _Atomic bool ready;   /* the table can be written: windows are accepted */
    _Atomic bool refused; /* no window is ever accepted, because of refusal */
    char refusal[200];    /* written before refused, read by the service */

    char unmapped[200]; /* why device memory cannot be mapped; "" = it can */

    struct uli_list arenas; /* under comm->lock, private to gpu_arena.c */

    /* Private to collectives: plans and calls on this device. The lock is taken
     * last. */
    struct uli_list plans;
    struct uli_channel_gpu *channel; /* of collectives; NULL until the first */
    pthread_mutex_t plans_lock;
    const struct uli_gpu_calls *_Atomic calls; /* NULL until the first plan */
};

/* ---- for the layers above ------------------------------------------------ */

/* NULL where device memory of all pairs of ranks can be mapped; else the
 * reason, the same on all ranks. Requires comm->gpu. */
const char *uli_gpu_unmapped(const ulyx_comm_t *comm);
/* The reason as an error: UNSUPPORTED, "<what>device memory is not mapped
 * between the ranks: ...". SUCCESS where memory is mapped. */
ulyx_status_t uli_gpu_check_mapped(const ulyx_comm_t *comm, const char *what);

/* A zeroed block of at least `bytes` of device memory, aligned to
 * ULI_GPU_ARENA_LINE, in a window that every rank can address. When the arenas
 * are full, they grow by one attach. The block is zero when the call returns.
 * Any thread. Errors: UNSUPPORTED (with the reason), NO_MEMORY, TIMEOUT, those
 * of attach and of the driver. */
ulyx_status_t uli_gpu_arena_alloc(
    ulyx_comm_t *comm, int64_t bytes, struct uli_arena_block *block_p);
/* Called when no rank or device touches the block any more. */
void uli_gpu_arena_free(ulyx_comm_t *comm, const struct uli_arena_block *block);
/* Bytes of device memory held: arenas and the table. Any thread. */
int64_t uli_gpu_bytes(ulyx_comm_t *comm);

/* The windows of a rank as kernels read them: [*nwindows_p] addresses in this
 * rank's device memory, NULL where there is no window. The address and the
 * number of entries never change. Returns NULL, with 0, for a rank whose memory
 * is not mapped. */
unsigned char *const *uli_gpu_windows(
    const ulyx_comm_t *comm, int32_t rank, uint64_t *nwindows_p);

/* The address at which kernels read the poison word: not 0 once the
 * communicator has failed, here or by poison of a peer, whether or not a host
 * thread waits. */
const uint64_t *uli_gpu_poison(const ulyx_comm_t *comm);

/* Pinned memory as by host_alloc of device.h, from the NUMA node of the rank's
 * device; freed by host_free. */
ulyx_status_t uli_gpu_host_alloc(ulyx_comm_t *comm, int64_t bytes,
    void **address_p, void **device_address_p);

/* Ranks whose kernels run on this rank's device, this one included. */
int32_t uli_gpu_sharers(const ulyx_comm_t *comm);

/* Copies host memory to device memory of this rank and waits for the copy, at
 * most for the communicator's timeout. Not from execute: it takes a lock.
 * Errors: TIMEOUT, the driver's. */
ulyx_status_t uli_gpu_upload(
    ulyx_comm_t *comm, void *dst, const void *src, int64_t bytes);

/* ---- for the rest of this layer ------------------------------------------ */

/* Before the first gather: opens the driver, finds the device, fills comm->gpu
 * and the device's part of the identity. Does nothing for host memory. Errors:
 * UNSUPPORTED (no driver), INVALID_ARGUMENT (no such device), the driver's. */
ulyx_status_t uli_gpu_open(ulyx_comm_t *comm);
/* Once all identities are known: chooses the transport for each peer's device
 * memory and makes the table. If some memory cannot be mapped,
 * comm->gpu->unmapped gets the reason. */
ulyx_status_t uli_gpu_connect(ulyx_comm_t *comm);
/* Once windows can be given: makes the first arena, which tests every pair of
 * ranks. */
ulyx_status_t uli_gpu_meet(ulyx_comm_t *comm);
/* Rank `rank`'s reason becomes the reason of this rank; "" changes nothing. */
void uli_gpu_adopt(ulyx_comm_t *comm, int32_t rank, const char *unmapped);
/* Call the communicator's uli_gpu_calls. Where there are none: false, and no
 * effect. */
bool uli_gpu_in_flight(ulyx_comm_t *comm);
void uli_gpu_look(ulyx_comm_t *comm);
/* Whether this rank accepts a window of a peer: SUCCESS; IN_PROGRESS: not yet,
 * the peer is ahead in creation; UNSUPPORTED, with this rank's reason. */
ulyx_status_t uli_gpu_admit(const ulyx_comm_t *comm);
/* Frees comm->gpu. The last step of closing, at any stage of creation. */
void uli_gpu_close(ulyx_comm_t *comm);

/* Writes a window's entry on the device and waits for the write. address NULL
 * clears the entry. */
ulyx_status_t uli_gpu_table_set(
    ulyx_comm_t *comm, int32_t rank, uint32_t window, void *address);
/* Zeroes device memory and waits for the device. */
ulyx_status_t uli_gpu_zero(ulyx_comm_t *comm, void *address, int64_t bytes);
/* As uli_gpu_zero, for memory that belongs to no communicator yet: on the
 * stream of any communicator of this process on that device. IN_PROGRESS: there
 * is no such communicator, so no kernel of this library runs there. Any
 * thread. */
ulyx_status_t uli_gpu_zero_new(int32_t device, void *address, int64_t bytes);
void uli_gpu_set_poison(ulyx_comm_t *comm, uint64_t poison);
/* Frees the device arenas, or retires them to the team. */
void uli_gpu_arena_close(ulyx_comm_t *comm);

#endif
