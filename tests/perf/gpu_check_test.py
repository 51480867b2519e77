# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu-check.sh, as far as a machine without a card can tell: its steps
are listed in order of value, every target it builds exists, every sweep is a
command that ulyx_perf takes, without a card it says that it skips, and on an
emulated device it runs as far as there are programs for one.

gpu_check_test.py SOURCE-DIR BUILD-DIR
"""
import os
import shlex
import stat
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD = sys.argv[1], os.path.abspath(sys.argv[2])
SCRIPT = os.path.join(SOURCE, "scripts", "gpu-check.sh")
PERF = os.path.join(BUILD, "bin", "ulyx_perf")
EMULATED = os.path.join(BUILD, "bin", "emulate_perf")
SMI = """#!/bin/sh
[ "$*" = -L ] && echo "GPU 0: emulated" || echo emulated, 0
"""


def run(*words, **env):
    return subprocess.run(words, capture_output=True, text=True, check=False,
                          env=dict(os.environ, **env))


def steps():
    done = run("sh", SCRIPT, "--dry-run", "folder")
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    return done.returncode, [(n, int(s), shlex.split(c)) for n, s, c in lines]


def sweeps_of(listed):
    """Returns {name: (settings, the words of ulyx_perf)}."""
    found = {}
    for name, _, command in listed:
        at = [i for i, word in enumerate(command)
              if os.path.basename(word) == "ulyx_perf"]
        if at and "-J" in command:
            settings = dict(w.split("=") for w in command[1:at[0]])
            found[name] = settings, command[at[0] + 1:]
    return found


class GpuCheck(unittest.TestCase):
    def test_steps_are_listed(self):
        code, listed = steps()
        self.assertEqual(code, 0)
        names = [name for name, _, _ in listed]
        self.assertEqual(len(names), len(set(names)))
        for name in ("configure", "build ulyx_perf", "card_exchange", "even P=2",
                     "even P=4", "even P=8", "64 KiB P=4", "GQA 14/2",
                     "64 KiB graph P=4", "card_many",
                     "adjoint 32/2", "nccl", "attention",
                     "attention vs torch, first",
                     "attention vs torch, rest", "attention variants",
                     "attention backward vs torch", "attention backward, rest",
                     "attention sanitized"):
            self.assertIn(name, names)
        self.assertTrue(all(0 < seconds <= 300 for _, seconds, _ in listed))
        first = ["two ranks", "even P=2", "64 KiB graph P=4",
                 "attention vs torch, first", "even P=2 on 32 SMs", "GQA 14/2",
                 "attention variants", "attention vs torch, rest",
                 "attention backward vs torch", "card_exchange",
                 "memcheck even", "card_soak", "attention sanitized"]
        self.assertEqual(sorted(first, key=names.index), first)

    def test_every_sweep_of_the_table_is_run(self):
        sys.path.insert(0, os.path.join(SOURCE, "scripts"))
        import gpu_table
        self.assertEqual(set(gpu_table.ROWS), set(sweeps_of(steps()[1])))

    def test_targets_exist(self):
        known = run("cmake", "--build", BUILD, "--target", "help").stdout
        builds = [c for n, _, c in steps()[1] if n.startswith("build ")]
        self.assertEqual(len(builds), 3)
        for command in builds:
            for target in command[command.index("--target") + 1:]:
                if "card_" not in target or "card_exchange" in known:
                    self.assertIn(target, known)

    def test_sweeps_are_commands(self):
        sweeps = sweeps_of(steps()[1])
        self.assertGreater(len(sweeps), 8)
        for settings, command in sweeps.values():
            # A dry run plans for host memory, for which there are no copy
            # engines.
            words = [w for w in command if w != "--copy-engine"]
            at = words.index("-J")
            del words[at:at + 2]
            settings.pop("ULYX_ALGO", None) # this value is for device memory alone
            done = run(PERF, *words, "--dry-run", **settings)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("direct", done.stdout)

    def on_an_emulated_device(self, folder, *words):
        """The script with emulate_perf for ulyx_perf, ranks as threads, and
        programs that end well for all others."""
        names = [w for n, _, c in steps()[1] if n.startswith("build ")
                 for w in c[c.index("--target") + 1:]]
        os.makedirs(os.path.join(folder, "bin"), exist_ok=True)
        for name in set(names):
            link = os.path.join(folder, "bin", name)
            if not os.path.islink(link):
                os.symlink(EMULATED if name == "ulyx_perf" else "/bin/true",
                           link)
        smi = os.path.join(folder, "nvidia-smi")
        with open(smi, "w", encoding="utf-8") as file:
            file.write(SMI)
        os.chmod(smi, os.stat(smi).st_mode | stat.S_IXUSR)
        return run("sh", SCRIPT, "--small", *words, folder, GPU_CHECK_AS="-t",
                   ULYX_GPU_SMS="1", ULYX_TIMEOUT="60",
                   PATH=folder + ":" + os.environ["PATH"])

    @unittest.skipUnless(os.path.exists(EMULATED), "no emulate_perf")
    def test_it_runs_on_an_emulated_device(self):
        with tempfile.TemporaryDirectory() as folder:
            # The time ends; the next run continues where it ended; and there is
            # a table.
            begun = self.on_an_emulated_device(folder, "--limit", "4")
            self.assertIn("two ranks ", begun.stdout)
            self.assertIn("skipped: no time left", begun.stdout)
            done = self.on_an_emulated_device(folder, "--limit", "800")
            self.assertIn("even P=2 s2h", done.stdout)
            self.assertNotIn("failed", done.stdout)
            self.assertRegex(done.stdout, r"judged: .* 0 wrong, 0 of another "
                             r"kind; \d+ not run")
            again = self.on_an_emulated_device(folder, "--limit", "800")
            self.assertIn("two ranks ", again.stdout)
            self.assertRegex(again.stdout, r"\neven P=8 h2s ")
            self.assertIn("card_matmul                        passed before",
                          again.stdout)
            with open(os.path.join(folder, "gpu-check.csv"),
                      encoding="utf-8") as file:
                rows = file.read().splitlines()
        self.assertTrue(rows[0].startswith("sweep,ranks,model,"), rows[0])
        self.assertEqual(len(rows), len(set(rows)))
        names = {row.split(",")[0] for row in rows[1:]}
        names = {row.split(",")[0] for row in rows[1:]}
        self.assertLessEqual({"even P=8", "GQA 14/2", "staged"}, names)

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
