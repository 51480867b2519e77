#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/recover.c completes all of its steps whichever rank is killed, and
in whichever step: the survivors agree, shrink and continue, each with right
values."""
import os
import subprocess
import sys

RANKS = 4
RANK_LIMIT_S = 60
KILLS = [None, (0, 0), (1, 7), (2, 19), (3, 12)]


def run(program, number, kill):
    """Returns (returncode, stdout, stderr) of each rank."""
    started = []
    for rank in range(RANKS):
        environment = dict(
            os.environ, ULYX_RANK=str(rank), ULYX_NRANKS=str(RANKS),
            ULYX_LOCAL_NRANKS=str(RANKS),
            ULYX_JOB=f"recover.{os.getpid()}.{number}")
        started.append(subprocess.Popen(
            [program] + [str(part) for part in kill or ()],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment))
    ends = []
    for process in started:
        out, error = process.communicate(timeout=RANK_LIMIT_S)
        ends.append((process.returncode, out, error))
    return ends


def main():
    failed = 0
    for number, kill in enumerate(KILLS):
        living = RANKS - (kill is not None)
        right = f"{living} ranks ended step 20, 0 wrong\n"
        for rank, end in enumerate(run(sys.argv[1], number, kill)):
            killed = kill is not None and rank == kill[0]
            if killed != (end[0] == -9) or not killed and end[:2] != (0, right):
                print(f"kill {kill}: rank {rank}: {end}")
                failed += 1
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
