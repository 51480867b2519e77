/* SPDX-License-Identifier: Apache-2.0
 *
 * Cross-memory attach: process_vm_readv reads a peer's ordinary memory in one
 * copy, without the peer's help. The kernel takes IOV_MAX ranges per list and
 * call, may move fewer bytes than requested (it stops between ranges, or at 2
 * GiB), and requires the right to trace the peer, which only a trial shows.
 */
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>
#include "base/log.h"
#include "base/status.h"
#include "transport/shm/shm.h"

enum { BATCH = IOV_MAX };

const uint64_t uli_tr_probe_word = UINT64_C(0x78796c752d616d63);

static void
warn_undumpable(void)
{
    static atomic_flag logged = ATOMIC_FLAG_INIT;
    if (prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1 ||
        atomic_flag_test_and_set(&logged))
        return;
    ULI_WARN(ULI_LOG_TRANS, -1,
        "ULYX_CMA=on, but peers cannot read this process: it is not dumpable "
        "(PR_SET_DUMPABLE, or it has changed its user)");
}

void
uli_cma_permit(const struct uli_settings *settings)
{
    if (strcmp(settings->cma, "on"))
        return;
    warn_undumpable();
    if (prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0) == 0)
        ULI_INFO(ULI_LOG_TRANS, -1,
            "ULYX_CMA=on: any process of this user may read this one");
    /* EINVAL: the kernel has no Yama, so nothing forbids the read. */
}

/* The possible reasons of a refusal, and the remedy. */
static const char *
explain_refusal(pid_t pid, int number)
{
    if (number != EPERM)
        return "";
    if (pid == getpid())
        return " (this process: a filter of system calls, as in containers, "
               "forbids the read)";
    return " (a filter of system calls forbids it; or that process is not "
           "dumpable; or Yama forbids it, then ULYX_CMA=on there or "
           "kernel.yama.ptrace_scope=0 allow it)";
}

ulyx_status_t
uli_cma_probe(pid_t pid, const void *remote)
{
    uint64_t word = 0;
    struct iovec here = {&word, sizeof(word)};
    struct iovec there = {(void *)(uintptr_t)remote, sizeof(word)};
    ssize_t got = process_vm_readv(pid, &here, 1, &there, 1, 0);
    if (got < 0) {
        char text[256];
        int number = errno;
        snprintf(text, sizeof(text), "reading process %d's memory: %s%s",
            (int)pid, uli_errno_text(number), explain_refusal(pid, number));
        return uli_error_pass(ULYX_ERR_UNSUPPORTED, text);
    }
    if (got != sizeof(word) || word != uli_tr_probe_word)
        return uli_error_pass(ULYX_ERR_UNSUPPORTED,
            "the probe has read other bytes: the peer's pid belongs to another "
            "process here");
    return ULYX_SUCCESS;
}

/* A place in a list of ranges. */
struct cursor {
    const struct iovec *range;
    size_t left; /* ranges, the current one included */
    size_t at;   /* bytes of the current range that are done */
};

/* Up to BATCH ranges from the cursor on, empty ones left out. */
static int
cursor_fill(const struct cursor *from, struct iovec batch[BATCH])
{
    int count = 0;
    for (size_t i = 0; i < from->left && count < BATCH; i++) {
        size_t skip = i == 0 ? from->at : 0;
        if (from->range[i].iov_len == skip)
            continue;
        batch[count].iov_base = (char *)from->range[i].iov_base + skip;
        batch[count++].iov_len = from->range[i].iov_len - skip;
    }
    return count;
}

static void
cursor_advance(struct cursor *cursor, size_t bytes)
{
    while (cursor->left) {
        size_t rest = cursor->range->iov_len - cursor->at;
        if (bytes < rest) {
            cursor->at += bytes;
            return;
        }
        bytes -= rest;
        cursor->range++;
        cursor->left--;
        cursor->at = 0;
    }
}

static ulyx_status_t
read_failed(pid_t pid)
{
    if (errno == ESRCH)
        return uli_error(
            ULYX_ERR_RANK_LOST, "process %d does not exist", (int)pid);
    return uli_error_errno("process_vm_readv of process %d", (int)pid);
}

ulyx_status_t
uli_cma_read(pid_t pid, const struct iovec *local, size_t local_count,
    const struct iovec *remote, size_t remote_count)
{
    struct cursor to = {local, local_count, 0};
    struct cursor from = {remote, remote_count, 0};
    struct iovec here[BATCH], there[BATCH];
    for (;;) {
        int here_count = cursor_fill(&to, here),
            there_count = cursor_fill(&from, there);
        if (!here_count || !there_count)
            break;
        ssize_t got = process_vm_readv(pid, here, (unsigned long)here_count,
            there, (unsigned long)there_count, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return read_failed(pid);
        if (got == 0)
            return uli_error(ULYX_ERR_SYSTEM,
                "process_vm_readv of process %d read nothing", (int)pid);
        cursor_advance(&to, (size_t)got);
        cursor_advance(&from, (size_t)got);
    }
    return ULYX_SUCCESS;
}
