#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fit.py BIN [--rate 1gbit] [--tuning FILE]: shows how well the cost model
predicts exchanges that it was not fitted to. Measures exchanges of 2 ranks on 2
hosts (network namespaces, scripts/netns-test.sh), fits the link to every second
size, and compares the other sizes with the predictions of `ulyx_info plan
--nodes`; then compares 4 ranks on 4 hosts with predictions from the same link.
Not part of the test suite; needs root."""
import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import runs  # noqa: E402 (found by the line above)

HEADS, DIM = 8, 64
ROW = 3 * HEADS * DIM * 2  # bytes of a token, q, k and v


def measure(binary, hosts, sizes, rate, repeats):
    """{rows per rank: median seconds of the runs}."""
    times = {}
    for _ in range(repeats):
        for rows in sizes:
            words = ["--seq", str(rows * hosts), "--heads", str(HEADS), "--dim",
                     str(DIM), "-o", "s2h", "-n", "10", "-w", "2", "-c", "0"]
            for row in runs.between_hosts(binary, hosts, 1, rate, words,
                                          ["ULYX_ALGO=direct"]):
                times.setdefault(rows, []).append(
                    1e-6 * float(row["time_us"]))
    return {rows: statistics.median(all_) for rows, all_ in times.items()}


def message_bytes(rows, hosts):
    return rows * ROW // hosts


def write_link(path, fitted, hosts):
    """Writes a tuning file: the latency follows from the two smallest sizes,
    the rate at each knot from the time beyond the latency. Returns the link's
    line."""
    knots = sorted(fitted)
    small, next_ = knots[0], knots[1]
    slope = max((fitted[next_] - fitted[small]) /
                (message_bytes(next_, hosts) - message_bytes(small, hosts)), 0)
    latency = max(fitted[small] - slope * message_bytes(small, hosts),
                  0.1 * fitted[small])
    rates = []
    for rows in knots:
        size = message_bytes(rows, hosts)
        beyond = max(fitted[rows] - latency, 0)
        rates.append(f"{size}={beyond / size * 1e12:.1f}ps/B")
    line = (f"latency={latency * 1e6:.2f}us send=0us receive=0us gap=0us "
            f"{' '.join(rates)} source=measured")
    with open(path, "w", encoding="utf-8") as file:
        file.write("ulyx tuning 1\nhost launch=0us handoff=0us\n"
                   "fabric taper=1 efficiency=1 nics=1\n"
                   f"link nic {line}\nlink spine {line}\n")
    return line


def predict(binary, tuning, hosts, rows):
    out = subprocess.run(
        [os.path.join(binary, "ulyx_info"), "plan", "--nodes", str(hosts),
         "--ranks-per-node", "1", "--seq", str(rows * hosts), "--heads",
         str(HEADS), "--kv-heads", str(HEADS), "--dim", str(DIM), "--algo",
         "direct", "--operation", "s2h", "--tuning", tuning],
        check=True, capture_output=True, text=True).stdout
    return 1e-6 * float(re.search(r"direct: ([\d.]+) us", out).group(1))


def show(title, binary, tuning, hosts, times):
    errors = []
    for rows, time in sorted(times.items()):
        predicted = predict(binary, tuning, hosts, rows)
        errors.append(abs(predicted / time - 1))
        print(f"{title} {message_bytes(rows, hosts):9} B per message: "
              f"{predicted * 1e6:9.0f} us predicted, {time * 1e6:9.0f} "
              f"measured, {predicted / time - 1:+.0%}", flush=True)
    print(f"{title}: median {statistics.median(errors):.0%}, worst "
          f"{max(errors):.0%} of {len(errors)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bin")
    parser.add_argument("--rate", default="")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tuning", help="file that keeps the fitted link")
    options = parser.parse_args()
    sizes = [2 << i for i in range(13)]
    with tempfile.TemporaryDirectory() as folder:
        tuning = options.tuning or os.path.join(folder, "tuning")
        pairs = measure(options.bin, 2, sizes, options.rate, options.repeats)
        print(write_link(tuning, {r: pairs[r] for r in sizes[::2]}, 2))
        show("2 hosts, held out", options.bin, tuning, 2,
             {r: pairs[r] for r in sizes[1::2]})
        show("4 hosts", options.bin, tuning, 4,
             measure(options.bin, 4, sizes[1::2], options.rate,
                     options.repeats))
    return 0


if __name__ == "__main__":
    sys.exit(main())
