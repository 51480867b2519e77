/* SPDX-License-Identifier: Apache-2.0
 *
 * NVLinks of this machine's GPUs, from NVIDIA's management library, which is
 * opened, if it is installed, and closed again; no other file uses it. Missing
 * functions of the library are no error, nor is a machine without GPUs: the
 * graph then gets no NVLinks.
 */
#include "topology/graph.h"

#include <dlfcn.h>
#include <string.h>
#include "base/status.h"

enum {
    LINKS_MAX = 18, /* per GPU, in NVML's interface */
    REMOTE_GPU = 0,
    REMOTE_SWITCH = 2
};

/* nvmlPciInfo_t of version 3. */
struct pci_info {
    char legacy_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

struct nvml {
    void *handle;
    int (*init)(void);
    int (*shutdown)(void);
    int (*get_count)(unsigned *count_p);
    int (*get_handle)(unsigned index, void **device_p);
    int (*get_pci)(void *device, struct pci_info *pci_p);
    int (*get_capability)(void *device, int *major_p, int *minor_p);
    int (*get_link_state)(void *device, unsigned link, int *active_p);
    int (*get_remote_pci)(void *device, unsigned link, struct pci_info *pci_p);
    int (*get_remote_type)(void *device, unsigned link, int *type_p);
};

static bool
open_library(struct nvml *nvml)
{
    struct {
        const char *name;
        void *function_p;
    } symbols[] = {{"nvmlInit_v2", &nvml->init},
        {"nvmlShutdown", &nvml->shutdown},
        {"nvmlDeviceGetCount_v2", &nvml->get_count},
        {"nvmlDeviceGetHandleByIndex_v2", &nvml->get_handle},
        {"nvmlDeviceGetPciInfo_v3", &nvml->get_pci},
        {"nvmlDeviceGetCudaComputeCapability", &nvml->get_capability},
        {"nvmlDeviceGetNvLinkState", &nvml->get_link_state},
        {"nvmlDeviceGetNvLinkRemotePciInfo_v2", &nvml->get_remote_pci},
        {"nvmlDeviceGetNvLinkRemoteDeviceType", &nvml->get_remote_type}};
    enum { OPTIONAL = sizeof(symbols) / sizeof(symbols[0]) };
    nvml->handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!nvml->handle)
        return false;
    bool complete = true;
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *function = dlsym(nvml->handle, symbols[i].name);
        memcpy(symbols[i].function_p, &function, sizeof(function));
        complete = complete && (function || i + 1 == OPTIONAL);
    }
    if (complete && nvml->init() == 0)
        return true;
    dlclose(nvml->handle);
    return false;
}

static uint64_t
address_of(const struct pci_info *pci)
{
    return (uint64_t)pci->domain << 16 | (uint64_t)(pci->bus & 0xff) << 8 |
           (uint64_t)(pci->device & 0x1f) << 3;
}

static double
rate_of(const struct nvml *nvml, void *device)
{
    int major = 0, minor = 0;
    if (nvml->get_capability(device, &major, &minor))
        return 18.0e9;
    return uli_graph_nvlink_rate(10 * major + minor);
}

/* Sets the type of a link's far end. Libraries from before 2021 do not report
 * the type: the far end is then a GPU if the graph has a GPU at this address,
 * else a switch. returns 0, or an error of NVML: nothing is known about the
 * link. */
static int
remote_type(const struct nvml *nvml, const struct uli_topology *graph,
    void *device, unsigned link, uint64_t pci, int *type_p)
{
    if (nvml->get_remote_type)
        return nvml->get_remote_type(device, link, type_p);
    *type_p = uli_graph_find_pci(graph, ULI_TOPO_GPU, pci) >= 0 ? REMOTE_GPU
                                                                : REMOTE_SWITCH;
    return 0;
}

/* The node at the far end of a link; a switch that the graph does not have is
 * added. */
static ulyx_status_t
remote_end(struct uli_topology *graph, int type, uint64_t pci, int32_t *id_p)
{
    *id_p = -1;
    if (type == REMOTE_GPU)
        *id_p = uli_graph_find_pci(graph, ULI_TOPO_GPU, pci);
    if (type == REMOTE_SWITCH)
        return uli_graph_nvswitch(graph, pci, id_p);
    return ULYX_SUCCESS;
}

/* Adds the links of a GPU. The rates of links to one far end add up. */
static ulyx_status_t
add_links(const struct nvml *nvml, void *device, int32_t gpu,
    struct uli_topology *graph)
{
    int32_t ends[LINKS_MAX];
    double rate = rate_of(nvml, device);
    for (unsigned link = 0; link < LINKS_MAX; link++) {
        struct pci_info pci;
        int active = 0, type = -1, count = 1;
        memset(&pci, 0, sizeof(pci));
        ends[link] = -1;
        if (nvml->get_link_state(device, link, &active) || !active ||
            nvml->get_remote_pci(device, link, &pci) ||
            remote_type(nvml, graph, device, link, address_of(&pci), &type))
            continue;
        ULI_TRY(remote_end(graph, type, address_of(&pci), &ends[link]));
        for (unsigned before = 0; before < link; before++)
            count += ends[before] == ends[link];
        if (ends[link] >= 0)
            ULI_TRY(uli_graph_add_link(graph, gpu, ends[link], count * rate));
    }
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_nvml_import(struct uli_topology *graph)
{
    struct nvml nvml;
    unsigned count = 0;
    ulyx_status_t status = ULYX_SUCCESS;
    if (!open_library(&nvml))
        return ULYX_SUCCESS;
    if (nvml.get_count(&count))
        count = 0;
    for (unsigned i = 0; i < count && status == ULYX_SUCCESS; i++) {
        struct pci_info pci;
        void *device = NULL;
        memset(&pci, 0, sizeof(pci));
        if (nvml.get_handle(i, &device) || nvml.get_pci(device, &pci))
            continue;
        int32_t gpu = uli_graph_find_pci(graph, ULI_TOPO_GPU, address_of(&pci));
        if (gpu >= 0)
            status = add_links(&nvml, device, gpu, graph);
    }
    nvml.shutdown();
    dlclose(nvml.handle);
    return status;
}
