/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator of CUDA memory. Its control block, host arenas, agreement and
 * doorbells stay in host memory; on top of them it has
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
 * kernel, and cleared by detach, when nobody may use the window. Kernels load
 * it by an ordinary load: one that learns of a window does so after that.
 *
 * Where memory of a pair of ranks cannot be mapped the communicator exists all
 * the same, on all ranks with the same reason (uli_gpu_unmapped): attach and
 * device arenas are refused by it, other transports may serve.
 */
#ifndef ULI_COMM_DEVICE_GPU_H
#define ULI_COMM_DEVICE_GPU_H

#include "comm/comm.h"
#include "device/share.h"

enum { ULI_GPU_ARENA_LINE = 128 }; /* alignment of blocks */

struct uli_channel_gpu; /* of collectives */

/* What collectives answer about calls on the device. */
struct uli_gpu_calls {
    /* Is work of this rank that may touch windows of peers on the device? Asked
     * by detach of a failed communicator and by destroy, from any thread, under
     * the registry's lock: it must not wait. */
    bool (*in_flight)(struct ulyx_comm *comm);
    /* Fails the communicator if the device has noted a failure that no thread
     * of the host has seen. Any thread; takes plans_lock, does not wait for the
     * device. */
    void (*look)(struct ulyx_comm *comm);
};

struct uli_gpu {
    const struct uli_device_ops *ops;
    int32_t device;  /* ordinal in this process */
    int32_t sharers; /* ranks on the same device, this one included */

    pthread_mutex_t lock; /* stream, event, staging; taken last */
    void *stream, *event; /* of this layer's own, small work */
    bool stuck;           /* an earlier part of it did not end in time */

    /* One allocation of pinned memory. poison: status and rank as in control.h,
     * 0 while the communicator has not failed. */
    _Atomic uint64_t *poison;
    void *poison_there;
    void **staging; /* an entry of the table on its way */

    /* unsigned char *[nrows][ULI_WINDOW_CHUNK * ULI_WINDOW_CHUNKS] on the
     * device; a row for each rank of this node. */
    unsigned char **table;
    int32_t nrows;
    int32_t *row;         /* [nranks], -1 = none */
    _Atomic bool ready;   /* the table can be written: windows may come */
    _Atomic bool refused; /* none ever will be taken; unmapped says why */

    char unmapped[200]; /* why windows of device memory do not work; "" = do */

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
 * reason, the same on all ranks. Of a communicator with comm->gpu. */
const char *uli_gpu_unmapped(const ulyx_comm_t *comm);
/* The same as an error: UNSUPPORTED, "<what>device memory is not mapped between
 * the ranks: ...". */
ulyx_status_t uli_gpu_check_mapped(const ulyx_comm_t *comm, const char *what);

/* A zeroed block of at least `bytes` of device memory, aligned to
 * ULI_GPU_ARENA_LINE, in a window that every rank addresses; grows by one
 * attach when full. The zeros are there when it returns. Any thread.
 * Errors: UNSUPPORTED (with the reason), NO_MEMORY, TIMEOUT, those of attach
 * and of the driver. */
ulyx_status_t uli_gpu_arena_alloc(
    ulyx_comm_t *comm, int64_t bytes, struct uli_arena_block *block_p);
/* Nothing touches the block any more. */
void uli_gpu_arena_free(ulyx_comm_t *comm, const struct uli_arena_block *block);
/* Bytes of device memory held: arenas and the table. Any thread. */
int64_t uli_gpu_bytes(ulyx_comm_t *comm);

/* The windows of a rank as kernels read them: [*nwindows_p] addresses in this
 * rank's device memory, NULL where there is none. Address and size never
 * change. NULL, 0 for a rank whose memory is not mapped. */
unsigned char *const *uli_gpu_windows(
    const ulyx_comm_t *comm, int32_t rank, uint64_t *nwindows_p);

/* Where kernels read the poison word: not 0 once the communicator has failed,
 * here or by what a peer has told, whether or not a host thread waits. */
const uint64_t *uli_gpu_poison(const ulyx_comm_t *comm);

/* Pinned memory as device.h's host_alloc, from the NUMA node of the rank's
 * device; freed by host_free. */
ulyx_status_t uli_gpu_host_alloc(ulyx_comm_t *comm, int64_t bytes,
    void **address_p, void **device_address_p);

/* Ranks whose kernels run on this rank's device, this one included. */
int32_t uli_gpu_sharers(const ulyx_comm_t *comm);

/* Copies host memory to device memory of this rank and waits for it, at most
 * for the communicator's timeout. Not from execute: it takes a lock. Errors:
 * TIMEOUT, the driver's. */
ulyx_status_t uli_gpu_upload(
    ulyx_comm_t *comm, void *dst, const void *src, int64_t bytes);

/* ---- for the rest of this layer ------------------------------------------ */

/* Before the first gather: opens the driver, finds the device, fills comm->gpu
 * and the device's part of the identity. Does nothing on the host. Errors:
 * UNSUPPORTED (no driver), INVALID_ARGUMENT (no such device), the driver's. */
ulyx_status_t uli_gpu_open(ulyx_comm_t *comm);
/* With all identities known: the transport of each peer's device memory, the
 * table. What cannot be mapped is noted in comm->gpu->unmapped. */
ulyx_status_t uli_gpu_connect(ulyx_comm_t *comm);
/* Once windows can be given: the first arena, which proves every pair. */
ulyx_status_t uli_gpu_meet(ulyx_comm_t *comm);
/* A reason of any rank becomes that of all; "" changes nothing. */
void uli_gpu_adopt(ulyx_comm_t *comm, int32_t rank, const char *unmapped);
/* Of the communicator's uli_gpu_calls; false, nothing where there is none. */
bool uli_gpu_in_flight(ulyx_comm_t *comm);
void uli_gpu_look(ulyx_comm_t *comm);
/* A window has come for this rank: SUCCESS, to be taken; IN_PROGRESS, not yet:
 * its peers are ahead in creation; UNSUPPORTED with this rank's reason. */
ulyx_status_t uli_gpu_admit(const ulyx_comm_t *comm);
/* Last of all, at any stage of creation. */
void uli_gpu_close(ulyx_comm_t *comm);

/* A window's entry on the device; address NULL clears it. Waits for it. */
ulyx_status_t uli_gpu_table_set(
    ulyx_comm_t *comm, int32_t rank, uint32_t window, void *address);
/* Zeros, and waits for them. */
ulyx_status_t uli_gpu_zero(ulyx_comm_t *comm, void *address, int64_t bytes);
void uli_gpu_set_poison(ulyx_comm_t *comm, uint64_t poison);
/* Frees the device arenas, or retires them with the team. */
void uli_gpu_arena_close(ulyx_comm_t *comm);

#endif
