/* SPDX-License-Identifier: Apache-2.0
 *
 * Meetings through a file in ULYX_RENDEZVOUS_DIR: what dead jobs and others
 * have left there does no harm, and nothing is left behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "comm/env_job.h"
#include "comm/meeting.h"
#include "comm/unique_id.h"
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

/* Nothing is left in it. */
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

/* A dead job's file, then rank 0 comes half a second after the others. */
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
    struct uli_place place;
    ulyx_unique_id_t id;
    char text[600];
    /* Its root is dead. */
    meeting_close(meeting_open(MEETING_V4, 20, 0, &place));
    uli_unique_id_encode(&place, &id);
    assert_status(uli_unique_id_to_string(&id, text, sizeof(text)), 0);
    run_with_stale_file(text, 0600);
    /* Half of it, none of it, and what others could have written. */
    text[strlen(text) / 2] = 0;
    run_with_stale_file(text, 0600);
    run_with_stale_file("", 0600);
    run_with_stale_file(text, 0644);
}

/* Its address belongs to another root now, which knows another secret. */
static void
stale_file_of_a_live_port_is_passed_over(void **state)
{
    (void)state;
    struct env_job job;
    struct folder folder;
    struct env_rank ranks[ENV_RANKS] = {0};
    struct uli_place place;
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
    env_job_expect(&job, ranks, ULYX_ERR_TIMEOUT, "rank 3 of 4 did not join");
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranks_meet_through_a_file_and_leave_none),
    cmocka_unit_test(stale_file_is_passed_over),
    cmocka_unit_test(stale_file_of_a_live_port_is_passed_over),
    cmocka_unit_test(file_of_others_is_never_read),
    cmocka_unit_test(failed_meeting_leaves_no_file),
    cmocka_unit_test(missing_folder_is_named),
};
ULI_TEST_MAIN("BootstrapFile", tests)
