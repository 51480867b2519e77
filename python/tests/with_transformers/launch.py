# SPDX-License-Identifier: Apache-2.0
"""Ranks as processes of a script, started as torchrun starts them."""
import os
import random
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, "..", "..", "..", "examples", "python")


# Ports outside of the range that a system assigns by itself.
PORTS = range(20000, 32000)


def free_port():
    """Returns a free port. Another program could take a port that the system
    assigns before rank 0 listens on it."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def wait(started, timeout):
    """Waits until all processes have ended. After one has failed, the others
    have a short time to end with their errors, because they may be waiting for
    it."""
    end = time.monotonic() + timeout
    try:
        while any(process.poll() is None for process in started) and \
                time.monotonic() < end:
            if any(process.poll() for process in started):
                end = min(end, time.monotonic() + 60)
            time.sleep(0.1)
    finally:
        for process in started:
            process.kill()
            process.wait()


def ranks(nranks, script, *arguments, timeout=1800, **variables):
    """Returns [(status, output)] of the ranks of a script."""
    port, started = free_port(), []
    files = [tempfile.TemporaryFile("w+") for _ in range(nranks)]
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
            stdout=files[rank], stderr=subprocess.STDOUT))
    wait(started, timeout)
    said = []
    for file in files:
        file.seek(0)
        said.append(file.read())
        file.close()
    return [(process.returncode, text)
            for process, text in zip(started, said)]


def first_of(nranks, script, *arguments, **options):
    """Returns the output of rank 0. All ranks must succeed."""
    done = ranks(nranks, script, *arguments, **options)
    if any(status for status, _ in done):
        raise AssertionError("\n".join(
            f"rank {rank}: status {status}\n{text}"
            for rank, (status, text) in enumerate(done)))
    return done[0][1]


def marked(text, mark):
    """Returns the rest of the only line that begins with the mark."""
    line, = [line for line in text.splitlines() if line.startswith(mark)]
    return line[len(mark):]
