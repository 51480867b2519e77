/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that opens the library at run time and closes it again, while or
 * after the library's threads run. Each scene is a process of its own, because
 * a mistake here ends the process by a signal.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "support/ranks.h"
#include "support/test.h"
#include "ulyx/ulyx.h"

enum { ROUNDS = 20 };

struct calls {
    __typeof__(&ulyx_unique_id_create) id_create;
    __typeof__(&ulyx_comm_create) create;
    __typeof__(&ulyx_comm_create_local) create_local;
    __typeof__(&ulyx_comm_destroy) destroy;
};

static bool
symbol_find(void *library, const char *name, void *function_p)
{
    void *symbol = dlsym(library, name);
    memcpy(function_p, &symbol, sizeof(symbol));
    return symbol != NULL;
}

/* Opens the library, uses it, closes it, and gives its threads time to
 * continue. */
static int
run_rounds(bool (*use)(const struct calls *calls))
{
    for (int i = 0; i < ROUNDS; i++) {
        struct calls calls;
        void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
        if (!ranks_expect(library != NULL) ||
            !ranks_expect(
                symbol_find(
                    library, "ulyx_unique_id_create", &calls.id_create) &&
                symbol_find(library, "ulyx_comm_create", &calls.create) &&
                symbol_find(
                    library, "ulyx_comm_create_local", &calls.create_local) &&
                symbol_find(library, "ulyx_comm_destroy", &calls.destroy)))
            return 1;
        bool good = use(&calls);
        dlclose(library);
        usleep(10000);
        if (!ranks_expect(good))
            return 1;
    }
    return 0;
}

static bool
make_id(const struct calls *calls)
{
    ulyx_unique_id_t id;
    return calls->id_create(&id) == ULYX_SUCCESS;
}

static bool
make_comm_by_id(const struct calls *calls)
{
    ulyx_unique_id_t id;
    ulyx_comm_t *comm;
    return calls->id_create(&id) == ULYX_SUCCESS &&
           calls->create(&id, 1, 0, NULL, &comm) == ULYX_SUCCESS &&
           calls->destroy(comm) == ULYX_SUCCESS;
}

static bool
make_local_comms(const struct calls *calls)
{
    ulyx_comm_t *comms[3];
    bool good = calls->create_local(3, NULL, comms) == ULYX_SUCCESS;
    for (int i = 0; good && i < 3; i++)
        good = calls->destroy(comms[i]) == ULYX_SUCCESS;
    return good;
}

static int
scene_rank(int rank, int nranks, void *context)
{
    static bool (*const uses[])(const struct calls *calls) = {
        make_id, make_comm_by_id, make_local_comms};
    (void)nranks, (void)context;
    return run_rounds(uses[rank]);
}

static void
library_can_be_closed_while_its_threads_run(void **state)
{
    (void)state;
    assert_int_equal(ranks_run_processes(3, scene_rank, NULL, 50), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(library_can_be_closed_while_its_threads_run),
};
ULI_TEST_MAIN("Unload", tests)
