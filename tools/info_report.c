/* SPDX-License-Identifier: Apache-2.0
 *
 * ulyx_info report: the dumps of many processes and hosts in one report. A file
 * that is refused is named, and the other files are still reported.
 */
#include "info_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "info.h"
#include "info_options.h"

struct report {
    struct info_ranks ranks;
    struct info_mentions mentions;
    json_t *refused; /* [{"file", "why"}] */
    bool json;
};

static void
report_refuse(struct report *report, const char *path, const char *why)
{
    if (report->json)
        json_array_append_new(
            report->refused, json_pack("{s:o, s:s}", "file",
                                 json_string_nocheck(path), "why", why));
    fprintf(stderr, "ulyx_info: report: %s: %s\n", path, why);
}

/* returns the number of refused files; -1: no memory. */
static int
report_read(struct report *report, const struct info_list *files)
{
    int refused = 0;

    for (int i = 0; i < files->count; i++) {
        char why[INFO_REPORT_WHY];
        int code = info_report_read(
            files->at[i], &report->ranks, &report->mentions, why);

        if (code > 0)
            return -1;
        if (code == 0)
            continue;
        refused++;
        report_refuse(report, files->at[i], why);
    }
    return refused;
}

/* ---- ranks without a dump ------------------------------------------------ */

/* Sorts by communicator, then rank; of one rank, mentions with a host come
 * first. */
static int
mention_compare(const void *left, const void *right)
{
    const struct info_mention *a = left, *b = right;
    int order = memcmp(a->id, b->id, sizeof(a->id));

    if (order == 0)
        order = (a->nranks > b->nranks) - (a->nranks < b->nranks);
    if (order == 0)
        order = (a->rank > b->rank) - (a->rank < b->rank);
    return order != 0 ? order : (a->host[0] == 0) - (b->host[0] == 0);
}

static bool
mentions_same(const struct info_mention *a, const struct info_mention *b)
{
    return a->rank == b->rank && a->nranks == b->nranks &&
           memcmp(a->id, b->id, sizeof(a->id)) == 0;
}

/* returns < 0, 0, > 0: the rank comes before the mention, is the mentioned
 * rank, comes after the mention. */
static int
rank_against(const struct info_rank *rank, const struct info_mention *mention)
{
    struct info_mention own = {
        .nranks = rank->copy.nranks, .rank = rank->copy.rank};

    memcpy(own.id, rank->copy.id, sizeof(own.id));
    memcpy(own.host, mention->host, sizeof(own.host));
    return mention_compare(&own, mention);
}

static int
ranks_add_absent(struct info_ranks *ranks, const struct info_mention *mention)
{
    struct info_rank rank = {.absent = true,
        .next = -1,
        .state = '?',
        .pid = mention->pid,
        .copy = {.rank = mention->rank, .nranks = mention->nranks}};

    memcpy(rank.copy.id, mention->id, sizeof(rank.copy.id));
    memcpy(rank.copy.name, mention->name, sizeof(rank.copy.name));
    memcpy(rank.copy.host, mention->host, sizeof(rank.copy.host));
    return info_ranks_add(ranks, &rank);
}

/* Adds the mentioned ranks that have left no dump, in one walk over two sorted
 * lists.
 * returns 0, or 1 after a message. */
static int
report_add_absent(struct report *report)
{
    const struct info_mentions *mentions = &report->mentions;
    int known = report->ranks.count, at = 0;

    if (mentions->count > 0)
        qsort(mentions->at, mentions->count, sizeof(*mentions->at),
            mention_compare);
    for (size_t i = 0; i < mentions->count; i++) {
        const struct info_mention *mention = &mentions->at[i];

        if (i > 0 && mentions_same(mention, mention - 1))
            continue;
        while (at < known && rank_against(&report->ranks.at[at], mention) < 0)
            at++;
        if (at < known && rank_against(&report->ranks.at[at], mention) == 0)
            continue;
        if (ranks_add_absent(&report->ranks, mention) != 0)
            return 1;
    }
    info_ranks_sort(&report->ranks);
    return 0;
}

/* ---- the command --------------------------------------------------------- */

static int
report_show(struct report *report)
{
    json_t *comms = json_array();

    for (int first = 0; first < report->ranks.count;) {
        struct info_found found;

        first = info_found_take(&report->ranks, first, &found);
        found.dumps = true;
        if (report->json)
            json_array_append_new(comms, info_report_pack(&found));
        else
            info_found_print(&found);
    }
    if (!report->json) {
        json_decref(comms);
        return 0;
    }
    return info_write_json(json_pack(
        "{s:o, s:O}", "communicators", comms, "refused", report->refused));
}

static int
report_run(struct report *report, const struct info_list *files)
{
    int refused = report_read(report, files), code;

    if (refused < 0)
        return 1;
    info_ranks_sort(&report->ranks);
    if (report_add_absent(report) != 0)
        return 1;
    code = report_show(report);
    if (!report->json && report->ranks.count == 0 && refused == 0)
        printf("no communicator is in these dumps\n");
    return refused > 0 ? 1 : code;
}

int
info_report(int argc, char **argv)
{
    struct report report = {0};
    struct info_list files = {0};
    const struct info_option options[] = {
        {"FILE", INFO_LIST, &files, 0, 0, "dumps, which ULYX_DUMP_FILE names"},
        {"--json", INFO_FLAG, &report.json, 0, 0, "one JSON object"}};
    const struct info_command command = {"report",
        "Puts the dumps of many processes and hosts into one report: which\n"
        "rank holds the others up, which ranks wait for which, and which are\n"
        "in another call than the rest. Of two dumps of one rank, the newer\n"
        "one counts. A file that cannot be used is named, and the exit code\n"
        "is then 1; the other files are still reported.\n",
        options, sizeof(options) / sizeof(options[0])};
    int code = info_options_read(&command, argc, argv);

    if (code >= 0)
        return code;
    report.refused = json_array();
    code = report_run(&report, &files);
    json_decref(report.refused);
    free(report.mentions.at);
    info_ranks_release(&report.ranks);
    return code;
}
