#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""launch_test.py BIN: every way to start ranks, and MPI beside them."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from tool import (KEEPS, PERF, PERF_MPI, QUICK, ToolCase, clean_environment, run)

HAVE_MPI = os.path.exists(PERF_MPI) and shutil.which("mpirun") is not None
MPIRUN = ["--oversubscribe", "--bind-to", "none"] + \
    (["--allow-run-as-root"] if os.geteuid() == 0 else [])


# What each launcher of src/bootstrap/launch/launcher.c sets for a rank of a job
# on this node, except its own key-value store.
LAUNCHERS = {
    "ULYX_RANK": lambda rank, size: {
        "ULYX_RANK": str(rank), "ULYX_NRANKS": str(size), "ULYX_JOB": "a"},
    "torchrun": lambda rank, size: {
        "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(size), "TORCHELASTIC_RUN_ID": "t"},
    "Open MPI": lambda rank, size: {
        "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(size)},
    "PMIx": lambda rank, size: {
        "PMIX_RANK": str(rank), "PMIX_NAMESPACE": "slurm.pmix.7.0",
        "SLURM_STEP_NUM_TASKS": str(size)},
    "Flux": lambda rank, size: {
        "FLUX_TASK_RANK": str(rank), "FLUX_JOB_SIZE": str(size),
        "FLUX_JOB_NNODES": "1", "FLUX_JOB_ID": "f4",
        "FLUX_TASK_LOCAL_ID": str(rank)},
    "PALS": lambda rank, size: {
        "PALS_RANKID": str(rank), "PALS_APID": "p-1", "PMI_RANK": str(rank),
        "PMI_SIZE": str(size), "PMI_LOCAL_SIZE": str(size)},
    "MVAPICH2": lambda rank, size: {
        "MV2_COMM_WORLD_RANK": str(rank), "MV2_COMM_WORLD_SIZE": str(size),
        "MV2_NUM_NODES_IN_JOB": "1", "MPIRUN_ID": "5"},
    "PMI-1": lambda rank, size: {
        "PMI_RANK": str(rank), "PMI_SIZE": str(size), "PMI_JOBID": "h"},
    "Slurm": lambda rank, size: {
        "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": str(rank),
        "SLURM_STEP_NUM_TASKS": str(size)},
}


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

    def test_local_ranks_need_no_network(self):
        if subprocess.run(["unshare", "-rn", "true"], check=False,
                          capture_output=True).returncode != 0:
            self.skipTest("no network namespace can be made here")
        for words, ranks in ((["--procs", "2"], 2),
                             (["--procs", "2", "-t", "2"], 4),
                             (["--procs", "2", "-g", "2"], 4)):
            done = run("unshare", "-rn", PERF, *QUICK, *words)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(self.ranks(done.stdout), ranks)

    def test_ranks_that_cannot_be_started_are_reported(self):
        hidden = ["unshare", "-rm", "sh", "-c",
                  'mount -t tmpfs none /proc && exec "$@"', "sh"]
        if subprocess.run([*hidden, "true"], check=False,
                          capture_output=True).returncode != 0:
            self.skipTest("no mount namespace can be made here")
        done = run(*hidden, PERF, *QUICK, "--procs", "2")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"rank [01] of --procs: /proc/self/exe: No such")

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

    def started(self, ranks, variables, *words):
        """Runs ulyx_perf as this many ranks; variables(rank) is what the
        launcher sets. Returns the exit codes, outputs and errors of the
        processes."""
        programs = []
        for rank in range(ranks):
            environment = clean_environment()
            environment.update(variables(rank))
            programs.append(subprocess.Popen(
                [PERF, *QUICK, "-T", "30", *words], env=environment, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        both = [program.communicate(timeout=60) for program in programs]
        return ([program.returncode for program in programs],
                [out for out, _ in both], [err for _, err in both])

    def test_every_launcher_of_the_library_is_ours(self):
        for launcher, variables in LAUNCHERS.items():
            with tempfile.TemporaryDirectory() as folder:
                codes, out, err = self.started(
                    2, lambda rank: {"ULYX_RENDEZVOUS_DIR": folder,
                                     **variables(rank, 2)})
            self.assertEqual(codes, [0, 0], f"{launcher}: {out} {err}")
            self.assertEqual(self.ranks(out[0]), 2, launcher)
            self.assertEqual(out[1], "", launcher)

    def test_one_rank_within_several_does_not_run_alone(self):
        # srun -n 2 in a shell in which RANK and WORLD_SIZE are left over.
        codes, out, err = self.started(
            2, lambda rank: {"RANK": "0", "WORLD_SIZE": "1",
                             **LAUNCHERS["Slurm"](rank, 2)})
        self.assertEqual(codes, [6, 6], f"{out} {err}")
        for text in err:
            self.assertIn("rank 1 of several", err[1])
            self.assertIn("set ULYX_RANK=0 and ULYX_NRANKS=1", text)

    def test_shell_of_a_job_starts_its_own_ranks(self):
        codes, out, err = self.started(
            1, lambda rank: LAUNCHERS["Slurm"](rank, 1),
            "--procs", "2")
        self.assertEqual(codes, [0], f"{out} {err}")
        self.assertEqual(self.ranks(out[0]), 2)

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
        # If mpirun starts the build without MPI, that build starts the one with
        # MPI.
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
