/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool of host memory: allocations do not overlap, and lie in windows of
 * every communicator, from malloc to free; memory that a rank of a failed
 * communicator may store into is not given out again.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "comm/comm.h"
#include "comm/memory/windows.h"
#include "support/random.h"
#include "support/test.h"
#include "ulyx/ulyx.h"

enum { RANKS = 2, TENSORS = 64 };

static int64_t
pool_allocations(void)
{
    int64_t count = -1;
    assert_status(ulyx_pool_get_counts(&count, NULL), ULYX_SUCCESS);
    return count;
}

static void
open_comms(ulyx_comm_t **comms, bool attach)
{
    assert_status(ulyx_comm_create_local(RANKS, NULL, comms), ULYX_SUCCESS);
    for (int r = 0; attach && r < RANKS; r++)
        assert_status(ulyx_pool_attach(comms[r]), ULYX_SUCCESS);
}

static void
close_comms(ulyx_comm_t **comms)
{
    for (int r = 0; r < RANKS; r++) {
        assert_status(ulyx_pool_detach(comms[r]), ULYX_SUCCESS);
        assert_status(ulyx_comm_destroy(comms[r]), ULYX_SUCCESS);
    }
    assert_int_equal(pool_allocations(), 0);
}

static bool
is_window(ulyx_comm_t *const *comms, const void *address, int64_t bytes)
{
    uint32_t window;
    int64_t offset;
    for (int r = 0; r < RANKS; r++)
        if (!uli_window_find(comms[r], address, bytes, &window, &offset))
            return false;
    return true;
}

static void
tensors_lie_apart_in_windows(void **state)
{
    (void)state;
    struct test_random random = {test_seed(20261128)};
    ulyx_comm_t *comms[RANKS];
    unsigned char *at[TENSORS] = {0};
    int64_t bytes[TENSORS] = {0};
    open_comms(comms, true);
    for (int64_t n = 0; n < test_draws(400); n++) {
        int i = (int)test_random_in(&random, 0, TENSORS - 1);
        for (int64_t b = 0; at[i] && b < bytes[i]; b++)
            assert_int_equal(at[i][b], i); /* no other allocation's */
        ulyx_pool_free_host(at[i]);
        bytes[i] = n % 50 ? test_random_in(&random, 1, 1 << 16) : 9 << 20;
        at[i] = ulyx_pool_malloc_host((size_t)bytes[i]);
        assert_non_null(at[i]);
        assert_int_equal((uintptr_t)at[i] % 64, 0);
        assert_true(is_window(comms, at[i], bytes[i]));
        memset(at[i], i, (size_t)bytes[i]);
    }
    for (int i = 0; i < TENSORS; i++)
        ulyx_pool_free_host(at[i]);
    assert_int_equal(pool_allocations(), 0);
    close_comms(comms);
}

static void
attach_makes_windows_of_live_allocations(void **state)
{
    (void)state;
    ulyx_comm_t *comms[RANKS];
    void *before = ulyx_pool_malloc_host(1000);
    assert_non_null(before);
    open_comms(comms, false);
    assert_false(is_window(comms, before, 1000));
    for (int r = 0; r < RANKS; r++)
        assert_status(ulyx_pool_attach(comms[r]), ULYX_SUCCESS);
    assert_true(is_window(comms, before, 1000));
    assert_status(ulyx_pool_attach(comms[0]), ULYX_ERR_INVALID_ARGUMENT);
    assert_null(ulyx_pool_malloc_host(0));
    assert_null(ulyx_pool_malloc_host(SIZE_MAX));
    assert_null(ulyx_pool_malloc_host(INT64_MAX));
    ulyx_pool_free_host((char *)before + 64); /* a warning, no effect */
    assert_int_equal(pool_allocations(), 1);
    ulyx_pool_free_host(before);
    void *again = ulyx_pool_malloc_host(1000);
    assert_ptr_equal(again, before);
    ulyx_pool_free_host(again);
    close_comms(comms);
}

static void
failed_communicators_keep_their_allocations(void **state)
{
    (void)state;
    ulyx_comm_t *comms[RANKS];
    open_comms(comms, true);
    void *at = ulyx_pool_malloc_host(1000), *other = ulyx_pool_malloc_host(64);
    assert_true(at && other);
    assert_status(ulyx_comm_abort(comms[0]), ULYX_SUCCESS);
    ulyx_pool_free_host(at);
    void *later = ulyx_pool_malloc_host(1000);
    assert_non_null(later);
    assert_ptr_not_equal(later, at);
    ulyx_pool_free_host(other);
    ulyx_pool_free_host(later);
    for (int r = 0; r < RANKS; r++)
        assert_status(ulyx_comm_destroy(comms[r]), ULYX_SUCCESS);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(tensors_lie_apart_in_windows),
    cmocka_unit_test(attach_makes_windows_of_live_allocations),
    cmocka_unit_test(failed_communicators_keep_their_allocations),
};

ULI_TEST_MAIN("PoolHost", tests)
