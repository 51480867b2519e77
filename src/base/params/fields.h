/* SPDX-License-Identifier: Apache-2.0
 *
 * Fields of parameter structs, as tables: a field is one row with its place,
 * its range and whether all ranks must give the same value. Rows drive reading,
 * checking and comparing. The owner of a table has functions for checks that
 * relate several fields.
 *
 * A table maps a public struct (`given`) to one of the library's (`own`), which
 * may be the same. A field's kind follows from its C type, so a row cannot
 * disagree with the header.
 */
#ifndef ULI_BASE_PARAMS_FIELDS_H
#define ULI_BASE_PARAMS_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/params/structs.h"
#include "ulyx/types.h"

enum uli_field_kind {
    ULI_FIELD_INT32,
    ULI_FIELD_INT64,
    ULI_FIELD_DOUBLE,
    ULI_FIELD_FLAGS, /* uint64_t: bits */
    ULI_FIELD_NAME,  /* const char *, or NULL */
    ULI_FIELD_RANKS, /* const int64_t *: an entry per rank, or NULL */
    ULI_FIELD_DOCS,  /* const ulyx_docs_t *, or NULL */
    ULI_FIELD_ARRAY, /* public structs, as `array` of the row describes */
};

/* An array of structs. The caller gives a pointer, a count and the size of an
 * element; the library's struct has a count, and the array inside it. */
struct uli_field_array {
    enum uli_struct_id element;
    uint32_t given_count, given_size; /* offsets of int32_t and size_t */
    uint32_t own_count;               /* offset of an int32_t */
    uint32_t own_stride;
    const struct uli_fields *fields; /* of an element */
};

struct uli_field {
    const char *name;
    const char *type; /* of the public struct, NULL: the library's own field */
    uint32_t given, own; /* offsets; given ULI_NOT_GIVEN: the library's own */
    enum uli_field_kind kind;
    int64_t least, most; /* range of the number, or of the count of an ARRAY;
                          * for FLAGS `most` has the bits that are allowed */
    const char *rule;    /* instead of the range: "a ULYX_POINTER code" */
    bool agreed;         /* all ranks must give the same value */
    const struct uli_field_array *array;
};

struct uli_fields {
    const struct uli_field *rows;
    int32_t count;
};
#define ULI_NOT_GIVEN UINT32_MAX

/* The beginning of a row: name, type, offsets and kind of `member`, which is
 * member `own` in the library's struct. */
/* clang-format off */
#define ULI_FIELD(given_type, member, own_type, own)                           \
    #member, #given_type, offsetof(given_type, member),                        \
        offsetof(own_type, own), ULI_FIELD_KIND(((given_type *)NULL)->member)
#define ULI_FIELD_OWN(own_type, member)                                        \
    #member, NULL, ULI_NOT_GIVEN, offsetof(own_type, member),                  \
        ULI_FIELD_KIND(((own_type *)NULL)->member)
#define ULI_FIELD_KIND(member)                                                 \
    _Generic((member),                                                         \
        int32_t: ULI_FIELD_INT32,                                              \
        int64_t: ULI_FIELD_INT64,                                              \
        double: ULI_FIELD_DOUBLE,                                              \
        uint64_t: ULI_FIELD_FLAGS,                                             \
        const char *: ULI_FIELD_NAME,                                          \
        const int64_t *: ULI_FIELD_RANKS,                                      \
        const ulyx_docs_t *: ULI_FIELD_DOCS,                                   \
        const ulyx_part_t *: ULI_FIELD_ARRAY,                                  \
        const ulyx_tensor_t *: ULI_FIELD_ARRAY)
/* clang-format on */
#define ULI_FIELDS(rows)                                                       \
    {                                                                          \
        rows, (int32_t)(sizeof(rows) / sizeof((rows)[0]))                      \
    }
#define ULI_AT_LEAST(least) (least), INT64_MAX
#define ULI_ANY             INT64_MIN, INT64_MAX

/* Copies every given field to its place in own_p. For arrays it checks the
 * count, the pointer and the size of an element; uli_fields_check does the
 * rest. Copied pointers still point to the caller's memory.
 * returns SUCCESS; ERR_INVALID_ARGUMENT, ERR_UNSUPPORTED (an array).
 */
ulyx_status_t uli_fields_read(
    const struct uli_fields *fields, const void *given, void *own_p);

/* Checks that numbers are within their ranges and that all flags are known,
 * also in the elements of arrays. The first field that fails is refused by
 * name, value and bound; where its value is 0, it may have been forgotten, and
 * the text says in which struct to set it.
 * returns SUCCESS; ERR_INVALID_ARGUMENT; ERR_UNSUPPORTED (unknown flags). */
ulyx_status_t uli_fields_check(
    const struct uli_fields *fields, const void *own);

/* ---- what ranks agree on ------------------------------------------------- */

/* A list of values in a fixed order, each count before the values that it
 * counts. So the first difference between the lists of two ranks belongs to the
 * same field in both lists. */
struct uli_agreed {
    int64_t *values; /* NULL: only count, or find a name */
    int64_t count;
    int64_t name_index; /* index of the number whose name is requested, or -1 */
    char *name_p;
    size_t name_bytes;
    enum uli_field_kind kind; /* of the requested number */
};
enum { ULI_NAME_WORDS = 5 }; /* of a name: its hash, and its first characters */

/* Adds a value; format and arguments give its name. */
__attribute__((format(printf, 3, 4))) void uli_agreed_put(
    struct uli_agreed *list, int64_t value, const char *format, ...);

/* Adds every field that must agree: numbers and flags; doubles as their bits; a
 * name as its hash and its first characters; for an array with an entry per
 * rank, whether it is given and then its values. */
void uli_agreed_fields(struct uli_agreed *list, const struct uli_fields *fields,
    const void *own, int32_t nranks);

/* The most values that the fields can add. */
int64_t uli_agreed_most(const struct uli_fields *fields, int32_t nranks);

/* Reports "<call>: <name> is <zero> on rank 0 and <other> on rank <rank>" for a
 * value whose name has been found. zero, other: the value in the two lists.
 * returns ERR_MISMATCH. */
ulyx_status_t uli_agreed_differ(const struct uli_agreed *found,
    const char *call, const int64_t *zero, const int64_t *other, int32_t rank);

#endif
