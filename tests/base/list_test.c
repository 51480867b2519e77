/* SPDX-License-Identifier: Apache-2.0
 *
 * The intrusive list.
 */
#include "base/list.h"

#include "support/test.h"

struct item {
    int number;
    struct uli_list node;
};

/* Returns the numbers in list order as decimal digits, read forwards. The links
 * backwards must agree. */
static int
list_digits(struct uli_list *head)
{
    int value = 0;
    for (struct uli_list *at = head->next; at != head; at = at->next) {
        assert_ptr_equal(at->next->prev, at);
        value = value * 10 + ULI_CONTAINER_OF(at, struct item, node)->number;
    }
    assert_ptr_equal(head->next->prev, head);
    return value;
}

static void
new_list_is_empty(void **fixture)
{
    (void)fixture;
    struct uli_list head;
    uli_list_init(&head);
    assert_true(uli_list_empty(&head));
    assert_int_equal(list_digits(&head), 0);
}

static void
append_keeps_order(void **fixture)
{
    (void)fixture;
    struct item items[] = {{.number = 1}, {.number = 2}, {.number = 3}};
    struct uli_list head;
    uli_list_init(&head);
    for (int i = 0; i < 3; i++)
        uli_list_append(&head, &items[i].node);
    assert_false(uli_list_empty(&head));
    assert_int_equal(list_digits(&head), 123);
}

static void
remove_takes_first_middle_and_last(void **fixture)
{
    (void)fixture;
    struct item items[4] = {
        {.number = 1}, {.number = 2}, {.number = 3}, {.number = 4}};
    struct uli_list head;
    uli_list_init(&head);
    for (int i = 0; i < 4; i++)
        uli_list_append(&head, &items[i].node);
    uli_list_remove(&items[1].node);
    assert_int_equal(list_digits(&head), 134);
    uli_list_remove(&items[0].node);
    assert_int_equal(list_digits(&head), 34);
    uli_list_remove(&items[3].node);
    assert_int_equal(list_digits(&head), 3);
    uli_list_remove(&items[2].node);
    assert_true(uli_list_empty(&head));
}

static void
remove_twice_is_harmless(void **fixture)
{
    (void)fixture;
    struct item items[] = {{.number = 1}, {.number = 2}};
    struct uli_list head;
    uli_list_init(&head);
    uli_list_append(&head, &items[0].node);
    uli_list_append(&head, &items[1].node);
    uli_list_remove(&items[0].node);
    uli_list_remove(&items[0].node);
    assert_int_equal(list_digits(&head), 2);
    uli_list_append(&head, &items[0].node);
    assert_int_equal(list_digits(&head), 21);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(new_list_is_empty),
    cmocka_unit_test(append_keeps_order),
    cmocka_unit_test(remove_takes_first_middle_and_last),
    cmocka_unit_test(remove_twice_is_harmless),
};

ULI_TEST_MAIN("List", tests)
