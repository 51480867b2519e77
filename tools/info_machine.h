/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of the cost model that a topology determines.
 */
#ifndef TOOLS_INFO_MACHINE_H
#define TOOLS_INFO_MACHINE_H

#include "topology/model/model.h"
#include "topology/topology.h"

/* The class of the link between ranks of the machine: NVLink or PCI where there
 * are two GPUs; else host memory, across NUMA nodes where there are several. */
enum uli_model_class info_machine_local(const struct uli_topology *topology);
/* Sets what the topology contains: the rate between GPUs (NVLink or PCI), the
 * rate of the NIC for the classes NIC and SPINE, and the number of NICs. */
void info_machine_rates(
    const struct uli_topology *topology, struct uli_model *model);

#endif
