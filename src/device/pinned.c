/* SPDX-License-Identifier: Apache-2.0
 *
 * See pinned.h. The ranges are a list under one lock, which is held while the
 * driver pins: a second hold of the range must not return before the range is
 * pinned. There are at most as many ranges as there are pairs of ranks on a
 * node.
 */
#include "device/pinned.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include "base/list.h"
#include "base/status.h"
#include "device/cuda_context.h"
#include "device/cuda_driver.h"

enum { ANY_DEVICE = 1 | 2 }; /* portable, mapped */

struct pinned {
    struct uli_list node;
    unsigned char *address;
    int64_t bytes;
    void *there;
    int32_t holders;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct uli_list ranges = {&ranges, &ranges};

/* The first range that overlaps [address, address + bytes). The caller holds
 * the lock. */
static struct pinned *
pinned_find(const unsigned char *address, int64_t bytes)
{
    for (struct uli_list *n = ranges.next; n != &ranges; n = n->next) {
        struct pinned *p = ULI_CONTAINER_OF(n, struct pinned, node);
        if (address < p->address + p->bytes && p->address < address + bytes)
            return p;
    }
    return NULL;
}

static ulyx_status_t
pinned_pin(struct pinned *p)
{
    uli_cu_ptr there = 0;
    ULI_TRY(ULI_CUDA(
        cuMemHostRegister, (p->address, (size_t)p->bytes, ANY_DEVICE)));
    ulyx_status_t status =
        ULI_CUDA(cuMemHostGetDevicePointer, (&there, p->address, 0));
    if (status != ULYX_SUCCESS)
        uli_cuda_calls()->cuMemHostUnregister(p->address);
    p->there = (void *)(uintptr_t)there;
    return status;
}

/* Pins a range that nobody holds yet. The caller holds the lock. */
static ulyx_status_t
pinned_add(
    int32_t device, unsigned char *address, int64_t bytes, void **there_p)
{
    struct pinned *p = calloc(1, sizeof(*p));
    if (!p)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a pinned range");
    p->address = address;
    p->bytes = bytes;
    p->holders = 1;
    ulyx_status_t status = uli_cuda_enter(device);
    if (status == ULYX_SUCCESS)
        status = uli_cuda_leave(pinned_pin(p));
    if (status != ULYX_SUCCESS) {
        free(p);
        return status;
    }
    uli_list_append(&ranges, &p->node);
    *there_p = p->there;
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_pinned_hold(int32_t device, void *address, int64_t bytes, void **there_p)
{
    ulyx_status_t status = ULYX_SUCCESS;
    pthread_mutex_lock(&lock);
    struct pinned *p = pinned_find(address, bytes);
    if (!p) {
        status = pinned_add(device, address, bytes, there_p);
    } else if (p->address != address || p->bytes != bytes) {
        status = uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%" PRId64 " bytes to be pinned overlap a pinned range of %" PRId64
            " in part",
            bytes, p->bytes);
    } else {
        p->holders++;
        *there_p = p->there;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

ulyx_status_t
uli_pinned_drop(int32_t device, void *address)
{
    ulyx_status_t status = ULYX_SUCCESS;
    pthread_mutex_lock(&lock);
    struct pinned *p = pinned_find(address, 1);
    if (p && --p->holders == 0) {
        status = uli_cuda_enter(device);
        if (status == ULYX_SUCCESS)
            status =
                uli_cuda_leave(ULI_CUDA(cuMemHostUnregister, (p->address)));
        uli_list_remove(&p->node);
        free(p);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

int32_t
uli_pinned_count(void)
{
    int32_t count = 0;
    pthread_mutex_lock(&lock);
    for (struct uli_list *n = ranges.next; n != &ranges; n = n->next)
        count++;
    pthread_mutex_unlock(&lock);
    return count;
}
