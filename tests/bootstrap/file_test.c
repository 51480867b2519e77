/* SPDX-License-Identifier: Apache-2.0
 *
 * Meetings through a file in ULYX_RENDEZVOUS_DIR: what dead jobs and others
 * have left there has no effect, and nothing is left behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "bootstrap/env_job.h"
#include "bootstrap/meeting.h"
#include "bootstrap/meet/unique_id.h"
#include "support/test.h"

struct folder {
    char path[64];
    char file[128];
};

static void
folder_make(struct folder *folder, struct env_job *job)
{
    strcpy(folder->path, "/tmp/ulyx-rendezvous-XXXXXX");
    assert_non_null(mkdtemp(folder->path));
    env_job_init(job, ENV_RANKS);
    strcpy(job->settings.rendezvous_dir, folder->path);
    job->entries[0] = "TORCHELASTIC_RUN_ID=a/b c";
    job->entries[1] = "TORCHELASTIC_RESTART_COUNT=1";
    snprintf(folder->file, sizeof(folder->file), "%s/ulyx-torchrun_a_b_c_1_-%u",
        folder->path, job->meeting);
}

/* Checks that no file is left in the folder. */
static void
folder_remove(const struct folder *folder)
{
    if (rmdir(folder->path) != 0)
        fail_msg("%s: %s", folder->path, strerror(errno));
}

static void
write_file(const char *path, const char *text, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void
ranks_meet_through_a_file_and_leave_none(void **state)
{
    (void)state;
    struct env_job job;
    struct folder folder;
    folder_make(&folder, &job);
    env_job_run_well(&job);
    folder_remove(&folder);
}

/* Puts the file of a dead job there. Rank 0 then comes half a second after the
 * others. */
static void
run_with_stale_file(const char *text, mode_t mode)
{
    struct env_job job;
    struct folder folder;
    struct env_rank ranks[ENV_RANKS] = {0};
    folder_make(&folder, &job);
    write_file(folder.file, text, mode);
    ranks[0].late_s = 0.5;
    env_job_run(&job, ranks);
    env_job_expect(&job, ranks, ULYX_SUCCESS, "");
    assert_true(meeting_all_ended());
    folder_remove(&folder);
}

static void
stale_file_is_passed_over(void **state)
{
    (void)state;
    struct uli_endpoint place;
    ulyx_unique_id_t id;
    char text[600];
    /* The root that the file names has ended. */
    meeting_close(meeting_open(MEETING_V4, 20, 0, &place));
    uli_unique_id_encode(&place, &id);
    assert_status(uli_unique_id_to_string(&id, text, sizeof(text)), 0);
    run_with_stale_file(text, 0600);
    /* Half of the text, no text, and a file that other users could have
     * written. */
    text[strlen(text) / 2] = 0;
    run_with_stale_file(text, 0600);
    run_with_stale_file("", 0600);
    run_with_stale_file(text, 0644);
}

/* The file's address now belongs to another root, which has another secret. */
static void
stale_file_of_a_live_port_is_passed_over(void **state)
{
    (void)state;
    struct env_job job;
    struct folder folder;
    struct env_rank ranks[ENV_RANKS] = {0};
    struct uli_endpoint place;
    ulyx_unique_id_t id;
    char text[600];
    struct uli_root *other = meeting_open(MEETING_V4, 20, 0, &place);
    folder_make(&folder, &job);
    place.secret[0] ^= 1;
    uli_unique_id_encode(&place, &id);
    assert_status(uli_unique_id_to_string(&id, text, sizeof(text)), 0);
    write_file(folder.file, text, 0600);
    ranks[0].late_s = 0.5;
    env_job_run(&job, ranks);
    env_job_expect(&job, ranks, ULYX_SUCCESS, "");
    meeting_close(other);
    folder_remove(&folder);
}

static void
file_of_others_is_never_read(void **state)
{
    (void)state;
    struct env_job job;
    struct folder folder;
    struct env_rank ranks[ENV_RANKS] = {0};
    folder_make(&folder, &job);
    write_file(folder.file, "ulyx1/", 0644);
    job.absent = 0;
    job.patience_s = 0.3;
    env_job_run(&job, ranks);
    env_job_expect(&job, ranks, ULYX_ERR_TIMEOUT,
        "it is not a file of this user with mode 0600");
    unlink(folder.file);
    folder_remove(&folder);
}

static void
failed_meeting_leaves_no_file(void **state)
{
    (void)state;
    struct env_job job;
    struct folder folder;
    struct env_rank ranks[ENV_RANKS] = {0};
    folder_make(&folder, &job);
    job.absent = 3;
    job.patience_s = 0.4;
    env_job_run(&job, ranks);
    env_job_expect(&job, ranks, ULYX_ERR_TIMEOUT,
        "meeting of 4 ranks: timed out waiting for rank 3 to join");
    folder_remove(&folder);
}

static void
missing_folder_is_named(void **state)
{
    (void)state;
    struct env_job job;
    struct env_rank ranks[ENV_RANKS] = {0};
    env_job_init(&job, 1 + 1);
    strcpy(job.settings.rendezvous_dir, "/nonexistent-ulyx");
    job.absent = 1;
    env_job_run(&job, ranks);
    assert_int_equal(ranks[0].status, ULYX_ERR_SYSTEM);
    assert_non_null(strstr(ranks[0].text, "/nonexistent-ulyx/ulyx-"));
}

/* ---- killed starts ------------------------------------------------------- */

/* What the wrapped call does that gives the file its name. */
static enum { NAMING_WORKS, NAMING_KILLS, LINKING_FAILS } naming;

int __real_linkat(int from, const char *old, int to, const char *path, int how);
int __wrap_linkat(int from, const char *old, int to, const char *path, int how);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);

int
__wrap_linkat(int from, const char *old, int to, const char *path, int how)
{
    if (naming == NAMING_KILLS)
        _exit(9);
    errno = EOPNOTSUPP;
    return naming == LINKING_FAILS ? -1
                                   : __real_linkat(from, old, to, path, how);
}

int
__wrap_rename(const char *from, const char *to)
{
    if (naming == NAMING_KILLS)
        _exit(9);
    return __real_rename(from, to);
}

static void
rank_0_killed_before_its_file_is_there_leaves_none(void **state)
{
    (void)state;
    struct env_job job;
    struct folder folder;
    struct env_rank rank = {.job = &job};
    int status;
    folder_make(&folder, &job);
    pid_t child = fork();
    if (child == 0) {
        naming = NAMING_KILLS;
        env_job_rank(&rank);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 9);
    folder_remove(&folder);
}

static void
file_system_without_unnamed_files_is_enough(void **state)
{
    (void)state;
    struct env_job job;
    struct folder folder;
    folder_make(&folder, &job);
    naming = LINKING_FAILS;
    env_job_run_well(&job);
    naming = NAMING_WORKS;
    folder_remove(&folder);
}

static void
files_of_killed_starts_are_removed(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        mode_t mode;
        int age_s;
        bool swept;
    } files[] = {
        {"ulyx-my-job.7-0.1234", 0600, 120, true},
        {"ulyx-other-3.1", 0600, 3600, true},
        {"ulyx-other-4", 0600, 2 * 86400, true},
        /* a rank may still be waiting */
        {"ulyx-other-5", 0600, 3600, false},
        {"ulyx-other-6.77", 0600, 5, false},    /* is still being written */
        {"ulyx-other-7.77", 0644, 3600, false}, /* no file of this library */
        {"ulyx-notes.txt", 0600, 9 * 86400, false},
        {"ulyx-7", 0600, 9 * 86400, false},
        {"results-4", 0600, 9 * 86400, false},
        {"ulyx-other-8.7b", 0600, 9 * 86400, false},
    };
    struct env_job job;
    struct folder folder;
    folder_make(&folder, &job);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        char path[200];
        struct timespec now, times[2];
        clock_gettime(CLOCK_REALTIME, &now);
        now.tv_sec -= files[i].age_s;
        times[0] = times[1] = now;
        snprintf(path, sizeof(path), "%s/%s", folder.path, files[i].name);
        write_file(path, "x", files[i].mode);
        assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    }
    env_job_run_well(&job);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        char path[200];
        snprintf(path, sizeof(path), "%s/%s", folder.path, files[i].name);
        if ((unlink(path) != 0) != files[i].swept)
            fail_msg("%s", files[i].name);
    }
    folder_remove(&folder);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranks_meet_through_a_file_and_leave_none),
    cmocka_unit_test(stale_file_is_passed_over),
    cmocka_unit_test(stale_file_of_a_live_port_is_passed_over),
    cmocka_unit_test(file_of_others_is_never_read),
    cmocka_unit_test(failed_meeting_leaves_no_file),
    cmocka_unit_test(missing_folder_is_named),
    cmocka_unit_test(rank_0_killed_before_its_file_is_there_leaves_none),
    cmocka_unit_test(file_system_without_unnamed_files_is_enough),
    cmocka_unit_test(files_of_killed_starts_are_removed),
};
ULI_TEST_MAIN("BootstrapFile", tests)
