/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the graph from hwloc: of this machine, or of a machine recorded in
 * hwloc's XML.
 *
 * hwloc's tree has normal objects (packages, cores), memory objects beside
 * them, and I/O objects below the normal object to which they are local: their
 * place. The graph is made in this order: packages, NUMA nodes, cores, then
 * each PCI tree. A PCI tree is put under the NUMA node of its place if there is
 * exactly one, else under the package, else under the machine; the position of
 * a device under the machine is unknown.
 *
 * A core may belong to several NUMA nodes (GPU memory, high-bandwidth memory,
 * memory behind CXL that a whole machine shares). Its home is the NUMA node
 * with the fewest cores, and the first of several such nodes. NUMA nodes that
 * are the home of no core are not in the graph. The NUMA node of a place is the
 * home of its cores, if they all have one home.
 */
#include "topology/graph.h"

#include <errno.h>
#include <fcntl.h>
#include <hwloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/status.h"

#define NVIDIA 0x10de
#define AMD    0x1002

struct import {
    hwloc_topology_t hwloc;
    struct uli_topology *graph;
    const char *name; /* of the file */
};

/* ---- packages, NUMA nodes, cores ----------------------------------------- */

/* The id of the graph's node for an hwloc object, kept in userdata as id + 1;
 * -1 if there is none. */
static int32_t
id_of(hwloc_obj_t object)
{
    return object ? (int32_t)(intptr_t)object->userdata - 1 : -1;
}

static void
set_id(hwloc_obj_t object, int32_t id)
{
    object->userdata = (void *)(intptr_t)(id + 1);
}

static ulyx_status_t
add_packages(struct import *in)
{
    hwloc_obj_t object = NULL;
    while ((object = hwloc_get_next_obj_by_type(
                in->hwloc, HWLOC_OBJ_PACKAGE, object))) {
        int32_t id;
        ULI_TRY(uli_graph_add(in->graph, ULI_TOPO_PACKAGE, 0, &id));
        in->graph->nodes[id].os_index = (int32_t)object->os_index;
        set_id(object, id);
    }
    return ULYX_SUCCESS;
}

/* Id of the package that holds all of the set, or -1. */
static int32_t
package_of(const struct import *in, hwloc_const_cpuset_t set)
{
    hwloc_obj_t object = NULL;
    while (set && !hwloc_bitmap_iszero(set) &&
           (object = hwloc_get_next_obj_by_type(
                in->hwloc, HWLOC_OBJ_PACKAGE, object)))
        if (hwloc_bitmap_isincluded(set, object->cpuset))
            return id_of(object);
    return -1;
}

/* The home of a core, or NULL. */
static hwloc_obj_t
home_of(const struct import *in, hwloc_obj_t core)
{
    hwloc_obj_t home = NULL, numa = NULL;
    while ((
        numa = hwloc_get_next_obj_by_type(in->hwloc, HWLOC_OBJ_NUMANODE, numa)))
        if (hwloc_bitmap_isset(numa->cpuset, core->os_index) &&
            (!home || hwloc_bitmap_weight(numa->cpuset) <
                          hwloc_bitmap_weight(home->cpuset)))
            home = numa;
    return home;
}

/* Adds the homes, in the order of hwloc's NUMA nodes. A core's userdata becomes
 * its home, an hwloc object. */
static ulyx_status_t
add_numa_nodes(struct import *in)
{
    hwloc_obj_t core = NULL, numa = NULL;
    hwloc_bitmap_t homes = hwloc_bitmap_alloc(); /* logical indices */
    ulyx_status_t status = ULYX_SUCCESS;
    int32_t id;
    if (!homes)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for NUMA nodes");
    while ((core = hwloc_get_next_obj_by_type(in->hwloc, HWLOC_OBJ_PU, core))) {
        hwloc_obj_t home = home_of(in, core);
        if (home && hwloc_bitmap_set(homes, home->logical_index))
            status = uli_error(ULYX_ERR_NO_MEMORY, "no memory for NUMA nodes");
        core->userdata = home;
    }
    while (
        status == ULYX_SUCCESS && (numa = hwloc_get_next_obj_by_type(
                                       in->hwloc, HWLOC_OBJ_NUMANODE, numa))) {
        int32_t package = package_of(in, numa->cpuset);
        if (!hwloc_bitmap_isset(homes, numa->logical_index))
            continue;
        status = uli_graph_add(
            in->graph, ULI_TOPO_NUMA, package < 0 ? 0 : package, &id);
        if (status != ULYX_SUCCESS)
            break;
        in->graph->nodes[id].os_index = (int32_t)numa->os_index;
        in->graph->nodes[id].memory_bytes =
            (int64_t)(numa->attr->numanode.local_memory & INT64_MAX);
        set_id(numa, id);
    }
    hwloc_bitmap_free(homes);
    return status;
}

/* The id of the home that all cores of a place have, or -1. */
static int32_t
numa_of(const struct import *in, hwloc_const_cpuset_t set)
{
    hwloc_obj_t core = NULL, home = NULL;
    while (set && (core = hwloc_get_next_obj_inside_cpuset_by_type(
                       in->hwloc, set, HWLOC_OBJ_PU, core))) {
        if (!core->userdata || (home && home != core->userdata))
            return -1;
        home = core->userdata;
    }
    return id_of(home);
}

static ulyx_status_t
add_cores(struct import *in)
{
    hwloc_const_cpuset_t allowed = hwloc_topology_get_allowed_cpuset(in->hwloc);
    hwloc_obj_t core = NULL;
    while ((core = hwloc_get_next_obj_by_type(in->hwloc, HWLOC_OBJ_PU, core)))
        if (!allowed || hwloc_bitmap_isset(allowed, core->os_index))
            ULI_TRY(uli_graph_add_core(in->graph, (int32_t)core->os_index,
                id_of(core->userdata), package_of(in, core->cpuset)));
    return ULYX_SUCCESS;
}

/* ---- devices ------------------------------------------------------------- */

static hwloc_obj_t
osdev_below(hwloc_obj_t device, hwloc_obj_osdev_type_t type)
{
    hwloc_obj_t child = device->io_first_child;
    while (child && (child->type != HWLOC_OBJ_OS_DEVICE ||
                        child->attr->osdev.type != type))
        child = child->next_sibling;
    return child;
}

static void
copy_name(char *name_p, hwloc_obj_t object)
{
    if (object && object->name)
        snprintf(name_p, ULI_TOPO_NAME, "%s", object->name);
}

/* The display controllers of servers have class 0x0300 too, so for this class
 * the vendor decides. */
static bool
is_gpu(hwloc_obj_t device)
{
    const struct hwloc_pcidev_attr_s *pci = &device->attr->pcidev;
    bool maker = pci->vendor_id == NVIDIA || pci->vendor_id == AMD;
    return pci->class_id == 0x0302 ||
           (maker && (pci->class_id >> 8 == 0x03 || pci->class_id == 0x1200)) ||
           osdev_below(device, HWLOC_OBJ_OSDEV_COPROC);
}

static bool
is_nic(hwloc_obj_t device)
{
    return device->attr->pcidev.class_id >> 8 == 0x02 ||
           osdev_below(device, HWLOC_OBJ_OSDEV_OPENFABRICS) ||
           osdev_below(device, HWLOC_OBJ_OSDEV_NETWORK);
}

static void
fill_pci(struct uli_topo_node *node, hwloc_obj_t o)
{
    const struct hwloc_pcidev_attr_s *pci = &o->attr->pcidev;
    node->pci = (uint64_t)pci->domain << 16 | (uint64_t)pci->bus << 8 |
                (uint64_t)pci->dev << 3 | pci->func;
    node->bytes_per_s = pci->linkspeed > 0 && pci->linkspeed < 1e6
                            ? (double)pci->linkspeed * 1e9
                            : 0;
}

static ulyx_status_t
add_device(struct import *in, hwloc_obj_t object, int32_t parent)
{
    enum uli_topo_kind kind = ULI_TOPO_NIC;
    bool nvswitch = object->attr->pcidev.vendor_id == NVIDIA &&
                    object->attr->pcidev.class_id == 0x0680;
    int32_t id;
    if (nvswitch)
        kind = ULI_TOPO_NVSWITCH;
    else if (is_gpu(object))
        kind = ULI_TOPO_GPU;
    else if (!is_nic(object))
        return ULYX_SUCCESS;
    ULI_TRY(uli_graph_add(in->graph, kind, nvswitch ? -1 : parent, &id));
    struct uli_topo_node *node = &in->graph->nodes[id];
    fill_pci(node, object);
    set_id(object, id);
    if (kind == ULI_TOPO_GPU)
        copy_name(node->name, osdev_below(object, HWLOC_OBJ_OSDEV_COPROC));
    if (kind != ULI_TOPO_NIC)
        return ULYX_SUCCESS;
    hwloc_obj_t net = osdev_below(object, HWLOC_OBJ_OSDEV_NETWORK);
    hwloc_obj_t verbs = osdev_below(object, HWLOC_OBJ_OSDEV_OPENFABRICS);
    copy_name(node->net_name, net);
    copy_name(node->name, verbs ? verbs : net);
    return ULYX_SUCCESS;
}

/* Adds a network device that belongs to no PCI device. */
static ulyx_status_t
add_bare_network(struct import *in, hwloc_obj_t object, int32_t parent)
{
    int32_t id;
    if (object->attr->osdev.type != HWLOC_OBJ_OSDEV_NETWORK &&
        object->attr->osdev.type != HWLOC_OBJ_OSDEV_OPENFABRICS)
        return ULYX_SUCCESS;
    ULI_TRY(uli_graph_add(in->graph, ULI_TOPO_NIC, parent, &id));
    copy_name(in->graph->nodes[id].name, object);
    if (object->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK)
        copy_name(in->graph->nodes[id].net_name, object);
    return ULYX_SUCCESS;
}

/* The depth is at most 256, because PCI has at most 256 buses. */
static ulyx_status_t
add_io(struct import *in, hwloc_obj_t object, int32_t parent, int depth)
{
    bool host;
    int32_t id = parent;
    if (depth > 256)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s: PCI bridges more than 256 deep", in->name);
    if (object->type == HWLOC_OBJ_PCI_DEVICE)
        return add_device(in, object, parent);
    if (object->type == HWLOC_OBJ_OS_DEVICE)
        return add_bare_network(in, object, parent);
    if (object->type != HWLOC_OBJ_BRIDGE)
        return ULYX_SUCCESS;
    host = object->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST;
    ULI_TRY(uli_graph_add(in->graph,
        host ? ULI_TOPO_PCI_ROOT : ULI_TOPO_PCI_SWITCH, parent, &id));
    if (!host)
        fill_pci(&in->graph->nodes[id], object);
    for (hwloc_obj_t c = object->io_first_child; c; c = c->next_sibling)
        ULI_TRY(add_io(in, c, id, depth + 1));
    return ULYX_SUCCESS;
}

static ulyx_status_t
add_io_below(struct import *in, hwloc_obj_t place, int depth)
{
    int32_t parent = place->io_first_child ? numa_of(in, place->cpuset) : -1;
    if (parent < 0)
        parent = package_of(in, place->cpuset);
    if (depth > 256)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s: objects more than 256 deep", in->name);
    for (hwloc_obj_t c = place->io_first_child; c; c = c->next_sibling)
        ULI_TRY(add_io(in, c, parent < 0 ? 0 : parent, 0));
    for (hwloc_obj_t c = place->first_child; c; c = c->next_sibling)
        ULI_TRY(add_io_below(in, c, depth + 1));
    return ULYX_SUCCESS;
}

/* ---- NVLink -------------------------------------------------------------- */

/* The id of the GPU or NVSwitch that an object of the matrix is, or is part
 * of. */
static int32_t
link_end(hwloc_obj_t object)
{
    while (object && object->type != HWLOC_OBJ_PCI_DEVICE)
        object = object->parent;
    return id_of(object);
}

/* hwloc's matrix is in MB/s. */
static ulyx_status_t
add_nvlinks(struct import *in)
{
    struct hwloc_distances_s *matrix = NULL;
    unsigned count = 1;
    ulyx_status_t status = ULYX_SUCCESS;
    if (hwloc_distances_get_by_name(
            in->hwloc, "NVLinkBandwidth", &count, &matrix, 0) ||
        count == 0)
        return ULYX_SUCCESS;
    for (unsigned i = 0; i < matrix->nbobjs; i++)
        for (unsigned j = 0; j < matrix->nbobjs && !status; j++) {
            int32_t a = link_end(matrix->objs[i]);
            int32_t b = link_end(matrix->objs[j]);
            double megabytes =
                (double)matrix->values[(size_t)i * matrix->nbobjs + j];
            if (a >= 0 && b >= 0 && megabytes > 0 && megabytes < 1e9)
                status = uli_graph_add_link(in->graph, a, b, megabytes * 1e6);
        }
    hwloc_distances_release(in->hwloc, matrix);
    return status;
}

/* ---- entry --------------------------------------------------------------- */

/* Excludes hwloc's components for OpenCL, GL, CUDA and so on, which would load
 * drivers into the caller's process; PCI ids give all that is needed. The
 * component for PCI is excluded because it leaks memory with each load, and the
 * component for Linux finds the same devices in sysfs. */
static void
topology_prepare(hwloc_topology_t hwloc)
{
    static const char *const excluded[] = {
        "opencl", "gl", "cuda", "nvml", "rsmi", "levelzero", "pci"};
    for (size_t i = 0; i < sizeof(excluded) / sizeof(excluded[0]); i++)
        (void)hwloc_topology_set_components(
            hwloc, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, excluded[i]);
    (void)hwloc_topology_set_io_types_filter(
        hwloc, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    /* For hwloc, NVSwitches are not important devices. */
    (void)hwloc_topology_set_type_filter(
        hwloc, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_ALL);
    (void)hwloc_topology_set_cache_types_filter(
        hwloc, HWLOC_TYPE_FILTER_KEEP_NONE);
    (void)hwloc_topology_set_icache_types_filter(
        hwloc, HWLOC_TYPE_FILTER_KEEP_NONE);
}

/* Writes a file; does not wait if it is a pipe. */
static bool
write_file(const char *path, const char *text, size_t bytes)
{
    int fd = open(path,
        O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0644);
    size_t done = 0;
    ssize_t wrote = 0;
    while (fd >= 0 && done < bytes && wrote >= 0) {
        wrote = write(fd, text + done, bytes - done);
        done += wrote > 0 ? (size_t)wrote : 0;
    }
    int number = errno;
    bool closed = fd >= 0 && close(fd) == 0;
    errno = closed && done < bytes ? number : errno;
    return closed && done == bytes;
}

/* Writes version 2 of the format always, which hwloc 2 and 3 read. */
static void
topology_dump(hwloc_topology_t hwloc, const char *path)
{
#ifdef HWLOC_TOPOLOGY_EXPORT_XML_FLAG_V2
    unsigned long flags = HWLOC_TOPOLOGY_EXPORT_XML_FLAG_V2;
#else
    unsigned long flags = 0;
#endif
    char *text = NULL;
    int bytes; /* including the final zero */
    errno = 0;
    if (hwloc_topology_export_xmlbuffer(hwloc, &text, &bytes, flags) ||
        !write_file(path, text, (size_t)bytes - 1))
        ULI_WARN(ULI_LOG_TOPO, -1, "%s: the topology cannot be written: %s",
            path, strerror(errno));
    if (text)
        hwloc_free_xmlbuffer(hwloc, text);
}

static ulyx_status_t
import_all(struct import *in)
{
    ULI_TRY(add_packages(in));
    ULI_TRY(add_numa_nodes(in));
    ULI_TRY(add_cores(in));
    ULI_TRY(add_io_below(in, hwloc_get_root_obj(in->hwloc), 0));
    return add_nvlinks(in);
}

ulyx_status_t
uli_hwloc_import(const char *text, size_t bytes, const char *name,
    const char *dump_path, struct uli_topology *graph)
{
    struct import in = {.graph = graph, .name = name};
    ulyx_status_t status = ULYX_SUCCESS;
    if (hwloc_topology_init(&in.hwloc))
        return uli_error_errno("hwloc_topology_init");
    topology_prepare(in.hwloc);
    if (text && hwloc_topology_set_xmlbuffer(in.hwloc, text, (int)bytes + 1))
        status = uli_error(
            ULYX_ERR_INVALID_ARGUMENT, "%s: hwloc cannot read this XML", name);
    else if (hwloc_topology_load(in.hwloc))
        status = uli_error(text ? ULYX_ERR_INVALID_ARGUMENT : ULYX_ERR_SYSTEM,
            "%s: hwloc cannot load the topology%s", name,
            text ? ": broken or incomplete XML" : "");
    else
        status = import_all(&in);
    if (status == ULYX_SUCCESS && dump_path)
        topology_dump(in.hwloc, dump_path);
    hwloc_topology_destroy(in.hwloc);
    return status;
}
