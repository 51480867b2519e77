# SPDX-License-Identifier: Apache-2.0
"""Runs of ulyx_perf between hosts that are network namespaces
(scripts/netns-test.sh; root), and the rows that it writes."""
import csv
import os
import subprocess
import sys

NETNS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..",
                     "scripts", "netns-test.sh")


def rows(text):
    """What --csv has written: a dictionary a row."""
    return list(csv.DictReader(line for line in text.splitlines()
                               if line and line[0] != "#"))


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
