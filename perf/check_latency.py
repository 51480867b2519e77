#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long do small exchanges of two processes take, and how long at least?

    check_latency.py BIN [--sizes 16K,64K] [--ops s2h,h2s] [--model NAME]
        [--rounds N] [--iterations N] [--no-floors]

Every row (direction, size of a rank) is measured in each of N rounds (5); the
rows of a round are measured one after another, each with N iterations (3000:
the ranks leave the barrier before a tenth of them some microseconds apart, as
long as two calls take). The values printed are medians over the rounds. Columns:

  time      microseconds of an exchange of tensors in windows, with several sets
            of tensors used in turn
  vs_flag   time of the same copies, followed by one flag each way, over our time;
            the goal is 1 / 1.3
  vs_mpi    time of pack + MPI_Alltoall(v) + unpack over our time (ulyx_perf_mpi,
            mpirun)
  vs_mpiw   time of MPI_Alltoallw over our time
  posix     microseconds of a tagged message of UCX (ucx_perftest) over POSIX or
  sysv      System V shared memory, one way, with as many bytes as a rank sends the
            other: one contiguous buffer, the same each time, so in the caches

Comparisons that are not installed are left out, and a line names them. The
exit code is 1 where vs_flag is below its floor. The figures are valid only on
an idle machine. Not part of the test suite.
"""
import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import runs  # noqa: E402 (found by the line above)

FLAG = (0.5, 1 / 1.3)  # floor, goal
RATIOS = ("vs_flag", "vs_mpi", "vs_mpiw")
MEMORIES = ("posix", "sysv")


def exchange(options, op, size):
    """The row of ulyx_perf."""
    versus = "flag,mpi" if options.mpi else "flag"
    row, = runs.on_this_host(options.bin, [
        "--procs", "2", "-o", op, "-b", size, "-e", size, "--model",
        options.model, "--vs", versus, "-n", str(options.iterations)])
    return row


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def tagged(memory, size):
    """Microseconds of a message of UCX with so many bytes, one way."""
    port = str(free_port())
    command = ["ucx_perftest", "-p", port, "-t", "tag_lat", "-s", str(size),
               "-n", "2000", "-f", "-v"]
    environment = dict(os.environ, UCX_TLS=f"{memory},self")
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as server:
        for _ in range(50):  # until the server listens
            time.sleep(0.1)
            done = subprocess.run(
                [command[0], "127.0.0.1", *command[1:]], env=environment,
                capture_output=True, text=True, timeout=60, check=False)
            if done.returncode == 0:
                break
        server.kill()
    if done.returncode != 0:
        sys.exit(f"check_latency.py: {' '.join(command)}: {done.stderr}")
    return float(done.stdout.splitlines()[-1].split(",")[1])


def measure_all(options):
    """{(op, size): {column: [value of each round]}}"""
    found = {}
    for turn in range(options.rounds):
        for op in options.ops:
            for size in options.sizes:
                runs.progress(f"round {turn + 1} of {options.rounds}: "
                              f"{op}, {size}")
                row = exchange(options, op, size)
                options.machine = f"{row['cpu']}, {row['cores']} cores, " \
                    f"ulyx {row['version']}"
                values = {"time": row["time_us"]}
                values.update((c, row[c]) for c in RATIOS if row[c])
                if options.ucx:
                    values.update((m, tagged(m, runs.size_of(size) // 2))
                                  for m in MEMORIES)
                columns = found.setdefault((op, size), {})
                for column, value in values.items():
                    columns.setdefault(column, []).append(float(value))
    runs.progress()
    return found


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", help="folder of ulyx_perf")
    parser.add_argument("--sizes", default="16K,64K")
    parser.add_argument("--ops", default="s2h,h2s")
    parser.add_argument("--model", default="llama3-8b")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=3000)
    parser.add_argument("--no-floors", action="store_true",
                        help="print only, and never fail")
    options = parser.parse_args()
    options.ops = options.ops.split(",")
    options.sizes = options.sizes.split(",")
    options.mpi = bool(shutil.which("mpirun")) and \
        os.path.exists(os.path.join(options.bin, "ulyx_perf_mpi"))
    options.ucx = bool(shutil.which("ucx_perftest"))
    if not options.mpi:
        print("# no MPI: mpirun or ulyx_perf_mpi is missing")
    if not options.ucx:
        print("# no UCX: ucx_perftest is missing (scripts/setup.sh bench installs it)")
    return options


def main():
    options = arguments()
    found = measure_all(options)
    columns = ["time", *RATIOS, *MEMORIES]
    print(f"# {options.machine}, 2 processes, {options.model}, medians of "
          f"{options.rounds} rounds; vs_flag: floor {FLAG[0]:.2f}, goal "
          f"{FLAG[1]:.2f}; time, posix, sysv in us")
    print(f"{'#op':<4} {'size':>5}" + "".join(f" {c:>9}" for c in columns))
    below = 0
    for (op, size), values in found.items():
        line = f"{op:<4} {size:>5}"
        for column in columns:
            value = statistics.median(values[column]) \
                if column in values else None
            line += f" {'-' if value is None else format(value, '.2f'):>9}"
        low = statistics.median(values["vs_flag"]) < FLAG[0]
        below += low and not options.no_floors
        print(line + ("  vs_flag is below its floor" if low else ""))
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main())
