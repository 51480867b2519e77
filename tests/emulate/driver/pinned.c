/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulated driver's host memory: what it allocates, and pages of the
 * program's own that it registers.
 */
#include "emulate/driver/driver.h"

enum { HOST_PAGE = 4096, REGISTRATIONS = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int
do_cuMemHostAlloc(void **address, size_t bytes, unsigned flags)
{
    EMU_DRIVER_MAY_FAIL();
    EMU_DRIVER_NOT_IN_CAPTURE();
    return emu_driver_allocated((int)cudaHostAlloc(address, bytes, flags));
}

int
do_cuMemFreeHost(void *address)
{
    EMU_DRIVER_MAY_FAIL();
    EMU_DRIVER_NOT_IN_CAPTURE();
    return emu_driver_freed((int)cudaFreeHost(address));
}

/* ---- registered memory --------------------------------------------------- */

/* A registration maps the pages a second time, within the memory of the
 * devices. Accesses by devices are tracked at both addresses, in the cells of
 * the registration. */
static struct registration {
    unsigned char *host;
    size_t bytes;
    struct emu_allocation *at;
} registrations[REGISTRATIONS];

static struct registration *
registration_of(const void *host)
{
    const unsigned char *p = host;
    for (int i = 0; i < REGISTRATIONS; i++)
        if (registrations[i].at && p >= registrations[i].host &&
            p < registrations[i].host + registrations[i].bytes)
            return &registrations[i];
    return NULL;
}

static int
register_pages(unsigned char *host, size_t bytes)
{
    int i = 0;
    while (i < REGISTRATIONS && registrations[i].at)
        i++;
    if (i == REGISTRATIONS)
        return ULI_CU_OUT_OF_MEMORY;
    for (size_t at = 0; at < bytes; at += HOST_PAGE)
        if (registration_of(host + at))
            return ULI_CU_HOST_ALREADY_REGISTERED;
    struct emu_allocation *a = emu_memory_alias(host, bytes);
    if (!a)
        return ULI_CU_OUT_OF_MEMORY;
    registrations[i] = (struct registration){host, bytes, a};
    return 0;
}

int
do_cuMemHostRegister(void *address, size_t bytes, unsigned flags)
{
    EMU_DRIVER_MAY_FAIL();
    EMU_DRIVER_NOT_IN_CAPTURE();
    if (flags != 3 || !bytes || (uintptr_t)address % HOST_PAGE)
        return ULI_CU_INVALID_VALUE;
    emu_enter(); /* opens the emulator if it is closed */
    emu_leave();
    pthread_mutex_lock(&lock);
    int result = register_pages(address, bytes);
    pthread_mutex_unlock(&lock);
    return emu_driver_allocated(result);
}

int
do_cuMemHostUnregister(void *address)
{
    EMU_DRIVER_MAY_FAIL();
    EMU_DRIVER_NOT_IN_CAPTURE();
    pthread_mutex_lock(&lock);
    struct registration *r = registration_of(address);
    bool found = r && r->host == address;
    if (found) {
        emu_memory_unalias(r->at);
        r->at = NULL;
    }
    pthread_mutex_unlock(&lock);
    return found ? emu_driver_freed(0) : ULI_CU_HOST_NOT_REGISTERED;
}

int
do_cuMemHostGetDevicePointer(uli_cu_ptr *address, void *host, unsigned flags)
{
    EMU_DRIVER_MAY_FAIL();
    const struct emu_allocation *a = emu_memory_find(host);
    if (flags)
        return ULI_CU_INVALID_VALUE;
    *address = (uintptr_t)host;
    if (a)
        return a->device < 0 ? 0 : ULI_CU_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    const struct registration *r = registration_of(host);
    if (r)
        *address = (uintptr_t)(r->at->base + ((unsigned char *)host - r->host));
    pthread_mutex_unlock(&lock);
    return r ? 0 : ULI_CU_INVALID_VALUE;
}
