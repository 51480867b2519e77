/* SPDX-License-Identifier: Apache-2.0
 *
 * Configures UCX from code, never by the environment, which belongs to the user
 * (UCX_TLS, UCX_NET_DEVICES and all other variables work as usual, within the
 * limits that this file sets).
 *
 * - Network transports only. Two nodes may be on one host: a setting of ulyx
 *   keeps them apart, or each has its own network namespace. UCX does not
 *   distinguish such nodes, and would use shared memory between them.
 * - The devices that devices.c chooses.
 * - Keepalive: a vanished host is noticed within ULYX_KEEPALIVE. The kernel of
 *   a stopped process still answers, so a stopped process is never declared
 *   dead.
 * - TCP connections are made without blocking.
 * - Remote memory access is enabled on InfiniBand only. With it UCX also
 *   executes, in software and on every transport that it opens, accesses that
 *   any sender of a packet names by address, without checking keys (rma_sw.c of
 *   UCX). On InfiniBand the fabric's partition decides which hosts can send a
 *   packet. Elsewhere PUT needs both ULYX_UCX_VERB and ULYX_INSECURE.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/status.h"
#include "transport/ucx/net.h"

static const char *const local_transports[] = {"sm", "shm", "mm", "posix",
    "sysv", "cma", "xpmem", "knem", "self", "cuda_ipc", "rocm_ipc", "ze_ipc"};
enum { LOCAL = sizeof(local_transports) / sizeof(local_transports[0]) };
#define NOT_LOCAL "^sm,self,cuda_ipc,rocm_ipc,ze_ipc"

static bool
is_local(const char *word, size_t length)
{
    for (int i = 0; i < LOCAL; i++)
        if (strlen(local_transports[i]) == length &&
            strncmp(local_transports[i], word, length) == 0)
            return true;
    return false;
}

/* The value of one option as UCX has read it, from the options that UCX
 * prints. */
static bool
ucx_option(const char *printed, const char *name, char *value_p, size_t bytes)
{
    char key[64];
    size_t length = (size_t)snprintf(key, sizeof(key), "UCX_%s=", name);
    for (const char *at = printed; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, key, length) == 0) {
            at += length;
            snprintf(value_p, bytes, "%.*s", (int)strcspn(at, "\r\n"), at);
            return true;
        }
        if (!*at)
            break;
    }
    return false;
}

/* The user's UCX_TLS without the transports that are not a network. */
static ulyx_status_t
transports_of(const char *preference, char *value_p, size_t bytes)
{
    size_t used = 0;
    if (!*preference || strcmp(preference, "all") == 0) {
        snprintf(value_p, bytes, "%s", NOT_LOCAL);
        return ULYX_SUCCESS;
    }
    if (*preference == '^') {
        snprintf(value_p, bytes, "%s,%s", NOT_LOCAL, preference + 1);
        return ULYX_SUCCESS;
    }
    value_p[0] = 0;
    for (const char *at = preference; *at;) {
        size_t length = strcspn(at, ", ");
        if (length && !is_local(at, length) && used < bytes)
            used += (size_t)snprintf(value_p + used, bytes - used, "%s%.*s",
                used ? "," : "", (int)length, at);
        at += length;
        at += strspn(at, ", ");
    }
    if (!used)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "ucx: UCX_TLS=%s names no network transport", preference);
    return ULYX_SUCCESS;
}

/* Sets an option of TCP. Versions before 1.14 have it without the prefix, later
 * ones with it; each version ignores the other name. */
static void
set_tcp(const struct uli_ucx_calls *ucx, ucp_config_t *config, const char *name,
    const char *value)
{
    char prefixed[64];
    snprintf(prefixed, sizeof(prefixed), "TCP_%s", name);
    ucx->config_modify(config, name, value);
    ucx->config_modify(config, prefixed, value);
}

static void
set_tcp_number(const struct uli_ucx_calls *ucx, ucp_config_t *config,
    const char *name, int number, const char *unit)
{
    char value[32];
    snprintf(value, sizeof(value), "%d%s", number, unit);
    set_tcp(ucx, config, name, value);
}

/* On an idle connection the kernel's first probe comes after a third of
 * keepalive_s, and up to five follow, so that the probes end within
 * keepalive_s. UCX's own keepalive sends data over TCP, and data on its way
 * stops the kernel's probes, so UCX's keepalive is used for other networks
 * only. keepalive.c handles connections that are not idle. UCX's SYN_CNT would
 * help while connecting, but UCX 1.13 cannot take it from code (its worker then
 * fails to open). */
static void
set_keepalive(const struct uli_ucx_calls *ucx, ucp_config_t *config,
    double keepalive_s, bool only_tcp)
{
    char interval[32] = "inf";
    int idle = keepalive_s < 3 ? 1 : (int)(keepalive_s / 3);
    int every = keepalive_s < 6 ? 1 : (int)(keepalive_s / 6);
    int times = (int)((keepalive_s * 0.9 - idle) / every);
    times = times < 1 ? 1 : times > 5 ? 5 : times;
    if (!only_tcp)
        snprintf(interval, sizeof(interval), "%.3fs", keepalive_s / 2);
    ucx->config_modify(config, "KEEPALIVE_INTERVAL", interval);
    set_tcp_number(ucx, config, "KEEPIDLE", idle, "s");
    set_tcp_number(ucx, config, "KEEPINTVL", every, "s");
    set_tcp_number(ucx, config, "KEEPCNT", times, "");
}

/* Sets the ports of the TCP listener. The user's UCX_TCP_PORT_RANGE holds where
 * ulyx has no port setting. */
static void
set_ports(const struct uli_ucx_calls *ucx, ucp_config_t *config,
    struct uli_port_range ports)
{
    char value[32];
    if (ports.first == 0)
        return;
    snprintf(value, sizeof(value), "%d-%d", ports.first, ports.last);
    set_tcp(ucx, config, "PORT_RANGE", value);
}

static char *
print_out(const struct uli_ucx_calls *ucx, const ucp_config_t *config)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    if (!file)
        return NULL;
    ucx->config_print(config, file, NULL, UCS_CONFIG_PRINT_CONFIG);
    fclose(file);
    return text;
}

static ulyx_status_t
ucx_configure(const struct uli_ucx_calls *ucx,
    const struct uli_net_params *params, ucp_config_t *config, char *devices_p,
    size_t devices_bytes)
{
    char preference[256] = "", transports[512];
    ulyx_status_t status;
    char *printed = print_out(ucx, config);
    if (!printed)
        return uli_error(ULYX_ERR_NO_MEMORY, "ucx: cannot print its options");
    ucx_option(printed, "TLS", preference, sizeof(preference));
    status = transports_of(preference, transports, sizeof(transports));
    preference[0] = 0;
    ucx_option(printed, "NET_DEVICES", preference, sizeof(preference));
    free(printed);
    ULI_TRY(status);
    uli_ucx_choose_devices(params, preference, devices_p, devices_bytes);
    ucs_status_t set_tls = ucx->config_modify(config, "TLS", transports);
    ucs_status_t set_dev = ucx->config_modify(config, "NET_DEVICES", devices_p);
    if (set_tls != UCS_OK || set_dev != UCS_OK)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "ucx: TLS=%s or NET_DEVICES=%s is refused: %s", transports,
            devices_p,
            ucx->status_string(set_tls != UCS_OK ? set_tls : set_dev));
    set_tcp(ucx, config, "CONN_NB", "y");
    set_ports(ucx, config, params->settings->ports);
    set_keepalive(ucx, config, params->settings->keepalive_s,
        strcmp(transports, "tcp") == 0 || !uli_ucx_has_infiniband());
    return ULYX_SUCCESS;
}

static ulyx_status_t
choose_features(const struct uli_net_params *params, const char *devices,
    bool *may_put_p, uint64_t *features_p)
{
    enum uli_ucx_verb verb = uli_ucx_verb_of(params->settings);
    bool guarded = uli_ucx_is_infiniband("/sys/class/infiniband", devices);
    *features_p = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    *may_put_p =
        (verb == ULI_UCX_BY_PROBE && guarded) ||
        (verb == ULI_UCX_BY_PUT && (guarded || params->settings->insecure));
    if (verb == ULI_UCX_BY_PUT && !*may_put_p)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "ucx: ULYX_UCX_VERB=PUT over %s, where nothing checks keys: who "
            "reaches this rank's port could read and write its memory; leave "
            "it at AUTO, or set ULYX_INSECURE=1 on a network that is closed",
            devices);
    if (*may_put_p)
        *features_p |= UCP_FEATURE_RMA;
    if (verb == ULI_UCX_BY_TAG || verb == ULI_UCX_BY_PROBE)
        *features_p |= UCP_FEATURE_TAG;
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_ucx_context(const struct uli_ucx_calls *ucx,
    const struct uli_net_params *params, char *devices_p, size_t devices_bytes,
    bool *may_put_p, ucp_context_h *context_p)
{
    ucp_config_t *config = NULL;
    ucp_params_t request = {
        .field_mask = UCP_PARAM_FIELD_FEATURES |
                      UCP_PARAM_FIELD_ESTIMATED_NUM_EPS |
                      UCP_PARAM_FIELD_MT_WORKERS_SHARED,
        .estimated_num_eps = (size_t)params->nranks,
        .mt_workers_shared = 0,
    };
    ucs_status_t read = ucx->config_read(NULL, NULL, &config);
    if (read != UCS_OK)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "ucx: its options cannot be read: %s", ucx->status_string(read));
    ulyx_status_t status =
        ucx_configure(ucx, params, config, devices_p, devices_bytes);
    if (status == ULYX_SUCCESS)
        status =
            choose_features(params, devices_p, may_put_p, &request.features);
    if (status == ULYX_SUCCESS) {
        ucs_status_t made = ucx->init_version(
            UCP_API_MAJOR, UCP_API_MINOR, &request, config, context_p);
        if (made != UCS_OK)
            status = uli_error(made == UCS_ERR_NO_MEMORY ? ULYX_ERR_NO_MEMORY
                                                         : ULYX_ERR_UNSUPPORTED,
                "ucx: no network transport on devices %s: %s; UCX_TLS and "
                "ULYX_NET_DEVICES choose, ucx_info -d lists",
                devices_p, ucx->status_string(made));
    }
    ucx->config_release(config);
    return status;
}
