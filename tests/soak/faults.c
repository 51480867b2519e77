/* SPDX-License-Identifier: Apache-2.0
 *
 * The soak's faults; see faults.h.
 */
#include "soak/faults.h"

#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/system/clock.h"
#include "support/hosts.h"
#include "support/ranks.h"

const char *const fault_names[FAULTS] = {"none", "pause", "fork", "link pause",
    "abort", "kill", "stop", "link down"};

bool
fault_is_harmless(enum fault fault)
{
    return fault < FAULT_ABORTED;
}

bool
fault_is_silent(enum fault fault)
{
    return fault == FAULT_STOPPED || fault == FAULT_CUT;
}

bool
fault_is_outer(enum fault fault)
{
    return fault != FAULT_FORKED && fault != FAULT_ABORTED;
}

bool
strike_is_beside(const struct strike *strike, int rank)
{
    return hosts_of(rank, strike->nranks) ==
           hosts_of(strike->victim, strike->nranks);
}

/* ---- striking ------------------------------------------------------------ */

/* Waits until `count` reaches `wanted`. Ranks that UCX has ended never arrive
 * and are not awaited. */
static void
await_count(struct strike *strike, const _Atomic int *count, int wanted)
{
    for (int i = 0; i < FAULT_LIMIT_S * 1000 &&
                    atomic_load(count) + atomic_load(&strike->spoilt) < wanted;
         i++)
        usleep(1000);
}

static void
strike_begin(struct strike *strike)
{
    await_count(strike, &strike->ready, strike->nranks);
    usleep((useconds_t)strike->delay_us);
    atomic_store(&strike->struck_ns, uli_clock_ns());
}

/* Sets the switch's end of the link, so that the host's own end stays up while
 * no packet arrives there. */
static void
link_set(int host, bool up)
{
    struct ifreq request = {.ifr_flags = 0};
    snprintf(request.ifr_name, sizeof(request.ifr_name), "port%d", host);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &request))
        perror(request.ifr_name);
    request.ifr_flags =
        (short)(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
    if (ioctl(fd, SIOCSIFFLAGS, &request))
        perror(request.ifr_name);
    close(fd);
}

static void
link_cut(struct strike *strike)
{
    int host = hosts_of(strike->victim, strike->nranks);
    hosts_enter_switch();
    strike_begin(strike);
    link_set(host, false);
    if (strike->fault == FAULT_BROKEN)
        usleep((useconds_t)strike->pause_us);
    else
        await_count(strike, &strike->done, strike->nranks);
    link_set(host, true);
}

static void
victim_signal(struct strike *strike)
{
    strike_begin(strike);
    pid_t victim = ranks_pid(strike->pids, strike->victim);
    kill(victim, strike->fault == FAULT_KILLED ? SIGKILL : SIGSTOP);
    if (strike->fault == FAULT_PAUSED)
        usleep((useconds_t)strike->pause_us);
    else
        await_count(strike, &strike->done, strike->nranks - 1);
    atomic_store(&strike->over, true);
    /* the process id of a killed victim may be in use again */
    if (strike->fault != FAULT_KILLED)
        kill(victim, SIGCONT);
}

void
fault_await_awake(struct strike *strike)
{
    await_count(strike, &strike->awake, 1);
}

pid_t
fault_send(struct strike *strike)
{
    pid_t hand = fork();
    if (hand != 0)
        return hand;
    if (strike->fault == FAULT_NONE)
        strike_begin(strike);
    else if (strike->fault == FAULT_CUT || strike->fault == FAULT_BROKEN)
        link_cut(strike);
    else
        victim_signal(strike);
    atomic_store(&strike->over, true);
    _exit(0);
}

/* The child may hold locks whose threads it does not have. It only makes calls
 * of the library, which must refuse. */
static void
child_fork(struct strike *strike, ulyx_comm_t *comm)
{
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        ulyx_comm_t *half;
        int64_t bytes;
        bool refused =
            ulyx_comm_barrier(comm) == ULYX_ERR_FORKED &&
            ulyx_comm_get_memory(comm, &bytes) == ULYX_ERR_FORKED &&
            ulyx_comm_split(comm, 0, 0, NULL, &half) == ULYX_ERR_FORKED;
        _exit(!refused);
    }
    waitpid(child, &status, 0);
    atomic_store(&strike->child_refused, child > 0 && status == 0);
}

void
fault_from_within(struct strike *strike, ulyx_comm_t *comm)
{
    strike_begin(strike);
    if (strike->fault == FAULT_FORKED)
        child_fork(strike, comm);
    else
        ulyx_comm_abort(comm);
    atomic_store(&strike->over, true);
}

/* ---- expected errors ----------------------------------------------------- */

/* Returns whether a list of ranks in the text has this rank. Lists have the
 * forms "... rank 3 ...", "ranks 0, 2-3 ..." and "these ranks did not come:
 * 1". */
static bool
text_lists(const char *text, int rank)
{
    if (ranks_listed(text, "did not come:", rank))
        return true;
    for (const char *at = text; (at = strstr(at, "rank")); at++)
        if (ranks_listed(at, "rank", rank))
            return true;
    return false;
}

/* After a cut, ranks on one side name ranks of the other side. */
static bool
text_lists_other_side(const struct strike *strike, int rank, const char *text)
{
    bool mine = strike_is_beside(strike, rank);
    for (int r = 0; r < strike->nranks; r++)
        if (strike_is_beside(strike, r) != mine && text_lists(text, r))
            return true;
    return false;
}

bool
fault_is_named(const struct strike *strike, int rank, ulyx_status_t status,
    const char *text)
{
    switch (strike->fault) {
    case FAULT_FORKED:
        return status == ULYX_SUCCESS &&
               (rank != strike->victim || atomic_load(&strike->child_refused));
    case FAULT_ABORTED:
        return status == ULYX_ERR_ABORTED &&
               (rank == strike->victim || text_lists(text, strike->victim));
    case FAULT_KILLED:
        return status == ULYX_ERR_RANK_LOST && text_lists(text, strike->victim);
    case FAULT_STOPPED:
        return status == ULYX_ERR_TIMEOUT && text_lists(text, strike->victim);
    case FAULT_CUT:
        return (status == ULYX_ERR_TIMEOUT || status == ULYX_ERR_RANK_LOST) &&
               text_lists_other_side(strike, rank, text);
    default:
        return status == ULYX_SUCCESS;
    }
}
