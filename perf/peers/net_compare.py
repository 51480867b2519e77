#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares ulyx with ucx_perftest on one link.

    net_compare.py BIN [--what puts|exchange] [--sizes N,N] [--verbs V,V]
                   [--rounds N]
        over the loopback device
    netns-test.sh run -H 2 [--rate RATE] -- net_compare.py BIN ...
        between two hosts: rank 0 controls, rank 1 serves

puts: ucx_bench, which keeps 16 puts in flight to the other side, is compared
with ucx_perftest. exchange: ulyx_perf with two ranks, which send to each other
at the same time (with packing and unpacking), is compared with two
ucx_perftest at the same time, one for each direction. MB/s count the bytes of
one direction.

BIN is the folder of ucx_bench and ulyx_perf. In each round both programs move
every size, one after another, so that other work of the machine affects them
alike. ulyx uses each verb of --verbs, and the verb that its probe chooses
(auto). The output has the median of all rounds in MB/s, and the ratio of auto to
the best verb of ucx_perftest: the median of all rounds, with the least and the
greatest.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import runs  # noqa: E402 (found by the line above)

VERBS = {"am": "ucp_am_bw", "tag": "tag_bw", "put": "ucp_put_bw"}
PORT = 17470
ROUND_BYTES = {"am": 48 << 20, "tag": 48 << 20, "put": 4 << 20}
SECONDS = 120


def environment(device, variables):
    return dict(os.environ, UCX_TLS="tcp", UCX_NET_DEVICES=device, **variables)


class Here:
    """Programs on this host."""

    def __init__(self, device):
        self.device, self.running = device, []

    def start(self, words, variables):
        self.running.append(subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, env=environment(self.device, variables)))

    def finish(self):
        """What the programs have written, in the order in which they were
        started."""
        texts = []
        for program in self.running:
            try:
                texts.append(program.communicate(timeout=SECONDS)[0])
            except subprocess.TimeoutExpired:
                program.kill()
                texts.append("")
        self.running = []
        return texts


class There:
    """Programs on the other host, which `serve` runs there."""

    def __init__(self, link):
        self.link, self.lines = link, link.makefile("r")

    def call(self, *words):
        self.link.sendall((json.dumps(words) + "\n").encode())
        return json.loads(self.lines.readline())

    def start(self, words, variables):
        self.call("start", words, variables)

    def finish(self):
        return self.call("finish")


def serve(link, device):
    """Runs the calls of a There at the other end of the link."""
    here = Here(device)
    for line in link.makefile("r"):
        call, *arguments = json.loads(line)
        answer = getattr(here, call)(*arguments)
        link.sendall((json.dumps(answer) + "\n").encode())


class Link:
    """The two ends of the link, and ports that are not used yet."""

    def __init__(self, here, there, addresses, options):
        self.ends, self.addresses = (here, there), addresses
        self.options, self.port = options, PORT

    def fresh_port(self):
        self.port += 1
        return str(self.port)

    def finish(self):
        return [end.finish() for end in self.ends]


def perftest(link, verb, size, both_ways):
    count = max(4, min(4000, ROUND_BYTES[verb] // size))
    ways = (0, 1) if both_ways else (0,)
    ports = [link.fresh_port() for _ in ways]
    for way in ways:
        link.ends[1 - way].start(["ucx_perftest", "-p", ports[way]], {})
    time.sleep(0.3)
    for way in ways:
        link.ends[way].start(
            ["ucx_perftest", link.addresses[1 - way], "-p", ports[way], "-t",
             VERBS[verb], "-s", str(size), "-n", str(count), "-w",
             str(max(2, count // 10)), "-f"], {})
    # The last program that an end has started is its client.
    texts = link.finish()
    return statistics.mean(perftest_speed(texts[way][-1]) for way in ways)


def perftest_speed(text):
    words = text.split("\n")[-2].split() if text.count("\n") else []
    try:  # ... bandwidth average, overall (MB/s of 2^20), rates
        return float(words[-3]) * 1.048576
    except (IndexError, ValueError):
        return 0.0


def puts(link, sizes, verb):
    """Runs ucx_bench. Returns {size: MB/s, "latency": us one way}."""
    program = os.path.join(link.options.bin, "ucx_bench")
    port = link.fresh_port()
    variables = {"ULYX_UCX_VERB": verb.upper(), "ULYX_INSECURE": "1"}
    link.ends[1].start([program, "serve", port], variables)
    link.ends[0].start([program, link.addresses[1], port,
                        *(str(size) for size in sizes)], variables)
    found = {}
    for line in link.finish()[0][0].splitlines():
        name, value = line.split()
        found[name] = float(value) * (1 if name == "latency" else 1000)
    return found


def exchange(link, sizes, verb):
    """Runs ulyx_perf with h2s, in which each of two ranks sends half of its
    bytes to the other. Returns {size: MB/s}."""
    program, found = os.path.join(link.options.bin, "ulyx_perf"), {}
    for size in sizes:
        port = link.fresh_port()
        for rank in (0, 1):
            link.ends[rank].start(
                [program, "--heads", "2", "--dim", "128", "-o", "h2s", "-b",
                 str(2 * size), "-e", str(2 * size), "-c", "0", "-w", "2",
                 "-n", str(max(4, min(400, (48 << 20) // size))), "--csv",
                 "--no-progress"],
                {"ULYX_RANK": str(rank), "ULYX_NRANKS": "2",
                 "ULYX_PORT": port, "ULYX_UCX_VERB": verb.upper(),
                 "ULYX_INSECURE": "1",
                 "MASTER_ADDR": link.addresses[0], **APART[rank]})
        for row in runs.rows(link.finish()[0][0]):
            found[str(size)] = float(row["busbw_gbs"]) * 1000
    return found


# Variables of the two ranks: on one machine they must be two nodes.
APART = [{}, {}] if os.environ.get("ULYX_RANK") else [
    {"ULYX_HOSTID": name, "ULYX_INSECURE": "1"} for name in ("one", "two")]


def compare(link):
    options = link.options
    sizes = [int(size) for size in options.sizes.split(",")]
    verbs = options.verbs.split(",")
    both_ways = options.what == "exchange"
    ours = exchange if both_ways else puts
    names = ["auto", *verbs, *("perftest " + verb for verb in verbs)]
    rows = {size: {name: [] for name in names} for size in sizes}
    latency = []
    for turn in range(options.rounds):
        runs.progress(f"round {turn + 1}")
        for verb in ["auto", *verbs]:
            found = ours(link, sizes, verb)
            latency.append(found.get("latency", 0))
            for size in sizes:
                rows[size][verb].append(found.get(str(size), 0))
        for size in sizes:
            for verb in verbs:
                rows[size]["perftest " + verb].append(
                    perftest(link, verb, size, both_ways))
    runs.progress()
    print("bytes   " + "".join(f"{name:>14}" for name in names) +
          "   auto / best of perftest")
    for size, row in rows.items():
        best = [max(values) for values in zip(
            *(row[name] for name in names if " " in name))]
        ratios = [mine / most for mine, most in zip(row["auto"], best) if most]
        print(f"{size:<8}" + "".join(
            f"{statistics.median(row[name]):14.1f}" for name in names) +
              (f"   {statistics.median(ratios):.2f} "
               f"({min(ratios):.2f} to {max(ratios):.2f})" if ratios else ""))
    if not both_ways:
        print(f"latency of 8 bytes, one way: {statistics.median(latency):.1f}"
              " us")


def device_of_host():
    names = [name for _, name in socket.if_nameindex() if name != "lo"]
    return sorted(names)[0] if names else "lo"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", help="folder of ucx_bench and ulyx_perf")
    parser.add_argument("--what", choices=("puts", "exchange"), default="puts")
    parser.add_argument("--sizes", default="65536,1048576,16777216")
    parser.add_argument("--verbs", default="am,tag,put")
    parser.add_argument("--rounds", type=int, default=3)
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
    link, (other, _) = listener.accept()
    compare(Link(Here(device), There(link), (address, other), options))
    return 0


sys.exit(main())
