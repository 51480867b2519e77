# SPDX-License-Identifier: Apache-2.0
"""Ranks as processes of a script, as torchrun starts them."""
import os
import socket
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, "..", "..", "..", "examples", "python")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ranks(nranks, script, *arguments, timeout=1800, **variables):
    """[(status, output)] of each rank of a script."""
    port, started = free_port(), []
    for rank in range(nranks):
        environment = dict(
            os.environ, RANK=str(rank), WORLD_SIZE=str(nranks),
            LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(nranks),
            LOCAL_SIZE=str(nranks), MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port), TOKENIZERS_PARALLELISM="false",
            HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", **variables)
        environment["PYTHONPATH"] = os.pathsep.join(
            [environment.get("PYTHONPATH", ""), HERE])
        started.append(subprocess.Popen(
            [sys.executable, script, *arguments], env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    try:
        said = [process.communicate(timeout=timeout)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    return [(process.returncode, text)
            for process, text in zip(started, said)]


def first_of(nranks, script, *arguments, **options):
    """What rank 0 says where all ranks end well."""
    done = ranks(nranks, script, *arguments, **options)
    for status, text in done:
        assert status == 0, text
    return done[0][1]


def marked(text, mark):
    """What follows the mark in the only line that begins with it."""
    line, = [line for line in text.splitlines() if line.startswith(mark)]
    return line[len(mark):]
