/* SPDX-License-Identifier: Apache-2.0
 *
 * What a topology gives of the links of the cost model.
 */
#ifndef TOOLS_INFO_MACHINE_H
#define TOOLS_INFO_MACHINE_H

#include "topology/model/model.h"
#include "topology/topology.h"

/* The link between ranks of such a machine: NVLink or PCI between its GPUs,
 * else memory, across NUMA nodes where there are several. */
enum uli_model_class info_machine_local(const struct uli_topology *topology);
/* Sets the rates that the topology has: NVLink or PCI between GPUs, the NIC's,
 * and the number of NICs where GPUs share them. */
void info_machine_rates(
    const struct uli_topology *topology, struct uli_model *model);

#endif
