/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a topology comes from: settings, files, this machine, or the flat
 * topology that is used if all of these fail. The first element of a file
 * decides which importer reads the file.
 */
#include "topology/graph.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/status.h"
#include "base/system/file.h"
#include "topology/node.h"

#define FILE_MAX_BYTES (64L << 20)

/* ---- files --------------------------------------------------------------- */

/* The first element after declaration, doctype and comments; NULL: there is
 * none. */
static const char *
first_element(const char *text)
{
    while ((text = strchr(text, '<'))) {
        if (strncmp(text, "<!--", 4) == 0)
            text = strstr(text, "-->");
        else if (text[1] != '?' && text[1] != '!')
            return text + 1;
        if (!text)
            return NULL;
        text++;
    }
    return NULL;
}

/* The version "2.0" of <topology version="2.0">; "1" without a version, as
 * hwloc 1 wrote it. */
static void
hwloc_version(const char *element, char version_p[16])
{
    size_t length = strcspn(element, ">");
    const char *at = strstr(element, "version=\"");
    strcpy(version_p, "1");
    if (at && at < element + length)
        snprintf(version_p, 16, "%.*s", (int)strcspn(at + 9, "\">"), at + 9);
}

static ulyx_status_t
import_hwloc_text(const char *element, const char *text, size_t bytes,
    const char *name, const char *dump_path, struct uli_topology *graph)
{
    char version[16], *rewritten = NULL;
    ulyx_status_t status = ULYX_SUCCESS;
    hwloc_version(element, version);
    if (strncmp(version, "3.", 2) == 0)
        status = uli_hwloc3_rewrite(text, bytes, name, &rewritten, &bytes);
    else if (strncmp(version, "2.", 2) != 0)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s: hwloc XML of version %s; versions 2 and 3 are read", name,
            version);
    text = rewritten ? rewritten : text;
    if (status == ULYX_SUCCESS)
        status = uli_hwloc_screen(text, bytes, name);
    if (status == ULYX_SUCCESS)
        status = uli_hwloc_import(text, bytes, name, dump_path, graph);
    free(rewritten);
    return status;
}

static ulyx_status_t
import_text(const char *text, size_t bytes, const char *name,
    const char *dump_path, struct uli_topology *graph)
{
    const char *element = first_element(text);
    if (element && strncmp(element, "system", 6) == 0) {
        if (dump_path)
            ULI_WARN(ULI_LOG_TOPO, -1,
                "ULYX_TOPO_DUMP_FILE: a topology from NCCL's XML is not "
                "written");
        return uli_nccl_import(text, bytes, name, graph);
    }
    if (!element || strncmp(element, "topology", 8) != 0)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s: neither hwloc's <topology> nor NCCL's <system>", name);
    return import_hwloc_text(element, text, bytes, name, dump_path, graph);
}

/* A graph from text, or from this machine when text is NULL. */
static ulyx_status_t
topology_make(const char *text, size_t bytes, const char *name,
    const char *dump_path, bool nvlink, struct uli_topology **topology_p)
{
    struct uli_topology *graph = uli_graph_create();
    ulyx_status_t status;
    if (!graph)
        return uli_error(ULYX_ERR_NO_MEMORY, "topology: no memory");
    if (text)
        status = import_text(text, bytes, name, dump_path, graph);
    else
        status = uli_hwloc_import(NULL, 0, name, dump_path, graph);
    if (status == ULYX_SUCCESS && !text && nvlink)
        status = uli_nvml_import(graph);
    if (status == ULYX_SUCCESS)
        status = uli_graph_finish(graph);
    if (status != ULYX_SUCCESS) {
        uli_topology_free(graph);
        return status;
    }
    snprintf(graph->source, sizeof(graph->source), "%s", name);
    *topology_p = graph;
    return ULYX_SUCCESS;
}

static ulyx_status_t
read_file(
    const char *path, const char *dump_path, struct uli_topology **topology_p)
{
    char *text, why[ULI_FILE_WHY];
    size_t bytes;
    ulyx_status_t status =
        uli_file_read(path, FILE_MAX_BYTES, &text, &bytes, why);
    if (status != ULYX_SUCCESS)
        return uli_error(status, "%s: %s", path, why);
    status = topology_make(text, bytes, path, dump_path, false, topology_p);
    free(text);
    return status;
}

ulyx_status_t
uli_topology_read(const char *path, struct uli_topology **topology_p)
{
    return read_file(path, NULL, topology_p);
}

/* ---- this machine, or a flat one ----------------------------------------- */

/* Makes a flat topology: a number of cores whose places are unknown. */
static ulyx_status_t
make_flat(const char *why, struct uli_topology **topology_p)
{
    static atomic_flag logged = ATOMIC_FLAG_INIT;
    struct uli_topology *graph = uli_graph_create();
    ulyx_status_t status = graph ? ULYX_SUCCESS : ULYX_ERR_NO_MEMORY;
    int32_t cores = uli_node_cores();
    for (int32_t i = 0; i < cores && status == ULYX_SUCCESS; i++)
        status = uli_graph_add_core(graph, i, -1, -1);
    if (status == ULYX_SUCCESS)
        status = uli_graph_finish(graph);
    if (status != ULYX_SUCCESS) {
        uli_topology_free(graph);
        return uli_error(ULYX_ERR_NO_MEMORY, "topology: no memory");
    }
    snprintf(graph->source, sizeof(graph->source),
        "flat, because detection failed: %.440s", why);
    if (!atomic_flag_test_and_set(&logged))
        ULI_WARN(ULI_LOG_TOPO, -1,
            "the machine's topology is not known, so all cores are treated as "
            "equal: %s",
            why);
    *topology_p = graph;
    return ULYX_SUCCESS;
}

/* Queries NVLink only where it is needed: NVIDIA's library is slow. */
static ulyx_status_t
topology_load_some(const struct uli_settings *settings, bool nvlink,
    struct uli_topology **topology_p)
{
    char dump_name[2 * ULI_SETTING_TEXT];
    const char *dump_path = NULL;
    ulyx_status_t status;
    if (settings->topo_dump_file[0]) {
        uli_log_file_name(
            settings->topo_dump_file, -1, dump_name, sizeof(dump_name));
        dump_path = dump_name;
    }
    if (settings->topo_file[0])
        status = read_file(settings->topo_file, dump_path, topology_p);
    else
        status = topology_make(
            NULL, 0, "hwloc, this machine", dump_path, nvlink, topology_p);
    if (status != ULYX_SUCCESS)
        return make_flat(uli_error_text(), topology_p);
    ULI_INFO(ULI_LOG_TOPO, -1,
        "topology: %s: %d packages, %d NUMA nodes, %d "
        "cores, %d GPUs, %d NICs",
        (*topology_p)->source, (*topology_p)->counts[ULI_TOPO_PACKAGE],
        (*topology_p)->counts[ULI_TOPO_NUMA], (*topology_p)->ncores,
        (*topology_p)->counts[ULI_TOPO_GPU],
        (*topology_p)->counts[ULI_TOPO_NIC]);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_topology_load(
    const struct uli_settings *settings, struct uli_topology **topology_p)
{
    return topology_load_some(settings, true, topology_p);
}

/* ---- kept by the process ------------------------------------------------- */

/* A list by topo_file ("" is this machine), which only grows. So readers need
 * no lock, and a forked child cannot inherit a locked one. If two threads load
 * one topology at the same time, the list keeps the first of the two. */
struct kept {
    struct kept *next;
    struct uli_topology *topology;
    char file[ULI_SETTING_TEXT];
};

static _Atomic(struct kept *) all;

static struct kept *
shared_find(struct kept *list, const char *file)
{
    while (list && strcmp(list->file, file) != 0)
        list = list->next;
    return list;
}

const struct uli_topology *
uli_topology_shared(const struct uli_settings *settings)
{
    struct kept *list = atomic_load(&all);
    struct kept *found = shared_find(list, settings->topo_file);
    if (found)
        return found->topology;
    struct kept *mine = calloc(1, sizeof(*mine));
    if (!mine || topology_load_some(settings, false, &mine->topology)) {
        free(mine);
        return NULL;
    }
    strcpy(mine->file, settings->topo_file);
    do {
        mine->next = list;
        found = shared_find(list, mine->file);
    } while (!found && !atomic_compare_exchange_weak(&all, &list, mine));
    if (!found)
        return mine->topology;
    uli_topology_free(mine->topology);
    free(mine);
    return found->topology;
}
