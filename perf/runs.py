# SPDX-License-Identifier: Apache-2.0
"""Runs of ulyx_perf on this host, and between hosts that are network namespaces
(scripts/netns-test.sh; root), and the rows that it writes."""
import csv
import os
import subprocess
import sys

NETNS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..",
                     "scripts", "netns-test.sh")
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def rows(text):
    """What --csv has written: a dictionary a row."""
    return list(csv.DictReader(line for line in text.splitlines()
                               if line and line[0] != "#"))


def size_of(text):
    """Bytes of "64K", "4M", "1G" or a plain number."""
    unit = UNITS.get(text[-1:].upper())
    return int(text[:-1]) * unit if unit else int(text)


def on_this_host(binary, words):
    """Rows of `ulyx_perf --csv` with these words. A run that fails, or has moved
    wrong data, ends the program."""
    command = [os.path.join(binary, "ulyx_perf"), *words, "--csv",
               "--no-progress"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    program = os.path.basename(sys.argv[0])
    if done.returncode != 0:
        sys.exit(f"{program}: {' '.join(command)}: {done.stderr or done.stdout}")
    found = rows(done.stdout)
    for row in found:
        if int(row["wrong"]):
            sys.exit(f"{program}: wrong data: {row}")
    return found


def between_hosts(binary, hosts, ranks, rate, words, variables=(), launch=""):
    """Rows of `ulyx_perf --csv`, of ranks on each of so many hosts; rate: tc's
    words, "" without a limit. A run that fails ends the program."""
    limit = ["--rate", rate] if rate else []
    start = ["--launch", launch] if launch else []
    env = [word for v in variables for word in ("--env", v)]
    done = subprocess.run(
        [NETNS, "run", "-H", str(hosts), "-R", str(ranks), *limit, *start, *env,
         os.path.join(binary, "ulyx_perf"), "--csv", *words],
        capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{sys.argv[0]}: {done.stderr or done.stdout}")
    return rows(done.stdout)


def progress(text=""):
    """What is being run, in one line of a terminal that the next one replaces;
    "" ends it. Elsewhere nothing: a pipe wants results."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
