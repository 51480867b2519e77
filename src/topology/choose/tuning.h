/* SPDX-License-Identifier: Apache-2.0
 *
 * Tuning files: one text file that a site keeps under version control, with
 * measured link parameters and rules that name a schedule for a range of
 * shapes.
 *
 *     ulyx tuning 1                               # form and version, first
 *     link nic latency=4.1us send=0.35us receive=0.4us gap=0 \
 *              4K=90ps/B 64K=21.7ps/B source=measured   (on one line)
 *     host launch=2us handoff=6us
 *     fabric taper=1 efficiency=0.7 unit_nodes=32 nics=8
 *     rule nodes=2-32 ranks_per_node=8 bytes=0-16K -> hier chunks=1
 *
 * Links are those of model.h; values that a line does not give stay as they
 * are. A spine without a line is like the nic, because all traffic of the spine
 * passes a NIC. `nics` is the number of NICs of a node, which its ranks share;
 * without `nics` each rank has a NIC. Times are in s, ms, us or ns, rates in
 * ps/B or ns/B, numbers take K, M, G (binary). A rule's bytes are those of one
 * message between two ranks. The first rule that fits decides, unless ULYX_ALGO
 * is set; without such a rule the model decides.
 */
#ifndef ULI_TOPOLOGY_CHOOSE_TUNING_H
#define ULI_TOPOLOGY_CHOOSE_TUNING_H

#include "topology/model/schedule.h"

enum { ULI_TUNING_RULES = 64 };

struct uli_range {
    int64_t low, high; /* both included */
};

struct uli_tuning_rule {
    struct uli_range nodes, ranks_per_node, bytes;
    enum uli_algo algo;
    int32_t chunks; /* 0: the model chooses */
    int32_t line;
};

struct uli_tuning {
    struct uli_tuning_rule rules[ULI_TUNING_RULES];
    int32_t nrules;
};

/* Called for each error: the line, from 1, and the error. An unknown key is an
 * error too: if it were ignored, a rule would apply to more cases than
 * intended, and a link would keep its assumed parameters. */
typedef void (*uli_tuning_report)(
    void *context, int32_t line, const char *text);

/* Reads the whole file, and calls report (may be NULL) for each error.
 * Errors: SYSTEM (cannot be read), INVALID_ARGUMENT with the first error's
 * line; then *model and *tuning_p are untouched. */
ulyx_status_t uli_tuning_read(const char *path, struct uli_model *model,
    struct uli_tuning *tuning_p, uli_tuning_report report, void *context);

#endif
