/* SPDX-License-Identifier: Apache-2.0
 *
 * Which thread writes dumps, and when; see dump.h.
 *
 * Requests are numbered: a failure takes the next number, and the thread
 * publishes up to which number it has served. So a waiting call needs no
 * communicator, which may be gone by then. The thread finds its work in the
 * registry: the communicators that are marked (a signal marks all). One dump
 * serves all communicators whose files have the same name.
 */
#include "comm/record/dump.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/system/file.h"
#include "base/system/semaphore.h"
#include "base/system/thread.h"
#include "comm/service/service.h"

#define SETTLE_NS INT64_C(250000000)
#define NAP_NS    INT64_C(1000000)
#define RELEASE_S 1

static struct {
    pthread_mutex_t life; /* guards the next four lines */
    int32_t holds;
    bool alive, stop; /* of the thread */
    int taken;        /* the signal; 0: none */
    struct sigaction before;
    struct uli_semaphore bell;
    _Atomic uint64_t requested, served;
    atomic_bool signalled;
} dump = {.life = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local bool never_waits;

/* ---- writing ------------------------------------------------------------- */

struct collection {
    struct uli_dump_text text;
    int32_t rank; /* this process's rank in its oldest communicator */
};

static void
comm_collect(void *context, ulyx_comm_t *comm)
{
    struct collection *collection = context;

    if (collection->rank < 0)
        collection->rank = comm->rank;
    uli_dump_text_add(&collection->text, comm);
}

/* Sets no last error: why_p has the reason. */
static ulyx_status_t
dump_write(const char *pattern, enum uli_dump_cause cause,
    char name_p[PATH_MAX], char why_p[ULI_FILE_WHY])
{
    struct collection collection = {.rank = -1};
    char host[256];
    ulyx_status_t status;

    uli_log_file_name("%h", -1, host, sizeof(host));
    uli_dump_text_begin(&collection.text, cause, host);
    uli_service_each(comm_collect, &collection);
    uli_dump_text_end(&collection.text);
    uli_log_file_name(pattern, collection.rank, name_p, PATH_MAX);
    if (!collection.text.at) {
        snprintf(why_p, ULI_FILE_WHY, "no memory");
        return ULYX_ERR_NO_MEMORY;
    }
    status = uli_file_replace(
        name_p, collection.text.at, collection.text.length, why_p);
    free(collection.text.at);
    return status;
}

ulyx_status_t
uli_dump_write(const char *pattern)
{
    char name[PATH_MAX], why[ULI_FILE_WHY];
    ulyx_status_t status = dump_write(pattern, ULI_DUMP_CALL, name, why);

    if (status == ULYX_SUCCESS)
        return ULYX_SUCCESS;
    return uli_error(status, "dump to %.120s: %s", name, why);
}

/* ---- the thread ---------------------------------------------------------- */

/* A file name that is still to be written. */
struct request {
    bool found;
    char pattern[ULI_SETTING_TEXT];
};

static void
comm_mark(void *unused, ulyx_comm_t *comm)
{
    (void)unused;
    if (comm->dump_held)
        atomic_store(&comm->dump_requested, true);
}

/* Clears the mark of the first marked communicator, and of all whose file has
 * the same name. */
static void
comm_take_mark(void *context, ulyx_comm_t *comm)
{
    struct request *request = context;

    if (!atomic_load(&comm->dump_requested) ||
        (request->found &&
            strcmp(request->pattern, comm->settings.dump_file) != 0))
        return;
    atomic_store(&comm->dump_requested, false);
    request->found = true;
    memcpy(
        request->pattern, comm->settings.dump_file, sizeof(request->pattern));
}

static void
dump_serve_name(const char *pattern, enum uli_dump_cause cause)
{
    static atomic_bool logged;
    char name[PATH_MAX], why[ULI_FILE_WHY];

    if (dump_write(pattern, cause, name, why) == ULYX_SUCCESS)
        ULI_INFO(ULI_LOG_FAULT, -1, "flight recorder written to %s", name);
    else if (!atomic_exchange(&logged, true))
        ULI_WARN(ULI_LOG_FAULT, -1,
            "ULYX_DUMP_FILE: %s cannot be written: %s (logged once)", name,
            why);
}

static void
dump_serve(void)
{
    uint64_t requested = atomic_load(&dump.requested);
    bool signalled = atomic_exchange(&dump.signalled, false);

    if (signalled)
        uli_service_each(comm_mark, NULL);
    for (;;) {
        struct request request = {0};

        uli_service_each(comm_take_mark, &request);
        if (!request.found)
            break;
        dump_serve_name(
            request.pattern, signalled ? ULI_DUMP_SIGNAL : ULI_DUMP_ERROR);
    }
    atomic_store(&dump.served, requested);
}

static bool
dump_thread_ends(void)
{
    bool ends;

    pthread_mutex_lock(&dump.life);
    ends = dump.stop;
    if (ends)
        dump.alive = false;
    pthread_mutex_unlock(&dump.life);
    return ends;
}

static void *
dump_main(void *unused)
{
    (void)unused;
    pthread_setname_np(pthread_self(), "ulyx-dump");
    do {
        uli_semaphore_wait(&dump.bell, -1);
        dump_serve();
    } while (!dump_thread_ends());
    return NULL;
}

/* Under life. A thread that has not ended yet continues. */
static ulyx_status_t
dump_thread_start(void)
{
    pthread_t thread;

    dump.stop = false;
    if (dump.alive)
        return ULYX_SUCCESS;
    ULI_TRY(uli_thread_start("dumps", dump_main, NULL, &thread));
    pthread_detach(thread);
    dump.alive = true;
    return ULYX_SUCCESS;
}

/* ---- the signal ---------------------------------------------------------- */

/* Also calls the handler that had the signal before. */
static void
signal_handle(int number, siginfo_t *info, void *context)
{
    const struct sigaction *before = &dump.before;
    int saved = errno;

    atomic_store(&dump.signalled, true);
    uli_semaphore_post(&dump.bell);
    if (before->sa_flags & SA_SIGINFO)
        before->sa_sigaction(number, info, context);
    else if (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN)
        before->sa_handler(number);
    errno = saved;
}

static int
signal_number(const char *name)
{
    static const struct {
        const char *name;
        int number;
    } signals[] = {{"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"HUP", SIGHUP},
        {"QUIT", SIGQUIT}, {"URG", SIGURG}, {"IO", SIGIO}, {"WINCH", SIGWINCH}};

    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        if (strcmp(signals[i].name, name) == 0)
            return signals[i].number;
    return 0;
}

/* Under life. */
static ulyx_status_t
signal_take(const ulyx_comm_t *comm)
{
    struct sigaction action = {
        .sa_sigaction = signal_handle, .sa_flags = SA_SIGINFO | SA_RESTART};
    int number = signal_number(comm->settings.dump_signal);

    if (number == 0 || number == dump.taken)
        return ULYX_SUCCESS;
    if (dump.taken != 0) {
        ULI_WARN(ULI_LOG_ENV, comm->rank,
            "ULYX_DUMP_SIGNAL: %s is ignored: this process uses signal %d "
            "already",
            comm->settings.dump_signal, dump.taken);
        return ULYX_SUCCESS;
    }
    sigemptyset(&action.sa_mask);
    if (sigaction(number, NULL, &dump.before) ||
        sigaction(number, &action, NULL))
        return uli_error_errno("ULYX_DUMP_SIGNAL: taking signal %d", number);
    dump.taken = number;
    return ULYX_SUCCESS;
}

/* Under life. The handler stays where another one has replaced it since,
 * because that one may call this one. */
static void
signal_give_back(void)
{
    struct sigaction now;

    if (dump.taken == 0 || sigaction(dump.taken, NULL, &now) ||
        !(now.sa_flags & SA_SIGINFO) || now.sa_sigaction != signal_handle)
        return;
    sigaction(dump.taken, &dump.before, NULL);
    dump.taken = 0;
}

/* ---- fork ---------------------------------------------------------------- */

static void
before_fork(void)
{
    pthread_mutex_lock(&dump.life);
}

static void
after_fork_parent(void)
{
    pthread_mutex_unlock(&dump.life);
}

/* The child has no dump thread. A child in which the library can be used was
 * forked when nothing was held, so it has no holds. */
static void
after_fork_child(void)
{
    dump.alive = false;
    dump.holds = 0;
    pthread_mutex_unlock(&dump.life);
}

static void
install_fork_handlers(void)
{
    pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

/* ---- holds --------------------------------------------------------------- */

/* Under life. */
static ulyx_status_t
dump_start(const ulyx_comm_t *comm)
{
    ulyx_status_t status = dump_thread_start();

    if (status == ULYX_SUCCESS)
        status = signal_take(comm);
    if (status == ULYX_SUCCESS)
        dump.holds++;
    dump.stop = dump.holds == 0;
    return status;
}

ulyx_status_t
uli_dump_hold(ulyx_comm_t *comm)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    ulyx_status_t status;

    if (comm->settings.dump_file[0] == 0) {
        if (comm->settings.dump_signal[0] != 0)
            ULI_WARN(ULI_LOG_ENV, comm->rank,
                "ULYX_DUMP_SIGNAL is set, but no ULYX_DUMP_FILE to write");
        return ULYX_SUCCESS;
    }
    pthread_once(&once, install_fork_handlers);
    pthread_mutex_lock(&dump.life);
    status = dump_start(comm);
    pthread_mutex_unlock(&dump.life);
    comm->dump_held = status == ULYX_SUCCESS;
    if (status != ULYX_SUCCESS)
        uli_semaphore_post(&dump.bell);
    return status;
}

static bool
dump_thread_is_ending(void)
{
    bool ending;

    pthread_mutex_lock(&dump.life);
    ending = dump.alive && dump.stop;
    pthread_mutex_unlock(&dump.life);
    return ending;
}

void
uli_dump_release(ulyx_comm_t *comm)
{
    uli_deadline_t deadline = uli_deadline_in(RELEASE_S);

    if (!comm->dump_held)
        return;
    comm->dump_held = false;
    pthread_mutex_lock(&dump.life);
    dump.stop = --dump.holds == 0;
    if (dump.stop)
        signal_give_back();
    pthread_mutex_unlock(&dump.life);
    uli_semaphore_post(&dump.bell);
    while (dump_thread_is_ending() && !uli_deadline_over(deadline))
        uli_clock_sleep_ns(NAP_NS);
}

/* ---- failures ------------------------------------------------------------ */

void
uli_dump_request(ulyx_comm_t *comm)
{
    if (!comm->dump_held)
        return;
    atomic_store(&comm->dump_until_ns, uli_clock_ns() + SETTLE_NS);
    atomic_store(&comm->dump_requested, true);
    atomic_store(&comm->dump_number, atomic_fetch_add(&dump.requested, 1) + 1);
    uli_semaphore_post(&dump.bell);
}

/* The failure is visible a moment before the request has its number. */
void
uli_dump_settle(ulyx_comm_t *comm)
{
    int64_t begun_ns, until_ns;
    uint64_t number;

    if (!comm->dump_held || never_waits)
        return;
    begun_ns = uli_clock_ns();
    do {
        number = atomic_load(&comm->dump_number);
        if (number != 0 && atomic_load(&dump.served) >= number)
            return;
        uli_clock_sleep_ns(NAP_NS);
        until_ns = atomic_load(&comm->dump_until_ns);
    } while (
        uli_clock_ns() < (until_ns != 0 ? until_ns : begun_ns + SETTLE_NS));
}

void
uli_dump_never_wait(void)
{
    never_waits = true;
}
