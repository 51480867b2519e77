# SPDX-License-Identifier: Apache-2.0
"""The code in docs/PYTHON.md runs and prints what the page shows."""
import os
import re

from ranks import Processes

PATH = os.path.join(
    os.environ.get("ULYX_TEST_TREE") or os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "..", ".."),
    "docs", "PYTHON.md")


def blocks():
    with open(PATH, encoding="utf-8") as file:
        return re.findall(r"```python\n(.*?)```", file.read(), re.S)


def test_numpy_of_the_tutorial_runs():
    script, = [block for block in blocks() if "DistAttention" in block]
    script += "say(total.tolist(), q_by_head.shape, out.shape, dk.shape)\n"
    with Processes(2, script, meet=False) as job:
        for rank in range(2):
            status, said = job.end(rank)
            assert status == 0, job.error(rank)
            assert said == "[2.0, 2.0, 2.0, 2.0] (1, 1024, 4, 64) " \
                "(1, 512, 8, 64) (1, 512, 2, 64)"
