# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu-check.sh, as far as a machine without a card can tell: its steps
are listed, every target it builds exists, every sweep is a command that
ulyx_perf takes, and without a card it says that it skips.

gpu_check_test.py SOURCE-DIR BUILD-DIR
"""
import os
import shlex
import subprocess
import sys
import unittest

SOURCE, BUILD = sys.argv[1], sys.argv[2]
SCRIPT = os.path.join(SOURCE, "scripts", "gpu-check.sh")
PERF = os.path.join(BUILD, "bin", "ulyx_perf")


def run(*words, **env):
    return subprocess.run(words, capture_output=True, text=True, check=False,
                          env=dict(os.environ, **env))


def steps():
    done = run("sh", SCRIPT, "--dry-run", "folder")
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    return done.returncode, [(n, int(s), shlex.split(c)) for n, s, c in lines]


class GpuCheck(unittest.TestCase):
    def test_steps_are_listed(self):
        code, listed = steps()
        self.assertEqual(code, 0)
        names = [name for name, _, _ in listed]
        self.assertEqual(len(names), len(set(names)))
        for name in ("configure", "build", "card_exchange", "even P=2",
                     "even P=4", "even P=8", "64 KiB P=4", "GQA 14/2",
                     "64 KiB graph P=4", "card_many",
                     "adjoint 32/2", "nccl", "attention",
                     "attention vs torch", "attention sanitized"):
            self.assertIn(name, names)
        self.assertTrue(all(0 < seconds <= 300 for _, seconds, _ in listed))

    def test_every_sweep_of_the_table_is_run(self):
        sys.path.insert(0, os.path.join(SOURCE, "scripts"))
        import gpu_table
        names = {n for n, _, c in steps()[1] if "ulyx_perf" in c[0]}
        self.assertEqual(set(gpu_table.ROWS), names)

    def test_targets_exist(self):
        command = dict((n, c) for n, _, c in steps()[1])["build"]
        targets = command[command.index("--target") + 1:]
        known = run("cmake", "--build", BUILD, "--target", "help").stdout
        for target in targets:
            if "card_" not in target or "card_exchange" in known:
                self.assertIn(target, known)

    def test_sweeps_are_commands(self):
        sweeps = [c for _, _, c in steps()[1] if "ulyx_perf" in c[0]]
        self.assertGreater(len(sweeps), 8)
        for command in sweeps:
            # A dry run plans for host memory, which copy engines refuse.
            words = [w for w in command[1:] if w != "--copy-engine"]
            at = words.index("-J")
            del words[at:at + 2]
            done = run(PERF, *words, "--dry-run")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("direct", done.stdout)

    def test_without_a_card_it_skips(self):
        done = run("sh", SCRIPT, PATH="/usr/bin:/bin")
        if "GPU 0" in run("sh", "-c", "nvidia-smi -L").stdout:
            self.skipTest("a card is here")
        self.assertEqual((done.returncode, done.stdout),
                         (77, "skipped: no GPU\n"))

    def test_without_a_card_the_sweeps_skip(self):
        done = run(PERF, "--memory", "cuda", "--vs", "copy,permute,nccl")
        if done.returncode == 0:
            self.skipTest("a card is here")
        self.assertEqual(done.returncode, 77)
        self.assertIn("skipped: no CUDA device", done.stdout)

    def test_comparators_belong_to_a_memory(self):
        for words, part in ((["--vs", "copy"], "--memory cuda"),
                            (["--copy-engine"], "--memory cuda"),
                            (["--memory", "cuda", "--vs", "memcpy"],
                             "--memory host"),
                            (["--memory", "disk"], "known: host cuda")):
            done = run(PERF, *words)
            self.assertEqual(done.returncode, 6)
            self.assertIn(part, done.stderr)


unittest.main(argv=sys.argv[:1])
