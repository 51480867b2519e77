/* SPDX-License-Identifier: Apache-2.0
 *
 * Structs of other versions, read and filled: every public struct at every
 * size, and one that has grown since its first release.
 */
#include "base/params/structs.h"

#include <stdlib.h>
#include <string.h>
#include "support/test.h"

enum { TAIL = 24 };

static size_t
size_of(const void *bytes)
{
    size_t size;
    memcpy(&size, bytes, sizeof(size));
    return size;
}

/* Allocates a caller's struct of `size` bytes, with nothing readable behind
 * it. */
static unsigned char *
callers_struct(size_t size, unsigned char fill)
{
    unsigned char *bytes = malloc(size);
    assert_non_null(bytes);
    memset(bytes, fill, size);
    memcpy(bytes, &size, sizeof(size));
    return bytes;
}

/* ---- a struct that has grown --------------------------------------------- */

struct grown {
    size_t size;
    int64_t first; /* the last field of the first release */
    int64_t second, third;
};
static const struct grown grown_init = {sizeof(struct grown), 1, -7, 33};
static const struct uli_struct grown_kind = {"grown_t", sizeof(struct grown),
    ULI_LEAST(struct grown, first), &grown_init, "GROWN_INIT"};

static void
shorter_structs_take_the_macros_values_for_the_rest(void **state)
{
    (void)state;
    for (size_t size = 16; size <= sizeof(struct grown); size++) {
        struct grown own, expected = grown_init;
        unsigned char *given = callers_struct(size, 0x11);
        assert_status(uli_struct_take(&grown_kind, given, &own, NULL), 0);
        memcpy(&expected, given, size);
        expected.size = sizeof(expected);
        assert_memory_equal(&own, &expected, sizeof(own));
        if (size == 16)
            assert_true(own.second == -7 && own.third == 33);
        free(given);
    }
}

static void
no_struct_means_the_macro(void **state)
{
    (void)state;
    struct grown own;
    assert_status(uli_struct_take_or_default(&grown_kind, NULL, &own), 0);
    assert_memory_equal(&own, &grown_init, sizeof(own));
}

static void
shorter_elements_take_the_macros_values(void **state)
{
    (void)state;
    const int64_t two[4] = {5, 6, 7, 8}; /* two elements of two words each */
    struct grown own;
    assert_status(uli_struct_array(&grown_kind, two, 16, 2, "list"), 0);
    uli_struct_element(&grown_kind, two, 16, 1, &own);
    assert_true(own.size == 7 && own.first == 8);
    assert_true(own.second == -7 && own.third == 33);
}

static void
shorter_structs_are_filled_up_to_their_size(void **state)
{
    (void)state;
    const struct grown own = {sizeof(own), 2, 3, 4};
    unsigned char *given = callers_struct(24, 0xee);
    struct grown got = {0};
    assert_status(uli_struct_give(&grown_kind, &own, given), 0);
    memcpy(&got, given, 24);
    assert_true(got.size == 24 && got.first == 2 && got.second == 3);
    free(given);
    int64_t elements[4] = {0, 0, 99, 99};
    uli_struct_give_element(&grown_kind, &own, elements, 16, 0);
    assert_true(elements[0] == (int64_t)sizeof(own) && elements[1] == 2);
    assert_true(elements[2] == 99 && elements[3] == 99);
}

/* ---- every public struct ------------------------------------------------- */

static void
take_every_size(const struct uli_struct *kind)
{
    unsigned char own[512], before[512];
    memset(before, 0xab, sizeof(before));
    for (size_t size = sizeof(size_t); size <= kind->bytes; size++) {
        bool legal = size >= kind->least_bytes;
        unsigned char *given = callers_struct(size, 0x5a);
        memcpy(own, before, sizeof(own));
        assert_status(uli_struct_take(kind, given, own, "it"),
            legal ? ULYX_SUCCESS : ULYX_ERR_INVALID_ARGUMENT);
        if (legal)
            assert_true(size_of(own) == kind->bytes &&
                        memcmp(own + 8, given + 8, size - 8) == 0);
        else
            assert_memory_equal(own, before, sizeof(own));
        assert_true(memcmp(own + kind->bytes, before + kind->bytes,
                        sizeof(own) - kind->bytes) == 0);
        free(given);
    }
}

static void
take_every_tail(const struct uli_struct *kind)
{
    unsigned char own[512], before[512];
    memset(before, 0xab, sizeof(before));
    unsigned char *given = callers_struct(kind->bytes + TAIL, 0);
    assert_status(uli_struct_take(kind, given, own, NULL), ULYX_SUCCESS);
    for (size_t at = kind->bytes; at < kind->bytes + TAIL; at++) {
        given[at] = 1;
        memcpy(own, before, sizeof(own));
        assert_status(
            uli_struct_take(kind, given, own, NULL), ULYX_ERR_UNSUPPORTED);
        assert_memory_equal(own, before, sizeof(own));
        assert_non_null(strstr(ulyx_last_error(), kind->name));
        given[at] = 0;
    }
    free(given);
    size_t absurd = SIZE_MAX;
    assert_status(
        uli_struct_take(kind, &absurd, own, NULL), ULYX_ERR_INVALID_ARGUMENT);
}

static void
every_struct_is_taken_at_every_legal_size(void **state)
{
    (void)state;
    for (int i = 0; i < ULI_STRUCTS; i++) {
        take_every_size(&uli_structs[i]);
        take_every_tail(&uli_structs[i]);
    }
}

static void
every_array_is_taken_at_every_legal_size(void **state)
{
    (void)state;
    enum { COUNT = 3 };
    for (int i = 0; i < ULI_STRUCTS; i++) {
        const struct uli_struct *kind = &uli_structs[i];
        size_t size = kind->bytes + TAIL;
        unsigned char *array = calloc(COUNT, size), own[512];
        assert_status(
            uli_struct_array(kind, array, size, COUNT, "list"), ULYX_SUCCESS);
        array[2 * size + kind->bytes + TAIL - 1] = 4;
        assert_status(uli_struct_array(kind, array, size, COUNT, "list"),
            ULYX_ERR_UNSUPPORTED);
        assert_non_null(strstr(ulyx_last_error(), "list[2]"));
        assert_status(
            uli_struct_array(kind, array, size, 2, "list"), ULYX_SUCCESS);
        for (size_t bad = 0; bad < kind->bytes + 8; bad++)
            assert_status(uli_struct_array(kind, array, bad, 1, "list"),
                bad < kind->least_bytes || bad % 8 ? ULYX_ERR_INVALID_ARGUMENT
                                                   : ULYX_SUCCESS);
        assert_status(uli_struct_array(kind, NULL, size, 1, "list"),
            ULYX_ERR_INVALID_ARGUMENT);
        memset(array + size, 0x77, kind->bytes);
        uli_struct_element(kind, array, size, 1, own);
        assert_memory_equal(own, array + size, kind->bytes);
        free(array);
    }
}

static void
every_struct_is_filled_at_every_legal_size(void **state)
{
    (void)state;
    for (int i = 0; i < ULI_STRUCTS; i++) {
        const struct uli_struct *kind = &uli_structs[i];
        unsigned char own[512];
        memset(own, 0x44, sizeof(own));
        for (size_t size = 8; size <= kind->bytes + TAIL; size++) {
            unsigned char *given = callers_struct(size, 0x99);
            bool legal = size >= kind->least_bytes;
            assert_status(uli_struct_give(kind, own, given),
                legal ? ULYX_SUCCESS : ULYX_ERR_INVALID_ARGUMENT);
            assert_true(size_of(given) == size);
            for (size_t at = 8; at < size; at++)
                assert_int_equal(given[at], !legal             ? 0x99
                                            : at < kind->bytes ? 0x44
                                                               : 0);
            free(given);
        }
    }
}

/* The least sizes are those of the first release. A number here is never
 * changed; numbers are only added. */
static void
least_sizes_are_frozen(void **state)
{
    (void)state;
    static const size_t least[ULI_STRUCTS] = {
#define LEAST(name, bytes) [ULI_STRUCT_##name] = bytes
        LEAST(DOCS, 40),
        LEAST(SEGMENT, 40),
        LEAST(COMM_PARAMS, 32),
        LEAST(LAUNCH, 32),
        LEAST(MEM_PARAMS, 24),
        LEAST(PART, 32),
        LEAST(TENSOR, 120),
        LEAST(PLAN_PARAMS, 248),
        LEAST(TRAFFIC, 72),
        LEAST(PIECE, 64),
        LEAST(ATTENTION_TENSOR, 72),
        LEAST(ATTENTION, 256),
        LEAST(ATTENTION_EXEC, 64),
        LEAST(ATTENTION_FORWARD, 56),
        LEAST(ATTENTION_BACKWARD, 112),
        LEAST(DIST_ATTENTION_PARAMS, 304),
        LEAST(DIST_ATTENTION_FORWARD, 104),
        LEAST(DIST_ATTENTION_BACKWARD, 136),
        LEAST(SAVED_TENSOR, 32),
        LEAST(DIST_ATTENTION_TIMES, 64),
#undef LEAST
    };
    for (int i = 0; i < ULI_STRUCTS; i++)
        if (uli_structs[i].least_bytes != least[i])
            fail_msg("%s: the least size is %zu, was %zu", uli_structs[i].name,
                uli_structs[i].least_bytes, least[i]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(shorter_structs_take_the_macros_values_for_the_rest),
    cmocka_unit_test(no_struct_means_the_macro),
    cmocka_unit_test(shorter_elements_take_the_macros_values),
    cmocka_unit_test(shorter_structs_are_filled_up_to_their_size),
    cmocka_unit_test(every_struct_is_taken_at_every_legal_size),
    cmocka_unit_test(every_array_is_taken_at_every_legal_size),
    cmocka_unit_test(every_struct_is_filled_at_every_legal_size),
    cmocka_unit_test(least_sizes_are_frozen),
};
ULI_TEST_MAIN("Structs", tests)
