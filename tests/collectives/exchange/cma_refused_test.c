/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes whose memory the kernel does not let each other read: the exchange
 * uses the rings, and each process logs the reason once, as a warning only
 * where ULYX_CMA=on demands reading.
 */
#include <errno.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#include "comm/meet.h"
#include "soak/scene.h"
#include "support/ranks.h"
#include "support/test.h"

enum { RANKS = 2, ROWS = 64, LIMIT_S = 60, COMMS = 2 };

enum means { BY_FILTER, BY_DUMPABLE };

struct shared {
    struct meet *meet;
    enum means means;
    char directory[64];
};

static bool
forbid_reads(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
            (unsigned)offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* CAP_SYS_PTRACE would override the refusal. */
static bool
be_undumpable(void)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &head, data))
        return false;
    data[0].effective &= ~(1u << CAP_SYS_PTRACE);
    return syscall(SYS_capset, &head, data) == 0 &&
           prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0;
}

/* Two communicators and their plans: the reason is logged only once. */
static int
refused_rank(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    char path[128];
    bool good = true;
    (void)nranks;
    snprintf(path, sizeof(path), "%s/%d", shared->directory, rank);
    setenv("ULYX_DEBUG_FILE", path, 1);
    if (!ranks_expect(
            shared->means == BY_FILTER ? forbid_reads() : be_undumpable()))
        return 1;
    for (int i = 0; good && i < COMMS; i++) {
        ulyx_comm_t *comm;
        struct scene s;
        good = ranks_expect(meet_comm(shared->meet, rank, 20, &comm) == 0);
        if (!good || !ranks_expect(scene_open(comm, SCENE_CMA, ROWS, &s) == 0))
            return 1;
        good = ranks_expect(scene_execute(&s, ULYX_SEQ_TO_HEAD) == 0) &&
               ranks_expect(scene_check(&s, ULYX_SEQ_TO_HEAD)) &&
               ranks_expect(scene_close(&s, 10)) &&
               ranks_expect(meet_barrier(shared->meet, rank)) &&
               ranks_expect(ulyx_comm_destroy(comm) == 0);
    }
    return !good;
}

static int
words_count(const char *text, const char *word)
{
    int found = 0;
    for (const char *at = text; (at = strstr(at, word)); at++)
        found++;
    return found;
}

/* Reads and removes each rank's log, which must hold the reason in so many info
 * lines and warnings. */
static void
check_logs(const struct shared *shared, const char *why, int infos, int warns)
{
    static char text[1 << 16];
    for (int rank = 0; rank < RANKS; rank++) {
        char path[128];
        snprintf(path, sizeof(path), "%s/%d", shared->directory, rank);
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        text[fread(text, 1, sizeof(text) - 1, file)] = 0;
        fclose(file);
        unlink(path);
        assert_int_equal(words_count(text, "ULYX WARN"), warns);
        assert_int_equal(words_count(text, "goes through rings"), 1);
        assert_int_equal(
            words_count(text, "ULYX INFO ordinary memory of other processes"),
            infos);
        assert_non_null(strstr(text, why));
    }
}

static void
refused_run(
    enum means means, const char *cma, const char *why, int infos, int warns)
{
    struct shared *shared = ranks_shared(sizeof(*shared));
    shared->meet = meet_new(RANKS);
    shared->means = means;
    strcpy(shared->directory, "/tmp/ulyx-cma-XXXXXX");
    assert_non_null(mkdtemp(shared->directory));
    setenv("ULYX_DEBUG", "INFO", 1);
    setenv("ULYX_CMA", cma, 1);
    setenv("ULYX_CMA_MIN_ROW", "8", 1);
    int failed = ranks_run_processes(RANKS, refused_rank, shared, LIMIT_S);
    unsetenv("ULYX_DEBUG");
    unsetenv("ULYX_CMA");
    unsetenv("ULYX_CMA_MIN_ROW");
    assert_int_equal(failed, 0);
    check_logs(shared, why, infos, warns);
    rmdir(shared->directory);
    meet_free(shared->meet);
    ranks_shared_free(shared, sizeof(*shared));
}

static void
filter_of_system_calls_is_reported(void **state)
{
    (void)state;
    refused_run(BY_FILTER, "auto", "a filter of system calls", 1, 0);
}

static void
filter_warns_where_reading_was_required(void **state)
{
    (void)state;
    refused_run(BY_FILTER, "on", "a filter of system calls", 0, 1);
}

/* A process that is not dumpable, and cannot read its peer. */
static void
processes_that_are_not_dumpable_log_the_reason(void **state)
{
    (void)state;
    refused_run(BY_DUMPABLE, "on", "it is not dumpable", 0, 2);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(filter_of_system_calls_is_reported),
    cmocka_unit_test(filter_warns_where_reading_was_required),
    cmocka_unit_test(processes_that_are_not_dumpable_log_the_reason),
};

ULI_TEST_MAIN("CmaRefused", tests)
