/* SPDX-License-Identifier: Apache-2.0
 *
 * ulyx_info report: the ranks of dumps (comm/record/dump_text.c).
 */
#ifndef TOOLS_INFO_REPORT_H
#define TOOLS_INFO_REPORT_H

#include <jansson.h>
#include "info_found.h"

enum { INFO_REPORT_WHY = 256 };

/* A rank that a dump mentions, which may have left no dump itself. */
struct info_mention {
    unsigned char id[16];
    int32_t nranks, rank;
    int32_t pid; /* 0: not known; an empty host is not known either */
    char name[ULI_RECORDER_TEXT], host[ULI_RECORDER_TEXT];
};
struct info_mentions {
    struct info_mention *at;
    size_t count, capacity;
};

/* Adds the ranks of a dump, and the ranks that the dump mentions. The content
 * of the file is used only after it has been checked: kinds, ranges, lengths.
 * returns 0; -1: the file is refused, with the reason in why_p; 1: no memory,
 * which has been reported. */
int info_report_read(const char *path, struct info_ranks *ranks,
    struct info_mentions *mentions, char why_p[INFO_REPORT_WHY]);

/* One communicator of the JSON: {"name", "id", "nranks", "dumps", "culprits":
 * [{"rank", "host", "pid", "does"}], "circles": [[rank, ...]], "calls":
 * [{"call", "plan", "fingerprint", "number", "inside", "count", "ranks"}],
 * "ranks": [{"rank", "host", "pid", "dump", "does", "waits_for", "failure",
 * "progress": {"stage", "missing", "peers": [{"rank", "stage", "sent_chunks",
 * "received_chunks"}]}}]}. NULL: no memory. */
json_t *info_report_pack(struct info_found *found);

#endif
