/* SPDX-License-Identifier: Apache-2.0
 *
 * Document tables: the caller's arrays, checked and copied into one form, and
 * their hash. No element of the caller's arrays is read twice, so a table that
 * another thread changes meanwhile can give wrong results but no memory error.
 */
#include <inttypes.h>
#include "base/params/held.h"
#include "base/text.h"
#include "collectives/layout/layout_private.h"

static const char *const axis_name[2] = {"docs_q", "docs_k"};

static int64_t
docs_entry(const void *array, int32_t index_bytes, int64_t n)
{
    if (index_bytes == 4)
        return ((const int32_t *)array)[n];
    return ((const int64_t *)array)[n];
}

static ulyx_status_t
check_header(
    const struct uli_layout *layout, int32_t axis, const ulyx_docs_t *docs)
{
    const char *name = axis_name[axis];
    ULI_TRY(uli_docs_check(docs, name));
    if (docs->count > layout->shape.max_docs)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "max_docs is %" PRId64 ", %s needs %" PRId64,
            layout->shape.max_docs, name, docs->count);
    return ULYX_SUCCESS;
}

/* Checks document n, [begin, begin + length), which follows documents that end
 * at `done`, on an axis of batch items of S rows each. */
static ulyx_status_t
check_entry(const struct uli_layout *layout, int32_t axis, int64_t n,
    int64_t begin, int64_t length, int64_t done)
{
    const char *name = axis_name[axis];
    int64_t rows = layout->axis_rows[layout->naxes == 2 ? axis : 0];
    int64_t total = layout->shape.batch * rows;
    if (length < 0)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s: document %" PRId64 " has length %" PRId64, name, n, length);
    if (begin < done)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s: document %" PRId64 " begins at %" PRId64
            ", before the end of the one before it, %" PRId64,
            name, n, begin, done);
    if (begin > total || length > total - begin)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s: document %" PRId64 " at %" PRId64 " of length %" PRId64
            " ends after the last of %" PRId64 " row%s",
            name, n, begin, length, total, uli_plural(total));
    if (length > 0 && begin % rows > rows - length)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s: document %" PRId64 " at %" PRId64 " of length %" PRId64
            " crosses a batch item of %" PRId64 " row%s",
            name, n, begin, length, rows, uli_plural(rows));
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_docs_load(const struct uli_layout *layout, struct uli_tables *tables,
    int32_t axis, const ulyx_docs_t *docs)
{
    struct uli_docs *table = &tables->docs[axis];
    table->none = docs == NULL;
    table->count = 0;
    table->begin = tables->doc_begin[axis];
    table->length = tables->doc_length[axis];
    if (!docs)
        return ULYX_SUCCESS;
    ulyx_docs_t own = *docs;
    ULI_TRY(check_header(layout, axis, &own));
    int64_t done = 0, next = 0;
    if (own.count > 0 && !own.length)
        next = docs_entry(own.begin, own.index_bytes, 0);
    for (int64_t n = 0; n < own.count; n++) {
        int64_t begin = next, length;
        if (own.length) {
            begin = docs_entry(own.begin, own.index_bytes, n);
            length = docs_entry(own.length, own.index_bytes, n);
        } else {
            next = docs_entry(own.begin, own.index_bytes, n + 1);
            length = uli_sat_sub(next, begin);
        }
        ULI_TRY(check_entry(layout, axis, n, begin, length, done));
        tables->doc_begin[axis][n] = begin;
        tables->doc_length[axis][n] = length;
        done = begin + length;
    }
    table->count = own.count;
    return ULYX_SUCCESS;
}

void
uli_docs_share(struct uli_tables *tables)
{
    tables->docs[1] = tables->docs[0];
}

/* ---- hash ---------------------------------------------------------------- */

static uint64_t
hash_mix(uint64_t hash, int64_t value)
{
    hash = (hash ^ (uint64_t)value) * UINT64_C(0x9e3779b97f4a7c15);
    hash ^= hash >> 29;
    hash *= UINT64_C(0xbf58476d1ce4e5b9);
    return hash ^ (hash >> 32);
}

static uint64_t
hash_rows(const struct uli_layout *layout, uint64_t hash)
{
    const struct uli_shape *shape = &layout->shape;
    for (int32_t i = 0; layout->limits.change && i < shape->nparts; i++) {
        const struct uli_shape_part *part = &shape->parts[i];
        hash = hash_mix(hash, part->rows);
        for (int32_t r = 0; part->splits && r < shape->nranks; r++)
            hash = hash_mix(hash, part->splits[r]);
    }
    return hash;
}

/* Never 0: a hash of 0 means that nothing depends on tables. */
uint64_t
uli_docs_hash(const struct uli_layout *layout, const struct uli_tables *tables)
{
    uint64_t hash = UINT64_C(0x756c7978);
    for (int axis = 0; axis < 2; axis++) {
        const struct uli_docs *docs = &tables->docs[axis];
        hash = hash_mix(hash, docs->none ? -1 : docs->count);
        for (int64_t n = 0; n < docs->count; n++)
            hash = hash_mix(hash_mix(hash, docs->begin[n]), docs->length[n]);
    }
    hash = hash_rows(layout, hash);
    return hash ? hash : 1;
}
