/* SPDX-License-Identifier: Apache-2.0
 *
 * Objects that the caller holds by a pointer. The caller may pass that pointer
 * after destroying the object, or while another thread destroys it. In front
 * of each object lies a word that records whether the object lives, and how
 * many calls are in it. Memory of a destroyed object is kept for the next of
 * its kind and never given back, so that the word can be read at any time;
 * the cost is two atomic additions per call. If the memory already serves a
 * new object of the kind, a stale pointer is taken for that one. So the check
 * finds mistakes; it proves nothing.
 *
 * Any thread may call any of these; enter, leave and lives also a signal
 * handler.
 */
#ifndef ULI_BASE_HANDLE_H
#define ULI_BASE_HANDLE_H

#include <stdbool.h>
#include <stddef.h>
#include "ulyx/types.h"

enum uli_handle_kind {
    ULI_HANDLE_COMM,
    ULI_HANDLE_PLAN,
    ULI_HANDLE_DIST_ATTENTION,
    ULI_HANDLE_MEM,
    ULI_HANDLE_KINDS
};

/* A new live object of `bytes` zero bytes; `bytes` is the same for all of a
 * kind. NULL: no memory. */
void *uli_handle_new(enum uli_handle_kind kind, size_t bytes);
/* Records that the object belongs to owner, which has a handle too, and ends
 * with it. */
void uli_handle_belong(void *object, const void *owner);
/* Marks the handle as destroyed. NULL is fine. */
void uli_handle_free(void *object);

/* A call begins: until leave no thread can close the object.
 * returns ERR_INVALID_ARGUMENT: NULL, or no object of that kind that lives; the
 * text calls the argument `name`. ERR_ABORTED: it has ended. */
ulyx_status_t uli_handle_enter(enum uli_handle_kind kind, const void *object,
    const char *name, const void **entered_p);
/* *entered_p as enter left it; NULL is fine. */
void uli_handle_leave(const void *const *entered_p);
bool uli_handle_lives(enum uli_handle_kind kind, const void *object);

/* Before it is destroyed: calls are refused from now on.
 * returns as enter, or ERR_BUSY: other calls are in it (it lives on). */
ulyx_status_t uli_handle_close(
    enum uli_handle_kind kind, const void *object, const char *name);
/* When the process ends: no call on the object, or on one that belongs to it,
 * begins any more (enter refuses it: ERR_ABORTED); they can still be closed.
 * returns false where a call is in one of them, or one is closed just now:
 * nothing has changed then. */
bool uli_handle_end(const void *object);
/* Visits every object of a kind that lives or has ended. One that another
 * thread closes meanwhile may be visited. */
void uli_handle_each(enum uli_handle_kind kind,
    void (*visit)(void *context, void *object), void *context);
/* After close, with what the attempt to destroy it came to: an object that was
 * not freed lives on. returns status. */
ulyx_status_t uli_handle_closed(const void *object, ulyx_status_t status);

/* A call on `object`, an argument of the function, until its block ends. */
#define ULI_ENTER(kind, object)                                                \
    __attribute__((cleanup(uli_handle_leave))) const void *object##_entered =  \
        NULL;                                                                  \
    ULI_TRY(uli_handle_enter(kind, object, #object, &object##_entered))

#endif
