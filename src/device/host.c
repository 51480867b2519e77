/* SPDX-License-Identifier: Apache-2.0
 *
 * Host memory as a kind of device memory, with one device, no streams and no
 * events.
 */
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "device/device.h"

enum { ALIGN = 64 };

static ulyx_status_t
host_open(void)
{
    return ULYX_SUCCESS;
}

static ulyx_status_t
host_count(int32_t *count_p)
{
    *count_p = 1;
    return ULYX_SUCCESS;
}

static ulyx_status_t
host_current(int32_t *device_p)
{
    *device_p = 0;
    return ULYX_SUCCESS;
}

static ulyx_status_t
host_uuid(int32_t device, unsigned char uuid_p[16])
{
    (void)device;
    memset(uuid_p, 0, 16);
    return ULYX_SUCCESS;
}

static ulyx_status_t
host_bus_id(int32_t device, char text_p[32])
{
    (void)device;
    text_p[0] = 0;
    return ULYX_SUCCESS;
}

static ulyx_status_t
host_peer_enable(int32_t device, int32_t peer)
{
    (void)device, (void)peer;
    return ULYX_SUCCESS;
}

static ulyx_status_t
host_range(const void *address, struct uli_device_range *range_p)
{
    struct uli_device_range range = {.memory_kind = ULYX_MEMORY_HOST,
        .device = -1,
        .base = (void *)(uintptr_t)address};
    *range_p = range;
    return ULYX_SUCCESS;
}

static ulyx_status_t
host_alloc(int32_t device, int64_t bytes, void **address_p)
{
    void *address;
    (void)device;
    if (posix_memalign(&address, ALIGN, (size_t)bytes))
        return uli_error(ULYX_ERR_NO_MEMORY,
            "host memory: %lld bytes cannot be allocated", (long long)bytes);
    *address_p = address;
    return ULYX_SUCCESS;
}

static ulyx_status_t
host_free(int32_t device, void *address)
{
    (void)device;
    free(address);
    return ULYX_SUCCESS;
}

static ulyx_status_t
host_host_alloc(
    int32_t device, int64_t bytes, void **address_p, void **device_address_p)
{
    ULI_TRY(host_alloc(device, bytes, address_p));
    *device_address_p = *address_p;
    return ULYX_SUCCESS;
}

static ulyx_status_t
no_streams(void)
{
    return uli_error(
        ULYX_ERR_UNSUPPORTED, "host memory has no streams and no events");
}

static ulyx_status_t
host_copy(
    int32_t device, void *dst, const void *src, int64_t bytes, void *stream)
{
    (void)device;
    if (stream)
        return no_streams();
    memcpy(dst, src, (size_t)bytes);
    return ULYX_SUCCESS;
}

static ulyx_status_t
host_copy_rect(int32_t device, void *dst, const void *src,
    const struct uli_device_rect *rect, void *stream)
{
    (void)device;
    if (stream)
        return no_streams();
    for (int64_t z = 0; z < rect->depth; z++)
        for (int64_t y = 0; y < rect->height; y++)
            memcpy((char *)dst + z * rect->dst_slice + y * rect->dst_pitch,
                (const char *)src + z * rect->src_slice + y * rect->src_pitch,
                (size_t)rect->width);
    return ULYX_SUCCESS;
}

static ulyx_status_t
host_zero(int32_t device, void *address, int64_t bytes, void *stream)
{
    (void)device;
    if (stream)
        return no_streams();
    memset(address, 0, (size_t)bytes);
    return ULYX_SUCCESS;
}

static ulyx_status_t
host_create(int32_t device, void **object_p)
{
    (void)device, (void)object_p;
    return no_streams();
}

static ulyx_status_t
host_use(int32_t device, void *object)
{
    (void)device, (void)object;
    return no_streams();
}

static ulyx_status_t
host_capturing(int32_t device, void *stream, bool *capturing_p)
{
    (void)device, (void)stream, (void)capturing_p;
    return no_streams();
}

static ulyx_status_t
host_host_call(
    int32_t device, void *stream, void (*call)(void *data), void *data)
{
    (void)device, (void)stream, (void)call, (void)data;
    return no_streams();
}

static ulyx_status_t
host_event(int32_t device, void *event, void *stream)
{
    (void)device, (void)event, (void)stream;
    return no_streams();
}

static ulyx_status_t
host_elapsed(int32_t device, void *from, void *to, double *seconds_p)
{
    (void)device, (void)from, (void)to, (void)seconds_p;
    return no_streams();
}

static ulyx_status_t
host_graph_end(int32_t device, void *stream, void **graph_p)
{
    (void)device, (void)stream, (void)graph_p;
    return no_streams();
}

const struct uli_device_ops uli_device_host = {
    .name = "host",
    .memory_kind = ULYX_MEMORY_HOST,
    .open = host_open,
    .count = host_count,
    .current = host_current,
    .uuid = host_uuid,
    .bus_id = host_bus_id,
    .peer_enable = host_peer_enable,
    .range = host_range,
    .alloc = host_alloc,
    .free = host_free,
    .host_alloc = host_host_alloc,
    .host_free = host_free,
    .copy = host_copy,
    .copy_rect = host_copy_rect,
    .zero = host_zero,
    .stream_create = host_create,
    .stream_destroy = host_use,
    .stream_wait = host_use,
    .stream_capturing = host_capturing,
    .host_call = host_host_call,
    .event_create = host_create,
    .event_destroy = host_use,
    .event_record = host_event,
    .event_order = host_event,
    .event_test = host_use,
    .timer_create = host_create,
    .timer_elapsed = host_elapsed,
    .graph_begin = host_use,
    .graph_end = host_graph_end,
    .graph_launch = host_event,
    .graph_destroy = host_use,
};

const struct uli_device_ops *
uli_device_ops(int32_t memory_kind)
{
    if (memory_kind == ULYX_MEMORY_HOST)
        return &uli_device_host;
    return memory_kind == ULYX_MEMORY_CUDA ? &uli_device_cuda : NULL;
}
