/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of what fields point to, for calls that outlive the caller's arrays.
 */
#ifndef ULI_BASE_PARAMS_HELD_H
#define ULI_BASE_PARAMS_HELD_H

#include "base/params/fields.h"

/* Two document tables of three blocks each, a name, splits of each part and of
 * the heads: no table of fields needs more. */
enum { ULI_HELD_MAX = 24 };

struct uli_held {
    void *blocks[ULI_HELD_MAX];
    int32_t count;
};

/* Checks count, size of an index and pointers of a document table. name: the
 * table's name in messages.
 * returns SUCCESS; ERR_INVALID_ARGUMENT. */
ulyx_status_t uli_docs_check(const ulyx_docs_t *docs, const char *name);

/* The first row and the number of rows of document n, unchecked, of a table
 * that has passed uli_docs_check. */
void uli_docs_entry(
    const ulyx_docs_t *docs, int64_t n, int64_t *begin_p, int64_t *length_p);

/* Replaces a caller's document table, of any version, by a table of this
 * version; NULL stays. *own_p must live as long as *docs_p is used. Errors: as
 * uli_struct_take. */
ulyx_status_t uli_docs_take(
    const ulyx_docs_t **docs_p, ulyx_docs_t *own_p, const char *name);

/* Replaces pointers in the fields of `own` by pointers to copies: document
 * tables always, because the caller's table may be of another version; names,
 * entries per rank and the arrays of document tables if deep is true.
 * ownership: uli_held_free frees the copies, also after an error.
 * returns SUCCESS; ERR_INVALID_ARGUMENT, ERR_UNSUPPORTED (a document table);
 * ERR_NO_MEMORY. */
ulyx_status_t uli_fields_hold(const struct uli_fields *fields, void *own,
    int32_t nranks, bool deep, struct uli_held *held);
void uli_held_free(struct uli_held *held);

#endif
