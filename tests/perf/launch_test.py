#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""launch_test.py BIN: every way to start ranks, and MPI beside them."""
import os
import re
import shutil
import subprocess
import unittest

from tool import (KEEPS, PERF, PERF_MPI, QUICK, ToolCase, clean_environment, run)

HAVE_MPI = os.path.exists(PERF_MPI) and shutil.which("mpirun") is not None
MPIRUN = ["--oversubscribe", "--bind-to", "none"] + \
    (["--allow-run-as-root"] if os.geteuid() == 0 else [])


class Launch(ToolCase):
    def ranks(self, out):
        found = re.search(r"# Summary: \d+ rows on (\d+) ranks, 0 wrong", out)
        self.assertIsNotNone(found, out)
        return int(found[1])

    def test_processes_threads_and_ranks_of_a_thread(self):
        for words, ranks in ((["--procs", "2"], 2), (["-t", "2"], 2),
                             (["-g", "2"], 2), (["-t", "2", "-g", "2"], 4),
                             (["--procs", "2", "-t", "2"], 4),
                             (["--procs", "2", "-g", "2"], 4)):
            self.assertEqual(self.ranks(self.ends(0, *QUICK, *words)), ranks)

    def test_torchrun_environment(self):
        ranks = []
        for rank in range(2):
            environment = clean_environment()
            environment.update(
                RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank),
                LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                MASTER_PORT="29544")
            ranks.append(subprocess.Popen(
                [PERF, *QUICK, "-T", "30"], env=environment, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        out = [rank.communicate(timeout=60) for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0], out)
        self.assertEqual(self.ranks(out[0][0]), 2)
        self.assertEqual(out[1][0], "")

    @unittest.skipUnless(HAVE_MPI, "no mpirun here")
    def test_mpirun(self):
        done = run("mpirun", *MPIRUN, "-np", "2", PERF, *QUICK,
                   **KEEPS)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.ranks(done.stdout), 2)
        done = run("mpirun", *MPIRUN, "-np", "2", PERF, *QUICK, "--procs", "3",
                   **KEEPS)
        self.assertEqual(done.returncode, 6, done.stderr)
        self.assertIn("has started 2", done.stderr)

    @unittest.skipUnless(HAVE_MPI, "no mpirun here")
    def test_versus_mpi(self):
        rows = self.csv(*QUICK, "--procs", "2", "--vs", "memcpy,mpi",
                        "--heads", "3", "--dim", "32", **KEEPS)
        for row in rows:
            for column in ("vs_memcpy", "vs_mpi", "vs_mpiw"):
                self.assertGreater(float(row[column]), 0)
        # Started by mpirun without MPI inside, it becomes the build with it.
        done = run("mpirun", *MPIRUN, "-np", "2", PERF, *QUICK, "--vs", "mpi",
                   **KEEPS)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("median vs_mpi ", done.stdout)

    def test_versus_mpi_without_mpi(self):
        if HAVE_MPI:
            empty = {"PATH": "/nonexistent"}
            self.says(5, "openmpi-bin", *QUICK, "--vs", "mpi", **empty)
        else:
            self.says(5, "openmpi", *QUICK, "--vs", "mpi")


if __name__ == "__main__":
    unittest.main()
