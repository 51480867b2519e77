/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers of the hierarchical schedule that the model and plans share. A stream
 * is what goes from a node to a rank of another node. A stream is sent in
 * chunks of uli_hier_chunk_bytes; plans use the same function.
 */
#ifndef ULI_TOPOLOGY_MODEL_SCHEDULE_HIER_H
#define ULI_TOPOLOGY_MODEL_SCHEDULE_HIER_H

#include "topology/model/schedule.h"

enum {
    ULI_HIER_CHUNKS = 4, /* K, the chunks of a stream in flight */
    /* The most ranks of a node with which hier works: their records must fit
     * one put, which is copied at once. */
    ULI_HIER_NODE_RANKS = 64,
};

/* The mean bytes of a stream of a hier schedule; 0 on one node. */
double uli_hier_stream_bytes(
    const struct uli_demand *demand, const struct uli_schedule *schedule);
/* The bytes of a chunk, if a stream is to be cut into `parts` chunks. A chunk
 * is not so short that the cost of a message dominates, and it respects the
 * limits of the bytes in flight to one rank, and from one rank to all. */
int64_t uli_hier_chunk_bytes(const struct uli_demand *demand,
    const struct uli_chunk_limits *limits, double stream_bytes, int32_t parts);

#endif
