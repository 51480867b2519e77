/* SPDX-License-Identifier: Apache-2.0
 *
 * Dumps, as ulyx_info report reads them: values that are accepted must be
 * valid, and a report must be made from them.
 */
#include "tools/info_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fuzz/fuzz.h"
#include "tools/info.h"

static bool
text_prints(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == 0)
            return true;
        if (text[i] < ' ' || text[i] > '~')
            return false;
    }
    return false;
}

static bool
progress_is_good(const struct uli_recorder_progress *progress, int32_t nranks)
{
    bool good = progress->npeers >= 0 &&
                progress->npeers <= ULI_RECORDED_PEERS &&
                progress->missing >= 0 && progress->missing <= nranks;
    for (int i = 0; good && i < progress->npeers; i++)
        good = progress->peers[i].rank >= 0 &&
               progress->peers[i].rank < nranks &&
               progress->peers[i].stage >= 0 &&
               progress->peers[i].stage < ULI_STAGES;
    return good;
}

static void
rank_check(const struct info_rank *rank)
{
    const struct uli_recorder_copy *copy = &rank->copy;
    bool good = copy->nranks > 0 && copy->rank >= 0 &&
                copy->rank < copy->nranks && copy->ncalls >= 0 &&
                copy->ncalls <= ULI_RECORDED_CALLS &&
                text_prints(copy->name, sizeof(copy->name)) &&
                text_prints(copy->host, sizeof(copy->host)) &&
                text_prints(rank->failure, sizeof(rank->failure)) &&
                progress_is_good(&copy->progress, copy->nranks);
    for (int32_t i = 0; good && i < copy->ncalls; i++)
        good = copy->calls[i].awaited >= -1 &&
               copy->calls[i].awaited < copy->nranks;
    if (!good)
        abort();
}

static bool
file_read(const char *path)
{
    struct info_ranks ranks = {0};
    struct info_mentions mentions = {0};
    char why[INFO_REPORT_WHY];
    bool taken = info_report_read(path, &ranks, &mentions, why) == 0;
    if (!taken && (ranks.count > 0 || mentions.count > 0 || !why[0] ||
                      !text_prints(why, sizeof(why))))
        abort();
    for (int i = 0; i < ranks.count; i++)
        rank_check(&ranks.at[i]);
    for (size_t i = 0; i < mentions.count; i++)
        if (mentions.at[i].rank < 0 ||
            mentions.at[i].rank >= mentions.at[i].nranks)
            abort();
    free(mentions.at);
    info_ranks_release(&ranks);
    return taken;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static bool silent;
    char *path = (char *)(uintptr_t)fuzz_file(data, bytes);
    char *words[] = {path, NULL}, *json[] = {"--json", path, NULL};
    if (!silent)
        silent = freopen("/dev/null", "w", stdout) != NULL;
    if (file_read(path) && (info_report(1, words) || info_report(2, json)))
        abort();
    return 0;
}
