/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads fields by their tables, checks them, and lists them for an agreement.
 * In messages the name of a field in an array is like "tensors[1].heads".
 */
#include "base/params/fields.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/status.h"

enum { PREFIX_BYTES = 32 };

static const void *
member_at(const void *base, uint32_t offset)
{
    return (const unsigned char *)base + offset;
}

static void *
own_member_at(void *base, uint32_t offset)
{
    return (unsigned char *)base + offset;
}

static int32_t
int32_at(const void *base, uint32_t offset)
{
    int32_t value;
    memcpy(&value, member_at(base, offset), sizeof(value));
    return value;
}

static int64_t
int64_at(const void *base, uint32_t offset)
{
    int64_t value;
    memcpy(&value, member_at(base, offset), sizeof(value));
    return value;
}

static double
double_at(const void *base, uint32_t offset)
{
    double value;
    memcpy(&value, member_at(base, offset), sizeof(value));
    return value;
}

static const void *
pointer_at(const void *base, uint32_t offset)
{
    const void *value;
    memcpy(&value, member_at(base, offset), sizeof(value));
    return value;
}

static size_t
bytes_of(enum uli_field_kind kind)
{
    return kind == ULI_FIELD_INT32 ? sizeof(int32_t) : sizeof(int64_t);
}

static const void *
element_at(const struct uli_field *field, const void *own, int32_t i)
{
    return member_at(own, field->own + (uint32_t)i * field->array->own_stride);
}

static ulyx_status_t
check_count(const struct uli_field *field, int32_t count)
{
    if (count >= field->least && count <= field->most)
        return ULYX_SUCCESS;
    if (count == 0 && field->type)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "n%s is 0, must be %" PRId64 " to %" PRId64
            ": set %s and n%s of %s",
            field->name, field->least, field->most, field->name, field->name,
            field->type);
    return uli_error(ULYX_ERR_INVALID_ARGUMENT,
        "n%s is %d, must be %" PRId64 " to %" PRId64, field->name, count,
        field->least, field->most);
}

/* ---- reading ------------------------------------------------------------- */

static ulyx_status_t
read_array(const struct uli_field *field, const void *given, void *own_p)
{
    const struct uli_field_array *array = field->array;
    const struct uli_struct *kind = &uli_structs[array->element];
    const void *elements = pointer_at(given, field->given);
    int32_t count = int32_at(given, array->given_count);
    size_t size;
    _Alignas(16) unsigned char element[ULI_ELEMENT_BYTES];
    memcpy(&size, member_at(given, array->given_size), sizeof(size));
    ULI_TRY(check_count(field, count));
    ULI_TRY(uli_struct_array(kind, elements, size, count, field->name));
    memcpy(own_member_at(own_p, array->own_count), &count, sizeof(count));
    for (int32_t i = 0; i < count; i++) {
        uint32_t place = field->own + (uint32_t)i * array->own_stride;
        uli_struct_element(kind, elements, size, i, element);
        ULI_TRY(uli_fields_read(
            array->fields, element, own_member_at(own_p, place)));
    }
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_fields_read(const struct uli_fields *fields, const void *given, void *own_p)
{
    for (int32_t i = 0; i < fields->count; i++) {
        const struct uli_field *field = &fields->rows[i];
        if (field->given == ULI_NOT_GIVEN)
            continue;
        if (field->kind == ULI_FIELD_ARRAY)
            ULI_TRY(read_array(field, given, own_p));
        else /* memmove, because own_p may be the given struct */
            memmove(own_member_at(own_p, field->own),
                member_at(given, field->given), bytes_of(field->kind));
    }
    return ULYX_SUCCESS;
}

/* ---- checking ------------------------------------------------------------ */

static ulyx_status_t
refuse_value(
    const struct uli_field *field, const char *prefix, const char *value)
{
    bool forgotten = field->type && strcmp(value, "0") == 0;
    char rule[64];
    if (field->rule)
        snprintf(rule, sizeof(rule), "%s", field->rule);
    else if (field->most == INT64_MAX)
        snprintf(rule, sizeof(rule), "at least %" PRId64, field->least);
    else if (field->least == INT64_MIN)
        snprintf(rule, sizeof(rule), "at most %" PRId64, field->most);
    else
        snprintf(rule, sizeof(rule), "%" PRId64 " to %" PRId64, field->least,
            field->most);
    if (forgotten)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s%s is 0, must be %s: set %s of %s", prefix, field->name, rule,
            field->name, field->type);
    return uli_error(ULYX_ERR_INVALID_ARGUMENT, "%s%s is %s, must be %s",
        prefix, field->name, value, rule);
}

static ulyx_status_t
check_integer(const struct uli_field *field, int64_t value, const char *prefix)
{
    char text[24];
    if (value >= field->least && value <= field->most)
        return ULYX_SUCCESS;
    snprintf(text, sizeof(text), "%" PRId64, value);
    return refuse_value(field, prefix, text);
}

/* Where `most` is INT64_MAX, any finite number above 0 is allowed as well. */
static ulyx_status_t
check_double(const struct uli_field *field, double value, const char *prefix)
{
    char text[40];
    if (value >= (double)field->least && value <= (double)field->most)
        return ULYX_SUCCESS;
    if (field->most == INT64_MAX && value > 0 && value - value == 0)
        return ULYX_SUCCESS;
    snprintf(text, sizeof(text), "%g", value);
    return refuse_value(field, prefix, text);
}

static ulyx_status_t
check_flags(const struct uli_field *field, uint64_t value, const char *prefix)
{
    if ((value & ~(uint64_t)field->most) == 0)
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_UNSUPPORTED,
        "%s%s is 0x%" PRIx64 ": bits 0x%" PRIx64 " are unknown", prefix,
        field->name, value, value & ~(uint64_t)field->most);
}

static ulyx_status_t check_fields(
    const struct uli_fields *fields, const void *own, const char *prefix);

static ulyx_status_t
check_array(const struct uli_field *field, const void *own)
{
    int32_t count = int32_at(own, field->array->own_count);
    ULI_TRY(check_count(field, count));
    for (int32_t i = 0; i < count; i++) {
        char prefix[PREFIX_BYTES];
        snprintf(prefix, sizeof(prefix), "%s[%d].", field->name, i);
        ULI_TRY(check_fields(
            field->array->fields, element_at(field, own, i), prefix));
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
check_field(const struct uli_field *field, const void *own, const char *prefix)
{
    switch (field->kind) {
    case ULI_FIELD_INT32:
        return check_integer(field, int32_at(own, field->own), prefix);
    case ULI_FIELD_INT64:
        return check_integer(field, int64_at(own, field->own), prefix);
    case ULI_FIELD_DOUBLE:
        return check_double(field, double_at(own, field->own), prefix);
    case ULI_FIELD_FLAGS:
        return check_flags(field, (uint64_t)int64_at(own, field->own), prefix);
    case ULI_FIELD_ARRAY:
        return check_array(field, own);
    default:
        return ULYX_SUCCESS;
    }
}

static ulyx_status_t
check_fields(
    const struct uli_fields *fields, const void *own, const char *prefix)
{
    for (int32_t i = 0; i < fields->count; i++)
        ULI_TRY(check_field(&fields->rows[i], own, prefix));
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_fields_check(const struct uli_fields *fields, const void *own)
{
    return check_fields(fields, own, "");
}

/* ---- agreement ----------------------------------------------------------- */

void
uli_agreed_put(struct uli_agreed *list, int64_t value, const char *format, ...)
{
    if (list->values)
        list->values[list->count] = value;
    if (list->count == list->name_index) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(list->name_p, list->name_bytes, format, arguments);
        va_end(arguments);
    }
    list->count++;
}

static int64_t
name_hash(const char *text)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (; text && *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return (int64_t)(hash >> 1);
}

/* Notes the kind of the field whose name is requested. */
static void
list_note_kind(struct uli_agreed *list, const struct uli_field *field)
{
    if (list->count == list->name_index)
        list->kind = field->kind;
}

static void
put_name(struct uli_agreed *list, const struct uli_field *field,
    const char *text, const char *prefix)
{
    int64_t words[ULI_NAME_WORDS - 1] = {0};
    snprintf((char *)words, sizeof(words), "%s", text ? text : "");
    list_note_kind(list, field);
    uli_agreed_put(list, name_hash(text), "%s%s", prefix, field->name);
    for (int i = 0; i < ULI_NAME_WORDS - 1; i++)
        uli_agreed_put(list, words[i], "%s%s", prefix, field->name);
}

static void put_fields(struct uli_agreed *list, const struct uli_fields *fields,
    const void *own, int32_t nranks, const char *prefix);

static void
put_array(struct uli_agreed *list, const struct uli_field *field,
    const void *own, int32_t nranks)
{
    int32_t count = int32_at(own, field->array->own_count);
    uli_agreed_put(list, count, "n%s", field->name);
    for (int32_t i = 0; i < count; i++) {
        char prefix[PREFIX_BYTES];
        snprintf(prefix, sizeof(prefix), "%s[%d].", field->name, i);
        put_fields(list, field->array->fields, element_at(field, own, i),
            nranks, prefix);
    }
}

static void
put_ranks(struct uli_agreed *list, const struct uli_field *field,
    const int64_t *entries, int32_t nranks, const char *prefix)
{
    uli_agreed_put(
        list, entries != NULL, "%s%s (1 if given)", prefix, field->name);
    for (int32_t p = 0; entries && p < nranks; p++)
        uli_agreed_put(list, entries[p], "%s%s[%d]", prefix, field->name, p);
}

static void
put_field(struct uli_agreed *list, const struct uli_field *field,
    const void *own, int32_t nranks, const char *prefix)
{
    switch (field->kind) {
    case ULI_FIELD_INT32:
        uli_agreed_put(
            list, int32_at(own, field->own), "%s%s", prefix, field->name);
        break;
    case ULI_FIELD_NAME:
        put_name(list, field, pointer_at(own, field->own), prefix);
        break;
    case ULI_FIELD_RANKS:
        put_ranks(list, field, pointer_at(own, field->own), nranks, prefix);
        break;
    case ULI_FIELD_ARRAY:
        put_array(list, field, own, nranks);
        break;
    default:
        list_note_kind(list, field);
        uli_agreed_put(
            list, int64_at(own, field->own), "%s%s", prefix, field->name);
    }
}

static void
put_fields(struct uli_agreed *list, const struct uli_fields *fields,
    const void *own, int32_t nranks, const char *prefix)
{
    for (int32_t i = 0; i < fields->count; i++)
        if (fields->rows[i].agreed)
            put_field(list, &fields->rows[i], own, nranks, prefix);
}

void
uli_agreed_fields(struct uli_agreed *list, const struct uli_fields *fields,
    const void *own, int32_t nranks)
{
    put_fields(list, fields, own, nranks, "");
}

int64_t
uli_agreed_most(const struct uli_fields *fields, int32_t nranks)
{
    int64_t most = 0;
    for (int32_t i = 0; i < fields->count; i++) {
        const struct uli_field *field = &fields->rows[i];
        if (!field->agreed)
            continue;
        most += 1;
        if (field->kind == ULI_FIELD_NAME)
            most += ULI_NAME_WORDS - 1;
        if (field->kind == ULI_FIELD_RANKS)
            most += nranks;
        if (field->kind == ULI_FIELD_ARRAY)
            most += field->most * uli_agreed_most(field->array->fields, nranks);
    }
    return most;
}

static void
value_text(
    enum uli_field_kind kind, const int64_t *value, char *text_p, size_t bytes)
{
    double number;
    memcpy(&number, value, sizeof(number));
    if (kind == ULI_FIELD_DOUBLE)
        snprintf(text_p, bytes, "%.17g", number);
    else if (kind == ULI_FIELD_NAME && !value[1])
        snprintf(text_p, bytes, "NULL");
    else if (kind == ULI_FIELD_NAME)
        snprintf(text_p, bytes, "\"%.*s\"",
            (int)((ULI_NAME_WORDS - 1) * sizeof(*value)),
            (const char *)(value + 1));
    else
        snprintf(text_p, bytes, "%" PRId64, *value);
}

ulyx_status_t
uli_agreed_differ(const struct uli_agreed *found, const char *call,
    const int64_t *zero, const int64_t *other, int32_t rank)
{
    char texts[2][48];
    value_text(found->kind, zero, texts[0], sizeof(texts[0]));
    value_text(found->kind, other, texts[1], sizeof(texts[1]));
    return uli_error(ULYX_ERR_MISMATCH,
        "%s: %s is %s on rank 0 and %s on rank %d", call, found->name_p,
        texts[0], texts[1], rank);
}
