/* SPDX-License-Identifier: Apache-2.0
 *
 * All settings, in one table. A row is name, field, type, default, least, most,
 * help. The sources, of which a later one replaces an earlier one: default,
 * /etc/ulyx.conf, ~/.config/ulyx.conf (lines NAME=VALUE, # comments),
 * environment. A communicator reads the settings when it is created, and keeps
 * them. What has no communicator reads them anew when it begins (a unique id,
 * the launch query, the service thread), the log once per process.
 */
#ifndef ULI_BASE_SETTINGS_H
#define ULI_BASE_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/schedules.h"
#include "base/system/port.h"
#include "ulyx/types.h"

enum uli_setting_type {
    ULI_SETTING_STRING,  /* char[ULI_SETTING_TEXT] */
    ULI_SETTING_CHOICE,  /* as STRING; one of the words of the default text,
                          * "auto|on|off", the first of which is the default */
    ULI_SETTING_BOOL,    /* 0 1 no yes off on false true */
    ULI_SETTING_INT,     /* int64_t within [min, max] */
    ULI_SETTING_BYTES,   /* int64_t, suffix K M G = binary */
    ULI_SETTING_SECONDS, /* double within [min, max] */
    ULI_SETTING_PORTS,   /* struct uli_port_range: "29600-29699", one port, or
                          * nothing for any */
    ULI_SETTING_TYPES
};

#define ULI_SETTING_TEXT 512

/* X(name, field, TYPE, default text, min, max, help) */
#define ULI_SETTINGS_MAP(X)                                                    \
    X(ULYX_TIMEOUT, timeout_s, SECONDS, "600", 0, 86400,                       \
        "deadline of every wait, seconds; 0 = 600, at most one day")           \
    X(ULYX_STALL_WARN, stall_warn_s, SECONDS, "10", 0, 86400,                  \
        "seconds after which a call without progress is logged, once, with "   \
        "the ranks for which it waits; 0 = never")                             \
    X(ULYX_DUMP_FILE, dump_file, STRING, "", 0, 0,                             \
        "file for the flight recorder, as JSON, when a communicator fails: "   \
        "%h is the host, %p the process, %r its rank; empty = none")           \
    X(ULYX_DUMP_SIGNAL, dump_signal, CHOICE,                                   \
        "|USR1|USR2|HUP|QUIT|URG|IO|WINCH", 0, 0,                              \
        "signal upon which a process writes ULYX_DUMP_FILE; empty = none")     \
    X(ULYX_COMM_ID, comm_id, STRING, "", 0, 0,                                 \
        "meeting point of all ranks: address and secret, as ulyx_unique_id_"   \
        "to_string prints it")                                                 \
    X(ULYX_RANK, rank, INT, "-1", -1, 131071,                                  \
        "rank of this process, with ULYX_NRANKS; -1 = as the launcher gives "  \
        "it")                                                                  \
    X(ULYX_NRANKS, nranks, INT, "0", 0, 131072,                                \
        "number of ranks, with ULYX_RANK; 0 = as the launcher gives it")       \
    X(ULYX_LOCAL_NRANKS, local_nranks, INT, "0", 0, 131072,                    \
        "ranks on this node, with ULYX_RANK; 0 = not known")                   \
    X(ULYX_JOB, job, STRING, "", 0, 0,                                         \
        "name of the job, equal on its ranks, with ULYX_RANK")                 \
    X(ULYX_SOCKET_IFNAME, socket_ifname, STRING, "", 0, 0,                     \
        "interfaces for the bootstrap: prefix list, ^ excludes, = exact")      \
    X(ULYX_SOCKET_FAMILY, socket_family, CHOICE, "|AF_INET|AF_INET6", 0, 0,    \
        "AF_INET or AF_INET6; empty = either")                                 \
    X(ULYX_PORT, port, INT, "0", 0, 65535,                                     \
        "port beside MASTER_ADDR, or of the root's listener; 0 = any")         \
    X(ULYX_PORT_RANGE, ports, PORTS, "", 0, 0,                                 \
        "ports at which the library may listen when it chooses the port "      \
        "itself, as 29600-29699; empty = any")                                 \
    X(ULYX_SECRET, secret, STRING, "", 0, 0,                                   \
        "shared secret of a meeting at MASTER_ADDR:ULYX_PORT: at least 16 "    \
        "characters from a random source")                                     \
    X(ULYX_INSECURE, insecure, BOOL, "0", 0, 0,                                \
        "1 allows a meeting without a secret or with a short one, "            \
        "connections from any host to ranks, and ULYX_UCX_VERB=PUT over TCP")  \
    X(ULYX_RENDEZVOUS_DIR, rendezvous_dir, STRING, "", 0, 0,                   \
        "directory, shared by all ranks, for the root's address and secret")   \
    X(ULYX_HOSTID, host_id, STRING, "", 0, 0,                                  \
        "overrides the node's identity (simulated nodes)")                     \
    X(ULYX_RANKS_PER_NODE, ranks_per_node, INT, "0", 0, 131072,                \
        "each run of this many ranks counts as a node of its own, for tests "  \
        "of schedules; 0 = the real nodes")                                    \
    X(ULYX_TRANSPORTS, transports, STRING, "", 0, 0,                           \
        "transports to use, comma separated; ^ excludes")                      \
    X(ULYX_NET_DEVICES, net_devices, STRING, "", 0, 0,                         \
        "network devices, as in UCX_NET_DEVICES, which takes precedence; "     \
        "empty = the nearest")                                                 \
    X(ULYX_UCX_VERB, ucx_verb, CHOICE, "AUTO|AM|PUT|TAG", 0, 0,                \
        "how large messages to other nodes are sent: AUTO probes each link; "  \
        "AM, PUT or TAG, if both ends agree")                                  \
    X(ULYX_NCCL_LIB, nccl_lib, STRING, "", 0, 0,                               \
        "path of libnccl, version 2.18 or later; empty = libnccl.so.2")        \
    X(ULYX_KEEPALIVE, keepalive_s, SECONDS, "10", 1, 3600,                     \
        "a host that has vanished is noticed within this many seconds")        \
    X(ULYX_ALGO, algo, CHOICE, ULI_SCHEDULE_CHOICES "|nccl|staged", 0, 0,      \
        "schedule of every plan: " ULI_SCHEDULE_WORDS "nccl or staged, the "   \
        "last two on devices; empty chooses")                                  \
    X(ULYX_TUNING, tuning, STRING, "", 0, 0,                                   \
        "tuning file: link parameters, and rules by which schedules are "      \
        "chosen; ULYX_ALGO takes precedence over its rules")                   \
    X(ULYX_SPIN_US, spin_us, INT, "20", 0, 1000000,                            \
        "microseconds for which a wait on the host spins before it sleeps; "   \
        "where there are more ranks than cores, yielding to them")             \
    X(ULYX_NET_SPIN_US, net_spin_us, INT, "200", 0, 1000000,                   \
        "ULYX_SPIN_US for ranks on several nodes, whose messages take "        \
        "longer; 0 where there are more ranks than cores")                     \
    X(ULYX_ARENA_BYTES, arena_bytes, BYTES, "1M", 65536, INT64_MAX,            \
        "size of the first arena of a rank in a communicator")                 \
    X(ULYX_RING_CHUNK, ring_chunk_bytes, BYTES, "1M", 4096, 67108864,          \
        "largest chunk of a staging ring")                                     \
    X(ULYX_RING_SETS, ring_sets, INT, "4", 0, 64,                              \
        "calls of plans that can use rings of full size at the same time; "    \
        "further calls use small rings")                                       \
    X(ULYX_SLOT_BYTES, slot_bytes, BYTES, "8K", 0, 1048576,                    \
        "exchanges of at most this many bytes per pair of ranks go through "   \
        "slots")                                                               \
    X(ULYX_NET_CHUNK, net_chunk_bytes, BYTES, "60K", 4096, 67108864,           \
        "largest chunk of an exchange with a rank of another node")            \
    X(ULYX_NET_FLIGHT, net_flight_bytes, BYTES, "4M", 8192, 1073741824,        \
        "most bytes in flight to one rank of another node; to all such "       \
        "ranks together 64 times as many")                                     \
    X(ULYX_NET_PEERS, net_peers, INT, "8", 0, 131072,                          \
        "ranks of other nodes to which a pairwise exchange sends at one "      \
        "time; 0 = all")                                                       \
    X(ULYX_GPU_SMS, gpu_sms, INT, "0", 0, 4096,                                \
        "most multiprocessors of an exchange on device memory, unless its "    \
        "plan gives a number; 0 = 32, or where ranks share a device an "       \
        "equal part of it for each")                                           \
    X(ULYX_GPU_BLOCKS, gpu_blocks, INT, "1", 1, 2,                             \
        "blocks per multiprocessor of an exchange that adds nothing")          \
    X(ULYX_STAGE_CHUNK, stage_chunk_bytes, BYTES, "256K", 4096, 8388608,       \
        "largest chunk of device memory that travels through host memory "     \
        "(staging); the value of rank 0 is used")                              \
    X(ULYX_STAGE_BYTES, stage_bytes, BYTES, "256M", 1048576, 1099511627776,    \
        "most pinned host memory per rank for staging: chunks are made "       \
        "smaller to fit; the value of rank 0 is used")                         \
    X(ULYX_STAGE_QUEUES, stage_queues, INT, "8", 1, 64,                        \
        "most queues per pair of ranks for staging, each with four chunks; "   \
        "a rank has at most twice as many in all; the value of rank 0 is "     \
        "used")                                                                \
    X(ULYX_GPU_MODE, gpu_mode, CHOICE, "kernel|engine", 0, 0,                  \
        "what moves exchanges on device memory: a kernel, or copy engines, "   \
        "also for plans without the flag COPY_ENGINE")                         \
    X(ULYX_ENGINE_CHUNK, engine_chunk_bytes, BYTES, "4M", 4096, 1073741824,    \
        "largest chunk of an exchange by copy engines; the device holds two "  \
        "per peer")                                                            \
    X(ULYX_MESSAGE_CHUNK, message_chunk_bytes, BYTES, "2M", 4096, 1073741824,  \
        "largest message of an exchange of device memory that is not "         \
        "mapped; two are held per peer and direction")                         \
    X(ULYX_GPU_RECV_BUFFER, gpu_recv_buffer_bytes, BYTES, "2M", 256,           \
        1073741824,                                                            \
        "device memory per pair of ranks for collectives of tensors outside "  \
        "of windows")                                                          \
    X(ULYX_STREAM_STORES, stream_stores, CHOICE, "auto|on|off", 0, 0,          \
        "streaming stores into windows: auto, on or off")                      \
    X(ULYX_CALIBRATE, calibrate, STRING, "on", 0, 0,                           \
        "how copies are made: on measures once per processor and version, "    \
        "and keeps the result in the user's cache directory; off uses the "    \
        "defaults; else a file, as ulyx_info copies prints it")                \
    X(ULYX_CMA, cma, CHOICE, "auto|on|off", 0, 0,                              \
        "process_vm_readv between processes: auto probes, on or off")          \
    X(ULYX_CMA_MIN_ROW, cma_min_row_bytes, BYTES, "512", 1, INT64_MAX,         \
        "shortest row for which process_vm_readv is used")                     \
    X(ULYX_TOPO_FILE, topo_file, STRING, "", 0, 0,                             \
        "description to use instead of this machine's: hwloc XML of version "  \
        "2 or 3, or NCCL's topology XML")                                      \
    X(ULYX_TOPO_DUMP_FILE, topo_dump_file, STRING, "", 0, 0,                   \
        "file for the machine as hwloc XML; %h is the host, %p the process")   \
    X(ULYX_THREADS, threads, INT, "0", 0, 4096,                                \
        "threads of CPU attention; 0 = cores that this process may use")       \
    X(ULYX_SERVICE_CORE, service_core, INT, "-1", -1, 65535,                   \
        "core of the service thread; -1 = as ULYX_BIND decides")               \
    X(ULYX_BIND, bind, CHOICE, "auto|off", 0, 0,                               \
        "auto keeps the library's own threads and memory near the rank's GPU " \
        "or NIC, within the process's cores; off leaves them free")            \
    X(ULYX_DEBUG, debug, STRING, "WARN", 0, 0,                                 \
        "log level: NONE, VERSION, WARN, INFO, TRACE")                         \
    X(ULYX_DEBUG_SUBSYS, debug_subsys, STRING, "ALL", 0, 0,                    \
        "subsystems logged: INIT,ENV,MEM,TOPO,TRANS,PLAN,EXEC,ATTN,FAULT,"     \
        "ALL; ^ excludes")                                                     \
    X(ULYX_DEBUG_FILE, debug_file, STRING, "", 0, 0,                           \
        "file for the log; %h is the host, %p the process")

struct uli_settings {
#define ULI_SETTING_FIELD_STRING(field)  char field[ULI_SETTING_TEXT];
#define ULI_SETTING_FIELD_CHOICE(field)  char field[ULI_SETTING_TEXT];
#define ULI_SETTING_FIELD_BOOL(field)    bool field;
#define ULI_SETTING_FIELD_INT(field)     int64_t field;
#define ULI_SETTING_FIELD_BYTES(field)   int64_t field;
#define ULI_SETTING_FIELD_SECONDS(field) double field;
#define ULI_SETTING_FIELD_PORTS(field)   struct uli_port_range field;
#define ULI_SETTING_FIELD(name, field, TYPE, def, min, max, help)              \
    ULI_SETTING_FIELD_##TYPE(field)
    ULI_SETTINGS_MAP(ULI_SETTING_FIELD)
#undef ULI_SETTING_FIELD
    /* The user's cache directory by the rules of XDG, absolute; empty: none. It
     * is not a setting, but is read together with the settings, so that the
     * environment is read only then. */
    char user_cache[ULI_SETTING_TEXT];
};

struct uli_setting_row {
    const char *name;
    const char *default_text;
    const char *help;
    size_t offset; /* in struct uli_settings */
    enum uli_setting_type type;
    double min, max;
};

/* The table, for ulyx_info and the documentation check. */
const struct uli_setting_row *uli_settings_rows(size_t *count_p);

/* The number of hardware queues of a CUDA device that the driver gives a
 * process: CUDA_DEVICE_MAX_CONNECTIONS, or 8 if that is not 1 to 32. */
int32_t uli_settings_cuda_connections(void);

/* Fills *settings_p from all sources. Warns once per process about unknown
 * ULYX_ variables, with the nearest known name.
 * returns SUCCESS, or ERR_INVALID_ARGUMENT naming variable, value and source
 * (then *settings_p is untouched). */
ulyx_status_t uli_settings_load(struct uli_settings *settings_p);

/* As above with other files (NULL: none), for tests. */
ulyx_status_t uli_settings_load_files(const char *system_file,
    const char *user_file, struct uli_settings *settings_p);

/* The text of one setting as loaded and where it came from ("default",
 * "environment", a file's path). Logs nothing.
 * returns SUCCESS, or ERR_INVALID_ARGUMENT for a name that does not exist. */
ulyx_status_t uli_settings_explain(const char *name, char *value_p,
    size_t value_bytes, char *source_p, size_t source_bytes);

#endif
