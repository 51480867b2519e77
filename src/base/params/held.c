/* SPDX-License-Identifier: Apache-2.0
 *
 * See held.h. The tables of fields determine what is copied.
 */
#include "base/params/held.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/size.h"
#include "base/status.h"

/* ---- document tables ----------------------------------------------------- */

ulyx_status_t
uli_docs_check(const ulyx_docs_t *docs, const char *name)
{
    if (docs->count < 0)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s.count is %" PRId64 ", must be at least 0", name, docs->count);
    if (docs->index_bytes == 0)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s.index_bytes is 0, must be 4 or 8: start from ULYX_DOCS_INIT",
            name);
    if (docs->index_bytes != 4 && docs->index_bytes != 8)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s.index_bytes is %d, must be 4 or 8", name, docs->index_bytes);
    if (docs->count > 0 && !docs->begin)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s.begin is NULL: set begin of ulyx_docs_t", name);
    return ULYX_SUCCESS;
}

static int64_t
docs_index(const void *array, int32_t index_bytes, int64_t n)
{
    return index_bytes == 4 ? ((const int32_t *)array)[n]
                            : ((const int64_t *)array)[n];
}

void
uli_docs_entry(
    const ulyx_docs_t *docs, int64_t n, int64_t *begin_p, int64_t *length_p)
{
    *begin_p = docs_index(docs->begin, docs->index_bytes, n);
    if (docs->length)
        *length_p = docs_index(docs->length, docs->index_bytes, n);
    else
        *length_p = uli_sat_sub(
            docs_index(docs->begin, docs->index_bytes, n + 1), *begin_p);
}

ulyx_status_t
uli_docs_take(const ulyx_docs_t **docs_p, ulyx_docs_t *own_p, const char *name)
{
    if (!*docs_p)
        return ULYX_SUCCESS;
    ULI_TRY(
        uli_struct_take(&uli_structs[ULI_STRUCT_DOCS], *docs_p, own_p, name));
    *docs_p = own_p;
    return ULYX_SUCCESS;
}

/* ---- holding ------------------------------------------------------------- */

static ulyx_status_t
hold_block(struct uli_held *held, const void **pointer_p, int64_t count,
    int64_t unit_bytes)
{
    int64_t bytes;
    if (!*pointer_p)
        return ULYX_SUCCESS;
    void *copy = NULL;
    if (uli_size_mul(count, unit_bytes, &bytes) && held->count < ULI_HELD_MAX)
        copy = malloc((size_t)uli_max(bytes, 1));
    if (!copy)
        return uli_error(ULYX_ERR_NO_MEMORY,
            "no memory to keep %" PRId64 " values of a call", count);
    memcpy(copy, *pointer_p, (size_t)bytes);
    held->blocks[held->count++] = copy;
    *pointer_p = copy;
    return ULYX_SUCCESS;
}

static ulyx_status_t
hold_docs(
    struct uli_held *held, const void **pointer_p, bool deep, const char *name)
{
    const ulyx_docs_t *docs = *pointer_p;
    ulyx_docs_t own;
    if (!docs)
        return ULYX_SUCCESS;
    ULI_TRY(uli_docs_take(&docs, &own, name));
    if (deep) {
        const void *begin = own.begin, *length = own.length;
        ULI_TRY(uli_docs_check(docs, name));
        ULI_TRY(hold_block(held, &begin, own.count + !length, own.index_bytes));
        ULI_TRY(hold_block(held, &length, own.count, own.index_bytes));
        own.begin = begin;
        own.length = length;
    }
    *pointer_p = docs;
    return hold_block(held, pointer_p, 1, sizeof(own));
}

static ulyx_status_t
hold_pointer(const struct uli_field *field, void *place, int32_t nranks,
    bool deep, struct uli_held *held)
{
    const void *pointer;
    ulyx_status_t status = ULYX_SUCCESS;
    memcpy(&pointer, place, sizeof(pointer));
    if (field->kind == ULI_FIELD_DOCS)
        status = hold_docs(held, &pointer, deep, field->name);
    else if (field->kind == ULI_FIELD_RANKS && deep)
        status = hold_block(held, &pointer, nranks, sizeof(int64_t));
    else if (field->kind == ULI_FIELD_NAME && deep && pointer)
        status = hold_block(held, &pointer, (int64_t)strlen(pointer) + 1, 1);
    memcpy(place, &pointer, sizeof(pointer));
    return status;
}

static ulyx_status_t
hold_elements(const struct uli_field *field, void *own, int32_t nranks,
    bool deep, struct uli_held *held)
{
    unsigned char *base = own;
    int32_t count;
    memcpy(&count, base + field->array->own_count, sizeof(count));
    for (int32_t i = 0; i < count; i++)
        ULI_TRY(uli_fields_hold(field->array->fields,
            base + field->own + (size_t)i * field->array->own_stride, nranks,
            deep, held));
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_fields_hold(const struct uli_fields *fields, void *own, int32_t nranks,
    bool deep, struct uli_held *held)
{
    for (int32_t i = 0; i < fields->count; i++) {
        const struct uli_field *field = &fields->rows[i];
        unsigned char *place = (unsigned char *)own + field->own;
        if (field->kind == ULI_FIELD_ARRAY)
            ULI_TRY(hold_elements(field, own, nranks, deep, held));
        else if (field->kind >= ULI_FIELD_NAME)
            ULI_TRY(hold_pointer(field, place, nranks, deep, held));
    }
    return ULYX_SUCCESS;
}

void
uli_held_free(struct uli_held *held)
{
    while (held->count > 0)
        free(held->blocks[--held->count]);
}
