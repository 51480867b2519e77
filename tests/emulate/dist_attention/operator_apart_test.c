/* SPDX-License-Identifier: Apache-2.0
 *
 * Distributed attentions whose device memory cannot be mapped, so their plans
 * exchange by messages. The random cases are those of memory that can be
 * mapped; each runs over NCCL (an imitation) and through memory of the host.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "emulate.h"
#include "emulate/dist_attention/device_place.h"
#include "emulate/driver/driver.h"
#include "support/ranks.h"
#include "support/test.h"
#ifdef FAKE_NCCL_OK
#include "emulate/messages/fake_nccl_kernels.h"
#endif

enum { SCORES_MOST = 3000 };

static int
set_up_staged(void **state)
{
    (void)state;
    setenv("ULYX_NCCL_LIB", "/nowhere/libnccl.so", 1);
    setenv("ULYX_STAGE_CHUNK", "4K", 1);
    return setenv("ULYX_GPU_SMS", "1", 1);
}

#ifdef FAKE_NCCL_OK
static int
set_up_nccl(void **state)
{
    (void)state;
    setenv("ULYX_GPU_SMS", "1", 1);
    return fake_nccl_load() ? setenv("ULYX_NCCL_LIB", FAKE_NCCL_OK, 1) : -1;
}
#endif

static void
machine_open(int32_t nranks)
{
    const struct emu_config config = {.devices = DEVICE_PLACE_DEVICES,
        .sm_count = 4,
        .host_threads = nranks + 1,
        .wall_time = true};
    assert_int_equal(emu_open(&config), 0);
    emu_driver_no_peers(true);
}

static void
machine_close(void)
{
    assert_int_equal(emu_fault_count(), 0);
    assert_int_equal(emu_driver_live(), 0);
    emu_driver_no_peers(false);
    emu_close();
}

/* ---- draws --------------------------------------------------------------- */

static void
draw_case(struct dist_case *c, struct test_random *random)
{
    do
        case_draw(c, random);
    while (c->nranks < 2 || device_place_scores(c) > SCORES_MOST ||
           device_place_scores(c) == 0);
    device_place_adapt(c, &device_place_apart);
    /* an exchange by messages refuses both */
    c->changes_rows = c->call_strides = false;
}

static bool
random_check(const struct dist_case *c, bool processes, int64_t *count)
{
    bool dq, dk;
    device_place_bits(c, &dq, &dk);
    machine_open(c->nranks);
    bool good = world_check(c, processes, dq, dk, NULL);
    machine_close();
    ++*count;
    return good;
}

static void
ranks_match_one(void **state)
{
    (void)state;
    case_check_draws(
        &(struct case_draws){.seed = 20261133, .count = test_draws(3)},
        draw_case, random_check);
}

/* KV heads are cut into pieces, and dk and dv are carried from group to
 * group. */
static void
a_ceiling_cuts_kv_heads(void **state)
{
    struct dist_case c;
    int64_t groups = 0;
    (void)state;
    case_plain(&c, 2, 24, 6, 2, 8);
    c.p.flags = ULYX_DIST_ATTENTION_LSE;
    c.ceiling = true;
    c.place = &device_place_apart;
    machine_open(c.nranks);
    bool good = world_check(&c, false, true, true, &groups);
    machine_close();
    assert_true(good);
    assert_true(groups > 2);
}

/* ---- the cases ----------------------------------------------------------- */

#define STAGED(name)                                                           \
    {                                                                          \
#name "_by_staging", name, set_up_staged, NULL, NULL                   \
    }
#ifdef FAKE_NCCL_OK
#define CASE(name)                                                             \
    STAGED(name),                                                              \
    {                                                                          \
#name "_by_nccl", name, set_up_nccl, NULL, NULL                        \
    }
#else
#define CASE(name) STAGED(name)
#endif
static const struct CMUnitTest tests[] = {
    CASE(ranks_match_one),
    CASE(a_ceiling_cuts_kv_heads),
};

ULI_TEST_MAIN("EmulateOperatorApart", tests)
