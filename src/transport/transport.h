/* SPDX-License-Identifier: Apache-2.0
 *
 * The contract of transports. A transport moves contiguous ranges or gives
 * pointers; packing belongs to the schedules. Callers select by capability,
 * never by name: only a transport's own files and the list (transport_list.c)
 * name it. The order of the list is the order of choice. A function that a
 * transport does not have is filled by a stub that returns ERR_UNSUPPORTED
 * (uli_tr_stubs), so that no caller tests a function for NULL. The tables net
 * and batch are NULL without PUT and BATCH, so their callers check the
 * capability first. Each capability has a conformance suite (tests/transport),
 * which all transports with the capability run.
 *
 * Threads: creation, attach and detach call from any thread, but map and unmap
 * windows of one communicator one at a time; read is called by the thread that
 * executes.
 */
#ifndef ULI_TRANSPORT_TRANSPORT_H
#define ULI_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include "base/settings.h"
#include "device/share.h"
#include "transport/batch.h"
#include "transport/net.h"

enum {
    ULI_TR_MAP = 1 << 0,        /* peers' windows become local pointers */
    ULI_TR_READ = 1 << 1,       /* reads a peer's ordinary memory in one copy */
    ULI_TR_PUT = 1 << 2,        /* puts bytes and a signal (network) */
    ULI_TR_BATCH = 1 << 3,      /* sends and receives batches on a stream */
    ULI_TR_MAP_DEVICE = 1 << 4, /* peers' windows in device memory become
                                 * addresses of a device of this process */
};

/* A rank's description of itself, sent to all ranks; plain bytes, compared and
 * copied. */
struct uli_identity {
    uint32_t protocol; /* ULI_PROTOCOL, first in every handshake */
    int32_t rank;
    uint64_t node_hash[2];      /* boot id + namespaces, or ULYX_HOSTID */
    uint64_t machine_hash;      /* boot id: one per machine */
    unsigned char process[16];  /* random, one per process (and pid) */
    unsigned char endpoint[16]; /* random, one per communicator and rank:
                                 * a process that has it may deliver windows to
                                 * that rank */
    int32_t pid;
    uint32_t uid;
    uint64_t pid_namespace;      /* inode of /proc/self/ns/pid */
    uint64_t cores_hash;         /* equal where ranks share the same cores */
    int32_t memory_kind, device; /* device: an ordinal of its process */
    unsigned char gpu[16];       /* the device's UUID; 0 = none */
    char service[32];            /* abstract socket name of the process */
    char host[64];               /* for error texts */
};
enum { ULI_PROTOCOL = 9 };

/* A window as its owner gives it. fd is borrowed from the owner's memory
 * object; -1 within one process, where address is the window's address. */
struct uli_tr_handle {
    int fd;
    void *address;
    int64_t bytes;
    const struct uli_tr_device_handle *device; /* NULL for host memory */
};

/* The device part of a window's handle: the device, and for ranks of other
 * processes the run of allocations that the window lies in (device/share.h),
 * whose descriptors are borrowed from the owner's call. */
struct uli_tr_device_handle {
    int32_t device;               /* at the owner */
    const unsigned char *process; /* the owner's identity.process */
    uint64_t address;             /* of the window, at the owner */
    int64_t bytes;
    const struct uli_share *shares; /* [nshares]; NULL: within the process */
    int32_t nshares;
};

struct uli_tr_ops {
    const char *name;
    uint64_t caps;

    /* Whether this transport can work on this machine. If not, why_p has the
     * reason (and the remedy). Errors: none. Blocks: no. Repeatable. */
    bool (*usable)(
        const struct uli_settings *settings, char *why_p, size_t why_bytes);

    /* Whether `me` can reach `peer` by the transport. If not, why_p has the
     * reason. Symmetric: both ends of a pair get the same answer from the same
     * two identities. */
    bool (*reaches)(const struct uli_identity *me,
        const struct uli_identity *peer, char *why_p, size_t why_bytes);

    /* MAP: makes a peer's window readable and writable here. The mapping is
     * owned by the caller until window_unmap; the handle's fd stays the
     * caller's. Errors: NO_MEMORY, SYSTEM (the handle makes no window).
     * Blocks: no. */
    ulyx_status_t (*window_map)(
        const struct uli_tr_handle *handle, void **address_p);
    void (*window_unmap)(void *address, int64_t bytes);
    /* MAP: true: maps by the handle's address, so any memory of the owner can
     * be mapped. False: maps by the descriptor, which only segments (segment.h)
     * have. */
    bool maps_addresses;

    /* MAP_DEVICE: makes a window in device memory accessible for a device of
     * this process. *mapping_p is for device_unmap; NULL: nothing to unmap.
     * Errors: SYSTEM (the peer's handle makes no window), NO_MEMORY, the
     * driver's by name. Blocks: for the driver. */
    ulyx_status_t (*device_map)(int32_t device,
        const struct uli_tr_device_handle *handle, void **address_p,
        void **mapping_p);
    void (*device_unmap)(void *mapping);

    /* READ: reads the peer's uli_tr_probe_word, which lies at remote in process
     * pid, to find out whether reads are permitted and whether pid is the peer.
     * Pids can be compared only where identity.pid_namespace is equal, which
     * the caller checks first. The caller also checks ULYX_CMA=off. Errors:
     * UNSUPPORTED with the reason (never fatal, not logged). */
    ulyx_status_t (*read_probe)(pid_t pid, const void *remote);
    /* READ: permits peers to read this process where the settings say so, for
     * the life of the process. Repeatable. */
    void (*read_permit)(const struct uli_settings *settings);
    /* READ: copies remote ranges of process pid, which may be this process,
     * into local ranges (equal byte totals, any counts: split at IOV_MAX here).
     * Reads all bytes or fails. Errors: RANK_LOST (no such process), SYSTEM.
     * Blocks: for the copy. */
    ulyx_status_t (*read)(pid_t pid, const struct iovec *local,
        size_t local_count, const struct iovec *remote, size_t remote_count);

    /* PUT: one rank's end of a network (net.h); NULL without the capability,
     * which callers check first. */
    const struct uli_net_ops *net;

    /* BATCH: one rank's end of a batch on streams (batch.h); NULL without the
     * capability. */
    const struct uli_batch_ops *batch;
};

/* The 8 known bytes of read_probe; a rank publishes the address of its own
 * word. */
extern const uint64_t uli_tr_probe_word;

extern const struct uli_tr_ops uli_tr_self_ops;   /* one process: addresses */
extern const struct uli_tr_ops uli_tr_shm_ops;    /* memfd mappings and CMA */
extern const struct uli_tr_ops uli_tr_ucx_ops;    /* between nodes, by UCX */
extern const struct uli_tr_ops uli_tr_nvlink_ops; /* device memory, mapped */
extern const struct uli_tr_ops uli_tr_nccl_ops;   /* devices, by NCCL */
extern const struct uli_tr_ops uli_tr_staged_ops; /* devices, by the host */
extern const struct uli_tr_ops uli_tr_stubs;

/* The slots for missing capabilities: UNSUPPORTED. */
ulyx_status_t uli_tr_no_map(
    const struct uli_tr_handle *handle, void **address_p);
void uli_tr_no_unmap(void *address, int64_t bytes);
ulyx_status_t uli_tr_no_device_map(int32_t device,
    const struct uli_tr_device_handle *handle, void **address_p,
    void **mapping_p);
void uli_tr_no_device_unmap(void *mapping);
ulyx_status_t uli_tr_no_probe(pid_t pid, const void *remote);
void uli_tr_no_permit(const struct uli_settings *settings);
ulyx_status_t uli_tr_no_read(pid_t pid, const struct iovec *local,
    size_t local_count, const struct iovec *remote, size_t remote_count);
/* Fill the slots of a capability that an ops table lacks. */
#define ULI_TR_NO_MAP                                                          \
    .window_map = uli_tr_no_map, .window_unmap = uli_tr_no_unmap
#define ULI_TR_NO_MAP_DEVICE                                                   \
    .device_map = uli_tr_no_device_map, .device_unmap = uli_tr_no_device_unmap
#define ULI_TR_NO_READ                                                         \
    .read_probe = uli_tr_no_probe, .read_permit = uli_tr_no_permit,            \
    .read = uli_tr_no_read

/* For `reaches`: of transports within a process; of transports within a node,
 * where both ranks belong to one user; of transports for device memory only. */
bool uli_tr_within_process(const struct uli_identity *me,
    const struct uli_identity *peer, char *why_p, size_t why_bytes);
bool uli_tr_within_node(const struct uli_identity *me,
    const struct uli_identity *peer, char *why_p, size_t why_bytes);
bool uli_tr_between_devices(const struct uli_identity *me,
    const struct uli_identity *peer, char *why_p, size_t why_bytes);
/* For `usable`: of transports that need a driver and a device, and nothing
 * else. */
bool uli_tr_devices_usable(
    const struct uli_settings *settings, char *why_p, size_t why_bytes);

/* All transports, best first, for selection and for ulyx_info. */
const struct uli_tr_ops *const *uli_tr_list(size_t *count_p);
/* Whether ULYX_TRANSPORTS allows the transport and this machine can use it;
 * else why_p has the reason. */
bool uli_tr_usable(const struct uli_tr_ops *transport,
    const struct uli_settings *settings, char *why_p, size_t why_bytes);

/* The first transport of the list that the settings allow, that is usable, has
 * all of caps and reaches the peer; NULL with all reasons in why_p. */
const struct uli_tr_ops *uli_tr_select(const struct uli_settings *settings,
    const struct uli_identity *me, const struct uli_identity *peer,
    uint64_t caps, char *why_p, size_t why_bytes);

/* Calls read_permit of the transports that the settings allow. */
void uli_tr_permit_reads(const struct uli_settings *settings);

#endif
