#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts of the transport ucx beside ucx_perftest, on one link, in turn.

    net_compare.py BENCH [--sizes N,N] [--verbs V,V] [--rounds N]
        over the loopback device
    netns-test.sh run -H 2 -- net_compare.py BENCH ...
        between two hosts, rank 0 asks and rank 1 serves

In each round every contestant moves every size, one after another, so that a
busy machine hits them alike. Printed are medians in MB/s and the median of
the rounds' ratios against the best of ucx_perftest's verbs in that round.
"""
import argparse
import os
import socket
import statistics
import subprocess
import sys
import time

VERBS = {"am": "ucp_am_bw", "tag": "tag_bw", "put": "ucp_put_bw"}
PORT = 17470
ROUND_BYTES = {"am": 96 << 20, "tag": 96 << 20, "put": 8 << 20}


def environment(device):
    return dict(os.environ, UCX_TLS="tcp", UCX_NET_DEVICES=device)


def serve(link, device):
    """Starts what the other side names, one a line."""
    lines = link.makefile("r")
    for line in lines:
        server = subprocess.Popen(
            line.split(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=environment(device))
        link.sendall(b"started\n")
        try:
            server.wait(120)
        except subprocess.TimeoutExpired:
            server.kill()


def client(link, words, device, server):
    link.sendall((" ".join(server) + "\n").encode())
    link.recv(64)
    time.sleep(0.3)
    done = subprocess.run(words, capture_output=True, text=True, timeout=120,
                          check=False, env=environment(device))
    return done.stdout


def perftest(link, host, port, verb, size, device):
    count = max(4, min(4000, ROUND_BYTES[verb] // size))
    out = client(link, ["ucx_perftest", host, "-p", str(port), "-t",
                        VERBS[verb], "-s", str(size), "-n", str(count), "-w",
                        str(max(2, count // 10)), "-f"], device,
                 ["ucx_perftest", "-p", str(port)])
    words = out.split("\n")[-2].split() if out.count("\n") else []
    try:  # ... bandwidth average, overall (MB/s of 2^20), rates
        return float(words[-3]) * 1.048576
    except (IndexError, ValueError):
        return 0.0


def ours(link, host, port, bench, sizes, device):
    out = client(link, [bench, host, str(port)] + [str(s) for s in sizes],
                 device, [bench, "serve", str(port)])
    found = {}
    for line in out.splitlines():
        name, value = line.split()
        found[name] = float(value) * (1 if name == "latency" else 1000)
    return found


def compare(link, host, options, device):
    sizes = [int(s) for s in options.sizes.split(",")]
    verbs = options.verbs.split(",")
    rows = {size: {name: [] for name in ["ours", *verbs]} for size in sizes}
    latency, port = [], PORT + 1
    for _ in range(options.rounds):
        port += 1
        found = ours(link, host, port, options.bench, sizes, device)
        latency.append(found.get("latency", 0))
        for size in sizes:
            rows[size]["ours"].append(found.get(str(size), 0))
            for verb in verbs:
                port += 1
                rows[size][verb].append(
                    perftest(link, host, port, verb, size, device))
    print("bytes         ours" + "".join(f"{v:>9}" for v in verbs) +
          "   ours / best")
    for size, row in rows.items():
        ratios = [mine / best for mine, *others in zip(
            row["ours"], *(row[verb] for verb in verbs))
            if (best := max(others)) > 0]
        middle = [statistics.median(row[name]) for name in row]
        print(f"{size:<9}" + "".join(f"{m:9.1f}" for m in middle) +
              (f"   {statistics.median(ratios):.2f} "
               f"({min(ratios):.2f} to {max(ratios):.2f})" if ratios else ""))
    print(f"latency of 8 bytes, one way: {statistics.median(latency):.1f} us")


def device_of_host():
    names = [n for n in os.listdir("/sys/class/net") if n != "lo"]
    return sorted(names)[0] if names else "lo"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bench")
    parser.add_argument("--sizes", default="8192,65536,1048576,16777216")
    parser.add_argument("--verbs", default="am,tag,put")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rank = os.environ.get("ULYX_RANK")
    address = os.environ.get("MASTER_ADDR", "127.0.0.1")
    device = device_of_host() if rank else "lo"
    if rank == "1" or (rank is None and os.fork() == 0):
        for _ in range(100):
            try:
                link = socket.create_connection((address, PORT))
                break
            except OSError:
                time.sleep(0.1)
        serve(link, device)
        return 0
    listener = socket.create_server((address, PORT), reuse_port=True)
    link, (host, _) = listener.accept()
    compare(link, host, options, device)
    return 0


sys.exit(main())
