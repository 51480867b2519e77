/* SPDX-License-Identifier: Apache-2.0
 *
 * Guarded buffers: their alignment, their poison, and that a change of any
 * guard byte is found.
 */
#include "support/buffers.h"

#include "support/test.h"

static void
data_has_the_offset_and_the_poison(void **fixture)
{
    (void)fixture;
    for (size_t offset = 0; offset < 64; offset++) {
        struct test_buffer buffer;
        test_buffer_init(&buffer, 100 + offset, offset);
        assert_int_equal((uintptr_t)buffer.data % 64, offset);
        for (size_t i = 0; i < buffer.bytes; i++)
            assert_int_equal(buffer.data[i], 0xFF);
        assert_true(test_buffer_guards_ok(&buffer));
        test_buffer_free(&buffer);
    }
}

static void
writing_all_data_leaves_the_guards(void **fixture)
{
    (void)fixture;
    struct test_buffer buffer;
    test_buffer_init(&buffer, 1000, 3);
    for (size_t i = 0; i < buffer.bytes; i++)
        buffer.data[i] = (unsigned char)i;
    assert_true(test_buffer_guards_ok(&buffer));
    test_buffer_free(&buffer);
}

static void
any_changed_guard_byte_shows(void **fixture)
{
    (void)fixture;
    static const int places[] = {-1, -2, -64, -500, 0, 1, 63, 500};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        struct test_buffer buffer;
        test_buffer_init(&buffer, 77, 5);
        size_t base = places[i] < 0 ? 0 : buffer.bytes;
        buffer.data[(ptrdiff_t)base + places[i]] ^= 1;
        assert_false(test_buffer_guards_ok(&buffer));
        test_buffer_free(&buffer);
    }
}

static void
empty_buffer_has_guards(void **fixture)
{
    (void)fixture;
    struct test_buffer buffer;
    test_buffer_init(&buffer, 0, 0);
    assert_true(test_buffer_guards_ok(&buffer));
    buffer.data[0] ^= 0x80;
    assert_false(test_buffer_guards_ok(&buffer));
    test_buffer_free(&buffer);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(data_has_the_offset_and_the_poison),
    cmocka_unit_test(writing_all_data_leaves_the_guards),
    cmocka_unit_test(any_changed_guard_byte_shows),
    cmocka_unit_test(empty_buffer_has_guards),
};

ULI_TEST_MAIN("Buffers", tests)
