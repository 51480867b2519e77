/* SPDX-License-Identifier: Apache-2.0
 *
 * Fields described by a table: read, checked with name, value and bound in the
 * error, compared, and stored.
 */
#include "base/params/fields.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/params/held.h"
#include "support/test.h"

enum { MOST = 2, RANKS = 3 };

/* A public struct, and the library's struct, whose fields have other places. */
struct given {
    size_t size;
    int32_t code;
    int32_t nparts;
    int64_t count, top, any;
    double share;
    uint64_t flags;
    const char *name;
    const int64_t *splits;
    const ulyx_docs_t *docs;
    const ulyx_part_t *parts;
    size_t part_size;
};
struct own {
    const int64_t *splits;
    ulyx_part_t parts[MOST];
    int32_t nparts, code;
    uint64_t flags;
    double share;
    int64_t count, top, any, mine;
    const char *name;
    const ulyx_docs_t *docs;
};

static const struct uli_field part_rows[] = {
    {ULI_FIELD(ulyx_part_t, rows, ulyx_part_t, rows), ULI_AT_LEAST(0),
        .agreed = true},
    {ULI_FIELD(ulyx_part_t, splits, ulyx_part_t, splits), ULI_ANY,
        .agreed = true},
};
static const struct uli_fields part_fields = ULI_FIELDS(part_rows);
static const struct uli_field_array parts_array = {ULI_STRUCT_PART,
    offsetof(struct given, nparts), offsetof(struct given, part_size),
    offsetof(struct own, nparts), sizeof(ulyx_part_t), &part_fields};

#define ROW(member) ULI_FIELD(struct given, member, struct own, member)
static const struct uli_field rows[] = {
    {ROW(code), 0, 2, .rule = "a code", .agreed = true},
    {ROW(count), 1, 9, .agreed = true},
    {ROW(top), INT64_MIN, 5},
    {ROW(any), ULI_ANY, .agreed = true},
    {ROW(share), ULI_AT_LEAST(0), .agreed = true},
    {ROW(flags), 0, 6, .agreed = true},
    {ROW(name), ULI_ANY, .agreed = true},
    {ROW(splits), ULI_ANY, .agreed = true},
    {ROW(docs), ULI_ANY},
    {ROW(parts), 1, MOST, .agreed = true, .array = &parts_array},
    {ULI_FIELD_OWN(struct own, mine), ULI_AT_LEAST(-1), .agreed = true},
};
static const struct uli_fields fields = ULI_FIELDS(rows);

static int64_t splits[RANKS] = {4, 5, 6};
static int64_t begins[] = {0, 3};
static ulyx_docs_t docs = {sizeof(ulyx_docs_t), 1, 8, begins, NULL};
static ulyx_part_t parts[MOST + 1];

static struct given
given_good(void)
{
    const ulyx_part_t part = ULYX_PART_INIT;
    parts[0] = parts[1] = parts[2] = part;
    parts[0].rows = 7;
    parts[1].splits = splits;
    return (struct given){.size = sizeof(struct given),
        .code = 2,
        .nparts = 2,
        .count = 9,
        .top = -4,
        .any = INT64_MIN,
        .share = 0.5,
        .flags = 4,
        .name = "plain",
        .splits = splits,
        .docs = &docs,
        .parts = parts,
        .part_size = sizeof(parts[0])};
}

static struct own
read_good(void)
{
    const struct given given = given_good();
    struct own own = {.mine = 8};
    assert_status(uli_fields_read(&fields, &given, &own), 0);
    return own;
}

static void
every_given_field_is_read(void **state)
{
    (void)state;
    struct own own = read_good();
    assert_true(own.code == 2 && own.count == 9 && own.top == -4);
    assert_true(own.any == INT64_MIN && own.share == 0.5 && own.flags == 4);
    assert_true(own.splits == splits && own.docs == &docs && own.mine == 8);
    assert_true(own.nparts == 2 && own.parts[0].rows == 7);
    assert_true(own.parts[1].rows == 0 && own.parts[1].splits == splits);
    assert_string_equal(own.name, "plain");
    assert_status(uli_fields_check(&fields, &own), 0);
}

static void
bad_arrays_are_refused(void **state)
{
    (void)state;
    struct own own = {0};
    struct given given = given_good();
    const ulyx_status_t bad = ULYX_ERR_INVALID_ARGUMENT;
    given.nparts = 0;
    assert_status(uli_fields_read(&fields, &given, &own), bad);
    assert_string_equal(ulyx_last_error(),
        "nparts is 0, must be 1 to 2: set parts and nparts of struct given");
    given.nparts = 3;
    assert_status(uli_fields_read(&fields, &given, &own), bad);
    given = given_good();
    given.parts = NULL;
    assert_status(uli_fields_read(&fields, &given, &own), bad);
    assert_string_equal(
        ulyx_last_error(), "parts is NULL, must be an array of 2 ulyx_part_t");
    given = given_good();
    given.part_size = 16;
    assert_status(uli_fields_read(&fields, &given, &own), bad);
    assert_non_null(strstr(ulyx_last_error(), "element of parts is 16"));
}

/* ---- checks -------------------------------------------------------------- */

static void
own_refused(const struct own *own, ulyx_status_t status, const char *text)
{
    assert_status(uli_fields_check(&fields, own), status);
    assert_string_equal(ulyx_last_error(), text);
}

static void
fields_out_of_range_are_named(void **state)
{
    (void)state;
    const struct own right = read_good();
    const ulyx_status_t bad = ULYX_ERR_INVALID_ARGUMENT;
    struct own own;
#define WRONG(statement, status, text)                                         \
    own = right;                                                               \
    statement;                                                                 \
    own_refused(&own, status, text)
    WRONG(own.code = 3, bad, "code is 3, must be a code");
    WRONG(own.code = -1, bad, "code is -1, must be a code");
    WRONG(own.count = 0, bad,
        "count is 0, must be 1 to 9: set count of struct given");
    WRONG(own.count = 10, bad, "count is 10, must be 1 to 9");
    WRONG(own.top = 6, bad, "top is 6, must be at most 5");
    WRONG(own.share = -0.25, bad, "share is -0.25, must be at least 0");
    WRONG(own.share = INFINITY, bad, "share is inf, must be at least 0");
    WRONG(own.share = NAN, bad, "share is nan, must be at least 0");
    WRONG(own.flags = 5, ULYX_ERR_UNSUPPORTED,
        "flags is 0x5: bits 0x1 are unknown");
    WRONG(own.nparts = 3, bad, "nparts is 3, must be 1 to 2");
    WRONG(
        own.parts[1].rows = -2, bad, "parts[1].rows is -2, must be at least 0");
    WRONG(own.mine = -2, bad, "mine is -2, must be at least -1");
#undef WRONG
    own = right;
    own.share = 1e300;
    assert_status(uli_fields_check(&fields, &own), 0);
}

/* ---- agreement ----------------------------------------------------------- */

enum { VALUES = 64 };

static int64_t
list_of(const struct own *own, int64_t *values)
{
    struct uli_agreed list = {.values = values, .name_index = -1};
    uli_agreed_fields(&list, &fields, own, RANKS);
    assert_true(list.count <= uli_agreed_most(&fields, RANKS));
    assert_true(list.count <= VALUES);
    return list.count;
}

/* Checks that the text of the first difference is this one; "" if there is
 * none. */
static void
own_compare(const struct own *a, const struct own *b, const char *text)
{
    int64_t one[VALUES], two[VALUES], i = 0;
    int64_t count = list_of(a, one), other = list_of(b, two);
    char name[64] = "";
    while (i < count && i < other && one[i] == two[i])
        i++;
    if (!*text) {
        assert_true(i == count && i == other);
        return;
    }
    struct uli_agreed list = {
        .name_index = i, .name_p = name, .name_bytes = sizeof(name)};
    uli_agreed_fields(&list, &fields, a, RANKS);
    assert_status(uli_agreed_differ(&list, "make", &one[i], &two[i], 4),
        ULYX_ERR_MISMATCH);
    if (!strstr(ulyx_last_error(), text))
        fail_msg("\"%s\" is not in \"%s\"", text, ulyx_last_error());
}

static void
differences_have_name_and_both_values(void **state)
{
    (void)state;
    const struct own right = read_good();
    static const int64_t other_splits[RANKS] = {4, 6, 5};
    struct own own;
#define OTHER(statement, text)                                                 \
    own = right;                                                               \
    statement;                                                                 \
    own_compare(&right, &own, text)
    OTHER(own.top = 3, ""); /* each rank's own */
    OTHER(own.docs = NULL, "");
    OTHER(own.code = 1, "make: code is 2 on rank 0 and 1 on rank 4");
    OTHER(own.any = 1, "any is -9223372036854775808 on rank 0 and 1 on");
    OTHER(own.share = 0.75, "share is 0.5 on rank 0 and 0.75 on rank 4");
    OTHER(own.flags = 2, "flags is 4 on rank 0 and 2");
    OTHER(own.name = "other", "name is \"plain\" on rank 0 and \"other\" on");
    OTHER(own.name = NULL, "name is \"plain\" on rank 0 and NULL on rank 4");
    OTHER(own.name = "plain and longer than what travels of a name",
        "\"plain and longer than what trav\" on rank 4");
    OTHER(own.splits = other_splits, "splits[1] is 5 on rank 0 and 6");
    OTHER(own.splits = NULL, "splits (1 if given) is 1 on rank 0 and 0");
    OTHER(own.nparts = 1, "nparts is 2 on rank 0 and 1");
    OTHER(own.parts[0].rows = 1, "parts[0].rows is 7 on rank 0 and 1");
    OTHER(own.parts[1].splits = other_splits, "parts[1].splits[1] is 5");
    OTHER(own.mine = 1, "mine is 8 on rank 0 and 1");
#undef OTHER
}

/* ---- copies -------------------------------------------------------------- */

static void
held_fields_outlive_the_callers_arrays(void **state)
{
    (void)state;
    struct own own = read_good();
    struct uli_held held = {.count = 0};
    char name[] = "plain";
    own.name = name;
    assert_status(uli_fields_hold(&fields, &own, RANKS, true, &held), 0);
    memset(name, 'x', 5);
    splits[0] = 99;
    begins[1] = 99;
    docs.count = 55;
    assert_string_equal(own.name, "plain");
    assert_true(own.splits[0] == 4 && own.parts[1].splits[0] == 4);
    assert_true(own.docs->count == 1);
    assert_true(((const int64_t *)own.docs->begin)[1] == 3);
    splits[0] = 4;
    begins[1] = 3;
    docs.count = 1;
    uli_held_free(&held);
}

static void
document_tables_of_other_versions_are_converted(void **state)
{
    (void)state;
    struct {
        ulyx_docs_t known;
        int64_t later;
    } newer = {docs, 0};
    struct own own = read_good();
    struct uli_held held = {.count = 0};
    newer.known.size = sizeof(newer);
    own.docs = &newer.known;
    assert_status(uli_fields_hold(&fields, &own, RANKS, false, &held), 0);
    assert_true(own.docs != &newer.known && own.docs->size == sizeof(docs));
    assert_true(own.docs->begin == begins && own.splits == splits);
    uli_held_free(&held);
    newer.later = 1;
    own.docs = &newer.known;
    assert_status(uli_fields_hold(&fields, &own, RANKS, false, &held),
        ULYX_ERR_UNSUPPORTED);
    newer.later = 0;
    newer.known.index_bytes = 3;
    own.docs = &newer.known;
    assert_status(uli_fields_hold(&fields, &own, RANKS, true, &held),
        ULYX_ERR_INVALID_ARGUMENT);
    assert_string_equal(
        ulyx_last_error(), "docs.index_bytes is 3, must be 4 or 8");
    uli_held_free(&held);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_given_field_is_read),
    cmocka_unit_test(bad_arrays_are_refused),
    cmocka_unit_test(fields_out_of_range_are_named),
    cmocka_unit_test(differences_have_name_and_both_values),
    cmocka_unit_test(held_fields_outlive_the_callers_arrays),
    cmocka_unit_test(document_tables_of_other_versions_are_converted),
};
ULI_TEST_MAIN("Fields", tests)
