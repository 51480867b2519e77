# SPDX-License-Identifier: Apache-2.0
"""The examples that need NumPy alone."""
import os
import subprocess
import sys

from ranks import Processes

PATH = os.path.join(
    os.environ.get("ULYX_TEST_TREE") or os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "..", ".."),
    "examples", "python", "first_exchange.py")


def test_first_exchange_on_threads():
    done = subprocess.run([sys.executable, PATH], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("of all 10 tokens") == 4


def test_first_exchange_on_processes():
    script = f"import runpy\nrunpy.run_path({PATH!r}, run_name='__main__')\n"
    with Processes(3, script, meet=False) as job:
        for rank in range(3):
            status, said = job.end(rank)
            assert status == 0 and f"rank {rank} of 3" in said, job.error(rank)
