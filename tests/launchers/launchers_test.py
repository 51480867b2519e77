#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""launchers_test.py BIN LAUNCHER [CASE ...]: a launcher (slurm, mpirun, hydra, torchrun)
starts the tools, in these cases or all. Ends with 77 and the reason where the launcher
is not here. ULYX_LAUNCHERS=all runs every combination, otherwise one of each kind."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import jobs
import slurm

BIN = os.path.abspath(sys.argv[1])
LAUNCHER = sys.argv[2]
ALL = os.environ.get("ULYX_LAUNCHERS") == "all"
SKIP = 77
PERF = [os.path.join(BIN, "ulyx_perf"), "-b", "64K", "-e", "64K", "-n", "3", "-T", "30"]
# Endless, with a deadline beyond the time that any job has here.
LONG = [*PERF[:5], "-n", "1000000", "-N", "0", "-T", "900"]
TRAIN = [os.path.join(BIN, "train_bytes"), "--steps", "2", "--seq", "256",
         "--layers", "1", "--dim", "48"]
# Rank 1 is killed after the ranks have met.
KILLED = ("rank=${SLURM_PROCID:-${OMPI_COMM_WORLD_RANK:-${RANK:-$PMI_RANK}}}\n"
          'if [ "$rank" = 1 ]; then (sleep 2; kill -9 $$) & fi\n'
          'exec "$@"\n')

# A setting makes the ranks of each slurmd another host, so UCX connects the
# two.
HOST_OF_NODE = ["sh", "-c", 'ULYX_HOSTID=$SLURMD_NODENAME exec "$@"', "sh"]
# Debian installs Open MPI and MPICH under the same names.
MPIRUN = "mpirun.openmpi" if shutil.which("mpirun.openmpi") else "mpirun"


def first_missing(*programs):
    gone = [name for name in programs if shutil.which(name) is None]
    return "not installed: " + ", ".join(gone) if gone else jobs.cannot_be_apart()


class Case(unittest.TestCase):
    """run(words) starts a job by the launcher. Each case checks what the job
    leaves behind."""
    def perf(self, *words, ranks=4, nodes=None, **variables):
        done = self.job([*words, *PERF], ULYX_DEBUG="INFO", **variables)
        self.assertEqual(done.returncode, 0, f"{words}\n{done.stdout}")
        self.assertRegex(done.stdout, rf"# Summary: \d+ rows on {ranks} ranks, 0 wrong")
        if nodes:
            where = "1 node," if nodes == 1 else f"{nodes} nodes,"
            self.assertIn(f"rank 0 of {ranks} on {where}", done.stdout)

    def train(self, *words, ranks=2, **variables):
        done = self.job([*words, *TRAIN], **variables)
        self.assertEqual(done.returncode, 0, f"{words}\n{done.stdout}")
        self.assertRegex(done.stdout, rf"\b{ranks} ranks\b", words)

    def killed(self, *words, names, **variables):
        """The job must fail by itself and name the rank that it lost. A job
        that waits for its deadline is ended by the time limit of jobs, which is
        an error."""
        done = self.job([*words, "sh", self.script(), *LONG], **variables)
        self.assertNotEqual(done.returncode, 0, f"{words}\n{done.stdout}")
        self.assertRegex(done.stdout, names, words)

    def script(self):
        path = os.path.join(self.folder, "killed.sh")
        with open(path, "w", encoding="ascii") as out:
            out.write(KILLED)
        return path


class Slurm(Case):
    @classmethod
    def setUpClass(cls):
        cls.slurm = slurm.Slurm()
        cls.folder = cls.slurm.folder
        try:
            cls.slurm.start()
        except BaseException:
            cls.slurm.stop()
            raise
        print(cls.slurm.run("srun", "--version").stdout.strip())
        types = cls.slurm.run("srun", "--mpi=list").stdout
        cls.kinds = [kind for kind in ("none", "pmi2", "pmix")
                     if re.search(rf"\b{kind}\b", types)]

    @classmethod
    def tearDownClass(cls):
        left = cls.slurm.stop()
        if left or os.path.exists(cls.folder):
            raise AssertionError(f"left behind: processes {left}, {cls.folder}")

    def job(self, words, **variables):
        return self.slurm.run("srun", *words, **variables)

    def tearDown(self):
        self.assertEqual(self.slurm.left(), [])

    def test_every_mpi_type_on_one_node(self):
        self.assertIn("none", self.kinds)
        self.assertIn("pmi2", self.kinds)
        for kind in self.kinds:
            self.perf(f"--mpi={kind}", "-N1", "-n4", nodes=1)

    def test_every_mpi_type_on_two_nodes(self):
        for kind in self.kinds:
            meeting = {"ULYX_RENDEZVOUS_DIR": self.folder} if kind == "none" else {}
            self.perf(f"--mpi={kind}", "-N2", "-n4", *HOST_OF_NODE, nodes=2, **meeting)

    def test_two_slurmd_of_one_host_share_memory(self):
        # Two slurmd on one host have one network namespace. Therefore the
        # library takes both for the same host, whatever their mounts and IPC.
        self.perf("--mpi=pmix" if "pmix" in self.kinds else "--mpi=pmi2", "-N2", "-n4",
                  nodes=1)

    def test_two_nodes_without_a_meeting_point_are_refused(self):
        done = self.job(["--mpi=none", "-N2", "-n2", *PERF])
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"rank [01] of 2 \(Slurm\) has no meeting point")

    def test_pmi2_after_mpi_is_refused(self):
        # It is unknown which protocol MPI chose, and the wrong one ends the
        # step.
        spoke = "LD_PRELOAD=" + os.path.join(BIN, "mpi_spoke.so")
        # AddressSanitizer must be the first of the libraries.
        order = "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0"
        done = self.job(["--mpi=pmi2", "-N1", "-n2", "env", order, spoke, *PERF])
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("MPI was initialised first", done.stdout)

    def test_one_rank_within_several_is_refused(self):
        done = self.job(["--mpi=none", "-N1", "-n2", *PERF], RANK="0", WORLD_SIZE="1")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("rank 1 of several", done.stdout)

    def test_train_bytes(self):
        for kind in self.kinds if ALL else self.kinds[-1:]:
            self.train(f"--mpi={kind}", "-N1", "-n2")

    def test_killed_rank_is_named(self):
        for kind in self.kinds if ALL else ["none"]:
            self.killed(f"--mpi={kind}", "-N1", "-n3", names=r"rank 1\b")

    def test_batch_script(self):
        out = os.path.join(self.folder, "batch.out")
        path = os.path.join(self.folder, "batch.sh")
        for kind in self.kinds if ALL else self.kinds[-1:]:
            with open(path, "w", encoding="ascii") as script:
                script.write("#!/bin/sh\nsrun --mpi=%s -N1 -n3 %s\n" % (
                    kind, " ".join(PERF)))
            done = self.slurm.run("sbatch", "--wait", "-N1", "-n3", "-o", out, path)
            with open(out, encoding="utf-8") as text:
                said = text.read()
            self.assertEqual(done.returncode, 0, done.stdout + said)
            self.assertRegex(said, r"# Summary: \d+ rows on 3 ranks, 0 wrong")


class Local(Case):
    """Launchers that start ranks on this host, in folders of their own."""
    LIMIT_S = 60

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ulyx-launch-", dir="/var/tmp")

    def tearDown(self):
        left = jobs.end_all(self.folder)
        shutil.rmtree(self.folder)
        self.assertEqual(left, [], "processes left behind")

    def job(self, words, **variables):
        """Runs a job. Nothing may be left in the job's folders afterwards."""
        left = os.path.join(self.folder, "left")
        done = subprocess.run(
            [*jobs.APART, jobs.MOUNT + '{ "$@"; code=$?; ls -A /tmp /dev/shm > "$0"; '
             "exit $code; }", left, *self.START, *words],
            env=jobs.environment(LAUNCHERS_TEST=self.folder, **variables), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=self.LIMIT_S, check=False)
        with open(left, encoding="utf-8") as listing:
            self.assertEqual(jobs.names_of_ulyx(listing.read()), [], done.stdout)
        return done


class Mpirun(Local):
    START = [MPIRUN, "--oversubscribe", "--bind-to", "none", "--allow-run-as-root"]

    def test_perf(self):
        self.perf("-np", "4", nodes=1)

    def test_train_bytes(self):
        self.train("-np", "2")

    def test_killed_rank_is_named(self):
        self.killed("-np", "3", names=r"rank 1\b")


class Hydra(Local):
    START = ["mpiexec.hydra"]

    def test_perf(self):
        self.perf("-n", "4", nodes=1)

    def test_train_bytes(self):
        self.train("-n", "2")

    def test_killed_rank_ends_the_job(self):
        self.killed("-n", "3", names=r"EXIT CODE: 9")


class Torchrun(Local):
    """Each agent imports PyTorch first: two agents took 52 s on a machine with
    2 cores and a load of 35."""
    START = ["torchrun"]
    LIMIT_S = 240

    def test_perf(self):
        self.perf("--standalone", "--nproc-per-node", "4", "--no-python", nodes=1)

    def test_train_bytes(self):
        self.train("--standalone", "--nproc-per-node", "2", "--no-python")

    def test_killed_rank_is_named(self):
        self.killed("--standalone", "--nproc-per-node", "3", "--no-python",
                    names=r"rank\s*: 1\b|rank 1\b")

    def test_two_agents(self):
        ports = slurm.free_ports(2)
        agent = ("torchrun --nnodes 2 --nproc-per-node 2 --master-addr 127.0.0.1 "
                 f"--master-port {ports[0]} --no-python --node-rank ")
        both = ('%s 1 "$@" & %s 0 "$@"; code=$?; wait $! && exit $code' % (agent, agent))
        self.START = ["sh", "-c", both, "sh"]
        self.perf(ULYX_PORT=str(ports[1]), ULYX_SECRET="of-this-test-" + self.folder)


KINDS = {
    "slurm": (Slurm, slurm.missing),
    "mpirun": (Mpirun, lambda: first_missing(MPIRUN)),
    "hydra": (Hydra, lambda: first_missing("mpiexec.hydra")),
    "torchrun": (Torchrun, lambda: first_missing("torchrun")),
}

if __name__ == "__main__":
    case, missing = KINDS[LAUNCHER]
    why = missing()
    # Nodes have their own, in which the programs of the build would be hidden.
    hidden = [folder for folder in jobs.OWN
              if os.path.realpath(sys.argv[1]).startswith(folder + "/")]
    if hidden:
        why = f"the programs are in {hidden[0]}, of which each node has its own"
    if why:
        print(f"skipped: {LAUNCHER}: {why}")
        sys.exit(SKIP)
    suite = unittest.TestSuite(map(case, sys.argv[3:])) if sys.argv[3:] else \
        unittest.defaultTestLoader.loadTestsFromTestCase(case)
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())
