/* SPDX-License-Identifier: Apache-2.0
 *
 * ulyx_dist_attention_measure, which needs no communicator, must give the sizes
 * that an object on a communicator has.
 */
#include <stdio.h>
#include <string.h>
#include "attention/dist_attention/dist_world.h"
#include "support/ranks.h"

static bool
measure_succeeded(ulyx_status_t status, const char *what)
{
    if (status == ULYX_SUCCESS)
        return true;
    fprintf(stderr, "%s: %s: %s\n", what, ulyx_status_name(status),
        ulyx_last_error());
    return false;
}

/* Finds the words "kernel NAME" in the description. */
static bool
kernel_of(const ulyx_dist_attention_t *dist, char name_p[64])
{
    char text[4096];
    if (!measure_succeeded(
            ulyx_dist_attention_describe(dist, text, sizeof(text)), "describe"))
        return false;
    const char *at = strstr(text, "forward: kernel ");
    return ranks_expect(at && sscanf(at, "forward: kernel %63s", name_p) == 1);
}

/* The smallest ceiling of all ranks holds. All ranks have recorded theirs
 * before creation. */
bool
world_measured(const struct world *w, int rank,
    const ulyx_dist_attention_t *dist, ulyx_dist_attention_params_t p)
{
    enum { MOST = 64 };
    ulyx_saved_tensor_t there[MOST], without[MOST];
    int64_t bytes[2], measured_bytes[2], count[2];
    char kernel[64];
    if (!kernel_of(dist, kernel))
        return false;
    if (w->c->place)
        p.memory = ULYX_MEMORY_CUDA;
    else
        p.kernel = kernel;
    for (int32_t n = 0; n < w->c->nranks; n++)
        if (w->ceilings[n] < p.max_workspace_bytes)
            p.max_workspace_bytes = w->ceilings[n];
    bool good =
        measure_succeeded(
            ulyx_dist_attention_get_bytes(dist, &bytes[0], &bytes[1], NULL),
            "get_bytes") &&
        measure_succeeded(ulyx_dist_attention_measure(&p, w->c->nranks, rank,
                              &measured_bytes[0], &measured_bytes[1]),
            "measure") &&
        measure_succeeded(ulyx_dist_attention_get_saved(
                              dist, MOST, sizeof(*there), there, &count[0]),
            "get_saved") &&
        measure_succeeded(ulyx_dist_attention_measure_saved(&p, w->c->nranks,
                              rank, MOST, sizeof(*without), without, &count[1]),
            "measure_saved");
    good = good && ranks_expect(bytes[0] == measured_bytes[0]) &&
           ranks_expect(bytes[1] == measured_bytes[1]) &&
           ranks_expect(count[0] == count[1]);
    for (int64_t i = 0; good && i < count[0]; i++)
        good = ranks_expect(there[i].offset == without[i].offset &&
                            there[i].bytes == without[i].bytes &&
                            there[i].group == without[i].group &&
                            there[i].dtype == without[i].dtype &&
                            !strcmp(there[i].name, without[i].name));
    return good;
}
