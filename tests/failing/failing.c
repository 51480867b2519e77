/* SPDX-License-Identifier: Apache-2.0
 *
 * The wrapped functions (failing.h). Live blocks are kept in a table of
 * addresses, because free also frees memory that came from other functions
 * (getline, getaddrinfo), which must not count.
 */
#include "failing/failing.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include "failing/failing_kinds.h"

#define NAME(name) #name,
const char *const failing_names[] = {FAILING_KINDS(NAME)};

#define KIND(name) KIND_##name,
enum kind { KIND_NONE = -1, FAILING_KINDS(KIND) KINDS };

int
failing_kinds(void)
{
    return KINDS;
}

static atomic_int armed_kind = KIND_NONE, calls, turn;
static atomic_bool fired;

void
failing_arm(int kind, int n)
{
    atomic_store(&calls, 0);
    atomic_store(&turn, n);
    atomic_store(&fired, false);
    atomic_store(&armed_kind, kind);
}

bool
failing_disarm(int *calls_p)
{
    atomic_store(&armed_kind, KIND_NONE);
    if (calls_p)
        *calls_p = atomic_load(&calls);
    return atomic_load(&fired);
}

static bool
call_fails(enum kind kind, int number)
{
    if (atomic_load(&armed_kind) != (int)kind)
        return false;
    if (atomic_fetch_add(&calls, 1) + 1 != atomic_load(&turn))
        return false;
    atomic_store(&fired, true);
    errno = number;
    return true;
}

/* ---- blocks -------------------------------------------------------------- */

enum { SLOTS = 1 << 18 };
/* 0: never used, 1: of a freed block, else an address */
static _Atomic uintptr_t slots[SLOTS];
static atomic_long blocks;

static unsigned
slot_of(const void *block)
{
    return (
        unsigned)(((uintptr_t)block >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 46);
}

static void *
block_note(void *block)
{
    for (unsigned at = slot_of(block); block; at++) {
        uintptr_t seen = atomic_load(&slots[at % SLOTS]);
        if (seen <= 1 && atomic_compare_exchange_strong(
                             &slots[at % SLOTS], &seen, (uintptr_t)block)) {
            atomic_fetch_add(&blocks, 1);
            break;
        }
    }
    return block;
}

static void
block_forget(const void *block)
{
    for (unsigned at = slot_of(block), n = 0; block && n < SLOTS; at++, n++) {
        uintptr_t seen = atomic_load(&slots[at % SLOTS]);
        if (seen == 0)
            return;
        if (seen == (uintptr_t)block) {
            atomic_store(&slots[at % SLOTS], 1);
            atomic_fetch_sub(&blocks, 1);
            return;
        }
    }
}

long
failing_blocks(void)
{
    return atomic_load(&blocks);
}

/* ---- the functions ------------------------------------------------------- */

#define WRAPPED(type, name, parameters)                                        \
    type __real_##name parameters;                                             \
    type __wrap_##name parameters;                                             \
    type __wrap_##name parameters

WRAPPED(void *, malloc, (size_t bytes))
{
    return call_fails(KIND_malloc, ENOMEM) ? NULL
                                           : block_note(__real_malloc(bytes));
}

WRAPPED(void *, calloc, (size_t count, size_t bytes))
{
    return call_fails(KIND_calloc, ENOMEM)
               ? NULL
               : block_note(__real_calloc(count, bytes));
}

WRAPPED(void *, realloc, (void *old, size_t bytes))
{
    if (call_fails(KIND_realloc, ENOMEM))
        return NULL;
    block_forget(old);
    return block_note(__real_realloc(old, bytes));
}

WRAPPED(void, free, (void *block))
{
    block_forget(block);
    __real_free(block);
}

WRAPPED(char *, strdup, (const char *text))
{
    return call_fails(KIND_strdup, ENOMEM) ? NULL
                                           : block_note(__real_strdup(text));
}

WRAPPED(int, posix_memalign, (void **block_p, size_t align, size_t bytes))
{
    if (call_fails(KIND_posix_memalign, ENOMEM))
        return ENOMEM;
    int number = __real_posix_memalign(block_p, align, bytes);
    if (!number)
        block_note(*block_p);
    return number;
}

WRAPPED(int, open, (const char *path, int flags, ...))
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return call_fails(KIND_open, EMFILE) ? -1 : __real_open(path, flags, mode);
}

WRAPPED(FILE *, fopen, (const char *path, const char *mode))
{
    return call_fails(KIND_fopen, EMFILE) ? NULL : __real_fopen(path, mode);
}

#define SIMPLE(type, name, number, failure, parameters, arguments)             \
    WRAPPED(type, name, parameters)                                            \
    {                                                                          \
        return call_fails(KIND_##name, number) ? (failure)                     \
                                               : __real_##name arguments;      \
    }

SIMPLE(void *, mmap, ENOMEM, MAP_FAILED,
    (void *a, size_t n, int p, int f, int d, off_t o), (a, n, p, f, d, o))
SIMPLE(int, memfd_create, EMFILE, -1, (const char *n, unsigned f), (n, f))
SIMPLE(int, ftruncate, ENOMEM, -1, (int d, off_t n), (d, n))
SIMPLE(
    int, posix_fallocate, ENOSPC, ENOSPC, (int d, off_t o, off_t n), (d, o, n))
SIMPLE(int, socket, EMFILE, -1, (int d, int t, int p), (d, t, p))
SIMPLE(int, bind, EADDRINUSE, -1,
    (int d, const struct sockaddr *a, socklen_t n), (d, a, n))
SIMPLE(int, listen, EADDRINUSE, -1, (int d, int n), (d, n))
SIMPLE(int, connect, ECONNREFUSED, -1,
    (int d, const struct sockaddr *a, socklen_t n), (d, a, n))
SIMPLE(int, accept4, EMFILE, -1,
    (int d, struct sockaddr *a, socklen_t *n, int f), (d, a, n, f))
SIMPLE(int, poll, EINTR, -1, (struct pollfd * e, nfds_t n, int ms), (e, n, ms))
SIMPLE(int, epoll_create1, EMFILE, -1, (int f), (f))
SIMPLE(int, epoll_ctl, ENOSPC, -1, (int e, int o, int d, struct epoll_event *v),
    (e, o, d, v))
SIMPLE(int, eventfd, EMFILE, -1, (unsigned v, int f), (v, f))
SIMPLE(ssize_t, sendmsg, ENOBUFS, -1, (int d, const struct msghdr *m, int f),
    (d, m, f))
SIMPLE(ssize_t, recvmsg, EINTR, -1, (int d, struct msghdr *m, int f), (d, m, f))
SIMPLE(int, pthread_create, EAGAIN, EAGAIN,
    (pthread_t * t, const pthread_attr_t *a, void *(*f)(void *), void *c),
    (t, a, f, c))

int
failing_thread(pthread_t *thread, void *(*body)(void *), void *context)
{
    return __real_pthread_create(thread, NULL, body, context);
}
