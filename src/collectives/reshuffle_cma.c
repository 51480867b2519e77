/* SPDX-License-Identifier: Apache-2.0
 *
 * Boxes out of a peer's ordinary memory, by the kernel (process_vm_readv):
 * one copy, no window. Costs a system call a batch of pieces and page-table
 * walks a piece, so it is used for long rows only, and where a probe has
 * shown that the kernel permits it.
 */
#include "collectives/exchange.h"

#include <string.h>
#include "collectives/plan.h"

enum { BATCH = 256 };

int64_t
uli_reader_min_row(const ulyx_comm_t *comm)
{
    if (!strcmp(comm->settings.cma, "off"))
        return 0;
    return comm->settings.cma_min_row_bytes;
}

const struct uli_tr_ops *
uli_reader_of(const ulyx_comm_t *comm, int32_t p, uint64_t probe)
{
    const struct uli_identity *me = &comm->peers[comm->rank].identity;
    const struct uli_identity *peer = &comm->peers[p].identity;
    char why[256];
    if (uli_reader_min_row(comm) == 0 ||
        me->pid_namespace != peer->pid_namespace)
        return NULL;
    const struct uli_tr_ops *reader =
        uli_tr_select(&comm->settings, me, peer, ULI_TR_READ, why, sizeof(why));
    if (!reader || reader->read_probe(peer->pid,
                       (const void *)(uintptr_t)probe) != ULYX_SUCCESS)
        return NULL;
    return reader;
}

/* Pieces of consecutive runs, both sides alike. */
static size_t
fill(const struct uli_box *box, struct uli_cursor *cursor, char *dst,
    uintptr_t src, struct iovec *local, struct iovec *remote, int64_t *bytes_p)
{
    struct uli_box part;
    size_t count = 0;
    int64_t bytes;
    *bytes_p = 0;
    while (count < BATCH && *bytes_p < ULI_SPAN_BYTES &&
           (bytes = uli_box_cut_run(box, &cursor->run, &cursor->in_run,
                ULI_SPAN_BYTES - *bytes_p, &part)) > 0) {
        local[count].iov_base = dst + part.dst_offset;
        local[count].iov_len = (size_t)bytes;
        remote[count].iov_base = (void *)(src + (uintptr_t)part.src_offset);
        remote[count].iov_len = (size_t)bytes;
        count++;
        *bytes_p += bytes;
    }
    return count;
}

bool
uli_direct_read(struct uli_exchange *exchange, int32_t p,
    const struct uli_item *item, struct uli_cursor *cursor)
{
    struct uli_pair *pair = &exchange->pairs[p];
    struct iovec local[BATCH], remote[BATCH];
    int64_t bytes;
    size_t count;
    while ((count = fill(&item->box, cursor, exchange->dst[item->tensor],
                (uintptr_t)pair->src[item->tensor].offset, local, remote,
                &bytes)) > 0) {
        ulyx_status_t status = pair->reader->read(
            exchange->comm->peers[p].identity.pid, local, count, remote, count);
        if (status != ULYX_SUCCESS) {
            status = uli_comm_fail(exchange->comm, status, p,
                "reading the memory of rank %d: %s", p, uli_error_text());
            uli_op_finish(&exchange->op, status);
            return false;
        }
        if (!uli_exchange_check(exchange, bytes))
            return false;
    }
    cursor->item++;
    cursor->run = cursor->in_run = 0;
    return true;
}
