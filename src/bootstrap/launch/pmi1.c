/* SPDX-License-Identifier: Apache-2.0
 *
 * The PMI-1 wire protocol of MPICH's Hydra and of compatible launchers: lines
 * "cmd=name key=value ...\n" over the descriptor in PMI_FD, one answer to each
 * request. A value longer than the server's limit is put in parts: the last
 * part begins with '.', all others with '+'. An MPI library of the same process
 * may use the descriptor too, between requests of this module.
 */
#include "bootstrap/launch/pmi1.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/size.h"
#include "base/status.h"

enum {
    LINE_BYTES = 2048,
    NAME_BYTES = 256,
    VALUE_MAX = 1024,
    SLICE_MS = 1000,
    FINALIZE_MS = 1000
};

struct pmi {
    int fd;
    uli_deadline_t deadline;
    int value_bytes; /* the longest value that the server accepts, with its
                      * final zero */
    char kvs[NAME_BYTES];
    char line[LINE_BYTES]; /* the last answer */
};

static ulyx_status_t
wait_ready(const struct pmi *pmi, short events, const char *what)
{
    for (;;) {
        struct pollfd waited = {pmi->fd, events, 0};
        int wait_ms = uli_deadline_poll_ms(pmi->deadline, SLICE_MS);
        int ready = poll(&waited, 1, wait_ms);
        if (ready > 0)
            return ULYX_SUCCESS;
        if (ready < 0 && errno != EINTR)
            return uli_error_errno("PMI-1: %s", what);
        if (uli_deadline_over(pmi->deadline))
            return uli_error(ULYX_ERR_TIMEOUT,
                "PMI-1: the launcher did not answer %s before the deadline",
                what);
    }
}

/* The end of a launcher must not end this process by SIGPIPE. */
static ssize_t
pmi1_send(int fd, const char *text, size_t bytes)
{
    ssize_t sent = send(fd, text, bytes, MSG_NOSIGNAL);
    return sent < 0 && errno == ENOTSOCK ? write(fd, text, bytes) : sent;
}

static ulyx_status_t
write_line(const struct pmi *pmi, const char *line, const char *what)
{
    size_t left = strlen(line);
    while (left > 0) {
        ULI_TRY(wait_ready(pmi, POLLOUT, what));
        ssize_t wrote = pmi1_send(pmi->fd, line, left);
        if (wrote < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (wrote < 0)
            return uli_error_errno("PMI-1: %s", what);
        line += wrote;
        left -= (size_t)wrote;
    }
    return ULYX_SUCCESS;
}

/* Reads byte by byte, because bytes after the line may be for another
 * library. */
static ulyx_status_t
read_line(struct pmi *pmi, const char *what)
{
    size_t used = 0;
    while (used + 1 < LINE_BYTES) {
        ULI_TRY(wait_ready(pmi, POLLIN, what));
        ssize_t got = read(pmi->fd, pmi->line + used, 1);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got <= 0)
            return uli_error(ULYX_ERR_SYSTEM,
                "PMI-1: the launcher closed its connection during %s", what);
        if (pmi->line[used] == '\n') {
            pmi->line[used] = 0;
            return ULYX_SUCCESS;
        }
        used++;
    }
    return uli_error(ULYX_ERR_SYSTEM,
        "PMI-1: the launcher's answer to %s has no end of line", what);
}

/* The value of the key in the last answer, up to the next space. */
static bool
answer_value(
    const struct pmi *pmi, const char *key, char *value_p, size_t bytes)
{
    size_t length = strlen(key);
    const char *at = pmi->line;
    while (*at) {
        at += strspn(at, " ");
        size_t word = strcspn(at, " ");
        if (word > length && strncmp(at, key, length) == 0 &&
            at[length] == '=') {
            size_t size = word - length - 1;
            if (size >= bytes)
                return false;
            memcpy(value_p, at + length + 1, size);
            value_p[size] = 0;
            return true;
        }
        at += word;
    }
    return false;
}

/* Sends a line and reads the answer, which must have cmd=<answer>, and rc=0 or
 * no rc. */
static ulyx_status_t
pmi_query(struct pmi *pmi, const char *line, const char *answer)
{
    char value[64];
    ULI_TRY(write_line(pmi, line, answer));
    ULI_TRY(read_line(pmi, answer));
    bool named = answer_value(pmi, "cmd", value, sizeof(value)) &&
                 strcmp(value, answer) == 0;
    if (named && (!answer_value(pmi, "rc", value, sizeof(value)) ||
                     strcmp(value, "0") == 0))
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_SYSTEM,
        "PMI-1: expected \"%s\" without an error, the launcher answered "
        "\"%.200s\"",
        answer, pmi->line);
}

/* ---- connection to the launcher ------------------------------------------ */

/* If a process has sent init and ends without finalize, a launcher takes the
 * process for dead and kills the job. An MPI library of this process sends
 * both. In a process without MPI this module sends them: finalize once, at the
 * end of the process. */
static atomic_int finalize_fd = -1;
static atomic_int finalize_pid;

static bool
mpi_flag(const char *question)
{
    int (*query_mpi)(int *) = NULL;
    int yes = 0;
    void *symbol = dlsym(RTLD_DEFAULT, question);
    memcpy(&query_mpi, &symbol, sizeof(symbol));
    return query_mpi && query_mpi(&yes) == 0 && yes;
}

bool
uli_pmi1_mpi_initialized(void)
{
    return mpi_flag("MPI_Initialized");
}

static ulyx_status_t
pmi_init(struct pmi *pmi)
{
    char value[32] = "";
    if (uli_pmi1_mpi_initialized())
        return ULYX_SUCCESS;
    atomic_store(&finalize_pid, (int)getpid());
    atomic_store(&finalize_fd, pmi->fd);
    ULI_TRY(pmi_query(
        pmi, "cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init"));
    if (!answer_value(pmi, "pmi_version", value, sizeof(value)) ||
        strcmp(value, "1") != 0)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "PMI-1: the launcher has PMI version \"%s\", 1 is needed", value);
    return ULYX_SUCCESS;
}

__attribute__((destructor)) static void
pmi_finalize(void)
{
    static const char line[] = "cmd=finalize\n";
    struct pollfd waited = {atomic_load(&finalize_fd), POLLIN, 0};
    if (waited.fd < 0 || atomic_load(&finalize_pid) != (int)getpid() ||
        uli_pmi1_mpi_initialized())
        return;
    if (send(waited.fd, line, strlen(line), MSG_NOSIGNAL) > 0)
        poll(&waited, 1, FINALIZE_MS);
}

/* ---- store --------------------------------------------------------------- */

static ulyx_status_t
pmi_start(struct pmi *pmi)
{
    char value[32] = "";
    ULI_TRY(pmi_init(pmi));
    ULI_TRY(pmi_query(pmi, "cmd=get_maxes\n", "maxes"));
    if (!answer_value(pmi, "vallen_max", value, sizeof(value)))
        strcpy(value, "256");
    pmi->value_bytes = (int)uli_min(strtol(value, NULL, 10), VALUE_MAX);
    if (pmi->value_bytes < 16)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "PMI-1: the launcher stores values of %d bytes only",
            pmi->value_bytes);
    ULI_TRY(pmi_query(pmi, "cmd=get_my_kvsname\n", "my_kvsname"));
    if (!answer_value(pmi, "kvsname", pmi->kvs, sizeof(pmi->kvs)))
        return uli_error(
            ULYX_ERR_SYSTEM, "PMI-1: \"%.200s\" names no store", pmi->line);
    return ULYX_SUCCESS;
}

static ulyx_status_t
pmi_put(struct pmi *pmi, const char *key, const char *value)
{
    char line[LINE_BYTES];
    int part_bytes = pmi->value_bytes - 2; /* less the mark and the final
                                            * zero */
    for (int part = 0;; part++) {
        int left = (int)strlen(value);
        bool last = left <= part_bytes;
        int take = last ? left : part_bytes;
        snprintf(line, sizeof(line),
            "cmd=put kvsname=%s key=%s-%d value=%c%.*s\n", pmi->kvs, key, part,
            last ? '.' : '+', take, value);
        ULI_TRY(pmi_query(pmi, line, "put_result"));
        value += take;
        if (last)
            return ULYX_SUCCESS;
    }
}

static ulyx_status_t
pmi_get(struct pmi *pmi, const char *key, char *value_p, size_t bytes)
{
    char line[LINE_BYTES], value[VALUE_MAX + 1];
    size_t used = 0;
    for (int part = 0;; part++) {
        snprintf(line, sizeof(line), "cmd=get kvsname=%s key=%s-%d\n", pmi->kvs,
            key, part);
        ULI_TRY(pmi_query(pmi, line, "get_result"));
        if (!answer_value(pmi, "value", value, sizeof(value)) ||
            (value[0] != '+' && value[0] != '.') ||
            used + strlen(value) > bytes)
            return uli_error(ULYX_ERR_SYSTEM,
                "PMI-1: \"%.200s\" is not what rank 0 stores", pmi->line);
        strcpy(value_p + used, value + 1);
        used += strlen(value) - 1;
        if (value[0] == '.')
            return ULYX_SUCCESS;
    }
}

ulyx_status_t
uli_pmi1_share(int fd, int32_t rank, const char *key, char *value, size_t bytes,
    uli_deadline_t deadline)
{
    struct pmi *pmi = calloc(1, sizeof(*pmi));
    if (!pmi)
        return uli_error(ULYX_ERR_NO_MEMORY, "out of memory for PMI-1");
    pmi->fd = fd;
    pmi->deadline = deadline;
    ulyx_status_t status = pmi_start(pmi);
    if (!status && rank == 0)
        status = pmi_put(pmi, key, value);
    if (!status)
        status = pmi_query(pmi, "cmd=barrier_in\n", "barrier_out");
    if (!status && rank != 0)
        status = pmi_get(pmi, key, value, bytes);
    free(pmi);
    return status;
}
