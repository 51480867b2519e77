/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding the ranks of this host. A rank's control segment is a memfd that its
 * process keeps open, so the same user can open the segment again at
 * /proc/PID/fd. Only memory files that are sealed are mapped, because these
 * cannot shrink during the read; nothing is written.
 *
 * A communicator whose ranks are all threads of one process has its control
 * segments in anonymous memory; such ranks are not found.
 */
#include "info_ranks.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/system/clock.h"

static char
process_state(pid_t pid)
{
    char path[64], text[256] = "";
    FILE *file;
    const char *end;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (!file)
        return '?';
    if (!fgets(text, sizeof(text), file))
        text[0] = 0;
    fclose(file);
    end = strrchr(text, ')'); /* the last one: the name may contain others */
    return end && end[1] == ' ' && end[2] != 0 ? end[2] : '?';
}

int
info_ranks_add(struct info_ranks *ranks, const struct info_rank *rank)
{
    if (ranks->count == ranks->capacity) {
        int capacity = ranks->capacity > 0 ? 2 * ranks->capacity : 64;
        struct info_rank *at =
            realloc(ranks->at, (size_t)capacity * sizeof(*at));

        if (!at) {
            fprintf(stderr, "ulyx_info: no memory for %d ranks\n", capacity);
            return 1;
        }
        ranks->at = at;
        ranks->capacity = capacity;
    }
    ranks->at[ranks->count++] = *rank;
    return 0;
}

/* A segment that is open in two processes counts once, as the segment of its
 * owner. */
static int
ranks_add_segment(struct info_ranks *ranks, const struct info_rank *rank)
{
    for (int i = 0; i < ranks->count; i++) {
        struct info_rank *other = &ranks->at[i];

        if (other->device != rank->device || other->file != rank->file)
            continue;
        if (rank->pid == rank->copy.pid)
            *other = *rank;
        return 0;
    }
    return info_ranks_add(ranks, rank);
}

static int
segment_read(struct info_ranks *ranks, pid_t pid, int fd)
{
    struct info_rank rank = {.pid = pid, .next = -1};
    const size_t bytes = sizeof(struct uli_recorder);
    int seals = fcntl(fd, F_GET_SEALS), code = 0;
    struct stat about;
    void *memory;

    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &about) != 0 ||
        about.st_size < (off_t)bytes)
        return 0;
    memory = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return 0;
    rank.device = about.st_dev;
    rank.file = about.st_ino;
    if (uli_recorder_read(memory, (int64_t)bytes, &rank.copy)) {
        rank.state = process_state(pid);
        rank.now_ns = uli_clock_ns();
        code = ranks_add_segment(ranks, &rank);
    }
    munmap(memory, bytes);
    return code;
}

/* The links in /proc/PID/fd are read before a file is opened, so that only
 * memory files of the library are opened. */
static int
process_read(struct info_ranks *ranks, pid_t pid)
{
    static const char name[] = "/memfd:ulyx ";
    char path[64], link[sizeof(name)];
    int code = 0;
    DIR *folder;
    struct dirent *entry;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    folder = opendir(path);
    if (!folder) /* of another user, or gone */
        return 0;
    while (code == 0 && (entry = readdir(folder))) {
        ssize_t length =
            readlinkat(dirfd(folder), entry->d_name, link, sizeof(link) - 1);
        int fd;

        if (length != (ssize_t)sizeof(name) - 1 ||
            memcmp(link, name, sizeof(name) - 1) != 0)
            continue;
        fd = openat(dirfd(folder), entry->d_name,
            O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if (fd < 0)
            continue;
        code = segment_read(ranks, pid, fd);
        close(fd);
    }
    closedir(folder);
    return code;
}

/* Sorts by communicator, then rank. Of several entries of one rank, the rank's
 * own record comes before entries that other ranks' dumps gave, and a newer
 * entry before an older one. */
static int
rank_compare(const void *left, const void *right)
{
    const struct info_rank *a = left, *b = right;
    int order = memcmp(a->copy.id, b->copy.id, sizeof(a->copy.id));

    if (order == 0)
        order = (a->copy.nranks > b->copy.nranks) -
                (a->copy.nranks < b->copy.nranks);
    if (order == 0)
        order = (a->copy.rank > b->copy.rank) - (a->copy.rank < b->copy.rank);
    if (order == 0)
        order = (int)a->absent - (int)b->absent;
    return order != 0 ? order
                      : (a->now_ns < b->now_ns) - (a->now_ns > b->now_ns);
}

void
info_ranks_sort(struct info_ranks *ranks)
{
    if (ranks->count > 0)
        qsort(
            ranks->at, (size_t)ranks->count, sizeof(*ranks->at), rank_compare);
}

int
info_ranks_find(struct info_ranks *ranks_p)
{
    struct info_ranks ranks = {0};
    DIR *folder = opendir("/proc");
    struct dirent *entry;
    int code = 0;

    if (!folder) {
        fprintf(stderr, "ulyx_info: ranks: /proc cannot be read\n");
        return 1;
    }
    while (code == 0 && (entry = readdir(folder))) {
        char *end;
        long pid = strtol(entry->d_name, &end, 10);

        if (pid > 0 && pid <= INT32_MAX && *end == 0)
            code = process_read(&ranks, (pid_t)pid);
    }
    closedir(folder);
    if (code != 0) {
        info_ranks_release(&ranks);
        return code;
    }
    info_ranks_sort(&ranks);
    *ranks_p = ranks;
    return 0;
}

void
info_ranks_release(struct info_ranks *ranks)
{
    free(ranks->at);
    *ranks = (struct info_ranks){0};
}
