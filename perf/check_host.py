#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Is the exchange of this host as fast as it should be?

    check_host.py BIN [--procs 2,4] [--ops s2h,h2s] [--memory windows,malloc]
        [--sizes 16K,64K,256K,1M,4M,16M,64M] [--rounds N] [--mpi]
        [--models llama3-8b,...] [--csv FILE] [--no-floors]

Every row (processes, direction, memory, size, model) is measured in each of N
rounds (3). The rows of a round are measured one after another, so that other
work of the machine does not affect one row alone. The values printed are
medians over the rounds, in columns of ulyx_perf: time; the time of the best
copy of the same bytes over our time (vs_best); the share of the memory
bandwidth (of_bw); with --mpi also the times of pack + MPI_Alltoall(v) + unpack
(vs_mpi) and of MPI_Alltoallw (vs_mpiw) over our time. A value that has a floor
and a goal is followed by both. A value below its floor is marked, and the exit
code is then 1. The figures are valid only on an idle machine. Not part of the
test suite.
"""
import argparse
import csv
import os
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import runs  # noqa: E402 (found by the line above)

COLUMNS = ("vs_best", "of_bw", "vs_mpi", "vs_mpiw")

# (floor, goal) of vs_best: for large calls, for medium calls, and for calls
# with short rows of at least the medium size.
LARGE, MEDIUM, SHORT = (0.85, 0.95), (0.60, 0.80), (0.55, 0.80)
LARGE_BYTES, MEDIUM_BYTES, LONG_ROW = 4 << 20, 256 << 10, 512
MPI = {"vs_mpi": (2.0, 3.5), "vs_mpiw": (1.2, 1.5)}


def shortest_row(row):
    """The least bytes of a token that one rank sends another, over the tensors;
    heads that are contiguous count as one row."""
    dim = min(int(row["dim"]), int(row["dim_v"]))
    heads = int(row["kv_heads"] if row["op"] == "s2h" else row["heads"])
    return max(heads // int(row["ranks"]), 1) * dim * 2


def bounds(column, row, memory, size):
    """(floor, goal) of a value; None where there is no goal."""
    if memory != "windows" or size < MEDIUM_BYTES:
        return None
    if column in MPI:
        return MPI[column]
    if column != "vs_best":
        return None
    if shortest_row(row) < LONG_ROW:
        return SHORT
    return LARGE if size >= LARGE_BYTES else MEDIUM


def measure(options, procs, op, memory, size):
    versus = "best,mpi" if options.mpi else "best"
    return runs.on_this_host(options.bin, [
        "--procs", str(procs), "--op", op, "-b", size, "-e", size, "--model",
        options.models, "--vs", versus, "-n", str(options.iterations), "-R",
        "1" if memory == "windows" else "0"])


def measure_all(options):
    """{(procs, op, memory, size, model): [row of each round]}"""
    found = {}
    for turn in range(options.rounds):
        for procs in options.procs:
            for memory in options.memory:
                for size in options.sizes:
                    for op in options.ops:
                        runs.progress(f"round {turn + 1} of {options.rounds}: "
                                      f"{procs} processes, {op}, {memory}, "
                                      f"{size}")
                        for row in measure(options, procs, op, memory, size):
                            key = (procs, op, memory, size, row["model"])
                            found.setdefault(key, []).append(row)
    runs.progress()
    return found


def judge(options, key, all_):
    """Prints a line. Returns the columns that are below their floors."""
    procs, op, memory, size, model = key
    below = []
    time = statistics.median(float(row["time_us"]) for row in all_)
    line = f"{procs:>2} {op:<4} {memory:<8} {size:>5} {model:<13} {time:>10.1f}"
    for column in options.columns:
        values = [float(row[column]) for row in all_ if row[column]]
        if not values:
            line += f" {'-':>5} {'':<11}"
            continue
        value = statistics.median(values)
        limits = bounds(column, all_[0], memory, runs.size_of(size))
        mark = " "
        if limits and not options.no_floors and value < limits[0]:
            below.append(column)
            mark = "!"
        text = f"({limits[0]:g}, {limits[1]:g})" if limits else ""
        line += f" {value:>5.2f}{mark}{text:<11}"
    print(line.rstrip(), flush=True)
    return below


def write_csv(path, found):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = None
        for (_, _, memory, _, _), all_ in found.items():
            for turn, row in enumerate(all_):
                line = {"round": turn, "memory_of": memory, **row}
                if writer is None:
                    writer = csv.DictWriter(file, list(line))
                    writer.writeheader()
                writer.writerow(line)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", help="folder of ulyx_perf")
    parser.add_argument("--procs", default="2,4")
    parser.add_argument("--ops", default="s2h,h2s")
    parser.add_argument("--memory", default="windows,malloc")
    parser.add_argument("--sizes", default="16K,64K,256K,1M,4M,16M,64M")
    parser.add_argument("--models", default="llama3-8b")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--mpi", action="store_true")
    parser.add_argument("--csv", help="all rows of all rounds, to this file")
    parser.add_argument("--no-floors", action="store_true",
                        help="print only, and never fail")
    options = parser.parse_args()
    options.procs = [int(p) for p in options.procs.split(",")]
    for name in ("ops", "memory", "sizes"):
        setattr(options, name, getattr(options, name).split(","))
    options.columns = COLUMNS if options.mpi else COLUMNS[:2]
    return options


def main():
    options = arguments()
    found = measure_all(options)
    if options.csv:
        write_csv(options.csv, found)
    one = next(iter(found.values()))[0]
    print(f"# {one['cpu']}, {one['cores']} cores, ulyx {one['version']}, "
          f"medians of {options.rounds} rounds; (floor, goal)")
    print(f"#P {'op':<4} {'memory':<8} {'size':>5} {'model':<13} "
          f"{'time, us':>10}" + "".join(f" {c:<17}" for c in options.columns))
    below = 0
    for key, all_ in found.items():
        below += len(judge(options, key, all_))
    if below:
        print(f"{below} value{'s' if below > 1 else ''} below the floor")
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main())
