/* SPDX-License-Identifier: Apache-2.0
 *
 * The cache is a file of a few lines that others could have written: its
 * content is checked, and ignored where it is wrong; then the copies are
 * measured again. A cache that cannot be read or written is no error: a home
 * may be read-only, full, or shared by hosts, and each host has a file name of
 * its own, with its processor in it.
 */
#include "collectives/exchange/copies.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/log.h"
#include "base/system/cpu.h"
#include "base/system/file.h"
#include "collectives/kernels/copy_measure.h"
#include "collectives/kernels/copy_text.h"
#include "comm/remote/remote.h"
#include "ulyx/version.h"

_Static_assert((int)ULI_COPY_TEXT <= (int)ULI_COPIES_TEXT, "room for a text");

static bool
settings_calibrate(const struct uli_settings *settings)
{
    return !strcmp(settings->calibrate, "on");
}

/* ---- files --------------------------------------------------------------- */

static ulyx_status_t
file_load(const char *path, struct uli_copy_choice *choice_p)
{
    char *text, why[ULI_FILE_WHY], wrong[ULI_COPY_WHY];
    size_t bytes;
    ulyx_status_t status =
        uli_file_read(path, ULI_COPY_TEXT, &text, &bytes, why);
    if (status != ULYX_SUCCESS)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "ULYX_CALIBRATE=\"%.300s\": expected on, off or a file: %s", path,
            why);
    bool good = uli_copy_text_read(text, bytes, false, choice_p, wrong);
    free(text);
    return good ? ULYX_SUCCESS
                : uli_error(ULYX_ERR_INVALID_ARGUMENT,
                      "ULYX_CALIBRATE=\"%.300s\": %s", path, wrong);
}

/* The user's cache directory by the rules of XDG, always an absolute path.
 * False: there is none. */
static bool
cache_path(const struct uli_settings *settings, char path_p[PATH_MAX])
{
    int length = snprintf(path_p, PATH_MAX, "%s/ulyx/copies-%d.%d.%d-%s-%s",
        settings->user_cache, ULYX_VERSION_MAJOR, ULYX_VERSION_MINOR,
        ULYX_VERSION_PATCH, uli_cpu_name(), uli_copy_kernel_name());
    return settings->user_cache[0] && length > 0 && length < PATH_MAX;
}

static bool
cache_load(const char *path, struct uli_copy_choice *choice_p)
{
    char *text, why[ULI_COPY_WHY];
    size_t bytes;
    if (uli_file_read(path, ULI_COPY_TEXT, &text, &bytes, why) != ULYX_SUCCESS)
        return false;
    bool good = uli_copy_text_read(text, bytes, true, choice_p, why);
    if (!good)
        ULI_INFO(ULI_LOG_PLAN, -1, "%s: %s: measured anew", path, why);
    free(text);
    return good;
}

/* Makes the folder and its parent, which a new user lacks. */
static void
cache_folder_make(const char *path)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof(folder), "%s", path);
    *strrchr(folder, '/') = 0;
    char *last = strrchr(folder, '/');
    *last = 0;
    mkdir(folder, 0700);
    *last = '/';
    mkdir(folder, 0700);
}

static void
cache_store(const char *path, const struct uli_copy_choice *choice)
{
    char text[ULI_COPY_TEXT], why[ULI_FILE_WHY];
    size_t bytes = uli_copy_text_write(choice, text);
    cache_folder_make(path);
    if (uli_file_replace(path, text, bytes, why) != ULYX_SUCCESS)
        ULI_INFO(ULI_LOG_PLAN, -1, "%s: %s: not kept", path, why);
}

/* ---- once a process ------------------------------------------------------ */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool known; /* under lock, as are the next two */
static struct uli_copy_choice known_choice;
static char known_origin[ULI_COPIES_ORIGIN];

static void
known_set(const struct uli_copy_choice *choice, const char *origin)
{
    known_choice = *choice;
    snprintf(known_origin, sizeof(known_origin), "%s", origin);
    known = true;
}

/* The choice of the process, else of the cache, else, if `measure`, by
 * measuring this machine. False: there is none. */
static bool
known_find(const struct uli_settings *settings, bool measure,
    struct uli_copy_choice *choice_p, char *origin_p)
{
    char path[PATH_MAX], origin[ULI_COPIES_ORIGIN];
    struct uli_copy_choice choice;
    pthread_mutex_lock(&lock);
    bool has_path = !known && cache_path(settings, path);
    if (has_path && cache_load(path, &choice)) {
        snprintf(origin, sizeof(origin), "measured before: %.500s", path);
        known_set(&choice, origin);
    }
    if (!known && measure) {
        bool whole = uli_copy_measure(&choice);
        known_set(&choice,
            whole ? "measured now" : "measured in part: the machine is busy");
        if (whole && has_path)
            cache_store(path, &choice);
    }
    bool found = known;
    if (found)
        *choice_p = known_choice;
    if (found && origin_p)
        memcpy(origin_p, known_origin, sizeof(known_origin));
    pthread_mutex_unlock(&lock);
    return found;
}

ulyx_status_t
uli_copies_choose(const struct uli_settings *settings,
    struct uli_copy_choice *choice_p, char origin_p[ULI_COPIES_ORIGIN])
{
    if (!strcmp(settings->calibrate, "off")) {
        *choice_p = *uli_copy_defaults();
        snprintf(origin_p, ULI_COPIES_ORIGIN, "the default of %s",
            uli_cpu_is_intel() ? "Intel's processors" : "processors");
        return ULYX_SUCCESS;
    }
    if (!settings_calibrate(settings)) {
        snprintf(origin_p, ULI_COPIES_ORIGIN, "ULYX_CALIBRATE=%.500s",
            settings->calibrate);
        return file_load(settings->calibrate, choice_p);
    }
    known_find(settings, true, choice_p, origin_p);
    return ULYX_SUCCESS;
}

/* ---- once per node ------------------------------------------------------- */

/* The lowest rank of this rank's node whose memory is mapped here; this rank
 * itself where no lower one is. */
static int32_t
first_of_node(const ulyx_comm_t *comm)
{
    for (int32_t p = 0; p < comm->rank; p++)
        if (comm->peers[p].node == comm->peers[comm->rank].node &&
            !uli_comm_is_remote(comm, p))
            return p;
    return comm->rank;
}

/* Publishes the choice in the control block, once, before any rank reads it. */
static void
choice_show(ulyx_comm_t *comm, const struct uli_copy_choice *choice)
{
    char text[ULI_COPY_TEXT];
    size_t bytes = uli_copy_text_write(choice, text);
    memcpy(comm->control->copies, text, bytes);
    atomic_store_explicit(
        &comm->control->copies_bytes, (uint32_t)bytes, memory_order_release);
}

static ulyx_status_t
choice_keep(ulyx_comm_t *comm, const struct uli_copy_choice *choice)
{
    struct uli_copy_choice *kept = malloc(sizeof(*kept));
    if (!kept)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a communicator");
    *kept = *choice;
    atomic_store_explicit(&comm->copies, kept, memory_order_release);
    return ULYX_SUCCESS;
}

static bool
comm_needs_choice(const ulyx_comm_t *comm)
{
    return !atomic_load_explicit(&comm->copies, memory_order_relaxed) &&
           comm->memory_kind == ULYX_MEMORY_HOST;
}

ulyx_status_t
uli_copies_offer(ulyx_comm_t *comm)
{
    struct uli_copy_choice choice;
    char origin[ULI_COPIES_ORIGIN];
    bool first = first_of_node(comm) == comm->rank;
    if (!comm_needs_choice(comm))
        return ULYX_SUCCESS;
    if (!settings_calibrate(&comm->settings)) {
        ULI_TRY(uli_copies_choose(&comm->settings, &choice, origin));
        return choice_keep(comm, &choice);
    }
    if (!known_find(&comm->settings, first, &choice, NULL))
        return ULYX_SUCCESS; /* the first rank of the node offers it */
    if (first)
        choice_show(comm, &choice);
    return choice_keep(comm, &choice);
}

void
uli_copies_take(ulyx_comm_t *comm)
{
    char text[ULI_COPIES_TEXT], why[ULI_COPY_WHY];
    struct uli_copy_choice choice;
    if (!comm_needs_choice(comm))
        return;
    int32_t first = first_of_node(comm);
    const struct uli_control *control = comm->peers[first].control;
    size_t bytes =
        atomic_load_explicit(&control->copies_bytes, memory_order_acquire);
    if (bytes == 0 || bytes > sizeof(text))
        return;
    memcpy(text, control->copies, bytes);
    if (!uli_copy_text_read(text, bytes, true, &choice, why))
        return;
    pthread_mutex_lock(&lock);
    if (!known)
        known_set(&choice, "measured by another rank");
    pthread_mutex_unlock(&lock);
    if (choice_keep(comm, &choice) != ULYX_SUCCESS)
        ULI_INFO(ULI_LOG_PLAN, comm->rank, "%s", uli_error_text());
}

const struct uli_copy_choice *
uli_copies_of(const ulyx_comm_t *comm)
{
    const struct uli_copy_choice *choice =
        atomic_load_explicit(&comm->copies, memory_order_acquire);
    return choice ? choice : uli_copy_defaults();
}
