/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the graph from NCCL's topology XML, which many sites already have:
 *
 *     <system version="1">
 *       <cpu numaid="0" affinity="0000ffff" ...>
 *         <pci busid="..." class="0x060400" link_speed="16 GT/s" ...>
 *           <pci busid="..." class="0x030200" ...>
 *             <gpu dev="0" sm="90"><nvlink target="..." count="4"/></gpu>
 *           <pci class="0x020000"><nic><net name="mlx5_0" speed="400000"/>
 *
 * A <cpu> is a NUMA node; the file does not give the packages. Unknown elements
 * are skipped; attributes that are read must be valid. Entities are refused, so
 * the file cannot grow as it is read.
 */
#include "topology/graph.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/list.h"
#include "base/status.h"
#include "topology/import/xml.h"

enum { DEPTH_MAX = 64 };

/* An <nvlink>, kept until all devices are known. */
struct nvlink {
    int32_t gpu;
    uint64_t target;
    bool is_switch;
    double bytes_per_s;
};

struct reader {
    struct uli_xml xml;
    struct uli_topology *graph;
    int32_t stack[DEPTH_MAX]; /* ids of the nodes that the open elements belong
                               * to */
    char host[64];            /* host_hash of the first <cpu> that has one */
    int64_t sm; /* compute capability of the open <gpu>, times ten */
    struct nvlink *nvlinks;
    int32_t nnvlinks;
    bool is_system;
};

/* ---- attributes ---------------------------------------------------------- */

/* The value of an attribute, which must be a whole number from low to high;
 * fallback if there is no such attribute, or after an error. */
static int64_t
reader_number(struct reader *r, const char **attributes, const char *name,
    int64_t low, int64_t high, int64_t fallback)
{
    const char *text = uli_xml_attribute(attributes, name);
    char *end;
    if (!text)
        return fallback;
    errno = 0;
    long long value = strtoll(text, &end, 0);
    if (end == text || *end || errno || value < low || value > high) {
        uli_xml_refuse(&r->xml,
            "%s=\"%.40s\": expected a whole number from %" PRId64
            " to %" PRId64,
            name, text, low, high);
        return fallback;
    }
    return value;
}

/* The payload rate, less the line code, from "16 GT/s" or "16.0 GT/s PCIe" and
 * the number of lanes. */
static double
pci_rate(struct reader *r, const char **attributes)
{
    const char *speed = uli_xml_attribute(attributes, "link_speed");
    int64_t width = reader_number(r, attributes, "link_width", 0, 64, 0);
    double transfers = speed ? strtod(speed, NULL) : 0;
    double code = transfers < 8 ? 0.8 : 128.0 / 130.0;
    if (!(transfers >= 0 && transfers <= 1000)) {
        uli_xml_refuse(&r->xml, "link_speed=\"%.40s\": expected GT/s", speed);
        return 0;
    }
    return transfers * 1e9 / 8 * code * (double)width;
}

/* ---- elements ------------------------------------------------------------ */

/* The node of the open element. The pointer is valid until the next add_node,
 * which may move the nodes. */
static struct uli_topo_node *
open_node(struct reader *r)
{
    return &r->graph->nodes[r->stack[r->xml.depth - 1]];
}

static int32_t
add_node(struct reader *r, enum uli_topo_kind kind)
{
    int32_t id = 0;
    ulyx_status_t status =
        uli_graph_add(r->graph, kind, r->stack[r->xml.depth - 1], &id);
    if (status != ULYX_SUCCESS)
        uli_xml_stop(&r->xml, status);
    return status ? 0 : id;
}

/* "ffff0000,0000ffff": words of 32 bits, the last of which is the lowest. */
static void
add_affinity(struct reader *r, const char *text, int32_t numa)
{
    size_t length = strlen(text);
    int32_t bit = 0;
    for (size_t i = length; i-- > 0;) {
        char digit[2] = {text[i], 0};
        char *end;
        if (text[i] == ',')
            continue;
        unsigned long value = strtoul(digit, &end, 16);
        if (*end || bit >= ULI_GRAPH_CORES_MAX) {
            uli_xml_refuse(&r->xml,
                "affinity=\"%.40s\": expected words of hexadecimal digits",
                text);
            return;
        }
        for (int b = 0; b < 4; b++, bit++)
            if (value >> b & 1 &&
                uli_graph_add_core(r->graph, bit, numa, -1) != ULYX_SUCCESS)
                uli_xml_refuse(&r->xml, "affinity: too many cores");
    }
}

static int32_t
on_cpu(struct reader *r, const char **attributes)
{
    const char *host = uli_xml_attribute(attributes, "host_hash");
    const char *affinity = uli_xml_attribute(attributes, "affinity");
    int64_t number_of = reader_number(r, attributes, "numaid", -1, 65535, -1);
    if (host && r->host[0] && strncmp(host, r->host, sizeof(r->host) - 1)) {
        uli_xml_refuse(&r->xml,
            "host_hash=\"%.40s\" and \"%.40s\": more than one node in a "
            "file is not supported",
            host, r->host);
        return 0;
    }
    if (host)
        snprintf(r->host, sizeof(r->host), "%s", host);
    /* -1: a virtual machine without the value. */
    int32_t id = number_of < 0 ? 0 : add_node(r, ULI_TOPO_NUMA);
    if (number_of >= 0)
        r->graph->nodes[id].os_index = (int32_t)number_of;
    if (affinity && r->xml.status == ULYX_SUCCESS)
        add_affinity(r, affinity, number_of < 0 ? -1 : id);
    return id;
}

static int32_t
on_pci(struct reader *r, const char **attributes)
{
    const char *bus = uli_xml_attribute(attributes, "busid");
    int64_t class = reader_number(r, attributes, "class", 0, 0xffffff, 0);
    double rate = pci_rate(r, attributes);
    enum uli_topo_kind kind = ULI_TOPO_PCI_SWITCH;
    uint64_t pci = ULI_TOPO_NO_PCI;
    if (!bus || !uli_graph_parse_pci(bus, &pci)) {
        uli_xml_refuse(&r->xml,
            "busid=\"%.40s\": expected domain:bus:device.function",
            bus ? bus : "");
        return 0;
    }
    if (class >> 16 == 0x02)
        kind = ULI_TOPO_NIC;
    else if (class >> 16 == 0x03 || class >> 16 == 0x12)
        kind = ULI_TOPO_GPU;
    int32_t id = add_node(r, kind);
    r->graph->nodes[id].pci = pci;
    r->graph->nodes[id].bytes_per_s = kind == ULI_TOPO_NIC ? 0 : rate;
    return id;
}

static void
on_gpu(struct reader *r, const char **attributes)
{
    struct uli_topo_node *node = open_node(r);
    int64_t device = reader_number(r, attributes, "dev", 0, 65535, -1);
    r->sm = reader_number(r, attributes, "sm", 0, 10000, 0);
    if (node->kind != ULI_TOPO_GPU)
        uli_xml_refuse(&r->xml, "<gpu> outside a <pci> of a GPU's class");
    else if (device >= 0)
        snprintf(node->name, sizeof(node->name), "cuda%d", (int)device);
}

static void
on_nvlink(struct reader *r, const char **attributes)
{
    const char *target = uli_xml_attribute(attributes, "target");
    int64_t class = reader_number(r, attributes, "tclass", 0, 0xffffff, 0);
    int64_t count = reader_number(r, attributes, "count", 1, 1024, 1);
    struct nvlink link = {.gpu = open_node(r)->id,
        .target = ULI_TOPO_NO_PCI,
        .is_switch = class >> 8 == 0x0680,
        .bytes_per_s = (double)count * uli_graph_nvlink_rate(r->sm)};
    /* A switch in another chassis has the address fffffff:ffff:ff. */
    bool known = target && uli_graph_parse_pci(target, &link.target);
    if (!known && !link.is_switch) {
        uli_xml_refuse(&r->xml,
            "target=\"%.40s\": expected domain:bus:device.function",
            target ? target : "");
        return;
    }
    if (r->nnvlinks >= ULI_GRAPH_LINKS_MAX) {
        uli_xml_refuse(&r->xml, "more than %d NVLinks", ULI_GRAPH_LINKS_MAX);
        return;
    }
    struct nvlink *larger =
        realloc(r->nvlinks, (size_t)(r->nnvlinks + 1) * sizeof(*r->nvlinks));
    if (!larger) {
        uli_xml_refuse(&r->xml, "no memory");
        return;
    }
    r->nvlinks = larger;
    r->nvlinks[r->nnvlinks++] = link;
}

/* Speeds are in Mb/s, latencies in microseconds. A <nic> without a <pci> is a
 * node of its own. */
static void
on_net(struct reader *r, const char **attributes)
{
    const char *name = uli_xml_attribute(attributes, "name");
    const char *latency = uli_xml_attribute(attributes, "latency");
    int64_t megabits = reader_number(r, attributes, "speed", 0, 100000000, 0);
    double latency_us = latency ? strtod(latency, NULL) : 0;
    int32_t id = open_node(r)->id;
    if (open_node(r)->kind != ULI_TOPO_NIC)
        id = add_node(r, ULI_TOPO_NIC);
    if (r->xml.status)
        return;
    struct uli_topo_node *node = &r->graph->nodes[id];
    if (!node->name[0] && name)
        snprintf(node->name, sizeof(node->name), "%s", name);
    if ((double)megabits * 125e3 > node->bytes_per_s)
        node->bytes_per_s = (double)megabits * 125e3;
    if (latency_us > 0 && latency_us < 1e6)
        node->latency_s = latency_us * 1e-6;
}

static void
on_start(struct uli_xml *xml, const char *element, const char **attributes)
{
    struct reader *r = ULI_CONTAINER_OF(xml, struct reader, xml);
    int32_t id = r->xml.depth > 0 ? r->stack[r->xml.depth - 1] : 0;
    if (r->xml.depth == 0) {
        r->is_system = strcmp(element, "system") == 0;
        if (!r->is_system)
            uli_xml_refuse(&r->xml, "<%.40s>: expected <system>", element);
        else if (reader_number(r, attributes, "version", 0, INT32_MAX, 1) != 1)
            uli_xml_refuse(&r->xml, "version of <system> is not 1");
    } else if (strcmp(element, "cpu") == 0) {
        id = on_cpu(r, attributes);
    } else if (strcmp(element, "pci") == 0) {
        id = on_pci(r, attributes);
    } else if (strcmp(element, "gpu") == 0) {
        on_gpu(r, attributes);
    } else if (strcmp(element, "nvlink") == 0) {
        on_nvlink(r, attributes);
    } else if (strcmp(element, "net") == 0) {
        on_net(r, attributes);
    }
    r->stack[r->xml.depth] = id;
}

/* ---- NVLinks, once all devices are known --------------------------------- */

static ulyx_status_t
add_nvlinks(struct reader *r)
{
    for (int32_t i = 0; i < r->nnvlinks; i++) {
        const struct nvlink *link = &r->nvlinks[i];
        int32_t other =
            uli_graph_find_pci(r->graph, ULI_TOPO_GPU, link->target);
        if (link->is_switch)
            ULI_TRY(uli_graph_nvswitch(r->graph, link->target, &other));
        if (other >= 0)
            ULI_TRY(uli_graph_add_link(
                r->graph, link->gpu, other, link->bytes_per_s));
    }
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_nccl_import(const char *text, size_t bytes, const char *name,
    struct uli_topology *graph)
{
    struct reader r = {
        .xml = {.name = name, .on_start = on_start, .depth_max = DEPTH_MAX},
        .graph = graph};
    ulyx_status_t status = uli_xml_read(&r.xml, text, bytes);
    if (status == ULYX_SUCCESS)
        status = add_nvlinks(&r);
    free(r.nvlinks);
    return status;
}
