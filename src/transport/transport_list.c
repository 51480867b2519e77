/* SPDX-License-Identifier: Apache-2.0
 *
 * The transports, best first, and the choice among them. ULYX_TRANSPORTS lists
 * the transports to use ("shm,ucx"), or after ^ those not to use. self is left
 * out only where it is named after ^, since a list of other transports is not
 * meant to forbid several ranks in one process.
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
    &uli_tr_staged_ops,
};
enum { TRANSPORTS = sizeof(transports) / sizeof(transports[0]) };

const struct uli_tr_ops *const *
uli_tr_list(size_t *count_p)
{
    *count_p = TRANSPORTS;
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

static bool
is_allowed(const struct uli_tr_ops *transport,
    const struct uli_settings *settings, char *why_p, size_t why_bytes)
{
    const char *list = settings->transports;
    bool allowed = *list == '^' ? !is_listed(list + 1, transport->name)
                                : !*list || transport == &uli_tr_self_ops ||
                                      is_listed(list, transport->name);
    if (!allowed)
        snprintf(why_p, why_bytes, "ULYX_TRANSPORTS=%.99s leaves it out", list);
    return allowed;
}

bool
uli_tr_usable(const struct uli_tr_ops *transport,
    const struct uli_settings *settings, char *why_p, size_t why_bytes)
{
    return is_allowed(transport, settings, why_p, why_bytes) &&
           transport->usable(settings, why_p, why_bytes);
}

void
uli_tr_permit_reads(const struct uli_settings *settings)
{
    char why[256];
    for (size_t i = 0; i < TRANSPORTS; i++)
        if (is_allowed(transports[i], settings, why, sizeof(why)))
            transports[i]->read_permit(settings);
}

const struct uli_tr_ops *
uli_tr_select(const struct uli_settings *settings,
    const struct uli_identity *me, const struct uli_identity *peer,
    uint64_t caps, char *why_p, size_t why_bytes)
{
    size_t used = 0;
    if (why_bytes)
        why_p[0] = 0;
    for (size_t i = 0; i < TRANSPORTS; i++) {
        const struct uli_tr_ops *transport = transports[i];
        char why[256] = {0};
        if ((transport->caps & caps) != caps)
            continue;
        if (is_allowed(transport, settings, why, sizeof(why)) &&
            transport->reaches(me, peer, why, sizeof(why)) &&
            transport->usable(settings, why, sizeof(why)))
            return transport;
        if (used < why_bytes)
            used += (size_t)snprintf(why_p + used, why_bytes - used, "%s%s: %s",
                used ? "; " : "", transport->name, why);
    }
    if (used == 0 && why_bytes)
        snprintf(why_p, why_bytes, "every transport lacks the capability");
    return NULL;
}
