/* SPDX-License-Identifier: Apache-2.0
 *
 * libucp, opened at run time: the library loads and runs on machines without
 * it. One table of entry points, filled once a process; the library stays
 * open until the process ends, for it cannot be unloaded while it has hooks.
 * Everything here and in this folder is written for UCX 1.13 and later, whose
 * ABI is one; what later versions add is asked for by name, not by version.
 */
#ifndef ULI_TRANSPORT_UCX_LIBRARY_H
#define ULI_TRANSPORT_UCX_LIBRARY_H

#include <ucp/api/ucp.h>
#include <stddef.h>
#include "ulyx/types.h"

/* Names after "ucp_". */
#define ULI_UCX_CALLS(X)                                                       \
    X(get_version_string)                                                      \
    X(config_read)                                                             \
    X(config_modify)                                                           \
    X(config_print)                                                            \
    X(config_release)                                                          \
    X(init_version)                                                            \
    X(cleanup)                                                                 \
    X(worker_create)                                                           \
    X(worker_destroy)                                                          \
    X(worker_get_address)                                                      \
    X(worker_release_address)                                                  \
    X(worker_get_efd)                                                          \
    X(worker_arm)                                                              \
    X(worker_progress)                                                         \
    X(worker_set_am_recv_handler)                                              \
    X(ep_create)                                                               \
    X(ep_close_nbx)                                                            \
    X(ep_print_info)                                                           \
    X(am_send_nbx)                                                             \
    X(am_recv_data_nbx)                                                        \
    X(tag_send_nbx)                                                            \
    X(tag_recv_nbx)                                                            \
    X(put_nbx)                                                                 \
    X(ep_flush_nbx)                                                            \
    X(mem_map)                                                                 \
    X(mem_unmap)                                                               \
    X(rkey_pack)                                                               \
    X(rkey_buffer_release)                                                     \
    X(ep_rkey_unpack)                                                          \
    X(rkey_destroy)                                                            \
    X(request_cancel)                                                          \
    X(request_free)

#define ULI_UCX_MEMBER(name) __typeof__(&ucp_##name) name;
struct uli_ucx_calls {
    ULI_UCX_CALLS(ULI_UCX_MEMBER)
    /* Of libucs, which libucp brings along. */
    const char *(*status_string)(ucs_status_t status);
};

/* Opens the library once a process; later calls return what is open. A
 * failure changes nothing and may be tried again. returns NULL with the
 * reason, and what would help, in why_p. Logs nothing. */
const struct uli_ucx_calls *uli_ucx_open(char *why_p, size_t why_bytes);

/* One more context of UCX in this process, and one less. UCX's own thread does
 * not live on in a fork, where waits for it never end, so as long as a process
 * has contexts its forks may have none: FORKED, also in a fork that has closed
 * what it inherited. */
ulyx_status_t uli_ucx_hold(void);
void uli_ucx_let_go(void);

#endif
