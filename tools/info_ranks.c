/* SPDX-License-Identifier: Apache-2.0
 *
 * ulyx_info ranks: what the ranks of this host do, and which hold the others
 * up.
 */
#include "info_ranks.h"

#include <stdio.h>
#include <string.h>
#include "info.h"
#include "info_found.h"
#include "info_options.h"

static bool
found_is_selected(const struct info_found *found, int64_t pid, const char *name)
{
    bool has_pid = pid == 0;

    for (int i = 0; i < found->count; i++)
        has_pid |= found->ranks[i].pid == pid;
    return has_pid && (!name || strcmp(name, found->ranks[0].copy.name) == 0);
}

int
info_ranks(int argc, char **argv)
{
    int64_t pid = 0;
    const char *name = NULL;
    const struct info_option options[] = {
        {"--pid", INFO_NUMBER, &pid, 1, INT32_MAX,
            "communicators of this process only"},
        {"--name", INFO_TEXT, &name, 0, 0, "communicators of this name only",
            "NAME"}};
    const struct info_command command = {"ranks",
        "Reads the flight recorders of the ranks that run on this host: what\n"
        "each rank does, which ranks it waits for, and which rank holds the\n"
        "others up. Finds only processes of the same user, and no "
        "communicator\n"
        "whose ranks are all threads of one process.\n",
        options, sizeof(options) / sizeof(options[0])};
    struct info_ranks ranks;
    int code = info_options_read(&command, argc, argv), shown = 0;

    if (code >= 0)
        return code;
    code = info_ranks_find(&ranks);
    if (code != 0)
        return code;
    for (int first = 0; first < ranks.count;) {
        struct info_found found;

        first = info_found_take(&ranks, first, &found);
        if (!found_is_selected(&found, pid, name))
            continue;
        info_found_print(&found);
        shown++;
    }
    info_ranks_release(&ranks);
    if (shown > 0)
        return 0;
    fprintf(stderr, "ulyx_info: ranks: no such rank runs here\n");
    return 1;
}
