/* SPDX-License-Identifier: Apache-2.0
 *
 * Objects that the caller holds by a pointer. The caller may pass that pointer
 * after destroying the object, or while another thread destroys it. In front
 * of each object lies a word that records whether the object lives, and how
 * many calls are in it. Memory of a destroyed object is kept for the next
 * object of its kind and never freed, so that the word can be read at any time;
 * the cost is two atomic additions per call. If the memory already holds a new
 * object of the kind, a stale pointer passes for that object. So the check
 * finds most mistakes, but not all.
 *
 * Any thread may call these functions; a signal handler may call enter, leave
 * and lives.
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

/* A new live object of `bytes` zero bytes; `bytes` is the same for all objects
 * of a kind. NULL: no memory. */
void *uli_handle_new(enum uli_handle_kind kind, size_t bytes);
/* Records that the object belongs to owner, an object with a handle:
 * uli_handle_end of the owner ends the object too. */
void uli_handle_belong(void *object, const void *owner);
/* Marks the handle as destroyed. NULL is fine. */
void uli_handle_free(void *object);

/* Begins a call: until leave no thread can close the object.
 * returns ERR_INVALID_ARGUMENT: object is NULL, or no live object of that kind;
 * the text has the argument's name, `name`. ERR_ABORTED: the object has
 * ended. */
ulyx_status_t uli_handle_enter(enum uli_handle_kind kind, const void *object,
    const char *name, const void **entered_p);
/* Ends a call. *entered_p: as enter has set it; NULL is fine. */
void uli_handle_leave(const void *const *entered_p);
bool uli_handle_lives(enum uli_handle_kind kind, const void *object);

/* Begins the destruction of an object: from now on calls are refused.
 * returns as enter, or ERR_BUSY: other calls are in the object, which stays
 * alive. */
ulyx_status_t uli_handle_close(
    enum uli_handle_kind kind, const void *object, const char *name);
/* For the end of the process: ends the object and all objects that belong to
 * it. Enter then refuses calls with ERR_ABORTED; close still works.
 * returns false, and changes nothing, if a call is in one of these objects or a
 * thread is closing one of them. */
bool uli_handle_end(const void *object);
/* Visits every object of a kind that lives or has ended. An object that another
 * thread closes meanwhile may be visited too. */
void uli_handle_each(enum uli_handle_kind kind,
    void (*visit)(void *context, void *object), void *context);
/* To be called after close, with the status of the destruction: if the object
 * could not be destroyed, it is again as before close. returns status. */
ulyx_status_t uli_handle_closed(const void *object, ulyx_status_t status);

/* Begins a call on `object`, an argument of the function. The call ends at the
 * end of the enclosing block. */
#define ULI_ENTER(kind, object)                                                \
    __attribute__((cleanup(uli_handle_leave))) const void *object##_entered =  \
        NULL;                                                                  \
    ULI_TRY(uli_handle_enter(kind, object, #object, &object##_entered))

#endif
