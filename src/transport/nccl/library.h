/* SPDX-License-Identifier: Apache-2.0
 *
 * libnccl, opened at run time: ULYX_NCCL_LIB, or libnccl.so.2 as the loader
 * finds it, which is the library that a framework in the same process has
 * loaded already. The few types are declared here, so no header of NCCL is
 * needed; a test compares them with nccl.h where that exists.
 */
#ifndef ULI_TRANSPORT_NCCL_LIBRARY_H
#define ULI_TRANSPORT_NCCL_LIBRARY_H

#include <limits.h>
#include <stddef.h>
#include "ulyx/types.h"

/* Results. */
enum {
    ULI_NCCL_SUCCESS = 0,
    ULI_NCCL_INVALID_ARGUMENT = 4,
    ULI_NCCL_REMOTE = 6,
    ULI_NCCL_IN_PROGRESS = 7,
};
enum { ULI_NCCL_INT8 = 0 }; /* ncclInt8 */
enum { ULI_NCCL_OLDEST = 21800 };

typedef void *uli_nccl_comm;

struct uli_nccl_id {
    char bytes[128];
};

/* ncclConfig_t of 2.18. Later versions append members, and accept this struct
 * by its size. */
struct uli_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share;
};
enum { ULI_NCCL_UNDEFINED = INT_MIN };
#define ULI_NCCL_MAGIC 0xcafebeefu

/* name after "nccl", parameters */
#define ULI_NCCL_CALLS(X)                                                      \
    X(GetVersion, (int *version))                                              \
    X(GetUniqueId, (struct uli_nccl_id * id))                                  \
    X(CommInitRankConfig,                                                      \
        (uli_nccl_comm * comm, int nranks, struct uli_nccl_id id, int rank,    \
            struct uli_nccl_config *config))                                   \
    X(CommFinalize, (uli_nccl_comm comm))                                      \
    X(CommDestroy, (uli_nccl_comm comm))                                       \
    X(CommAbort, (uli_nccl_comm comm))                                         \
    X(CommGetAsyncError, (uli_nccl_comm comm, int *result))                    \
    X(GroupStart, (void))                                                      \
    X(GroupEnd, (void))                                                        \
    X(Send, (const void *data, size_t count, int type, int peer,               \
                uli_nccl_comm comm, void *stream))                             \
    X(Recv, (void *data, size_t count, int type, int peer, uli_nccl_comm comm, \
                void *stream))

#define ULI_NCCL_MEMBER(name, parameters) int(*name) parameters;
struct uli_nccl_calls {
    ULI_NCCL_CALLS(ULI_NCCL_MEMBER)
    const char *(*GetErrorString)(int result);
    const char *(*GetLastError)(uli_nccl_comm comm);
    int version;
};

/* Opens the library and fills the table; name "" is libnccl.so.2. Every call
 * opens the library anew (the loader counts), and the library stays loaded for
 * good, because it has threads and hooks of its own. Returns SUCCESS;
 * UNSUPPORTED with the reason in why_p, not logged: not found, older than 2.18,
 * a missing function. */
ulyx_status_t uli_nccl_open(const char *name, struct uli_nccl_calls *calls_p,
    char *why_p, size_t why_bytes);

#endif
