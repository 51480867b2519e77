/* SPDX-License-Identifier: Apache-2.0
 *
 * A meeting through a directory that all ranks share. Rank 0 writes its id to a
 * file of mode 0600 that gets its name when it is complete, so no rank reads
 * half an id, and a rank 0 that is killed leaves no file. On file systems
 * without unnamed files the file is written under another name and renamed. The
 * root removes the file once all ranks have joined; later jobs remove files
 * that killed jobs have left. A file of a killed job leads to no root, or to a
 * root with another secret. So a rank that cannot connect reads the file again
 * until the deadline; meanwhile rank 0 replaces the file.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/log.h"
#include "base/status.h"
#include "bootstrap/launch/env.h"
#include "bootstrap/meet/root.h"
#include "bootstrap/meet/unique_id.h"

enum {
    PATH_BYTES = 1024,
    FILE_BYTES = 640,
    PAUSE_FIRST_MS = 5,
    SWEPT_MAX = 4096, /* entries of the folder that one sweep reads */
    DRAFT_OLDEST_S = 60,
    MEETING_OLDEST_S = 86400 + 3600
};

/* dir/ulyx-<job>-<meeting>; characters that a file name should not have become
 * '_'. */
static ulyx_status_t
file_path(const struct uli_env_meeting *env, char *path_p)
{
    char job[sizeof(env->launch.job)];
    snprintf(job, sizeof(job), "%s", env->launch.job);
    for (char *at = job; *at; at++)
        if (!isalnum((unsigned char)*at) && *at != '-' && *at != '.')
            *at = '_';
    int length = snprintf(path_p, PATH_BYTES, "%s/ulyx-%s-%u",
        env->settings->rendezvous_dir, *job ? job : "job", env->meeting);
    if (length < PATH_BYTES - 32)
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_INVALID_ARGUMENT,
        "ULYX_RENDEZVOUS_DIR=\"%s\" is too long",
        env->settings->rendezvous_dir);
}

/* ---- rank 0 -------------------------------------------------------------- */

static bool
write_whole(int fd, const char *text)
{
    size_t left = strlen(text);
    while (left > 0) {
        ssize_t wrote = write(fd, text, left);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return false;
        text += wrote;
        left -= (size_t)wrote;
    }
    return fsync(fd) == 0;
}

/* False where the file system or a missing /proc does not allow it. */
static bool
publish_unnamed(const char *folder, const char *path, const char *text)
{
    char whole[64];
    int fd = open(folder, O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    snprintf(whole, sizeof(whole), "/proc/self/fd/%d", fd);
    bool good = write_whole(fd, text);
    if (good)
        unlink(path); /* of a killed job; linkat replaces no file */
    good =
        good && linkat(AT_FDCWD, whole, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0;
    close(fd);
    return good;
}

static ulyx_status_t
publish_renamed(const char *path, const char *text)
{
    char draft[PATH_BYTES];
    snprintf(
        draft, sizeof(draft), "%.*s.%d", PATH_BYTES - 32, path, (int)getpid());
    unlink(draft);
    int fd =
        open(draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return uli_error_errno("bootstrap: cannot create %s", draft);
    bool good = write_whole(fd, text);
    int number = errno;
    close(fd);
    if (good && rename(draft, path) == 0)
        return ULYX_SUCCESS;
    errno = good ? errno : number;
    ulyx_status_t status = uli_error_errno("bootstrap: cannot write %s", path);
    unlink(draft);
    return status;
}

/* The age above which a file with this name is left over: a minute for a draft;
 * a day, which is the longest deadline, and an hour for a meeting; 0: the name
 * is not one of ulyx. */
static int64_t
oldest_s(const char *name)
{
    const char *digits = strrchr(name, '-');
    if (strncmp(name, "ulyx-", 5) != 0 || digits == name + 4)
        return 0;
    size_t count = strspn(++digits, "0123456789");
    if (count > 0 && digits[count] == 0)
        return MEETING_OLDEST_S;
    const char *process = digits + count + 1;
    bool draft = count > 0 && digits[count] == '.' && *process &&
                 process[strspn(process, "0123456789")] == 0;
    return draft ? DRAFT_OLDEST_S : 0;
}

/* Removes files that killed jobs of this user have left. Ages are relative to
 * the file that was just written, because the clock of the file system may
 * differ from that of this host. */
static void
file_sweep(const char *folder, const char *path)
{
    struct stat own, info;
    DIR *entries = stat(path, &own) == 0 ? opendir(folder) : NULL;
    const struct dirent *entry;
    if (!entries)
        return;
    for (int i = 0; i < SWEPT_MAX && (entry = readdir(entries)); i++) {
        int64_t limit_s = oldest_s(entry->d_name);
        if (limit_s == 0 || fstatat(dirfd(entries), entry->d_name, &info,
                                AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        bool ours = S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
                    (info.st_mode & 0077) == 0;
        if (ours && own.st_mtime - info.st_mtime > limit_s)
            unlinkat(dirfd(entries), entry->d_name, 0);
    }
    closedir(entries);
}

static ulyx_status_t
file_publish(const char *folder, const char *path, const ulyx_unique_id_t *id)
{
    char text[FILE_BYTES];
    ULI_TRY(uli_unique_id_to_string(id, text, sizeof(text)));
    if (!publish_unnamed(folder, path, text))
        ULI_TRY(publish_renamed(path, text));
    file_sweep(folder, path);
    return ULYX_SUCCESS;
}

/* ---- all ranks ----------------------------------------------------------- */

/* Reads the id from the file. Returns NULL and the place, or why the file has
 * no id (yet). A file that other users could have written is not read. */
static const char *
read_place(const char *path, struct uli_endpoint *place_p)
{
    char text[FILE_BYTES];
    struct stat info;
    ulyx_unique_id_t id;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? "it is not there" : uli_errno_text(errno);
    ssize_t got = -1;
    const char *why = "it cannot be read";
    if (fstat(fd, &info) == 0) {
        if (!S_ISREG(info.st_mode) || info.st_uid != geteuid() ||
            (info.st_mode & 0077))
            why = "it is not a file of this user with mode 0600";
        else
            do
                got = read(fd, text, sizeof(text) - 1);
            while (got < 0 && errno == EINTR);
    }
    close(fd);
    if (got < 0)
        return why;
    text[got] = 0;
    return uli_unique_id_from_string(text, &id) ||
                   uli_unique_id_decode(&id, place_p)
               ? "it holds no id"
               : NULL;
}

static ulyx_status_t
join_file(const struct uli_env_meeting *env, const char *path,
    struct uli_root *root, struct uli_bootstrap **bootstrap_p)
{
    struct uli_endpoint place;
    struct uli_dial_report report;
    int pause_ms = PAUSE_FIRST_MS;
    for (;;) {
        const char *why = read_place(path, &place);
        if (!why) {
            int fd = uli_dial_once(&place, env->deadline, &report);
            if (fd >= 0)
                return uli_bootstrap_open_star(fd, root, env->launch.nranks,
                    env->launch.rank, env->settings->ports, env->deadline,
                    bootstrap_p);
            why = report.text;
        }
        if (uli_deadline_over(env->deadline))
            return uli_error(ULYX_ERR_TIMEOUT,
                "bootstrap: %s, which rank 0 writes, led to no root before the "
                "deadline; last: %s",
                path, why);
        uli_dial_pause(&pause_ms, env->deadline);
    }
}

ulyx_status_t
uli_bootstrap_open_file(
    const struct uli_env_meeting *env, struct uli_bootstrap **bootstrap_p)
{
    char path[PATH_BYTES];
    ulyx_unique_id_t id;
    struct uli_root *root = NULL;
    ULI_TRY(file_path(env, path));
    if (env->launch.rank != 0)
        return join_file(env, path, NULL, bootstrap_p);
    ULI_TRY(
        uli_unique_id_serve(env->settings, env->deadline, path, &id, &root));
    ulyx_status_t status =
        file_publish(env->settings->rendezvous_dir, path, &id);
    if (!status)
        status = join_file(env, path, root, bootstrap_p);
    if (status)
        uli_root_stop(root, 0);
    return status;
}
