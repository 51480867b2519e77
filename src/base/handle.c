/* SPDX-License-Identifier: Apache-2.0
 *
 * See handle.h. Enter first counts its call and then reads the state; close
 * first changes the state and then reads the count. So when the two race, at
 * least one of them sees the other.
 */
#include "base/handle.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "base/text.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ULI_ASAN
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define ULI_ASAN
#endif
#if defined(ULI_ASAN)
#include <sanitizer/asan_interface.h>
#define POISON(object, bytes)   ASAN_POISON_MEMORY_REGION(object, bytes)
#define UNPOISON(object, bytes) ASAN_UNPOISON_MEMORY_REGION(object, bytes)
#else
#define POISON(object, bytes)   ((void)(object), (void)(bytes))
#define UNPOISON(object, bytes) ((void)(object), (void)(bytes))
#endif

enum { GONE, CLOSED, ENDED, LIVES = 0x756c6930 /* + kind */ };

struct handle {
    _Atomic uint32_t state;
    _Atomic int32_t calls;
    enum uli_handle_kind kind;
    size_t bytes;
    struct handle *next_free, *next; /* next: of all handles ever made */
    _Atomic(const void *) owner;     /* an object, or NULL */
    bool ended; /* was ENDED, not LIVES, when it was closed */
    _Alignas(16) unsigned char object[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct handle *free_handles[ULI_HANDLE_KINDS];
static _Atomic(struct handle *) handles; /* never shrinks */
static const char *const kinds[ULI_HANDLE_KINDS] = {
    "communicator", "plan", "distributed attention", "window"};

static struct handle *
handle_of(const void *object)
{
    return (
        struct handle *)((uintptr_t)object - offsetof(struct handle, object));
}

static struct handle *
handle_reuse(enum uli_handle_kind kind)
{
    pthread_mutex_lock(&lock);
    struct handle *handle = free_handles[kind];
    if (handle)
        free_handles[kind] = handle->next_free;
    pthread_mutex_unlock(&lock);
    return handle;
}

void *
uli_handle_new(enum uli_handle_kind kind, size_t bytes)
{
    struct handle *handle = handle_reuse(kind);
    if (!handle) {
        handle = calloc(1, sizeof(*handle) + bytes);
        if (!handle)
            return NULL;
        handle->kind = kind;
        handle->bytes = bytes;
        handle->next = atomic_load(&handles);
        while (!atomic_compare_exchange_weak(&handles, &handle->next, handle))
            ;
    }
    atomic_store(&handle->owner, NULL);
    handle->ended = false;
    UNPOISON(handle->object, bytes);
    memset(handle->object, 0, bytes);
    atomic_store(&handle->state, LIVES + kind);
    return handle->object;
}

void
uli_handle_belong(void *object, const void *owner)
{
    atomic_store(&handle_of(object)->owner, owner);
}

void
uli_handle_free(void *object)
{
    if (!object)
        return;
    struct handle *handle = handle_of(object);
    atomic_store(&handle->state, GONE);
    POISON(handle->object, handle->bytes);
    pthread_mutex_lock(&lock);
    handle->next_free = free_handles[handle->kind];
    free_handles[handle->kind] = handle;
    pthread_mutex_unlock(&lock);
}

static ulyx_status_t
handle_refuse(enum uli_handle_kind kind, const void *object, const char *name)
{
    if (!object)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT, "%s is NULL", name);
    if (atomic_load(&handle_of(object)->state) == ENDED &&
        handle_of(object)->kind == kind)
        return uli_error(ULYX_ERR_ABORTED,
            "the process is exiting: its %s has already left its peers",
            kinds[kind]);
    return uli_error(ULYX_ERR_INVALID_ARGUMENT,
        "%s is not a live %s: it was destroyed or never created", name,
        kinds[kind]);
}

ulyx_status_t
uli_handle_enter(enum uli_handle_kind kind, const void *object,
    const char *name, const void **entered_p)
{
    struct handle *handle = handle_of(object);
    if (!object || atomic_load(&handle->state) != LIVES + kind)
        return handle_refuse(kind, object, name);
    atomic_fetch_add(&handle->calls, 1);
    if (atomic_load(&handle->state) == LIVES + kind) {
        *entered_p = object;
        return ULYX_SUCCESS;
    }
    atomic_fetch_sub(&handle->calls, 1);
    return handle_refuse(kind, object, name);
}

void
uli_handle_leave(const void *const *entered_p)
{
    if (*entered_p)
        atomic_fetch_sub(&handle_of(*entered_p)->calls, 1);
}

bool
uli_handle_lives(enum uli_handle_kind kind, const void *object)
{
    return atomic_load(&handle_of(object)->state) == LIVES + kind;
}

ulyx_status_t
uli_handle_close(
    enum uli_handle_kind kind, const void *object, const char *name)
{
    struct handle *handle = handle_of(object);
    uint32_t lives = LIVES + kind, ended = ENDED;
    if (!object)
        return handle_refuse(kind, object, name);
    bool closed =
        atomic_compare_exchange_strong(&handle->state, &lives, CLOSED);
    if (!closed && handle->kind == kind &&
        atomic_compare_exchange_strong(&handle->state, &ended, CLOSED))
        closed = handle->ended = true;
    if (!closed)
        return handle_refuse(kind, object, name);
    int32_t calls = atomic_load(&handle->calls);
    if (calls == 0)
        return ULYX_SUCCESS;
    return uli_handle_closed(object,
        uli_error(ULYX_ERR_BUSY,
            "the %s has %d other call%s in flight, to be ended before destroy",
            kinds[kind], calls, uli_plural(calls)));
}

ulyx_status_t
uli_handle_closed(const void *object, ulyx_status_t status)
{
    struct handle *handle = handle_of(object);
    uint32_t closed = CLOSED;
    if (status != ULYX_SUCCESS)
        atomic_compare_exchange_strong(&handle->state, &closed,
            handle->ended ? ENDED : LIVES + handle->kind);
    return status;
}

/* ---- the end of the process ---------------------------------------------- */

static bool
handle_is_of(const struct handle *handle, const void *object)
{
    return handle->object == object || atomic_load(&handle->owner) == object;
}

/* False: a call is in the object, or a thread is closing it. */
static bool
handle_end(struct handle *handle)
{
    uint32_t state = LIVES + handle->kind;
    if (atomic_compare_exchange_strong(&handle->state, &state, ENDED))
        return atomic_load(&handle->calls) == 0;
    return state == ENDED || state == GONE;
}

bool
uli_handle_end(const void *object)
{
    bool idle = true;
    for (struct handle *h = atomic_load(&handles); h; h = h->next)
        if (handle_is_of(h, object))
            idle = handle_end(h) && idle;
    for (struct handle *h = atomic_load(&handles); h && !idle; h = h->next) {
        uint32_t ended = ENDED;
        if (handle_is_of(h, object))
            atomic_compare_exchange_strong(&h->state, &ended, LIVES + h->kind);
    }
    return idle;
}

void
uli_handle_each(enum uli_handle_kind kind,
    void (*visit)(void *context, void *object), void *context)
{
    for (struct handle *h = atomic_load(&handles); h; h = h->next) {
        uint32_t state = atomic_load(&h->state);
        if (h->kind == kind && (state == LIVES + kind || state == ENDED))
            visit(context, h->object);
    }
}
