# SPDX-License-Identifier: Apache-2.0
"""The package is typed: where mypy is installed, it finds no error in the
package, and it reports errors in a program that uses the package wrongly."""
import os
import subprocess
import sys

import pytest

import ulyx

pytest.importorskip("mypy")
PACKAGE = os.path.dirname(os.path.abspath(ulyx.__file__))
TREE = os.environ.get("ULYX_TEST_TREE") or os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "..")


def mypy(folder, *arguments):
    """Returns (status, findings). If the package lies in a folder of its own,
    mypy finds it from where it is imported; if it is installed, py.typed
    decides whether it is typed."""
    environment = dict(os.environ)
    if "site-packages" not in PACKAGE:
        environment["MYPYPATH"] = os.path.dirname(PACKAGE)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(folder / "cache"),
         *arguments], cwd=str(folder), env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def test_the_package_is_typed(tmp_path):
    status, said = mypy(tmp_path, "--config-file",
                        os.path.join(TREE, "pyproject.toml"), "-p", "ulyx")
    assert status == 0, said


PROGRAM = """
import numpy as np
import ulyx

comm, = ulyx.Communicator.local(1)
plan = ulyx.Plan(comm, [ulyx.Tensor(heads=8, dim=64)], parts=[16])
rows: int = plan.seq_rows()
layer = ulyx.DistAttention(comm, [16], heads=8, dim_qk=64)
out, saved = layer.forward(*(np.zeros((1, 16, 8, 64)) for _ in range(3)))
text: str = layer.describe()
try:
    comm.barrier()
except ulyx.TimeoutError as error:
    status: int = error.status
"""
WRONG = """
ulyx.Plan(comm, parts=[16], heads=8)
ulyx.DistAttention(comm, [16], heads="eight", dim_qk=64)
number: int = layer.describe()
"""


def test_programs_are_checked_against_it(tmp_path):
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(PROGRAM)
    wrong.write_text(PROGRAM + WRONG)
    status, said = mypy(tmp_path, "--strict", str(right))
    assert status == 0, said
    status, said = mypy(tmp_path, "--strict", str(wrong))
    found = [int(line.split(":")[1]) for line in said.splitlines()
             if ": error: " in line]
    first = PROGRAM.count("\n") + 2
    assert status == 1 and sorted(set(found)) == [first, first + 1, first + 2], \
        said
