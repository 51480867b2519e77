/* SPDX-License-Identifier: Apache-2.0
 *
 * Teams, in a process-wide list under one lock; control path only.
 */
#include "comm/team.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/list.h"
#include "base/log.h"
#include "base/status.h"

/* Host memory or device memory; the unused member has no address. */
struct retired {
    struct uli_segment segment;
    struct uli_share_memory memory;
};

struct uli_team {
    struct uli_list node;
    unsigned char id[16];
    int32_t ranks;
    int32_t reserved, retired;
    struct retired *retired_list; /* [reserved] */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct uli_list teams = {&teams, &teams};

static struct uli_team *
team_find(const unsigned char id[16])
{
    for (struct uli_list *n = teams.next; n != &teams; n = n->next) {
        struct uli_team *team = ULI_CONTAINER_OF(n, struct uli_team, node);

        if (memcmp(team->id, id, sizeof(team->id)) == 0)
            return team;
    }
    return NULL;
}

/* Under lock. False: no memory; the team is unchanged. */
static bool
team_reserve(struct uli_team *team)
{
    struct retired *retired_list = realloc(team->retired_list,
        (size_t)(team->reserved + 1) * sizeof(*retired_list));

    if (!retired_list)
        return false;
    team->retired_list = retired_list;
    team->reserved++;
    return true;
}

/* Under lock. NULL: no memory; nothing is kept. */
static struct uli_team *
team_join(const unsigned char id[16])
{
    struct uli_team *team = team_find(id);
    bool is_new = team == NULL;

    if (is_new && !(team = calloc(1, sizeof(*team))))
        return NULL;
    if (!team_reserve(team)) {
        if (is_new)
            free(team);
        return NULL;
    }
    if (is_new) {
        memcpy(team->id, id, sizeof(team->id));
        uli_list_append(&teams, &team->node);
    }
    team->ranks++;
    return team;
}

ulyx_status_t
uli_team_join(const unsigned char id[16], struct uli_team **team_p)
{
    struct uli_team *team;

    pthread_mutex_lock(&lock);
    team = team_join(id);
    pthread_mutex_unlock(&lock);
    if (!team)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a team of ranks");
    *team_p = team;
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_team_reserve(struct uli_team *team)
{
    bool done;

    pthread_mutex_lock(&lock);
    done = team_reserve(team);
    pthread_mutex_unlock(&lock);
    if (!done)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a segment record");
    return ULYX_SUCCESS;
}

void
uli_team_unreserve(struct uli_team *team)
{
    pthread_mutex_lock(&lock);
    team->reserved--;
    pthread_mutex_unlock(&lock);
}

static void
team_retire(struct uli_team *team, const struct retired *retired)
{
    pthread_mutex_lock(&lock);
    team->retired_list[team->retired++] = *retired;
    pthread_mutex_unlock(&lock);
}

void
uli_team_retire(struct uli_team *team, const struct uli_segment *segment)
{
    struct retired retired = {.segment = *segment};

    team_retire(team, &retired);
}

void
uli_team_retire_device(
    struct uli_team *team, const struct uli_share_memory *memory)
{
    struct retired retired = {.segment = {-1, NULL, 0}, .memory = *memory};

    team_retire(team, &retired);
}

static void
destroy_retired(struct retired *retired)
{
    if (!retired->memory.address)
        uli_segment_destroy(&retired->segment);
    else if (uli_share_free(&retired->memory) != ULYX_SUCCESS)
        ULI_WARN(ULI_LOG_MEM, -1, "device arena: %s", uli_error_text());
}

void
uli_team_leave(struct uli_team *team)
{
    bool last;

    if (!team)
        return;
    pthread_mutex_lock(&lock);
    last = --team->ranks == 0;
    if (last)
        uli_list_remove(&team->node);
    pthread_mutex_unlock(&lock);
    if (!last)
        return;
    for (int32_t i = 0; i < team->retired; i++)
        destroy_retired(&team->retired_list[i]);
    free(team->retired_list);
    free(team);
}
