/* SPDX-License-Identifier: Apache-2.0
 *
 * Start and stop of the service, and the registry of this process's
 * communicators.
 *
 * The thread exists from the first hold to the last release. A fork copies the
 * descriptors but not the thread: the child closes its copies (a socket that
 * lives on there would look like a living peer) and refuses every call, unless
 * nothing was in use.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/system/random.h"
#include "comm/service/service_internal.h"

struct uli_service uli_service = {
    .life = PTHREAD_MUTEX_INITIALIZER,
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .epoll = -1,
    .stop = -1,
    .listener = -1,
    .spare = -1,
    .poke = -1,
    .comms = {&uli_service.comms, &uli_service.comms},
    .watches = {&uli_service.watches, &uli_service.watches},
};

/* ---- fork ---------------------------------------------------------------- */

static void
before_fork(void)
{
    pthread_mutex_lock(&uli_service.life);
    pthread_mutex_lock(&uli_service.lock);
}

static void
after_fork_parent(void)
{
    pthread_mutex_unlock(&uli_service.lock);
    pthread_mutex_unlock(&uli_service.life);
}

static void
after_fork_child(void)
{
    if (uli_service.holds > 0 || !uli_list_empty(&uli_service.comms))
        uli_service.forked = true;
    if (uli_service.holds > 0)
        uli_service_close_descriptors();
    pthread_mutex_unlock(&uli_service.lock);
    pthread_mutex_unlock(&uli_service.life);
}

static void
install_fork_handlers(void)
{
    pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

static ulyx_status_t
service_enter(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install_fork_handlers);
    if (uli_service.forked)
        return uli_error(ULYX_ERR_FORKED,
            "process %d was forked while ulyx was in use", (int)getpid());
    return ULYX_SUCCESS;
}

bool
uli_service_forked(void)
{
    return uli_service.forked;
}

/* ---- holds --------------------------------------------------------------- */

/* The name of the process stays. The name of the socket is new at each start,
 * so that a peer that still has the old name finds no socket. */
static ulyx_status_t
choose_names(void)
{
    unsigned char random[12];
    if (uli_service.process_pid != (int32_t)getpid()) {
        ULI_TRY(
            uli_random_bytes(uli_service.process, sizeof(uli_service.process)));
        uli_service.process_pid = (int32_t)getpid();
    }
    ULI_TRY(uli_random_bytes(random, sizeof(random)));
    int used = snprintf(uli_service.name, sizeof(uli_service.name), "ulyx-");
    for (size_t i = 0; i < sizeof(random); i++)
        used += snprintf(uli_service.name + used,
            sizeof(uli_service.name) - (size_t)used, "%02x", random[i]);
    return ULYX_SUCCESS;
}

static ulyx_status_t
service_start(void)
{
    struct uli_settings settings;
    ULI_TRY(uli_settings_load(&settings));
    uli_service.core = settings.service_core;
    memset(&uli_service.binding, 0, sizeof(uli_service.binding));
    ULI_TRY(choose_names());
    return uli_service_thread_start();
}

ulyx_status_t
uli_service_hold(unsigned char process_p[16], char name_p[32])
{
    ULI_TRY(service_enter());
    pthread_mutex_lock(&uli_service.life);
    ulyx_status_t status =
        uli_service.holds == 0 ? service_start() : ULYX_SUCCESS;
    if (status == ULYX_SUCCESS) {
        uli_service.holds++;
        memcpy(process_p, uli_service.process, sizeof(uli_service.process));
        memcpy(name_p, uli_service.name, sizeof(uli_service.name));
    }
    pthread_mutex_unlock(&uli_service.life);
    return status;
}

void
uli_service_release(void)
{
    if (uli_service.forked)
        return;
    pthread_mutex_lock(&uli_service.life);
    if (--uli_service.holds == 0)
        uli_service_thread_stop();
    pthread_mutex_unlock(&uli_service.life);
}

/* ---- registry ------------------------------------------------------------ */

ulyx_status_t
uli_service_add(ulyx_comm_t *comm)
{
    ULI_TRY(service_enter());
    pthread_mutex_lock(&uli_service.lock);
    uli_list_append(&uli_service.comms, &comm->registry);
    if (comm->gpu)
        uli_service_poke();
    pthread_mutex_unlock(&uli_service.lock);
    return ULYX_SUCCESS;
}

void
uli_service_remove(ulyx_comm_t *comm)
{
    pthread_mutex_lock(&uli_service.lock);
    uli_list_remove(&comm->registry);
    uli_service_watch_sweep();
    pthread_mutex_unlock(&uli_service.lock);
}

void
uli_service_bind(const ulyx_comm_t *comm)
{
    if (!comm->served || uli_service.core >= 0)
        return;
    pthread_mutex_lock(&uli_service.lock);
    uli_binding_add(&uli_service.binding, &comm->binding);
    uli_bind_thread(&uli_service.binding, uli_service.thread);
    pthread_mutex_unlock(&uli_service.lock);
}

ulyx_comm_t *
uli_service_find_locked(const unsigned char endpoint[16])
{
    for (struct uli_list *n = uli_service.comms.next; n != &uli_service.comms;
         n = n->next) {
        ulyx_comm_t *comm = ULI_CONTAINER_OF(n, ulyx_comm_t, registry);
        const struct uli_identity *me = &comm->peers[comm->rank].identity;
        if (memcmp(me->endpoint, endpoint, sizeof(me->endpoint)) == 0)
            return comm;
    }
    return NULL;
}

ulyx_comm_t *
uli_service_find(const unsigned char endpoint[16])
{
    pthread_mutex_lock(&uli_service.lock);
    ulyx_comm_t *comm = uli_service_find_locked(endpoint);
    if (!comm)
        pthread_mutex_unlock(&uli_service.lock);
    return comm;
}

void
uli_service_each(void (*visit)(void *context, ulyx_comm_t *comm), void *context)
{
    pthread_mutex_lock(&uli_service.lock);
    for (struct uli_list *n = uli_service.comms.next; n != &uli_service.comms;
         n = n->next)
        visit(context, ULI_CONTAINER_OF(n, ulyx_comm_t, registry));
    pthread_mutex_unlock(&uli_service.lock);
}

void
uli_service_lock(void)
{
    pthread_mutex_lock(&uli_service.lock);
}

void
uli_service_unlock(void)
{
    pthread_mutex_unlock(&uli_service.lock);
}
