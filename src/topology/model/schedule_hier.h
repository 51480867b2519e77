/* SPDX-License-Identifier: Apache-2.0
 *
 * The hierarchical schedule's numbers, which the model and plans share. A
 * stream is what passes between a node and a rank of another node. A stream
 * goes in chunks of uli_hier_chunk_bytes; plans use the same function.
 */
#ifndef ULI_TOPOLOGY_MODEL_SCHEDULE_HIER_H
#define ULI_TOPOLOGY_MODEL_SCHEDULE_HIER_H

#include "topology/model/schedule.h"

enum {
    ULI_HIER_CHUNKS = 4, /* places of a stream, K: chunks under way */
    /* The most ranks of a node that hier takes: their records travel in one
     * put that is copied at once. */
    ULI_HIER_NODE_RANKS = 64,
};

/* Mean bytes of a stream of a schedule of hier; 0 on one node. */
double uli_hier_stream_bytes(
    const struct uli_demand *demand, const struct uli_schedule *schedule);
/* Bytes of a chunk where such a stream is to be cut into `parts`: not below
 * what a message costs, and within what may be under way to a rank and from one
 * to all. */
int64_t uli_hier_chunk_bytes(const struct uli_demand *demand,
    const struct uli_chunk_limits *limits, double stream_bytes, int32_t parts);

#endif
