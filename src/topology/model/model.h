/* SPDX-License-Identifier: Apache-2.0
 *
 * Predicts what an exchange costs: link parameters, each with its source, and
 * the evaluation of a schedule's phases with them.
 *
 * A phase is a set of flows that run at the same time. A flow is what the most
 * loaded rank sends or receives over one class of link: k messages with B bytes
 * in all. With o the overhead of a send and G(b) the seconds per byte for a
 * message of b bytes:
 *
 *     occupancy = ((k max(o, gap))^3 + (kappa B G(B / k))^3)^(1/3)
 *     time      = L + occupancy + o_receive
 *
 * A flow may be limited to w of its k messages in flight. It then waits for a
 * latency after every w messages, unless their occupancy is longer than the
 * latency. Also, its link is idle while the w peers to which it sends are busy
 * with other ranks: the factor `idle` prolongs the bytes in the occupancy. With
 * c the occupancy of a message without `idle`:
 *
 *     waits     = (k / w (L + c) + w c) (1 - min(1, w c / (L + c))^6)
 *     time      = sqrt((L + occupancy)^2 + waits^2) + o_receive
 *
 * The work per message and the transfer of bytes run in parallel, so the larger
 * of the two times is a lower bound, and their sum an upper bound. The root of
 * the cubes lies between these bounds, and is near the larger time if one of
 * the two dominates. If both are about equal, messages arrive unevenly, and the
 * larger time alone is up to 29 % shorter than what simulations of the same
 * schedules give (tests/topology/model_test.c, perf/simulate). A phase ends
 * with its slowest flow.
 *
 * With C chunks the phases form a pipeline: it takes one chunk through every
 * phase, and then the remaining chunks of the slowest phase. A measured time of
 * a message includes costs that occur once (a handshake, a wake-up, the first
 * fill of buffers) and do not occur again for messages that follow on the same
 * link. So the time of C chunks is that of one message with all bytes, plus the
 * overheads of C messages; or C times the time of one chunk, if that is less
 * because long messages are slower per byte:
 *
 *     stream    = min(C occupancy(B / C),
 *                     C ((k max(o, gap))^3 + (kappa B/C G(B/k))^3)^(1/3))
 *     time      = sum over phases of the time of a chunk
 *                 + max over phases of (stream - occupancy(B / C))
 *
 * On a link with one rate for all sizes the two are equal.
 */
#ifndef ULI_TOPOLOGY_MODEL_MODEL_H
#define ULI_TOPOLOGY_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

enum uli_model_class {
    ULI_MODEL_NEAR,   /* shared memory of one NUMA node */
    ULI_MODEL_FAR,    /* shared memory across NUMA nodes */
    ULI_MODEL_NVLINK, /* stores to a peer GPU */
    ULI_MODEL_PCIE,   /* stores to a peer GPU without NVLink */
    ULI_MODEL_NIC,    /* to another node below the same leaf switch */
    ULI_MODEL_SPINE,  /* to another node through the spine */
    ULI_MODEL_CLASSES
};

enum uli_model_source {
    ULI_SOURCE_ASSUMED,  /* typical of the hardware class, measured nowhere */
    ULI_SOURCE_TOPOLOGY, /* from the machine's description */
    ULI_SOURCE_FILE,     /* from a tuning file that does not name its source */
    ULI_SOURCE_MEASURED, /* from a tuning file, as measured */
    ULI_SOURCES
};

enum { ULI_MODEL_POINTS = 8 };

struct uli_model_link {
    double latency_s, send_s, receive_s, gap_s;
    /* Seconds per byte for messages of this many bytes, sizes growing; between
     * two points the time of a message is linear in its bytes; below the first
     * and above the last point the rate is that of the point. There is at least
     * one point. */
    int32_t npoints;
    double bytes[ULI_MODEL_POINTS], s_per_byte[ULI_MODEL_POINTS];
    enum uli_model_source source;
};

struct uli_model {
    struct uli_model_link links[ULI_MODEL_CLASSES];
    double launch_s;    /* start of a call */
    double handoff_s;   /* between the caller's stream and the thread that sends
                         * to other nodes; once per call, if there are other
                         * nodes */
    double taper;       /* bandwidth of a leaf switch to its hosts, divided by
                         * that to the spine */
    double efficiency;  /* fraction of the spine's bandwidth that routing can
                         * use */
    int64_t unit_nodes; /* nodes below one set of leaf switches */
    int64_t peers;      /* ranks of other nodes that pairwise sends to at one
                         * time (ULYX_NET_PEERS); 0: all */
    double nics;        /* NICs of a node, shared evenly by its ranks; 0: each
                         * rank has a NIC */
    enum uli_model_source host_source, fabric_source;
};

struct uli_flow {
    enum uli_model_class class;
    double messages, bytes;
    double congestion; /* kappa, at least 1 */
    double window;     /* w, messages in flight at one time; 0: all */
    double idle;       /* factor by which idle time prolongs the bytes; 0:
                        * none */
};

enum { ULI_PHASE_FLOWS = 4, ULI_SCHEDULE_PHASES = 3 };

struct uli_phase {
    const char *name;
    struct uli_flow flows[ULI_PHASE_FLOWS];
    int32_t nflows;
};

struct uli_schedule {
    const char *algo;
    int32_t direction;
    struct uli_phase phases[ULI_SCHEDULE_PHASES];
    int32_t nphases;
    int32_t chunks;
    bool leaves_node;
    double wire_bytes; /* bytes between nodes, of all ranks together */
};

struct uli_prediction {
    double time_s;
    int32_t phase;              /* phase of the bottleneck */
    enum uli_model_class class; /* link of the bottleneck */
    double busy_s;              /* occupancy of that link, all chunks
                                 * together */
};

const char *uli_model_class_name(enum uli_model_class class);
const char *uli_model_source_name(enum uli_model_source source);

/* All parameters as assumed for a node with 8 GPUs and a 400 Gb/s NIC per
 * GPU. */
void uli_model_defaults(struct uli_model *model_p);
/* Seconds that the bytes of one message take, without latency and overhead. */
double uli_model_message_time(const struct uli_model_link *link, double bytes);
/* The formulas above: seconds that a flow keeps its link busy. */
double uli_model_occupancy(
    const struct uli_model *model, const struct uli_flow *flow);
void uli_model_evaluate(const struct uli_model *model,
    const struct uli_schedule *schedule, struct uli_prediction *prediction_p);

#endif
