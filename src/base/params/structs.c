/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of public structs, and how structs of other versions are read and
 * filled.
 */
#include "base/params/structs.h"

#include <string.h>
#include "base/status.h"

/* No public struct will ever be longer: a larger size is not a size. */
enum { ABSURD_BYTES = 1 << 16, ELEMENT_UNIT = 8 };

#define INVALID(...) uli_error(ULYX_ERR_INVALID_ARGUMENT, __VA_ARGS__)

/* Programs built against the first release leave bytes behind the last field
 * undefined, so there must be no such bytes. */
#define ULI_STRUCT_DEFAULTS(name, type, first_last, last, init)                \
    static const type default_##name = init;                                   \
    _Static_assert(ULI_LEAST(type, first_last) % 8 == 0 &&                     \
                       ULI_LEAST(type, last) == sizeof(type),                  \
        "padding at the end of " #type ", or " #last                           \
        " is not its last field");
ULI_STRUCT_MAP(ULI_STRUCT_DEFAULTS)
_Static_assert(sizeof(ulyx_tensor_t) <= ULI_ELEMENT_BYTES &&
                   sizeof(ulyx_part_t) <= ULI_ELEMENT_BYTES,
    "an element is larger than its room");

const struct uli_struct uli_structs[ULI_STRUCTS] = {
#define ULI_STRUCT_ROW(name, type, first_last, last, init)                     \
    [ULI_STRUCT_##name] = {#type, sizeof(type), ULI_LEAST(type, first_last),   \
        &default_##name, #init},
    ULI_STRUCT_MAP(ULI_STRUCT_ROW)};

/* ---- sizes --------------------------------------------------------------- */

static ulyx_status_t
check_size(const struct uli_struct *kind, size_t size, const char *name)
{
    if (size >= kind->least_bytes && size <= ABSURD_BYTES)
        return ULYX_SUCCESS;
    return INVALID("%s.size is %zu, expected at least %zu: start from %s", name,
        size, kind->least_bytes, kind->init);
}

ulyx_status_t
uli_struct_element_size(
    const struct uli_struct *kind, size_t element_bytes, const char *name)
{
    if (element_bytes >= kind->least_bytes && element_bytes <= ABSURD_BYTES &&
        element_bytes % ELEMENT_UNIT == 0)
        return ULYX_SUCCESS;
    return INVALID("the size of an element of %s is %zu, expected at least "
                   "%zu: it is sizeof(%s)",
        name, element_bytes, kind->least_bytes, kind->name);
}

/* The first byte in [from, end) that is not zero, or end. */
static size_t
first_set_byte(const unsigned char *bytes, size_t from, size_t end)
{
    while (from < end && bytes[from] == 0)
        from++;
    return from;
}

/* ---- taking -------------------------------------------------------------- */

static void
copy_to_own(const struct uli_struct *kind, const void *given,
    size_t given_bytes, void *own_p)
{
    memcpy(own_p, kind->defaults, kind->bytes);
    memcpy(own_p, given, given_bytes < kind->bytes ? given_bytes : kind->bytes);
}

ulyx_status_t
uli_struct_take(const struct uli_struct *kind, const void *given, void *own_p,
    const char *name)
{
    size_t size;
    name = name ? name : kind->name;
    memcpy(&size, given, sizeof(size));
    ULI_TRY(check_size(kind, size, name));
    size_t set = first_set_byte(given, kind->bytes, size);
    if (set < size)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "%s has a non-zero field at byte %zu that this version of the "
            "library (%zu bytes) does not have",
            name, set, kind->bytes);
    copy_to_own(kind, given, size, own_p);
    memcpy(own_p, &kind->bytes, sizeof(size));
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_struct_take_or_default(
    const struct uli_struct *kind, const void *given, void *own_p)
{
    if (given)
        return uli_struct_take(kind, given, own_p, NULL);
    memcpy(own_p, kind->defaults, kind->bytes);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_struct_array(const struct uli_struct *kind, const void *array,
    size_t element_bytes, int64_t count, const char *name)
{
    if (count > 0 && !array)
        return INVALID("%s is NULL, must be an array of %lld %s", name,
            (long long)count, kind->name);
    ULI_TRY(uli_struct_element_size(kind, element_bytes, name));
    const unsigned char *element = array;
    for (int64_t i = 0; i < count && element_bytes > kind->bytes; i++) {
        size_t set = first_set_byte(element, kind->bytes, element_bytes);
        if (set < element_bytes)
            return uli_error(ULYX_ERR_UNSUPPORTED,
                "%s[%lld] has a non-zero byte at %zu that this version of the "
                "library (%zu bytes) does not have",
                name, (long long)i, set, kind->bytes);
        element += element_bytes;
    }
    return ULYX_SUCCESS;
}

void
uli_struct_element(const struct uli_struct *kind, const void *array,
    size_t element_bytes, int64_t index, void *own_p)
{
    const unsigned char *element =
        (const unsigned char *)array + (size_t)index * element_bytes;
    copy_to_own(kind, element, element_bytes, own_p);
}

/* ---- giving -------------------------------------------------------------- */

static void
copy_to_given(const struct uli_struct *kind, const void *own, void *given_p,
    size_t given_bytes)
{
    size_t known = given_bytes < kind->bytes ? given_bytes : kind->bytes;
    memcpy(given_p, own, known);
    memset((unsigned char *)given_p + known, 0, given_bytes - known);
}

ulyx_status_t
uli_struct_give(const struct uli_struct *kind, const void *own, void *given_p)
{
    size_t size;
    memcpy(&size, given_p, sizeof(size));
    ULI_TRY(check_size(kind, size, kind->name));
    copy_to_given(kind, own, given_p, size);
    memcpy(given_p, &size, sizeof(size));
    return ULYX_SUCCESS;
}

void
uli_struct_give_element(const struct uli_struct *kind, const void *own,
    void *array, size_t element_bytes, int64_t index)
{
    unsigned char *element =
        (unsigned char *)array + (size_t)index * element_bytes;
    copy_to_given(kind, own, element, element_bytes);
}
