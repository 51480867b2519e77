/* SPDX-License-Identifier: Apache-2.0
 *
 * Which transport is chosen for a peer, and the reasons where none is.
 */
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include "support/test.h"
#include "transport/transport.h"

static struct uli_settings settings;
static char why[512];

static struct uli_identity
identity_of(int rank, int node, int process)
{
    struct uli_identity made;
    memset(&made, 0, sizeof(made));
    made.rank = rank;
    made.node_hash[1] = (uint64_t)node;
    made.process[15] = (unsigned char)process;
    strcpy(made.host, "elsewhere");
    return made;
}

static const char *
transport_choose(
    const char *transports, const struct uli_identity *peer, uint64_t caps)
{
    struct uli_identity me = identity_of(0, 1, 1);
    snprintf(
        settings.transports, sizeof(settings.transports), "%s", transports);
    const struct uli_tr_ops *ops =
        uli_tr_select(&settings, &me, peer, caps, why, sizeof(why));
    return ops ? ops->name : "none";
}

/* ULYX_TRANSPORTS that leaves out each transport between processes with a
 * capability. */
static const char *
transports_without(uint64_t capability)
{
    static char text[sizeof(settings.transports)];
    struct uli_identity me = identity_of(0, 1, 1), peer = identity_of(1, 1, 2);
    size_t count;
    const struct uli_tr_ops *const *list = uli_tr_list(&count);
    strcpy(text, "^");
    for (size_t i = 0; i < count; i++) {
        if (!(list[i]->caps & capability) ||
            !list[i]->reaches(&me, &peer, why, sizeof(why)))
            continue;
        strcat(text, list[i]->name);
        strcat(text, ",");
    }
    return text;
}

static int
settings_load(void **state)
{
    (void)state;
    return uli_settings_load(&settings);
}

static void
takes_the_nearest(void **state)
{
    (void)state;
    struct uli_identity thread = identity_of(1, 1, 1);
    struct uli_identity process = identity_of(1, 1, 2);
    struct uli_identity node = identity_of(1, 2, 2);
    assert_string_equal(transport_choose("", &thread, ULI_TR_MAP), "self");
    assert_string_equal(transport_choose("", &process, ULI_TR_MAP), "shm");
    assert_string_equal(transport_choose("", &process, ULI_TR_READ), "shm");
    assert_string_equal(transport_choose("", &node, ULI_TR_MAP), "none");
    assert_non_null(strstr(why, "self: rank 1 is another process"));
    assert_non_null(strstr(why, "shm: rank 1 (elsewhere) is on another node"));
    assert_string_equal(transport_choose("", &thread, ULI_TR_PUT), "none");
    assert_non_null(strstr(why, "ucx: "));
}

static void
setting_chooses_the_transports(void **state)
{
    (void)state;
    struct uli_identity thread = identity_of(1, 1, 1);
    struct uli_identity process = identity_of(1, 1, 2);
    const char *all = transports_without(ULI_TR_MAP);
    assert_non_null(strstr(all, "shm,"));
    assert_string_equal(transport_choose(all, &process, ULI_TR_MAP), "none");
    assert_non_null(strstr(why, "ULYX_TRANSPORTS=^"));
    assert_string_equal(
        transport_choose("ucx, shm", &process, ULI_TR_MAP), "shm");
    assert_string_equal(transport_choose("ucx", &process, ULI_TR_MAP), "none");
    assert_string_equal(transport_choose("ucx", &thread, ULI_TR_MAP), "self");
    assert_string_equal(transport_choose("^self", &thread, ULI_TR_MAP),
        transport_choose("", &process, ULI_TR_MAP));
    assert_string_equal(transport_choose("sh", &process, ULI_TR_MAP), "none");
}

static int permits;
int __wrap_prctl(int option, unsigned long a, unsigned long b, unsigned long c,
    unsigned long d);
int
__wrap_prctl(int option, unsigned long a, unsigned long b, unsigned long c,
    unsigned long d)
{
    (void)a, (void)b, (void)c, (void)d;
    permits += option == PR_SET_PTRACER;
    return option == PR_GET_DUMPABLE;
}

static void
permits_reads_by_the_transports_in_use_only(void **state)
{
    (void)state;
    strcpy(settings.cma, "on");
    strcpy(settings.transports, transports_without(ULI_TR_READ));
    permits = 0;
    uli_tr_permit_reads(&settings);
    assert_int_equal(permits, 0);
    settings.transports[0] = 0;
    uli_tr_permit_reads(&settings);
    assert_int_equal(permits, 1);
}

static void
refuses_other_users(void **state)
{
    (void)state;
    struct uli_identity process = identity_of(1, 1, 2);
    process.uid = 42;
    assert_string_equal(transport_choose("", &process, ULI_TR_MAP), "none");
    assert_non_null(strstr(why, "of user 42"));
}

static void
cuts_long_reasons(void **state)
{
    (void)state;
    struct uli_identity me = identity_of(0, 1, 1), node = identity_of(1, 2, 2);
    char small[16];
    memset(small, 'x', sizeof(small));
    assert_null(uli_tr_select(&settings, &me, &node, ULI_TR_MAP, small, 8));
    assert_int_equal(small[7], 0);
    assert_int_equal(small[8], 'x');
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup(takes_the_nearest, settings_load),
    cmocka_unit_test_setup(setting_chooses_the_transports, settings_load),
    cmocka_unit_test_setup(
        permits_reads_by_the_transports_in_use_only, settings_load),
    cmocka_unit_test_setup(refuses_other_users, settings_load),
    cmocka_unit_test_setup(cuts_long_reasons, settings_load),
};

ULI_TEST_MAIN("Select", tests)
