/* SPDX-License-Identifier: Apache-2.0
 *
 * The transports, best first, and the choice among them. ULYX_TRANSPORTS
 * lists those to use ("shm,ucx"), or after ^ those not to use; self is only
 * left out by name, since a list of networks does not mean to forbid threads.
 */
#include <stdio.h>
#include <string.h>
#include "transport/transport.h"

static const struct uli_tr_ops *const transports[] = {
    &uli_tr_self_ops,
    &uli_tr_nvlink_ops,
    &uli_tr_shm_ops,
    &uli_tr_ucx_ops,
    &uli_tr_nccl_ops,
};

const struct uli_tr_ops *const *
uli_tr_list(size_t *count_p)
{
    *count_p = sizeof(transports) / sizeof(transports[0]);
    return transports;
}

static bool
is_listed(const char *list, const char *name)
{
    size_t length = strlen(name);
    while (*list) {
        list += strspn(list, ", ");
        size_t word = strcspn(list, ", ");
        if (word == length && strncmp(list, name, word) == 0)
            return true;
        list += word;
    }
    return false;
}

bool
uli_tr_allowed(const struct uli_settings *settings, const char *name)
{
    const char *list = settings->transports;
    if (*list == '^')
        return !is_listed(list + 1, name);
    return !*list || strcmp(name, uli_tr_self_ops.name) == 0 ||
           is_listed(list, name);
}

static bool
fits(const struct uli_tr_ops *ops, const struct uli_settings *settings,
    const struct uli_identity *me, const struct uli_identity *peer,
    uint64_t caps, char *why_p, size_t why_bytes)
{
    if (!uli_tr_allowed(settings, ops->name)) {
        snprintf(why_p, why_bytes, "ULYX_TRANSPORTS=%.40s leaves it out",
            settings->transports);
        return false;
    }
    if ((ops->caps & caps) != caps)
        return false;
    return ops->reaches(me, peer, why_p, why_bytes) &&
           ops->usable(settings, why_p, why_bytes);
}

const struct uli_tr_ops *
uli_tr_select(const struct uli_settings *settings,
    const struct uli_identity *me, const struct uli_identity *peer,
    uint64_t caps, char *why_p, size_t why_bytes)
{
    size_t count, used = 0;
    const struct uli_tr_ops *const *list = uli_tr_list(&count);
    if (why_bytes)
        why_p[0] = 0;
    for (size_t i = 0; i < count; i++) {
        char why[256] = {0};
        if (fits(list[i], settings, me, peer, caps, why, sizeof(why)))
            return list[i];
        if (why[0] && used < why_bytes)
            used += (size_t)snprintf(why_p + used, why_bytes - used, "%s%s: %s",
                used ? "; " : "", list[i]->name, why);
    }
    if (used == 0 && why_bytes)
        snprintf(why_p, why_bytes, "every transport lacks the capability");
    return NULL;
}
