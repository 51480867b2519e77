/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows, for the rest of this layer: giving memory to all ranks and taking
 * it back. comm.h has the part that the layers above use.
 */
#ifndef ULI_COMM_MEMORY_WINDOWS_H
#define ULI_COMM_MEMORY_WINDOWS_H

#include "comm/comm.h"

/* Makes the memory known to every rank, mapped or remote, under a new window
 * id. On error no rank keeps it. Any thread; holds no lock while it waits.
 * Errors: those of a rank, naming it; TIMEOUT and RANK_LOST (they fail the
 * communicator); NO_MEMORY (no id left). */
ulyx_status_t uli_windows_give(ulyx_comm_t *comm,
    const struct uli_tr_handle *handle, uli_deadline_t deadline,
    uint32_t *window_p);
/* As uli_windows_give, for the ranks of this node alone. */
ulyx_status_t uli_windows_give_node(ulyx_comm_t *comm,
    const struct uli_tr_handle *handle, uli_deadline_t deadline,
    uint32_t *window_p);
/* Takes a window back from all ranks. On error the window is already withdrawn
 * at this rank, the window's id stays in use, and the call may be repeated. */
ulyx_status_t uli_windows_take_back(
    ulyx_comm_t *comm, uint32_t window, uli_deadline_t deadline);
/* Removes the window at this rank only, and from its network: all peers are
 * gone or have let go of it. */
void uli_windows_forget(ulyx_comm_t *comm, uint32_t window);

/* Maps a window of `rank`, in host or device memory, by the transport chosen
 * for that rank, and publishes it. Withdrawing the window unmaps it. Of device
 * memory the entry on the device is written too. A window that has the id
 * already is withdrawn first. Under the registry's lock, once comm is
 * connected. Errors: INVALID_ARGUMENT (no transport maps that rank's memory),
 * NO_MEMORY, the transport's, those of uli_gpu_table_set; then nothing stays
 * mapped. */
ulyx_status_t uli_window_map(ulyx_comm_t *comm, int32_t rank, uint32_t window,
    const struct uli_tr_handle *handle);

/* At a peer of the window's owner `rank`: withdraws the window, unless an
 * operation of this peer is in flight, which may still use it. True:
 * withdrawn. */
bool uli_window_retire(ulyx_comm_t *comm, int32_t rank, uint32_t window);

/* Frees the arenas (arena.c). */
void uli_arena_close(ulyx_comm_t *comm);
/* Releases or quarantines the attached windows (mem.c). */
void uli_mem_close(ulyx_comm_t *comm);

#endif
