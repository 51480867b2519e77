#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares schedules between hosts with each other, and with Open MPI over TCP.

    nodes_compare.py BIN [-H HOSTS] [-R RANKS] [--rates 1gbit,200mbit,free]
        [--schedules pairwise,hier,direct] [--kv-heads 8,2] [--sizes 64K,4M]
        [--rounds N] [--mpi]

Hosts are network namespaces (scripts/netns-test.sh; needs root). In each round
every schedule moves every shape over the same link, one after another, so that
other work of the machine affects them alike. The output has medians in
milliseconds. On a link with a limited rate, it also has the least time that
the link needs for the bytes that must leave a host, divided by our time: 1.00
is the speed of the link. --mpi runs ulyx_perf --vs mpi under mpirun instead,
and prints the time of Open MPI divided by ours in the same run. Not part of
the test suite.
"""
import argparse
import os
import re
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import runs  # noqa: E402 (found by the line above)

HEADS, DIM, BYTES = 32, 128, 2
BITS = {"k": 1e3, "m": 1e6, "g": 1e9}


def bytes_a_second(rate):
    """Bytes per second of a rate such as "1gbit"; None for a link without a
    limit."""
    match = re.fullmatch(r"(\d+)([kmg])bit", rate)
    return int(match[1]) * BITS[match[2]] / 8 if match else None


def run(options, rate, variables, words):
    return runs.between_hosts(
        options.bin, options.hosts, options.ranks,
        "" if rate == "free" else rate,
        ["--heads", str(HEADS), "--dim", str(DIM), "--no-progress", "-n",
         str(options.iterations), *words],
        variables, "mpirun" if options.mpi else "")


def leaving_bytes(op, seq, kv_heads, hosts):
    """The bytes that must leave one host: each head of its rows once to each
    host whose ranks compute with the head. Heads are spread evenly, and the
    ranks of a host are neighbours."""
    rows = seq // hosts
    if op == "h2s":  # the heads of this host, for the rows of all other hosts
        return HEADS // hosts * (seq - rows) * DIM * BYTES
    abroad = HEADS - HEADS // hosts
    group = HEADS // kv_heads
    readers = [{h // group for h in range(i * HEADS // hosts,
                                          (i + 1) * HEADS // hosts)}
               for i in range(hosts)]
    kv = sum(len(r) for r in readers[1:])
    return rows * (abroad + 2 * kv) * DIM * BYTES


def compare(options, rate, kv_heads):
    found = {}
    for turn in range(options.rounds):
        for schedule in options.schedules:
            for size in options.sizes:
                runs.progress(f"{rate}, {kv_heads} KV heads, round "
                              f"{turn + 1}: {schedule} {size}")
                for row in run(options, rate, ["ULYX_ALGO=" + schedule],
                               ["--kv-heads", kv_heads, "--op", "both",
                                "-b", size, "-e", size]):
                    if int(row["wrong"]):
                        sys.exit(f"nodes_compare.py: wrong data: {row}")
                    key = (row["op"], int(row["size_bytes"]), int(row["seq"]))
                    found.setdefault(key, {}).setdefault(schedule, []).append(
                        float(row["time_us"]))
    runs.progress()
    speed = bytes_a_second(rate)
    for (op, size, seq), times in found.items():
        middle = {s: statistics.median(t) for s, t in times.items()}
        limit = (leaving_bytes(op, seq, int(kv_heads), options.hosts) / speed
                 * 1e6 if speed else None)
        print(f"{rate:>8}{kv_heads:>4}{op:>5}{size:>10}" + "".join(
            f"{middle[s] / 1000:11.2f}" +
            (f" ({limit / middle[s]:.2f})" if limit else "       ")
            for s in options.schedules), flush=True)


def beside_mpi(options, rate, kv_heads):
    for size in options.sizes:
        rows = {}
        for _ in range(options.rounds):
            for row in run(options, rate, [], [
                    "--kv-heads", kv_heads, "--op", "both", "-b", size, "-e",
                    size, "--vs", "mpi"]):
                rows.setdefault((row["op"], row["size_bytes"]), []).append(row)
        for (op, bytes_), all_ in rows.items():
            columns = [[float(r[c]) for r in all_]
                       for c in ("time_us", "vs_mpi", "vs_mpiw")]
            time, pack, typed = (statistics.median(c) for c in columns)
            print(f"{rate:>8}{kv_heads:>4}{op:>5}{bytes_:>10}"
                  f"{time / 1000:11.2f}{pack:9.2f} ({min(columns[1]):.2f} to "
                  f"{max(columns[1]):.2f}){typed:9.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", help="folder of ulyx_perf")
    parser.add_argument("-H", "--hosts", type=int, default=2)
    parser.add_argument("-R", "--ranks", type=int, default=4,
                        help="ranks on each host")
    parser.add_argument("--rates", default="1gbit,200mbit,free")
    parser.add_argument("--schedules", default="pairwise,hier,direct")
    parser.add_argument("--kv-heads", default="8,2")
    parser.add_argument("--sizes", default="64K,512K,4M")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--mpi", action="store_true")
    options = parser.parse_args()
    options.schedules = options.schedules.split(",")
    options.sizes = options.sizes.split(",")
    print(f"{options.hosts} hosts of {options.ranks} ranks, {HEADS} heads, "
          f"{DIM} bf16; ms" +
          ("; Open MPI's time over ours" if options.mpi
           else " (share of the link)"))
    print("    rate  kv   op     bytes" + (
        "       ours  alltoall (range)  alltoallw" if options.mpi else
        "".join(f"{s:>18}" for s in options.schedules)))
    for rate in options.rates.split(","):
        for kv_heads in options.kv_heads.split(","):
            (beside_mpi if options.mpi else compare)(options, rate, kv_heads)


if __name__ == "__main__":
    main()
