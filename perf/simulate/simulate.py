#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""simulate.py BIN [--ranks 64,128,256] [--algo direct,pairwise,hier]
[--operation s2h,h2s,s2h_adj,h2s_adj] [--known FILE]: compares predictions of
`ulyx_info plan --nodes` with SimGrid's SMPI, which plays the same schedules
(as GOAL) on a platform with the same link parameters. FILE keeps the simulated
times, so that a changed model can be compared without a new simulation.
ULYX_NET_PEERS holds for both. Needs the distribution's simgrid and
libsimgrid-dev; not part of the test suite."""
import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PER_NODE = 8
LINKS = {"nvlink": (0.5e-6, 360e9), "nic": (4e-6, 46e9)}  # latency, bytes/s
MESSAGE_S = 0.35e-6
# Rows per pair of ranks. A row has 384 bytes: q, k and v of one head of 64
# elements of 16 bits.
ROWS = [3, 11, 43, 171, 683]

SMPI = ["--cfg=smpi/simulate-computation:no", "--cfg=network/model:CM02",
        "--cfg=network/crosstraffic:no", "--cfg=network/TCP-gamma:0",
        f"--cfg=smpi/ois:0:{MESSAGE_S}:0", "--cfg=smpi/os:0:0:0",
        "--cfg=smpi/async-small-thresh:1000000000",
        "--cfg=smpi/send-is-detached-thresh:1000000000",
        "--cfg=surf/precision:1e-12", "--log=root.thres:error"]


def host(rank):
    return f"g{rank}"


def link(name, rank):
    latency, rate = LINKS[name]
    return (f'<link id="{name}{rank}" bandwidth="{rate:.0f}Bps" '
            f'latency="{latency / 2:.12f}s" sharing_policy="SPLITDUPLEX"/>')


def route(a, b):
    name = "nvlink" if a // PER_NODE == b // PER_NODE else "nic"
    return (f'<route src="{host(a)}" dst="{host(b)}" symmetrical="NO">'
            f'<link_ctn id="{name}{a}" direction="UP"/>'
            f'<link_ctn id="{name}{b}" direction="DOWN"/></route>')


def write_platform(folder, ranks):
    """Every rank has one port to its node and one port to other nodes; nothing
    between the ports limits the bytes."""
    lines = ["<?xml version='1.0'?>",
             '<!DOCTYPE platform SYSTEM '
             '"https://simgrid.org/simgrid.dtd">',
             '<platform version="4.1"><zone id="z" routing="Full">']
    lines += [f'<host id="{host(r)}" speed="1Gf"/>' for r in range(ranks)]
    lines += [link(name, r) for name in LINKS for r in range(ranks)]
    lines += [route(a, b) for a in range(ranks) for b in range(ranks) if a != b]
    lines.append("</zone></platform>")
    with open(os.path.join(folder, "platform.xml"), "w",
              encoding="utf-8") as file:
        file.write("\n".join(lines))
    with open(os.path.join(folder, "hosts"), "w", encoding="utf-8") as file:
        file.writelines(host(r) + "\n" for r in range(ranks))


def write_tuning(folder, algo):
    """A tuning file with the link parameters of the platform, in which nothing
    else takes time."""
    path = os.path.join(folder, "tuning")
    with open(path, "w", encoding="utf-8") as file:
        file.write("ulyx tuning 1\nhost launch=0 handoff=0\n"
                   "fabric taper=1 efficiency=1\n")
        for name in ("nvlink", "nic", "spine"):
            latency, rate = LINKS["nvlink" if name == "nvlink" else "nic"]
            file.write(f"link {name} latency={latency}s send={MESSAGE_S}s "
                       f"receive=0s gap=0s 64K={1e12 / rate}ps/B\n")
        file.write(f"rule nodes=1- -> {algo} chunks=1\n")
    return path


def plan(binary, shape, tuning, *words):
    """The output of ulyx_info plan for an exchange in one chunk, as in GOAL."""
    whole = dict(os.environ, ULYX_NET_CHUNK="64M", ULYX_NET_FLIGHT="1G")
    return subprocess.run([os.path.join(binary, "ulyx_info"), "plan", *shape,
                           "--tuning", tuning, *words], check=True,
                          capture_output=True, text=True, env=whole).stdout


def simulate_once(folder, ranks, goal, known):
    """The simulated time; from the file `known` if it has a time for the same
    schedule and platform."""
    if not known:
        return simulate(folder, ranks, goal)
    parts = hashlib.sha256(repr((LINKS, SMPI, PER_NODE)).encode())
    with open(goal, "rb") as file:
        parts.update(file.read())
    times = {}
    if os.path.exists(known):
        with open(known, encoding="utf-8") as file:
            times = json.load(file)
    if parts.hexdigest() not in times:
        times[parts.hexdigest()] = simulate(folder, ranks, goal)
        with open(known + ".new", "w", encoding="utf-8") as file:
            json.dump(times, file, indent=0)
        os.replace(known + ".new", known)
    return times[parts.hexdigest()]


def simulate(folder, ranks, goal):
    out = subprocess.run(
        ["smpirun", "-np", str(ranks), "-platform",
         os.path.join(folder, "platform.xml"), "-hostfile",
         os.path.join(folder, "hosts"), *SMPI,
         os.path.join(folder, "replay"), goal],
        check=True, capture_output=True, text=True).stdout
    return float(out.split()[-1])


def compare(binary, folder, ranks, algo, operation, heads, rows, known):
    kv_heads = heads
    if heads == "gqa":
        heads, kv_heads = ranks, ranks // 8
    shape = ["--nodes", str(ranks // PER_NODE), "--ranks-per-node",
             str(PER_NODE), "--seq", str(ranks * rows), "--heads", str(heads),
             "--kv-heads", str(kv_heads), "--dim", "64",
             "--operation", operation]
    tuning = write_tuning(folder, algo)
    text = plan(binary, shape, tuning)
    predicted = float(re.search(r"^  \w+: ([\d.]+) us", text, re.M).group(1))
    goal = os.path.join(folder, "schedule.goal")
    plan(binary, shape, tuning, "--export", "goal", "--output", goal)
    return predicted, 1e6 * simulate_once(folder, ranks, goal, known)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bin")
    parser.add_argument("--ranks", default="64,128,256")
    parser.add_argument("--algo", default="direct,pairwise,hier")
    parser.add_argument("--operation", default="s2h")
    parser.add_argument("--known", default="")
    options = parser.parse_args()
    cases = [(ranks, algo, operation, heads, rows)
             for ranks in map(int, options.ranks.split(","))
             for algo in options.algo.split(",")
             for operation in options.operation.split(",")
             for heads in (ranks, "gqa") for rows in ROWS]
    errors = []
    before = 0
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["smpicc", "-O1", "-o", os.path.join(folder, "replay"),
                        os.path.join(HERE, "replay.c")], check=True)
        for case in cases:
            ranks, algo, operation, heads, rows = case
            if ranks != before:
                write_platform(folder, ranks)
            before = ranks
            predicted, simulated = compare(options.bin, folder, *case,
                                           options.known)
            error = predicted / simulated - 1
            errors.append(abs(error))
            kind = "gqa" if heads == "gqa" else "mha"
            print(f"P={ranks:<4} {algo:8} {operation:7} {kind} "
                  f"{rows * 384:7} B: {predicted:9.1f} us predicted, "
                  f"{simulated:9.1f} simulated, {error:+.1%}", flush=True)
    if errors:
        print(f"mean {sum(errors) / len(errors):.1%}, worst {max(errors):.1%} "
              f"of {len(errors)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
