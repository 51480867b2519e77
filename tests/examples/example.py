# SPDX-License-Identifier: Apache-2.0
"""Starts an example with one process per rank, and looks for it in a
document."""
import os
import subprocess
import sys

RANK_LIMIT_S = 60


def outputs(program, ranks):
    """What each rank prints; ends the test where a rank fails."""
    started = []
    for rank in range(ranks):
        environment = dict(
            os.environ, ULYX_RANK=str(rank), ULYX_NRANKS=str(ranks),
            ULYX_LOCAL_NRANKS=str(ranks), ULYX_TIMEOUT="40",
            ULYX_JOB=f"{os.path.basename(program)}.{os.getpid()}.{ranks}")
        started.append(subprocess.Popen(
            [program], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=environment))
    printed = []
    for rank, process in enumerate(started):
        out, error = process.communicate(timeout=RANK_LIMIT_S)
        if process.returncode != 0:
            print(f"rank {rank} of {ranks}: {process.returncode}: {out}{error}")
            sys.exit(1)
        printed.append(out)
    return printed


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def shows(document, code):
    """Whether a block of the document is this code."""
    if f"```c\n{code}```\n" in read(document):
        return True
    print(f"{document} does not show this as it is:\n{code}")
    return False
