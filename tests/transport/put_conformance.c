/* SPDX-License-Identifier: Apache-2.0
 *
 * What every transport with ULI_TR_PUT has to pass, between ends of one
 * process. The oracle of data is a mirror: what the window should hold after
 * each signal.
 */
#include "transport/put_conformance.h"

#include <stdlib.h>
#include <string.h>
#include "support/random.h"
#include "transport/ends.h"

static struct uli_settings settings;

static void
pair(struct end **a_p, struct end **b_p, int64_t bytes)
{
    assert_status(uli_settings_load(&settings), ULYX_SUCCESS);
    *a_p = end_open(put_subject, &settings, 0, 2, bytes);
    *b_p = end_open(put_subject, &settings, 1, 2, bytes);
    ends_join(*a_p, *b_p);
}

/* Both must move on while each closes. */
static void
part(struct end *a, struct end *b)
{
    struct end_service *service = end_serve(b);
    end_close(a, 10);
    end_service_stop(service);
    assert_int_equal(atomic_load(&b->lost[0]), 0);
    end_close(b, 10);
}

static int64_t
any_size(struct test_random *random, int64_t most)
{
    int64_t top = test_random_in(random, 0, 25); /* up to 32 MiB */
    int64_t size = test_random_in(random, 0, (int64_t)1 << top);
    return size < most ? size : most;
}

/* Random pieces at random places, one at a time. */
void
put_lands_whole(void **state)
{
    (void)state;
    struct test_random random = {test_seed(21)};
    const int64_t bytes = (int64_t)32 << 20;
    struct end *a, *b;
    pair(&a, &b, bytes);
    unsigned char *source = malloc((size_t)bytes + 64);
    unsigned char *mirror = malloc((size_t)bytes);
    memset(mirror, b->guard, (size_t)bytes);
    for (int64_t i = 1; i <= test_draws(40); i++) {
        int64_t size = any_size(&random, bytes);
        int64_t skew = test_random_in(&random, 0, 63);
        int64_t offset = test_random_in(&random, 0, bytes - size);
        for (int64_t k = 0; k < size; k += 8)
            memcpy(source + skew + k, &(uint64_t){test_random_next(&random)},
                (size_t)(size - k < 8 ? size - k : 8));
        memcpy(mirror + offset, source + skew, (size_t)size);
        assert_status(
            end_put(a, 1, source + skew, size, offset, 3, (uint64_t)i),
            ULYX_SUCCESS);
        assert_true(ends_wait(a, b, &b->words[3], (uint64_t)i, 30));
        assert_memory_equal(end_data(b) + offset, source + skew, (size_t)size);
        assert_true(ends_wait_count(a, b, &a->pending, 0, 30));
    }
    assert_memory_equal(end_data(b), mirror, (size_t)bytes);
    assert_true(a->ops->settled(a->net, 1));
    free(source);
    free(mirror);
    part(a, b);
}
