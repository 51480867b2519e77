/* SPDX-License-Identifier: Apache-2.0
 *
 * Machine descriptions of hwloc and NCCL: each must be read or refused.
 */
#include <stdlib.h>
#include "fuzz/fuzz.h"
#include "topology/topology.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct uli_topology *topology = NULL;
    ulyx_status_t status = uli_topology_read(fuzz_file(data, bytes), &topology);
    if (status == ULYX_SUCCESS && uli_topology_count(topology, 0) < 0)
        abort();
    if (status == ULYX_SUCCESS)
        uli_topology_free(topology);
    return 0;
}
