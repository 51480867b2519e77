/* SPDX-License-Identifier: Apache-2.0
 *
 * libucp, opened at run time: ulyx loads and runs on machines without it. One
 * table of entry points, filled once per process. libucp stays open until the
 * process ends, because it cannot be unloaded while it has hooks. All files of
 * this folder are written for UCX 1.13 and later, which share one ABI;
 * additions of later versions are looked up by name, not by version.
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
    /* From libucs, which libucp loads. */
    const char *(*status_string)(ucs_status_t status);
};

/* Opens the library once per process; later calls return the same table. A
 * failure changes nothing, and the call may be repeated. Returns NULL with the
 * reason, and the remedy, in why_p. Logs nothing. */
const struct uli_ucx_calls *uli_ucx_open(char *why_p, size_t why_bytes);

/* Count one more, or one less, context of UCX in this process. A forked child
 * does not have UCX's own thread, so waits for that thread would never end
 * there. So hold returns FORKED in a child that was forked while its parent had
 * contexts, also after the child has closed the contexts that it inherited. */
ulyx_status_t uli_ucx_hold(void);
void uli_ucx_let_go(void);

#endif
