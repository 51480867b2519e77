/* SPDX-License-Identifier: Apache-2.0
 *
 * What an exchange costs before it is run: link parameters, each with its
 * source, and the evaluation of a schedule's phases over them.
 *
 * A phase is a set of flows that run at the same time; a flow is what the most
 * loaded rank sends or receives over one class of link, k messages of B bytes
 * in all:
 *
 *     occupancy = ((k max(o, gap))^3 + (kappa B G(B / k))^3)^(1/3)
 *     time      = L + occupancy + o_receive
 *
 * A flow that may have only w of its k messages on the way waits for a latency
 * each time that w have gone, unless their occupancy covers it, side by side
 * with what keeps the link busy. And its link is idle while the w peers that it
 * sends to are busy with others: `idle` prolongs its bytes in the occupancy.
 * With c the occupancy of a message without that:
 *
 *     waits     = (k / w (L + c) + w c) (1 - min(1, w c / (L + c))^6)
 *     time      = sqrt((L + occupancy)^2 + waits^2) + o_receive
 *
 * Per-message work and bytes go on side by side, so the larger of the two is a
 * lower bound and their sum an upper one. The root of the cubes lies between
 * and is near the larger where one dominates; where both matter, messages
 * arrive unevenly and the larger alone is up to 29 % too short of what
 * simulations of the same schedules give (tests/topology/model_test.c,
 * perf/simulate). A phase ends with its slowest flow.
 *
 * With C chunks the phases form a pipeline: each once for one chunk, and then
 * the rest of the slowest. A measured time of B / C bytes has costs in it that
 * a message has once (a handshake, a wake, the first fill of buffers) and that
 * those which follow on the same link do not have again. What C of them take is
 * therefore the time of one message of all B bytes, with the overheads of C; or
 * C times one chunk's, where long messages are the dearer ones:
 *
 *     stream    = min(C occupancy(B / C), C ((k o)^3 + (kappa B/C
 * G(B/k))^3)^(1/3)) time      = sum over phases of a chunk's + max over phases
 * of (stream - occupancy(B / C))
 *
 * On a link of one rate both are the same.
 */
#ifndef ULI_TOPOLOGY_MODEL_MODEL_H
#define ULI_TOPOLOGY_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

enum uli_model_class {
    ULI_MODEL_NEAR,   /* shared memory of one NUMA node */
    ULI_MODEL_FAR,    /* shared memory across NUMA nodes */
    ULI_MODEL_NVLINK, /* stores to a peer GPU */
    ULI_MODEL_PCIE,   /* the same without NVLink */
    ULI_MODEL_NIC,    /* to another node below the same leaf switch */
    ULI_MODEL_SPINE,  /* to another node through the spine */
    ULI_MODEL_CLASSES
};

enum uli_model_source {
    ULI_SOURCE_ASSUMED,  /* typical of the hardware class, measured nowhere */
    ULI_SOURCE_TOPOLOGY, /* from the machine's description */
    ULI_SOURCE_FILE,     /* from a tuning file that does not name its source */
    ULI_SOURCE_MEASURED, /* a tuning file, measured */
    ULI_SOURCES
};

enum { ULI_MODEL_POINTS = 8 };

struct uli_model_link {
    double latency_s, send_s, receive_s, gap_s;
    /* Seconds per byte for messages of this many bytes, sizes growing; between
     * two points a message's time is linear in its bytes, outside the rate of
     * the nearest point holds. At least one point. */
    int32_t npoints;
    double bytes[ULI_MODEL_POINTS], s_per_byte[ULI_MODEL_POINTS];
    enum uli_model_source source;
};

struct uli_model {
    struct uli_model_link links[ULI_MODEL_CLASSES];
    double launch_s;    /* start of a call */
    double handoff_s;   /* between the caller's stream and the thread that sends
                         * to other nodes, once where there are any */
    double taper;       /* leaf's bandwidth down over its bandwidth up */
    double efficiency;  /* share of the spine's bandwidth that routing leaves */
    int64_t unit_nodes; /* nodes below one set of leaf switches */
    int64_t peers;      /* ranks of other nodes that pairwise sends to at one
                         * time (ULYX_NET_PEERS); 0: all */
    double nics;        /* of a node, shared evenly by its ranks; 0: each rank
                         * has its own */
    enum uli_model_source host_source, fabric_source;
};

struct uli_flow {
    enum uli_model_class class;
    double messages, bytes;
    double congestion; /* kappa, at least 1 */
    double window;     /* messages on the way at one time; 0: all */
    double idle;       /* how much longer that makes its bytes; 0: not */
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
    double wire_bytes; /* between nodes, all ranks together */
};

struct uli_prediction {
    double time_s;
    int32_t phase;              /* of the bottleneck */
    enum uli_model_class class; /* its link */
    double busy_s;              /* its occupancy, all chunks together */
};

const char *uli_model_class_name(enum uli_model_class class);
const char *uli_model_source_name(enum uli_model_source source);

/* Every parameter assumed, for the class of an 8-GPU node with a 400 Gb/s NIC
 * a GPU. */
void uli_model_defaults(struct uli_model *model_p);
/* Seconds that the bytes of one message take, without latency and overhead. */
double uli_model_message_time(const struct uli_model_link *link, double bytes);
/* The formulas above: seconds that a flow keeps its link busy. */
double uli_model_occupancy(
    const struct uli_model *model, const struct uli_flow *flow);
void uli_model_evaluate(const struct uli_model *model,
    const struct uli_schedule *schedule, struct uli_prediction *prediction_p);

#endif
