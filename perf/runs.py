# SPDX-License-Identifier: Apache-2.0
"""Runs ulyx_perf on this host, or between hosts that are network namespaces
(scripts/netns-test.sh; needs root), and reads the rows that ulyx_perf
writes."""
import csv
import os
import subprocess
import sys

NETNS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..",
                     "scripts", "netns-test.sh")
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def rows(text):
    """The rows of CSV that ulyx_perf has written, as dictionaries."""
    return list(csv.DictReader(line for line in text.splitlines()
                               if line and line[0] != "#"))


def size_of(text):
    """Bytes of "64K", "4M", "1G" or a plain number."""
    unit = UNITS.get(text[-1:].upper())
    return int(text[:-1]) * unit if unit else int(text)


def on_this_host(binary, words):
    """The rows of `ulyx_perf --csv` with these arguments. A run that fails or
    that has moved wrong data ends the program."""
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
    """The rows of `ulyx_perf --csv` with `ranks` ranks on each of `hosts`
    hosts. rate: the limit of the link as tc writes it, "" for none. A run that
    fails ends the program."""
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
    """Shows on a terminal what is being run, in a line that the next call
    replaces; "" removes the line. Writes nothing where stderr is no
    terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
