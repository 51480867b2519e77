#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the recorded machines of this folder: hwloc XML of version 2 and
NCCL's topology XML, composed from what vendors publish of these machines. The
answers that each must give are in NAME.expected, checked by hand.

make_machines.py [FOLDER]
"""
import os
import sys

GIB = 1 << 30


def mask(bits):
    """Returns hwloc's text of a set: words of 32 bits, the highest first."""
    value = sum(1 << bit for bit in bits)
    words = []
    while True:
        words.insert(0, f"0x{value & 0xffffffff:08x}")
        value >>= 32
        if not value:
            return ",".join(words)


class Xml:
    """Objects with what hwloc records of them: gp_index and nesting."""

    def __init__(self):
        self.lines, self.depth, self.gp = [], 0, 0

    def open(self, kind, close=False, **attributes):
        self.gp += 1
        text = "".join(f' {k}="{v}"' for k, v in attributes.items())
        self.lines.append(f'{"  " * self.depth}<object type="{kind}"'
                          f' gp_index="{self.gp}"{text}{"/" * close}>')
        self.depth += not close
        return self.gp

    def close(self):
        self.depth -= 1
        self.lines.append("  " * self.depth + "</object>")


def sets(cpus, nodes):
    return {"cpuset": mask(cpus), "complete_cpuset": mask(cpus),
            "nodeset": mask(nodes), "complete_nodeset": mask(nodes)}


class Device:
    """A PCI function. osdevs: (name, hwloc's osdev_type) pairs."""

    def __init__(self, bus, pci_type, osdevs=(), speed=63.015385):
        self.bus, self.type, self.osdevs, self.speed = \
            bus, pci_type, osdevs, speed


def gpu(bus, ids="10de:2330"):
    return Device(bus, f"0302 [{ids}] [10de:16c1] a1")


def nic(bus, number, netdev=None):
    osdevs = [(f"mlx5_{number}", 3)]
    if netdev:
        osdevs.append((netdev, 2))
    return Device(bus, "0207 [15b3:1021] [15b3:0023] 00", osdevs)


def add_device(xml, device, gps):
    gps[device.bus] = xml.open(
        "PCIDev", not device.osdevs, pci_busid=device.bus,
        pci_type=device.type, pci_link_speed=device.speed)
    for name, kind in device.osdevs:
        xml.open("OSDev", True, name=name, osdev_type=kind)
    if device.osdevs:
        xml.close()


def add_root(xml, devices, gps):
    """Adds a host bridge. A list within `devices` has the devices below one
    switch."""
    first = devices[0][0] if isinstance(devices[0], list) else devices[0]
    domain, bus = first.bus.split(":")[:2]
    bus = f"{int(bus, 16) & 0xf0:02x}"
    xml.open("Bridge", bridge_type="0-1", depth=0,
             bridge_pci=f"{domain}:[{bus}-ff]")
    for number, item in enumerate(devices):
        if isinstance(item, Device):
            add_device(xml, item, gps)
            continue
        below = item[0].bus.split(":")[1]
        xml.open("Bridge", bridge_type="1-1", depth=1,
                 bridge_pci=f"{domain}:[{below}-{below}]",
                 pci_busid=f"{domain}:{bus}:{number + 1:02x}.0",
                 pci_type="0604 [1000:c030] [1000:0000] b0",
                 pci_link_speed=63.015385)
        for device in item:
            add_device(xml, device, gps)
        xml.close()
    xml.close()


def add_cores(xml, cores, nodes):
    for number, cpus in enumerate(cores):
        xml.open("Core", os_index=number, **sets(cpus, nodes))
        for cpu in cpus:
            xml.open("PU", True, os_index=cpu, **sets([cpu], nodes))
        xml.close()


def add_numa(xml, numa, cpus, gps):
    memory = {} if numa.get("memory") is None else \
        {"local_memory": numa["memory"]}
    if "subtype" in numa:
        memory["subtype"] = numa["subtype"]
    xml.open("NUMANode", True, os_index=numa["os"], **sets(cpus, [numa["os"]]),
             **memory)


def matrix(gps, links):
    """Returns hwloc's NVLinkBandwidth, {(bus, bus): MB/s}, as a matrix."""
    buses = sorted({bus for pair in links for bus in pair})
    index = " ".join(str(gps[bus]) for bus in buses) + " "
    values = "".join(
        " ".join(str(links.get((a, b), links.get((b, a), 0))) for b in buses)
        + " " for a in buses)
    return [f'<distances2 type="PCIDev" nbobjs="{len(buses)}" kind="9"'
            ' name="NVLinkBandwidth" indexing="gp">',
            f'<indexes length="{len(index)}">{index}</indexes>',
            f'<u64values length="{len(values)}">{values}</u64values>',
            "</distances2>"]


def hwloc(packages, loose=(), links=None, shared=()):
    """Makes a machine. packages: lists of NUMA dicts {os, memory, cores, roots,
    extra}; loose: roots whose place the machine does not give; shared: memory
    near all cores."""
    numas = [numa for package in packages for numa in package]
    extra = [e for numa in numas for e in numa.get("extra", ())] + [*shared]
    all_cpus = [c for numa in numas for core in numa["cores"] for c in core]
    all_nodes = [numa["os"] for numa in numas + extra]
    xml, gps = Xml(), {}
    whole = sets(all_cpus, all_nodes)
    xml.open("Machine", os_index=0, **whole,
             allowed_cpuset=whole["cpuset"], allowed_nodeset=whole["nodeset"])
    for node in shared:
        add_numa(xml, node, all_cpus, gps)
    for number, package in enumerate(packages):
        cpus = [c for numa in package for core in numa["cores"] for c in core]
        nodes = [n["os"] for numa in package
                 for n in [numa, *numa.get("extra", ())]]
        nodes += [node["os"] for node in shared]
        xml.open("Package", os_index=number, **sets(cpus, nodes))
        for numa in package:
            own = [c for core in numa["cores"] for c in core]
            here = [numa["os"]] + [e["os"] for e in numa.get("extra", ())]
            here += [node["os"] for node in shared]
            if len(package) > 1:
                xml.open("Group", **sets(own, here))
            for node in [numa, *numa.get("extra", ())]:
                add_numa(xml, node, own, gps)
            add_cores(xml, numa["cores"], here)
            for root in numa.get("roots", ()):
                add_root(xml, root, gps)
            if len(package) > 1:
                xml.close()
        xml.close()
    for root in loose:
        add_root(xml, root, gps)
    xml.close()
    head = ['<?xml version="1.0" encoding="UTF-8"?>',
            '<!DOCTYPE topology SYSTEM "hwloc2.dtd">',
            '<topology version="2.0">']
    tail = matrix(gps, links) if links else []
    return "\n".join(head + xml.lines + tail + ["</topology>"]) + "\n"


def cores(first, count, second=None):
    """Makes one or two hardware threads per core, numbered as Linux does."""
    return [[first + i] + ([second + i] if second is not None else [])
            for i in range(count)]


H100_GPUS = ["0000:1b:00.0", "0000:43:00.0", "0000:52:00.0", "0000:61:00.0",
             "0000:9d:00.0", "0000:c3:00.0", "0000:d1:00.0", "0000:df:00.0"]
H100_NICS = ["0000:18:00.0", "0000:40:00.0", "0000:4f:00.0", "0000:5e:00.0",
             "0000:9a:00.0", "0000:c0:00.0", "0000:ce:00.0", "0000:dc:00.0"]
SWITCHES = ["0000:05:00.0", "0000:06:00.0", "0000:07:00.0", "0000:08:00.0"]


def h100_links():
    """Makes 18 links per GPU to four NVSwitches."""
    return {(g, s): count * 20600 for g in H100_GPUS
            for s, count in zip(SWITCHES, (5, 4, 4, 5))}


def h100(one_nic_for_two):
    """Makes two sockets with four GPUs each. Each GPU is below a switch with a
    NIC, or two GPUs are below a switch with one NIC."""
    packages = []
    for socket in range(2):
        roots = []
        if one_nic_for_two:
            for pair in range(2):
                at = socket * 4 + pair * 2
                roots.append([[nic(H100_NICS[at], at // 2),
                               gpu(H100_GPUS[at]), gpu(H100_GPUS[at + 1])]])
        else:
            for at in range(socket * 4, socket * 4 + 4):
                roots.append([[nic(H100_NICS[at], at, f"ibs{at}"),
                               gpu(H100_GPUS[at])]])
        if socket == 0:
            roots.append([Device(s, "0680 [10de:22a3] [10de:1796] a1")
                          for s in SWITCHES])
            roots.append([Device("0000:02:00.0",
                                 "0300 [1a03:2000] [1a03:2000] 52")])
        packages.append([{"os": socket, "memory": 1024 * GIB, "roots": roots,
                          "cores": cores(56 * socket, 56,
                                         112 + 56 * socket)}])
    return hwloc(packages, links=h100_links())


def gb200():
    """Makes two Grace processors with four GPUs, whose memory is NUMA nodes
    too, and one NIC each. The NVSwitches are in other trays and are not
    visible."""
    packages = []
    for socket in range(2):
        base = 0x10 * socket
        roots = []
        for device in range(2):
            at = socket * 2 + device
            roots.append([nic(f"{base + 2 * device:04x}:03:00.0", at)])
            roots.append([gpu(f"{base + 8 + device:04x}:01:00.0",
                              "10de:2941")])
        extra = [{"os": 2 + 8 * (2 * socket + d), "memory": 186 * GIB,
                  "subtype": "GPUMemory"} for d in range(2)]
        packages.append([{"os": socket, "memory": 480 * GIB, "roots": roots,
                          "cores": cores(72 * socket, 72), "extra": extra}])
    return hwloc(packages)


def machines():
    both = [[nic("0000:41:00.0", 0)], [nic("0000:81:00.0", 1)]]
    one = Device("0000:00:03.0", "0200 [1af4:1000] [1af4:0001] 00",
                 [("eth0", 2)], 0)
    return {
        "dgx-h100.xml": h100(False),
        "hgx-h100-pcie-nics.xml": h100(True),
        "gb200-nvl.xml": gb200(),
        # Sub-NUMA clusters: two NUMA nodes per socket, and a NIC at the first.
        "dual-socket.xml": hwloc([
            [{"os": 2 * p + n, "memory": 64 * GIB,
              "cores": cores(8 * (2 * p + n), 8),
              "roots": [both[0]] if p + n == 0 else []}
             for n in range(2)] for p in range(2)]),
        # The slots of the second socket are empty; the NIC is at the first.
        "memoryless-numa.xml": hwloc([
            [{"os": 0, "memory": 128 * GIB, "cores": cores(0, 8)}],
            [{"os": 1, "memory": 0, "cores": cores(8, 8),
              "roots": [both[1]]}]]),
        # Memory behind CXL, which is local to the cores of both sockets.
        "shared-memory.xml": hwloc(
            [[{"os": p, "memory": 64 * GIB, "cores": cores(4 * p, 4),
               "roots": [both[p]]}] for p in range(2)],
            shared=[{"os": 2, "memory": 256 * GIB}]),
        "flat-vm.xml": hwloc(
            [[{"os": 0, "memory": 8 * GIB, "cores": cores(0, 4)}]],
            loose=[[one]]),
        # Two NUMA nodes, without information on where the GPU and the NIC are.
        "vm-unknown-numa.xml": hwloc(
            [[{"os": 0, "memory": 32 * GIB, "cores": cores(0, 4)}],
             [{"os": 1, "memory": 32 * GIB, "cores": cores(4, 4)}]],
            loose=[[one], [gpu("0001:00:00.0")]]),
        # Two NICs at one socket, and two GPUs per socket without NVLink.
        "two-nic.xml": hwloc([
            [{"os": 0, "memory": 256 * GIB, "cores": cores(0, 16),
              "roots": [*both, [gpu("0000:21:00.0", "10de:26b9")],
                        [gpu("0000:22:00.0", "10de:26b9")]]}],
            [{"os": 1, "memory": 256 * GIB, "cores": cores(16, 16),
              "roots": [[gpu("0000:a1:00.0", "10de:26b9"),
                         gpu("0000:a2:00.0", "10de:26b9")]]}]]),
        "dgx-h100.nccl.xml": nccl_h100(),
        "gb200-nvl.nccl.xml": nccl_gb200(),
        "vm.nccl.xml": nccl_vm(),
    }


# ---- NCCL's format -----------------------------------------------------------

def nccl_gpu(bus, number, sm, links):
    lines = [f'<pci busid="{bus}" class="0x030200" link_speed="32.0 GT/s PCIe"'
             ' link_width="16">',
             f'  <gpu dev="{number}" sm="{sm}" rank="{number}" gdr="1">']
    lines += [f'    <nvlink target="{target}" count="{count}"'
              ' tclass="0x068000"/>' for target, count in links]
    return lines + ["  </gpu>", "</pci>"]


def nccl_nic(bus, number):
    return [f'<pci busid="{bus}" class="0x020700" link_speed="32.0 GT/s PCIe"'
            ' link_width="16">', "  <nic>",
            f'    <net name="mlx5_{number}" dev="{number}" speed="400000"'
            ' port="1" latency="0.000000" guid="0x1" maxconn="131072"'
            ' gdr="1"/>', "  </nic>", "</pci>"]


def nccl_cpu(numa, affinity, arch, lines):
    return [f'<cpu numaid="{numa}" affinity="{affinity}" arch="{arch}"'
            ' host_hash="0x7d4b0cafe0123456">', *indent(lines), "</cpu>"]


def indent(lines):
    return ["  " + line for line in lines]


def nccl(lines):
    return "\n".join(['<system version="1">', *indent(lines), "</system>"]) \
        + "\n"


def affinity(bits):
    return mask(bits).replace("0x", "")


def nccl_h100():
    lines = []
    for socket in range(2):
        below = []
        for at in range(socket * 4, socket * 4 + 4):
            bus = H100_NICS[at][5:7]
            below += [f'<pci busid="0000:{int(bus, 16) - 2:02x}:00.0"'
                      ' class="0x060400" link_speed="32.0 GT/s PCIe"'
                      ' link_width="16">',
                      *indent(nccl_nic(H100_NICS[at], at)),
                      *indent(nccl_gpu(H100_GPUS[at], at, 90,
                                       zip(SWITCHES, (5, 4, 4, 5)))),
                      "</pci>"]
        cpus = [c for i in range(56) for c in (56 * socket + i,
                                              112 + 56 * socket + i)]
        lines += nccl_cpu(socket, affinity(cpus), "x86_64", below)
    return nccl(lines)


def nccl_gb200():
    lines = []
    for socket in range(2):
        below = []
        for device in range(2):
            at, base = socket * 2 + device, 0x10 * socket
            below += nccl_nic(f"{base + 2 * device:04x}:03:00.0", at)
            below += nccl_gpu(f"{base + 8 + device:04x}:01:00.0", at, 100,
                              [("fffffff:ffff:ff", 18)])
        lines += nccl_cpu(socket, affinity(range(72 * socket,
                                                 72 * socket + 72)),
                          "arm64", below)
    return nccl(lines)


def nccl_vm():
    """Makes a virtual machine without NUMA nodes, with a NIC without a PCI
    address."""
    return nccl([
        '<cpu numaid="-1" affinity="ff" arch="x86_64">',
        *indent(nccl_gpu("0001:00:00.0", 0, 80, [])),
        "  <nic>",
        '    <net name="eth0" dev="0" speed="100000" latency="25"/>',
        "  </nic>", "</cpu>"])


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(
        os.path.abspath(__file__))
    for name, text in machines().items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
