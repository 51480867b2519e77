# SPDX-License-Identifier: Apache-2.0
"""The end of scripts/gpu-check.sh without a card: the table of scripts/gpu_table.py
from made-up reports, and the whole script with stand-ins for the programs of a
machine with a card (cmake that builds nothing, a ulyx_perf that writes reports).

gpu_table_test.py SOURCE-DIR
"""
import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest

SOURCE = sys.argv[1]
sys.path.insert(0, os.path.join(SOURCE, "scripts"))
import gpu_table # noqa: E402 (found by the line above)

BENCH = """peer: torch 2.9 cudnn 91002 ; fa3: flash_attn_interface ; fa4: No module
  d  h      s  b docs mask   pass row   auto  mma ratio  cudnn ratio  fa3 ratio  clock, power
 64 32   8192  2    0 full   fwd  sm90 512.0 90.0 5.689  500.0 1.024  N/A   N/A  1980 MHz
128 16   2048  8    0 causal fwd  sm90 300.0 90.0 3.333  420.0 0.714 430.0 0.698  1980 MHz
192/128 16 8192 2  16 causal fwd  sm90 300.0 90.0 3.333  N/A   N/A  430.0 0.698  1980 MHz
below floor: 1 of 2 rows under 0.85 of cuDNN, 0.8 backward
"""
BACKWARD = BENCH.replace(" fwd ", " bwd ").replace("0.714", "0.814")


# The words of all plans, of every kind that a sweep is about.
PLAN = ("direct on device memory (one launch per call), engine on device memory, "
        "packed on device memory: (staged) (nccl)")


def row(op="s2h", us=100.0, copy=0.95, permute=3.0, wrong=0):
    return {"op": op, "size": 1 << 27, "time_us": {"median": us},
            "plan": PLAN,
            "vs_copy": copy, "vs_permute": permute, "vs_nccl": 3.5,
            "vs_nccl_each": 5.5, "nwrong": wrong}


def ranks_of(sweep):
    return int(sweep[-1]) if sweep[-2:-1] == "=" else 4


class Table(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        for sweep in gpu_table.ROWS:
            self.put(sweep, row(us=6.5))

    def put(self, sweep, *rows):
        name = sweep.replace(" ", "_").replace("/", "_") + ".json"
        with open(os.path.join(self.folder.name, name), "w",
                  encoding="utf-8") as file:
            json.dump({"config": {"ranks": ranks_of(sweep)},
                       "results": list(rows)}, file)

    def table(self):
        done = subprocess.run(
            [sys.executable, os.path.join(SOURCE, "scripts", "gpu_table.py"),
             self.folder.name], capture_output=True, text=True, check=False)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout

    def line(self, start):
        lines = [line for line in self.table()[1].splitlines()
                 if line.startswith(start)]
        self.assertTrue(lines, start)
        return lines

    def ends(self, start, words):
        line = self.line(start)[0]
        self.assertEqual(line.split()[-4:], words.split(), line)

    def test_every_row_at_the_goal_passes(self):
        code, out = self.table()
        self.assertEqual(code, 0, out)
        self.assertIn(" 0 below it, 0 wrong, 0 of another kind; 2 not run", out) # attention

    def test_below_the_floor_fails(self):
        self.put("even P=4", row(copy=0.84, us=6))
        self.assertEqual(self.table()[0], 1)
        self.ends("even P=4", "0.84 0.85 0.94 BELOW")

    def test_between_floor_and_goal(self):
        self.put("even P=8", row(copy=0.90, permute=2.0))
        share, permute = self.line("even P=8 s2h")
        self.assertTrue(share.endswith("  floor"), share)
        self.assertTrue(permute.endswith("  floor"), permute)
        self.assertEqual(self.table()[0], 0)

    def test_rows_of_128_bytes_have_a_floor_of_their_own(self):
        self.put("rows of 128 bytes", row(copy=0.80))
        self.ends("rows of 128", "0.80 0.75 0.87 floor")

    def test_low_times_are_good(self):
        for us, word in ((6.9, "goal"), (7.1, "floor"), (14.1, "BELOW")):
            self.put("64 KiB graph P=4", row(us=us))
            self.assertTrue(
                self.line("64 KiB graph P=4")[0].endswith("  " + word))
        self.put("64 KiB P=4", row(us=23))
        self.assertTrue(self.line("64 KiB P=4")[0].endswith("BELOW"))

    def test_uneven_is_held_to_even_ranks_as_many(self):
        self.put("even P=4", row(copy=0.95), row(op="h2s", copy=0.90))
        self.put("uneven 30", row(copy=0.93), row(op="h2s", copy=0.86))
        shares = [line for line in self.line("uneven 30") if "of even" in line]
        self.assertEqual(shares[0].split()[-4:], "0.98 - 0.97 goal".split())
        self.assertEqual(shares[1].split()[-4:], "- 0.97 under goal".split())

    def test_copy_engines_are_shown_and_held_to_nothing(self):
        self.put("copy engines", row(copy=0.55, permute=1.5))
        self.ends("copy engines s2h", "0.55 - - -")
        self.assertEqual(self.table()[0], 0)

    def test_wrong_data_fail(self):
        self.put("adjoint 32/2", row(wrong=3))
        code, out = self.table()
        self.assertEqual(code, 1)
        self.assertIn("WRONG", out)

    def test_a_row_of_another_kind_is_no_row(self):
        slow = row(copy=0.95)
        slow["plan"] = "packed on device memory: messages (staged)"
        self.put("even P=2", slow)
        code, out = self.table()
        self.assertEqual(code, 1)
        line, = self.line("even P=2 s2h")
        self.assertTrue(line.endswith("  WRONG KIND"), line)
        self.assertIn("(staged)", line)
        self.assertIn("1 of another kind", out)

    def test_one_sweep_alone(self):
        done = subprocess.run(
            [sys.executable, os.path.join(SOURCE, "scripts", "gpu_table.py"),
             self.folder.name, "even P=4"], capture_output=True, text=True,
            check=False)
        lines = done.stdout.splitlines()
        self.assertEqual([line.split()[:2] for line in lines],
                         [["even", "P=4"]] * 2)

    def test_attention_is_judged_by_its_log(self):
        with open(os.path.join(self.folder.name, "attention_vs_torch,_first.log"),
                  "w", encoding="utf-8") as file:
            file.write(BENCH)
        first, second, fa3, docs, docs_fa3 = self.line("attention fwd")
        self.assertTrue(first.endswith("  goal"), first)
        self.assertTrue(second.endswith("  BELOW"), second)
        self.assertEqual(fa3.split()[-4:], "0.70 - - -".split())
        self.assertIn("d 192/128 h 16 s 8192 b 2 causal docs 16 ", docs)
        self.assertTrue(docs.endswith("  not run"), docs)
        self.assertEqual(docs_fa3.split()[-4:], "0.70 - - -".split())
        self.assertTrue(self.line("attention backward")[0].endswith("not run"))

    def test_backward_has_a_floor_of_its_own(self):
        with open(os.path.join(self.folder.name,
                               "attention_backward_vs_torch.log"),
                  "w", encoding="utf-8") as file:
            file.write(BACKWARD)
        second = self.line("attention bwd d 128")[0]
        self.assertEqual(second.split()[-4:], "0.81 0.80 1.00 floor".split())

    def test_truncated_and_missing_files_count_as_not_run(self):
        path = os.path.join(self.folder.name, "GQA_14_2.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write('{"config": {')
        os.remove(os.path.join(self.folder.name, "nccl.json"))
        self.assertTrue(self.line("GQA 14/2")[0].endswith("not run"))
        self.assertTrue(self.line("nccl")[0].endswith("not run"))

    def test_nothing_measured(self):
        for name in os.listdir(self.folder.name):
            os.remove(os.path.join(self.folder.name, name))
        self.assertEqual(self.table()[0], 2)


CMAKE = """#!/bin/sh
case "$1" in
--build)
    mkdir -p "$2/bin"
    shift 4
    for t in "$@"; do [ "$t" = ulyx_perf ] || ln -sf /bin/true {bin}/{out}/bin/"$t"; done
    cp {bin}/perf {bin}/{out}/bin/ulyx_perf ;;
esac
"""
PERF = """#!/usr/bin/env python3
import json, os, sys, time
sys.path.insert(0, {here!r})
words = sys.argv[1:]
time.sleep(float(os.environ.get("FAKE_SLOW", "0")))
fault = os.environ.get("FAKE_FAULT")
if fault == "no client of MPS" and "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
    sys.exit(3)
if fault == "killed" and "14" in words:
    os.kill(os.getpid(), 9)
if "-J" in words:
    rows = [{{"op": op, "size": 1 << 27, "time_us": {{"median": 6.5}},
             "plan": {plan!r},
             "vs_copy": 0.95, "vs_permute": 3.0, "vs_nccl": 3.5,
             "vs_nccl_each": 5.5, "nwrong": 0}} for op in ("s2h", "h2s")]
    with open(words[words.index("-J") + 1], "w") as file:
        json.dump({{"config": {{"ranks": int(words[1])}}, "results": rows}},
                  file)
print("model,op,seq,size_bytes")
print("shape,s2h,8,1")
"""
SMI = """#!/bin/sh
case "$*" in
-L) echo "GPU 0: made up" ;;
*compute_cap*) echo 9.0 ;;
*) echo "made up, 1.0, 1980 MHz, 100 W" ;;
esac
"""


class Script(unittest.TestCase):
    def run_script(self, *words, **env):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out")
            for name, body in (("cmake", CMAKE.format(bin=folder, out="out")),
                               ("perf", PERF.format(here=folder, plan=PLAN)),
                               ("nvidia-smi", SMI),
                               ("nvidia-cuda-mps-control",
                                "#!/bin/sh\nexit 0\n")):
                path = os.path.join(folder, name)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(body)
                os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
            return subprocess.run(
                ["sh", os.path.join(SOURCE, "scripts", "gpu-check.sh"), *words,
                 out], capture_output=True, text=True, check=False,
                env=dict(os.environ, PATH=folder + ":/usr/bin:/bin", **env))

    def test_a_whole_run(self):
        done = self.run_script()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for line in ("two ranks under MPS ", "even P=8 ", "64 KiB graph P=4 ", "card_many "):
            self.assertIn("\n" + line, "\n" + done.stdout)
        self.assertNotIn("failed", done.stdout)
        self.assertIn(" 0 below it, 0 wrong, ", done.stdout)

    def test_mps_that_serves_nobody_is_left_out(self):
        done = self.run_script(FAKE_FAULT="no client of MPS")
        self.assertRegex(done.stdout, "\ntwo ranks under MPS +failed")
        self.assertIn("\nMPS                                fails",
                      done.stdout)
        self.assertRegex(done.stdout, "\neven P=8 +passed")

    def test_mps_is_restarted_after_a_killed_sweep(self):
        done = self.run_script(FAKE_FAULT="killed")
        self.assertRegex(done.stdout, "\nGQA 14/2 +failed: exit 137")
        probes = [line for line in done.stdout.splitlines()
                  if line.startswith("two ranks under MPS")]
        # one for each of two groups of sweeps, and one after the kill
        self.assertEqual(len(probes), 3)
        self.assertRegex(done.stdout, "\nuneven 30 +passed")
        self.assertEqual(done.returncode, 1)

    def test_the_limit_holds_and_the_rest_is_skipped(self):
        done = self.run_script("--limit", "16", FAKE_SLOW="1.5")
        self.assertIn("skipped: no time left", done.stdout)
        self.assertIn("judged", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
