/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening, closing, errors and devices.
 */
#include "emulate/api/api.h"
#include <malloc.h>

static _Thread_local int current_device;
static _Thread_local cudaError_t last_error;
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t
default_seed(void)
{
    const char *text = getenv("ULYX_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : 1;
    return seed ? seed : 1;
}

static void
set_defaults(const struct emu_config *config)
{
    struct emu_config *c = &emu.config;
    memset(c, 0, sizeof *c);
    if (config)
        *c = *config;
    c->devices = c->devices > 0 ? c->devices : 1;
    c->devices = c->devices < EMU_DEVICES ? c->devices : EMU_DEVICES;
    c->sm_count = c->sm_count > 0 ? c->sm_count : 4;
    if (c->shared_bytes <= 0 || c->shared_bytes > EMU_SHARED_BYTES)
        c->shared_bytes = EMU_SHARED_BYTES;
    c->host_threads = c->host_threads > 0 ? c->host_threads : 1;
    c->seed = c->seed ? c->seed : default_seed();
    if (!c->stall_limit_ns)
        c->stall_limit_ns = 2ull * 24 * 3600 * 1000000000;
}

static int
open_locked(const struct emu_config *config)
{
    static const uint32_t eagerness[] = {2, 16, 128};
    set_defaults(config);
    emu.random = emu.config.seed;
    emu.eagerness = eagerness[emu_random(3)];
    emu.now_ns = 1000;
    emu.failed = emu.quit = false;
    emu.progress = emu.progress_seen = emu.calls = 0;
    emu.queries = 0;
    emu.alarm_ns = 0;
    emu_agents_reset();
    if (emu_memory_open())
        return -1;
    emu.host = emu_clocks_new();
    for (int d = 0; d < emu.config.devices; d++) {
        emu.devices[d].sms =
            calloc((size_t)emu.config.sm_count, sizeof *emu.devices[d].sms);
        memset(emu.devices[d].peers, 0, sizeof emu.devices[d].peers);
        if (!emu.devices[d].sms)
            return -1;
    }
    /* Vector clocks are allocated and freed all the time; malloc is to keep
     * their pages. */
    mallopt(M_TRIM_THRESHOLD, 1 << 28);
    mallopt(M_TOP_PAD, 1 << 24);
    emu_crash_open();
    if (pthread_create(&emu.scheduler, NULL, emu_scheduler, NULL))
        return -1;
    emu.open = true;
    return 0;
}

static void
close_locked(void)
{
    if (!emu.open)
        return;
    pthread_mutex_lock(&emu.lock);
    emu_host_wait(NULL);
    emu.quit = true;
    pthread_cond_signal(&emu.work);
    pthread_mutex_unlock(&emu.lock);
    pthread_join(emu.scheduler, NULL);
    emu_crash_close();
    emu_streams_free();
    emu_kernels_reset();
    emu_memory_close();
    emu_order_reset();
    emu_shadow_reset();
    emu_faults_reset();
    for (int d = 0; d < emu.config.devices; d++)
        free(emu.devices[d].sms);
    free(emu.host);
    emu.open = false;
    current_device = 0;
    last_error = cudaSuccess;
}

int
emu_open(const struct emu_config *config)
{
    pthread_mutex_lock(&open_lock);
    close_locked();
    int result = open_locked(config);
    pthread_mutex_unlock(&open_lock);
    return result;
}

void
emu_close(void)
{
    pthread_mutex_lock(&open_lock);
    close_locked();
    pthread_mutex_unlock(&open_lock);
}

static void
library_enter(void)
{
    pthread_mutex_lock(&open_lock);
    if (!emu.open && open_locked(NULL))
        emu_out_of_memory("the emulator");
    pthread_mutex_unlock(&open_lock);
    pthread_mutex_lock(&emu.lock);
}

void
emu_enter(void)
{
    library_enter();
    emu.calls++;
    emu.queries = 0;
}

void
emu_enter_query(void)
{
    library_enter();
    emu.queries++;
}

void
emu_leave(void)
{
    pthread_mutex_unlock(&emu.lock);
}

uint64_t
emu_clock_ns(void)
{
    return emu.now_ns;
}

cudaError_t
emu_result(cudaError_t error)
{
    if (error)
        last_error = error;
    return error;
}

void
emu_set_device(int device)
{
    current_device = device;
}

int
emu_current_device(void)
{
    return current_device;
}

static void
await_op(struct emu_op *op)
{
    emu_op_hold(op);
    if (!op->done) {
        emu.hosts_waiting++;
        op->hosts++;
        pthread_cond_signal(&emu.work);
    }
    while (!op->done)
        pthread_cond_wait(&emu.done, &emu.lock);
    emu_clocks_join(emu.host, op->clocks);
    emu_op_drop(op);
}

/* emu_op_finish no longer counts a host as waiting once its operation has
 * ended, so a host whose wait is over but that has not yet returned does not
 * count. */
cudaError_t
emu_host_wait(struct emu_op *op)
{
    if (op)
        await_op(op);
    if (op || !emu.unfinished)
        goto out;
    uint64_t drains = emu.drains;
    emu.hosts_waiting++;
    emu.hosts_draining++;
    pthread_cond_signal(&emu.work);
    while (drains == emu.drains)
        pthread_cond_wait(&emu.done, &emu.lock);
out:
    return emu_fault_count() ? cudaErrorLaunchFailure : cudaSuccess;
}

cudaError_t
cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t
cudaPeekAtLastError(void)
{
    return last_error;
}

const char *
cudaGetErrorName(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "cudaSuccess";
    case cudaErrorLaunchFailure:
        return "cudaErrorLaunchFailure";
    case cudaErrorNotReady:
        return "cudaErrorNotReady";
    case cudaErrorInvalidValue:
        return "cudaErrorInvalidValue";
    default:
        return "cudaError";
    }
}

const char *
cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorLaunchFailure && emu_fault_count()
               ? emu_fault_text(0)
               : cudaGetErrorName(error);
}

cudaError_t
cudaGetDeviceCount(int *count)
{
    emu_enter();
    *count = emu.config.devices;
    emu_leave();
    return cudaSuccess;
}

cudaError_t
cudaSetDevice(int device)
{
    emu_enter();
    bool good = device >= 0 && device < emu.config.devices;
    emu_leave();
    if (!good)
        return emu_result(cudaErrorInvalidDevice);
    current_device = device;
    return cudaSuccess;
}

cudaError_t
cudaGetDevice(int *device)
{
    *device = current_device;
    return cudaSuccess;
}

cudaError_t
cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    emu_enter();
    int sms = emu.config.sm_count, shared = emu.config.shared_bytes;
    bool good = device >= 0 && device < emu.config.devices;
    emu_leave();
    switch (good ? (int)attribute : 0) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = EMU_BLOCK_THREADS;
        return cudaSuccess;
    case cudaDevAttrWarpSize:
        *value = EMU_WARP;
        return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
        *value = sms;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
        *value = 9;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
        *value = 0;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = shared + 1024;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = shared;
        return cudaSuccess;
    default:
        return emu_result(cudaErrorInvalidValue);
    }
}

cudaError_t
cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    *can = device != peer;
    return cudaSuccess;
}

static cudaError_t
set_peer(int peer, bool on)
{
    emu_enter();
    bool good =
        peer >= 0 && peer < emu.config.devices && peer != current_device;
    bool was = good && emu.devices[current_device].peers[peer];
    if (good)
        emu.devices[current_device].peers[peer] = on;
    emu_leave();
    return emu_result(!good         ? cudaErrorInvalidDevice
                      : was && on   ? cudaErrorPeerAccessAlreadyEnabled
                      : !was && !on ? cudaErrorPeerAccessNotEnabled
                                    : cudaSuccess);
}

cudaError_t
cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    (void)flags;
    return set_peer(peer, true);
}

cudaError_t
cudaDeviceDisablePeerAccess(int peer)
{
    return set_peer(peer, false);
}
