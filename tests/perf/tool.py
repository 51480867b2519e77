# SPDX-License-Identifier: Apache-2.0
"""What the tests of the tools share. BIN is the folder of the programs."""
import csv
import io
import os
import subprocess
import sys
import unittest

BIN = sys.argv.pop(1)
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
PERF = os.path.join(BIN, "ulyx_perf")
PERF_MPI = os.path.join(BIN, "ulyx_perf_mpi")
PERF_FAULTY = os.path.join(BIN, "ulyx_perf_faulty")
INFO = os.path.join(BIN, "ulyx_info")
PLOT = os.path.join(BIN, "ulyx_plot")

# For a sanitizer's build: MPI keeps memory until the end, and so does a rank
# whose windows are in quarantine when it ends.
KEEPS = {"ASAN_OPTIONS": "detect_leaks=0"}

# Arguments of a run that takes a fraction of a second.
QUICK = ["-b", "64K", "-e", "64K", "-n", "3"]


def clean_environment():
    """Returns an environment without what a launcher around the tests may have
    set."""
    launchers = ("ULYX_", "OMPI_", "PMI", "SLURM_", "RANK", "WORLD_SIZE",
                 "LOCAL_", "MASTER_", "TORCHELASTIC_", "FLUX_", "PALS_",
                 "MV2_", "MPIRUN_", "MPI_LOCAL")
    return {name: value for name, value in os.environ.items()
            if not name.startswith(launchers)}


def run(program, *words, timeout=60, **variables):
    environment = clean_environment()
    environment.update(variables)
    return subprocess.run([program, *words], capture_output=True, text=True,
                          errors="replace", check=False, timeout=timeout,
                          env=environment)


class ToolCase(unittest.TestCase):
    def ends(self, code, *words, program=PERF, **options):
        """Runs the program, expects the exit code, and returns stdout."""
        done = run(program, *words, **options)
        self.assertEqual(done.returncode, code,
                         f"{words}\n{done.stdout}{done.stderr}")
        return done.stdout

    def says(self, code, needle, *words, **options):
        """Runs the program, and expects the exit code and the words on
        stderr."""
        done = run(PERF, *words, **options)
        self.assertEqual(done.returncode, code, f"{words}\n{done.stderr}")
        self.assertIn(needle, done.stderr, words)

    def csv(self, *words, **options):
        out = self.ends(0, *words, "--csv", **options)
        rows = list(csv.DictReader(io.StringIO(out)))
        self.assertTrue(rows, out)
        for row in rows:
            self.assertNotIn(None, row, "more fields than names")
            self.assertNotIn(None, row.values(), "fewer fields than names")
            self.assertEqual(row["wrong"], "0")
        return rows


def table(out):
    """Returns the rows of the text table, split at blanks as scripts do."""
    return [line.split() for line in out.splitlines()
            if line and not line.startswith("#")]
