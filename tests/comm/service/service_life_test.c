/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of the service thread: from the first hold to the last release, with
 * signals blocked, on its core, and unaffected by forks.
 */
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "comm/service/service.h"
#include "comm/service/service_dial.h"
#include "support/test.h"

/* How many service threads run, and a field of the last one's status. Threads
 * are found by name, because a sanitizer has threads of its own. */
static int
count_services(const char *format, void *field_p)
{
    const struct dirent *entry;
    int threads = 0;
    DIR *folder = opendir("/proc/self/task");
    while ((entry = readdir(folder)) != NULL) {
        char path[300], line[256];
        bool service = false;
        if (entry->d_name[0] == '.')
            continue;
        snprintf(
            path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
        FILE *file = fopen(path, "r");
        while (file && fgets(line, sizeof(line), file)) {
            service |= strncmp(line, "Name:\tulyx-service", 18) == 0;
            if (service)
                sscanf(line, format, field_p);
        }
        if (file)
            fclose(file);
        threads += service;
    }
    closedir(folder);
    return threads;
}

/* ---- life ---------------------------------------------------------------- */

static void
thread_lives_with_holds(void **state)
{
    (void)state;
    unsigned char first[16], second[16];
    char name[32], again[32];
    unsigned long long blocked;
    assert_int_equal(count_services("SigBlk: %llx", &blocked), 0);
    assert_status(uli_service_hold(first, name), ULYX_SUCCESS);
    assert_status(uli_service_hold(second, again), ULYX_SUCCESS);
    assert_true(answers_ping(name));
    assert_int_equal(count_services("SigBlk: %llx", &blocked), 1);
    assert_memory_equal(first, second, 16);
    assert_string_equal(name, again);
    uli_service_release();
    assert_true(answers_ping(name));
    uli_service_release();
    assert_int_equal(count_services("SigBlk: %llx", &blocked), 0);
    assert_int_equal(dial(name), -1);
    assert_status(uli_service_hold(second, again), ULYX_SUCCESS);
    assert_memory_equal(first, second, 16); /* the process's name stays */
    assert_string_not_equal(name, again);
    uli_service_release();
}

/* Raises all signals except KILL, STOP and the two that the C library
 * reserves. */
static void
thread_blocks_signals(void **state)
{
    (void)state;
    unsigned long long blocked = 0;
    unsigned char process[16];
    char name[32];
    assert_status(uli_service_hold(process, name), ULYX_SUCCESS);
    assert_true(answers_ping(name)); /* the thread has set its name by now */
    assert_int_equal(count_services("SigBlk: %llx", &blocked), 1);
    assert_true((blocked | 0x180040100ull) == ~0ull);
    uli_service_release();
}

static void
thread_takes_its_core(void **state)
{
    (void)state;
    cpu_set_t mine;
    unsigned char process[16];
    char name[32], number[16];
    int core = CPU_SETSIZE - 1, allowed = -1;
    assert_int_equal(sched_getaffinity(0, sizeof(mine), &mine), 0);
    while (core > 0 && !CPU_ISSET((size_t)core, &mine))
        core--;
    snprintf(number, sizeof(number), "%d", core);
    setenv("ULYX_SERVICE_CORE", number, 1);
    ulyx_status_t status = uli_service_hold(process, name);
    unsetenv("ULYX_SERVICE_CORE");
    assert_status(status, ULYX_SUCCESS);
    assert_true(answers_ping(name));
    assert_int_equal(count_services("Cpus_allowed_list: %d", &allowed), 1);
    assert_int_equal(allowed, core);
    uli_service_release();
}

/* ---- fork ---------------------------------------------------------------- */

/* The child does not keep the parent's socket alive. */
static void
children_hold_nothing(void **state)
{
    (void)state;
    unsigned char process[16];
    char name[32], byte;
    int gate[2], ready[2], status = 1;
    assert_int_equal(pipe(gate) | pipe(ready), 0);
    assert_status(uli_service_hold(process, name), ULYX_SUCCESS);
    pid_t pid = fork();
    if (pid == 0) {
        close(gate[1]);
        bool refused = uli_service_forked() &&
                       uli_service_hold(process, name) == ULYX_ERR_FORKED;
        bool sent = write(ready[1], "", 1) == 1;
        _exit(sent && read(gate[0], &byte, 1) == 0 && refused ? 0 : 1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_false(uli_service_forked());
    assert_true(answers_ping(name));
    uli_service_release();
    assert_int_equal(dial(name), -1);
    close(gate[0]);
    close(gate[1]);
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* No service is in use. The child starts its own, under another name. */
static void
children_may_start_afresh(void **state)
{
    (void)state;
    unsigned char parent[16], child[16];
    char name[32];
    int status = 1;
    assert_status(uli_service_hold(parent, name), ULYX_SUCCESS);
    uli_service_release();
    pid_t pid = fork();
    if (pid == 0) {
        bool ok = uli_service_hold(child, name) == ULYX_SUCCESS &&
                  memcmp(parent, child, 16) != 0 && answers_ping(name);
        uli_service_release();
        _exit(!ok);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(thread_lives_with_holds),
    cmocka_unit_test(thread_blocks_signals),
    cmocka_unit_test(thread_takes_its_core),
    cmocka_unit_test(children_hold_nothing),
    cmocka_unit_test(children_may_start_afresh),
};

ULI_TEST_MAIN("ServiceLife", tests)
