/* SPDX-License-Identifier: Apache-2.0
 *
 * The cache of imports, over the tests' driver: an owner makes and frees
 * allocations, also at the same address, while several holders take and drop
 * imports in any order. A model (a count per allocation) gives the mappings
 * that must exist.
 */
#include "transport/nvlink/imports.h"

#include <stdbool.h>
#include <string.h>
#include "base/status.h"
#include "device/cuda_driver.h"
#include "device/fake_driver.h"
#include "device/fake_open.h"
#include "support/random.h"
#include "support/test.h"

static struct fake_driver *driver;
static const unsigned char alice[16] = "alice", bob[16] = "bob";

static int
open_fake(void **state)
{
    (void)state;
    driver = fake_driver_open();
    return driver ? 0 : -1;
}

static int
nothing_left(void **state)
{
    (void)state;
    driver->failing = NULL;
    return uli_import_count() == 0 && driver->count() == 0 ? 0 : -1;
}

/* An owner's allocation and its share, with a mark as its content. */
struct owned {
    struct uli_share_memory memory;
    struct uli_share share;
};

static void
owned_create(struct owned *o, uint64_t mark)
{
    assert_status(uli_share_alloc(0, 64, &o->memory), ULYX_SUCCESS);
    assert_status(uli_share_export(o->memory.address, &o->share), ULYX_SUCCESS);
    memcpy(o->memory.address, &mark, sizeof(mark));
}

static void
owned_destroy(struct owned *o)
{
    uli_share_close(&o->share);
    assert_status(uli_share_free(&o->memory), ULYX_SUCCESS);
}

static uint64_t
mark_at(const void *address)
{
    uint64_t mark;
    memcpy(&mark, address, sizeof(mark));
    return mark;
}

static void
one_allocation_is_mapped_once_a_device(void **state)
{
    struct uli_import *imports[4];
    void *bases[4];
    struct owned o;
    (void)state;
    owned_create(&o, 11);
    /* allocations 0 and 1 are on device 0, 2 and 3 on device 1 */
    for (int i = 0; i < 4; i++)
        assert_status(
            uli_import_take(i / 2, alice, &o.share, 1, &imports[i], &bases[i]),
            ULYX_SUCCESS);
    assert_int_equal(uli_import_count(), 2);
    assert_ptr_equal(bases[0], bases[1]);
    assert_ptr_equal(bases[2], bases[3]);
    assert_ptr_not_equal(bases[0], bases[2]);
    assert_status(uli_import_drop(imports[0]), ULYX_SUCCESS);
    assert_status(uli_import_drop(imports[2]), ULYX_SUCCESS);
    assert_int_equal(uli_import_count(), 2);
    assert_int_equal(mark_at(bases[1]), 11);
    assert_int_equal(mark_at(bases[3]), 11);
    assert_status(uli_import_drop(imports[1]), ULYX_SUCCESS);
    assert_int_equal(uli_import_count(), 1);
    assert_status(uli_import_drop(imports[3]), ULYX_SUCCESS);
    owned_destroy(&o);
}

/* Two processes may have the same base and id. */
static void
owners_are_distinguished(void **state)
{
    struct uli_import *imports[2];
    void *bases[2];
    struct owned o[2];
    (void)state;
    owned_create(&o[0], 21);
    owned_create(&o[1], 22);
    struct uli_share same = o[1].share;
    same.base = o[0].share.base;
    same.buffer_id = o[0].share.buffer_id;
    assert_status(
        uli_import_take(1, alice, &o[0].share, 1, &imports[0], &bases[0]), 0);
    assert_status(uli_import_take(1, bob, &same, 1, &imports[1], &bases[1]), 0);
    assert_int_equal(mark_at(bases[0]), 21);
    assert_int_equal(mark_at(bases[1]), 22);
    for (int i = 0; i < 2; i++) {
        assert_status(uli_import_drop(imports[i]), ULYX_SUCCESS);
        owned_destroy(&o[i]);
    }
}

static void
memory_made_anew_at_an_address_is_mapped_anew(void **state)
{
    struct uli_import *before, *after;
    void *old_base, *new_base;
    struct owned first, second;
    (void)state;
    owned_create(&first, 31);
    assert_status(
        uli_import_take(1, alice, &first.share, 1, &before, &old_base), 0);
    uint64_t base = first.share.base;
    owned_destroy(&first);
    owned_create(&second, 32);
    /* also where the system has chosen another base */
    second.share.base = base;
    assert_status(
        uli_import_take(1, alice, &second.share, 1, &after, &new_base), 0);
    assert_int_equal(uli_import_count(), 2);
    assert_int_equal(mark_at(old_base), 31);
    assert_int_equal(mark_at(new_base), 32);
    assert_status(uli_import_drop(before), ULYX_SUCCESS);
    assert_int_equal(mark_at(new_base), 32);
    assert_status(uli_import_drop(after), ULYX_SUCCESS);
    owned_destroy(&second);
}

static void
failures_hold_nothing(void **state)
{
    static const char *const calls[] = {"cuMemImportFromShareableHandle",
        "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"};
    struct uli_import *import = NULL;
    void *base = NULL;
    struct owned o;
    (void)state;
    owned_create(&o, 41);
    int before = driver->count();
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        driver->failing = calls[i];
        driver->result = ULI_CU_OUT_OF_MEMORY;
        assert_status(uli_import_take(1, alice, &o.share, 1, &import, &base),
            ULYX_ERR_NO_MEMORY);
        driver->failing = NULL;
        assert_null(import);
        assert_int_equal(uli_import_count(), 0);
        assert_int_equal(driver->count(), before);
    }
    assert_status(uli_import_take(1, alice, &o.share, 1, &import, &base), 0);
    struct uli_import *other = NULL;
    struct uli_share lie = o.share;
    lie.bytes *= 2;
    assert_status(
        uli_import_take(1, alice, &lie, 1, &other, &base), ULYX_ERR_SYSTEM);
    assert_non_null(strstr(uli_error_text(), "65536 bytes of form 1 before"));
    assert_null(other);
    driver->failing = "cuMemUnmap";
    driver->result = 719;
    assert_status(uli_import_drop(import), ULYX_ERR_SYSTEM);
    assert_non_null(strstr(uli_error_text(), "cuMemUnmap: "));
    driver->failing = NULL;
    assert_int_equal(uli_import_count(), 0);
    /* only the mapping that the driver did not unmap stays: forget it for the
     * next case */
    assert_int_equal(driver->count(), before + 3);
    driver->forget();
    uli_share_close(&o.share);
}

/* ---- random lives -------------------------------------------------------- */

enum { OWNED = 5, HELD = 24 };

struct held {
    struct uli_import *import;
    void *base;
    uint64_t mark;
    int64_t device;
};

/* Distinct (allocation, device) pairs among the held imports. */
static int64_t
expected_count(const struct held *held)
{
    int64_t distinct = 0;
    for (int i = 0; i < HELD; i++) {
        bool first = held[i].import != NULL;
        for (int j = 0; j < i && first; j++)
            first = !(held[j].import && held[j].mark == held[i].mark &&
                      held[j].device == held[i].device);
        distinct += first;
    }
    return distinct;
}

static void
turn_draw(struct test_random *random, struct owned *o, const uint64_t *marks,
    struct held *held)
{
    struct held *h = &held[test_random_in(random, 0, HELD - 1)];
    int64_t which = test_random_in(random, 0, OWNED - 1);
    if (h->import) {
        assert_int_equal(mark_at(h->base), h->mark);
        assert_status(uli_import_drop(h->import), ULYX_SUCCESS);
        h->import = NULL;
        return;
    }
    h->mark = marks[which];
    h->device = test_random_in(random, 0, 1);
    assert_status(uli_import_take((int32_t)h->device, alice, &o[which].share, 1,
                      &h->import, &h->base),
        ULYX_SUCCESS);
}

static void
random_lives_match_a_count(void **state)
{
    struct test_random random = {test_seed(77)};
    struct held held[HELD];
    struct owned o[OWNED];
    uint64_t marks[OWNED], last = 0;
    (void)state;
    memset(held, 0, sizeof(held));
    for (int i = 0; i < OWNED; i++)
        owned_create(&o[i], marks[i] = ++last);
    for (int64_t i = 0; i < test_draws(3000); i++) {
        int64_t which = test_random_in(&random, 0, OWNED - 1);
        /* a new process of the same owner */
        if (test_random_in(&random, 0, 20) == 0) {
            owned_destroy(&o[which]);
            owned_create(&o[which], marks[which] = ++last);
        }
        turn_draw(&random, o, marks, held);
        assert_int_equal(uli_import_count(), expected_count(held));
    }
    for (int i = 0; i < HELD; i++)
        if (held[i].import)
            assert_status(uli_import_drop(held[i].import), ULYX_SUCCESS);
    for (int i = 0; i < OWNED; i++)
        owned_destroy(&o[i]);
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, open_fake, nothing_left)
static const struct CMUnitTest tests[] = {
    CASE(one_allocation_is_mapped_once_a_device),
    CASE(owners_are_distinguished),
    CASE(memory_made_anew_at_an_address_is_mapped_anew),
    CASE(failures_hold_nothing),
    CASE(random_lives_match_a_count),
};

ULI_TEST_MAIN("Imports", tests)
