# SPDX-License-Identifier: Apache-2.0
"""Ranks of a test: threads of this process, or processes of a script."""
import os
import subprocess
import sys
import tempfile
import threading

import ulyx

# Seconds after which ranks count as hanging. This is many times what any test
# takes, because the machine may be busy.
TIMEOUT = 120
HERE = os.path.dirname(os.path.abspath(__file__))


def threads(nranks, body, timeout=TIMEOUT):
    """Runs body(comm) on every rank, each on a thread, and returns the results.
    Raises the first failure, which also aborts the other ranks."""
    comms = ulyx.Communicator.local(nranks, timeout=timeout)
    results, failures = [None] * nranks, []

    def run(rank):
        try:
            results[rank] = body(comms[rank])
        except BaseException as error:
            failures.append(error)
            comms[rank].abort()

    workers = [threading.Thread(target=run, args=(rank,))
               for rank in range(nranks)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout + TIMEOUT)
        assert not worker.is_alive(), "a rank hangs"
    if failures:
        raise failures[0]
    for comm in comms:
        comm.close()
    return results


def errors_of(nranks, body, timeout=TIMEOUT):
    """Returns the exception of body(comm) on each rank, or None where it raises
    none."""
    def caught(comm):
        try:
            body(comm)
        except Exception as error:
            return error
        return None
    return threads(nranks, caught, timeout)


class Processes:
    """Ranks as processes of one script, which meet by ULYX_COMM_ID. The script
    has `ulyx`, `comm` (with meet=True) and `say`, which prints a line at once.
    It also has Python's own handler of SIGINT, because programs that a shell
    starts in the background ignore that signal, and the ranks would too."""

    PRELUDE = """
import os, signal, sys, threading, time
import numpy as np
import ulyx
signal.signal(signal.SIGINT, signal.default_int_handler)
rank = int(os.environ["ULYX_RANK"])
def say(*words): print(*words, flush=True)
"""

    def __init__(self, nranks, script, meet=True, timeout=TIMEOUT,
                 arguments=()):
        identifier = ulyx.unique_id().text
        text = self.PRELUDE + (
            f"comm = ulyx.Communicator.from_env(timeout={timeout})\n"
            if meet else "") + script
        self.files = [tempfile.TemporaryFile("w+") for _ in range(nranks)]
        self.ranks = []
        for rank in range(nranks):
            environment = dict(
                os.environ, ULYX_RANK=str(rank), ULYX_NRANKS=str(nranks),
                ULYX_COMM_ID=identifier)
            self.ranks.append(subprocess.Popen(
                [sys.executable, "-c", text, *arguments], env=environment,
                stdout=subprocess.PIPE, stderr=self.files[rank], text=True))

    def line(self, rank):
        """Returns the next line of a rank's output."""
        line = self.ranks[rank].stdout.readline().strip()
        assert line, f"rank {rank} ended: {self.error(rank)}"
        return line

    def error(self, rank):
        """Returns the standard error of a rank."""
        self.files[rank].seek(0)
        return self.files[rank].read()

    def end(self, rank, timeout=TIMEOUT):
        """Waits until a rank ends by itself. Returns (exit status, rest of the
        output)."""
        process = self.ranks[rank]
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.ranks[rank].kill()
            raise AssertionError(f"rank {rank} does not end: "
                                 f"{self.error(rank)}") from None
        # communicate() would lose what line() has read ahead.
        return process.returncode, process.stdout.read().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for rank in self.ranks:
            if rank.poll() is None:
                rank.kill()
            rank.wait()
            rank.stdout.close()
        for file in self.files:
            file.close()
