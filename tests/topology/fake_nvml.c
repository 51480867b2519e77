/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for NVIDIA's management library, found by its name before any
 * other: two GPUs at the addresses of two-nic.xml's first two, joined by two
 * links; each also has a link to a switch, and a link that is down. Built three
 * times: complete, as an old library without types (FAKE_OLD), and as one
 * without a driver (FAKE_INIT is not 0).
 */
#include <stdint.h>
#include <string.h>

struct pci_info {
    char legacy_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *count_p);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device_p);
int nvmlDeviceGetPciInfo_v3(void *device, struct pci_info *pci_p);
int nvmlDeviceGetCudaComputeCapability(
    void *device, int *major_p, int *minor_p);
int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active_p);
int nvmlDeviceGetNvLinkRemotePciInfo_v2(
    void *device, unsigned link, struct pci_info *pci_p);
int nvmlDeviceGetNvLinkRemoteDeviceType(
    void *device, unsigned link, int *type_p);

enum { NOT_SUPPORTED = 3 };
#ifndef FAKE_INIT
#define FAKE_INIT 0
#endif

int
nvmlInit_v2(void)
{
    return FAKE_INIT;
}

int
nvmlShutdown(void)
{
    return 0;
}

int
nvmlDeviceGetCount_v2(unsigned *count_p)
{
    *count_p = 2;
    return 0;
}

int
nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device_p)
{
    *device_p = (void *)(uintptr_t)(index + 1);
    return 0;
}

int
nvmlDeviceGetPciInfo_v3(void *device, struct pci_info *pci_p)
{
    memset(pci_p, 0, sizeof(*pci_p));
    pci_p->bus = 0x20 + (unsigned)(uintptr_t)device;
    return 0;
}

int
nvmlDeviceGetCudaComputeCapability(void *device, int *major_p, int *minor_p)
{
    (void)device;
    *major_p = 8;
    *minor_p = 0;
    return 0;
}

int
nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active_p)
{
    (void)device;
    *active_p = link != 2;
    return link < 4 ? 0 : NOT_SUPPORTED;
}

int
nvmlDeviceGetNvLinkRemotePciInfo_v2(
    void *device, unsigned link, struct pci_info *pci_p)
{
    memset(pci_p, 0, sizeof(*pci_p));
    pci_p->bus = link < 2 ? 0x20 + (3 - (unsigned)(uintptr_t)device) : 0x05;
    return 0;
}

#ifndef FAKE_OLD
int
nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, int *type_p)
{
    (void)device;
    *type_p = link < 2 ? 0 : 2;
    return 0;
}
#endif
