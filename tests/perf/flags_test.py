#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""flags_test.py BIN: the flags of ulyx_perf mean what users of nccl-tests
expect, and what has no meaning is refused."""
import unittest

from tool import QUICK, ToolCase, run, PERF, table

# Bytes of q, k, v of one token with the default shape: 3 x 32 x 128 bf16.
TOKEN = 3 * 32 * 128 * 2


class Sweep(ToolCase):
    def sizes(self, *words):
        rows = self.csv("-g", "2", "-n", "1", "--op", "s2h", *words)
        return [int(row["size_bytes"]) for row in rows]

    def test_factor(self):
        self.assertEqual(self.sizes("-b", "96K", "-e", "400K", "-f", "2"),
                         [4 * TOKEN, 8 * TOKEN, 16 * TOKEN])

    def test_step(self):
        self.assertEqual(self.sizes("-b", "48K", "-e", "96K", "-i", "24K"),
                         [2 * TOKEN, 3 * TOKEN, 4 * TOKEN])

    def test_real_sizes_below_and_never_zero(self):
        # 8 bytes are impossible, because each rank has one token at least. Each
        # size that results is run once.
        self.assertEqual(self.sizes("-b", "8", "-e", "64K", "-f", "2"),
                         [TOKEN, 2 * TOKEN])
        self.assertEqual(self.sizes("-b", "1M", "-e", "1M"), [42 * TOKEN])

    def test_suffixes_are_binary(self):
        for words in (["0.09375M"], ["96K"], ["96k"], ["98304"], ["96KB"]):
            self.assertEqual(self.sizes("-b", *words, "-e", *words),
                             [4 * TOKEN])
        self.assertEqual(self.sizes("--minbytes=0.000091552734375G",
                                    "--maxbytes=96K"), [4 * TOKEN])

    def test_seq_batch_and_shape(self):
        row, = self.csv("-g", "2", "-n", "1", "--op", "s2h", "--seq", "10",
                        "--batch", "3", "--heads", "6", "--kv-heads", "2",
                        "--dim", "16", "--dim-v", "8", "-d", "float")
        self.assertEqual(int(row["size_bytes"]),
                         3 * 5 * (6 * 16 + 2 * (16 + 8)) * 4)
        self.assertEqual(int(row["count"]) * 4, int(row["size_bytes"]))
        self.assertEqual(int(row["seq"]), 10)

    def test_too_large_is_left_out_with_a_note(self):
        done = run(PERF, "-b", "64K", "-e", "1000G", "-f", "1e6", "-g", "2",
                   "-n", "1", "--op", "s2h")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(table(done.stdout)), 1)
        self.assertIn("left out", done.stdout)
        self.says(6, "left out", "-b", "900000G", "--csv")


class Meaning(ToolCase):
    def test_iterations_and_checks(self):
        for words in (["-n", "1"], ["-n", "13", "-w", "0"], ["-m", "3"],
                      ["-c", "2"], ["-z", "1"], ["-z", "2"], ["-p", "1"],
                      ["-a", "0"], ["-a", "1"], ["-a", "2"], ["-R", "0"],
                      ["-T", "30"], ["-G", "0"], ["--order", "zigzag"],
                      ["--replicated", "3"], ["--vs", "memcpy"],
                      ["-z", "1", "--vs", "memcpy"]):
            self.csv("-b", "64K", "-e", "64K", "-n", "2", "-g", "2", *words)

    def test_cycles_repeat_the_table(self):
        rows = self.csv(*QUICK, "-g", "2", "-N", "3")
        self.assertEqual([row["op"] for row in rows], ["s2h", "h2s"] * 3)

    def test_getopt_forms(self):
        self.csv("-b8K", "-e64K", "-f2", "-g2", "-n2", "-c1", "-w0", "-oh2s",
                 "-r0", "-y0", "--root=0")
        row, = self.csv("--minb=64K", "--maxbytes", "64K", "--ite", "2",
                        "--ngpus=2", "--op=h2s", "--datatype", "half")
        self.assertEqual((row["size_bytes"], row["dtype"]), ("65536", "half"))

    def test_schedules_in_turn(self):
        rows = self.csv(*QUICK, "-g", "4", "-o", "all", "--kv-heads", "8",
                        "--algo", "direct,pairwise,hier")
        self.assertEqual([(row["op"], row["schedule"]) for row in rows],
                         [(op, algo) for op in
                          ("s2h", "h2s", "s2h_adj", "h2s_adj")
                          for algo in ("direct", "pairwise", "hier")])
        out = self.ends(0, "-g", "2", "--dry-run", "--algo", "direct,hier",
                        "--op", "s2h", *QUICK)
        self.assertEqual(out.count("reshuffle direct"), 1)
        self.assertEqual(out.count("reshuffle hier"), 1)

    def test_types_in_turn(self):
        rows = self.csv(*QUICK, "-g", "2", "-o", "all", "-d", "all")
        self.assertEqual(
            {row["dtype"] for row in rows if row["op"] == "s2h_adj"},
            {"bf16", "f16", "f32", "f64"})
        self.assertEqual(len(rows), 6 * 2 + 4 * 2)
        self.assertEqual([row["dtype"] for row in self.csv(
            *QUICK, "-o", "h2s", "-d", "int8,6,half")], ["int8", "6", "half"])

    def test_iterations_one_by_one(self):
        row, = self.csv(*QUICK, "-o", "h2s", "-n", "40", "-I", "1", "-g", "2",
                        "--percentiles", "1,50,90,100")
        times = [float(row[name]) for name in ("p1_us", "p50_us", "p90_us",
                                               "p99_us", "p100_us")]
        self.assertEqual(times, sorted(times))
        self.assertEqual(row["p1_us"], row["min_us"])
        # Of 40 values, the 39.6th and the last are the same.
        self.assertEqual(row["p99_us"], row["p100_us"])
        # Ten blocks of four: all values between are the same, so there were
        # forty.
        self.assertNotEqual(row["p90_us"], row["p99_us"])

    def test_unaligned_tensors(self):
        for count in ("1", "3", "17"):
            rows = self.csv(*QUICK, "-g", "3", "-o", "all", "--kv-heads", "2",
                            "--heads", "8", "--dim", "6", "-u", count, "-d",
                            "f16,f64", "--vs", "memcpy")
            self.assertEqual({row["unalign"] for row in rows}, {count})
        self.csv(*QUICK, "-g", "2", "-u", "5", "--replicated", "3")

    def test_unchecked(self):
        out = self.ends(0, *QUICK, "-g", "2", "-c", "0")
        self.assertIn("# Out of bounds values : N/A", out)
        self.assertEqual({row[8] for row in table(out)}, {"N/A"})

    def test_operations_and_types(self):
        for dtype in ("bf16", "half", "f32", "double"):
            rows = self.csv(*QUICK, "-g", "3", "--op", "all", "-d", dtype,
                            "--heads", "6", "--kv-heads", "2")
            self.assertEqual([row["op"] for row in rows],
                             ["s2h", "h2s", "s2h_adj", "h2s_adj"])
        for dtype in ("f8e4m3", "1", "6"):
            self.csv(*QUICK, "-g", "2", "-d", dtype)

    def test_uneven_balanced_adjoints(self):
        for option, split in (("--work", "heads"), ("--work", "balanced"),
                              ("--split", "balanced")): # the name that was used
            self.csv(*QUICK, "-g", "4", "--heads", "14", "--kv-heads", "2",
                     "--dim", "64", "--op", "all", option, split)

    def test_models(self):
        rows = self.csv(*QUICK, "-g", "4", "--op", "s2h", "--model", "all",
                        "-n", "1")
        self.assertEqual(len(rows), 9)
        rows = self.csv(*QUICK, "-g", "2", "--model", "gpt-oss,deepseek-v3")
        self.assertEqual([row["model"] for row in rows],
                         ["gpt-oss"] * 2 + ["deepseek-v3"] * 2)

    def test_dry_run(self):
        out = self.ends(0, "--dry-run", "--procs", "4", "--heads", "14",
                        "--kv-heads", "2", "--dim", "64", "--seq", "1000",
                        "--op", "s2h")
        self.assertIn("direct", out)
        self.assertEqual([row[1:4] for row in table(out)],
                         [["250", "4", "1"], ["250", "4", "2"],
                          ["250", "3", "1"], ["250", "3", "1"]])

    def test_one_rank_says_how_to_get_a_peer(self):
        hint = [line for line in self.ends(0, *QUICK).splitlines()
                if "one rank has no peers" in line]
        self.assertEqual(len(hint), 1)
        for words in (["--procs", "2"], ["-t", "2"]):
            self.assertIn(" ".join(words), hint[0])
            self.assertNotIn("no peers", self.ends(0, *QUICK, *words))

    def test_help(self):
        out = self.ends(0, "--help")
        for flag in ("-b", "-e", "-i", "-f", "-n", "-w", "-m", "-N", "-c",
                     "-t", "-g", "-p", "-z", "-T", "-J", "-a", "-R", "-d",
                     "-o", "-I", "-u"):
            self.assertIn(f"  {flag}, --", out)
        self.assertRegex(out, r"--minbytes .*\(32M; the size of -e if that is smaller\)")
        self.assertRegex(out, r"--maxbytes .*\(32M; the size of -b if that is larger\)")
        self.assertIn("--work", out)
        self.assertNotIn("--split", out)


class Refused(ToolCase):
    def test_usage(self):
        for needle, words in {
                "unknown option --nope": ["--nope"],
                "unknown option 12": ["12"],
                "needs a value": ["-b"],
                "--minbytes 3x": ["-b", "3x"],
                "--iters 0": ["-n", "0"],
                "--iters 1.5": ["-n", "1.5"],
                "--minbytes -4": ["-b", "-4"],
                "--average 4": ["-a", "4"],
                "--blocking 3": ["-z", "3"],
                "-e 1024 is below": ["-b", "1M", "-e", "1K"],
                "--dtype int9": ["-d", "int9"],
                "--op total": ["-o", "total"],
                "--algo spiral": ["--algo", "direct,spiral"],
                "is named twice": ["--algo", "direct,hier,direct"],
                "--algo nccl needs": ["--algo", "nccl"],
                "--percentiles 50,101": ["--percentiles", "50,101"],
                "--minbytes or --maxbytes": ["--m", "3"],
                "--csv takes": ["--cs=1"],
                "--dtype 7": ["-d", "7", "--op", "all"],
                "--order spiral": ["--order", "spiral"],
                "--work fair": ["--work", "fair"],
                "--vs nccl": ["--vs", "nccl"],
                "--model gpt-5": ["--model", "gpt-5"],
                "--model ''": ["--model", ""],
                "named twice": ["--model", "gpt-oss,gpt-oss"],
                "--model and --heads": ["--model", "gpt-oss", "--heads", "4"],
                "--seq and --minbytes": ["--seq", "4", "-b", "1M"],
                "not a multiple": ["--heads", "6", "--kv-heads", "4"],
                "more than 4096": ["--procs", "4096", "-t", "2"],
                "takes no value": ["--csv=1"],
                "needs --memory cuda and": ["-G", "10"],
                "-N 0": ["-N", "0", "-J", "/tmp/never.json"],
                "one rank per process": ["--vs", "mpi", "-t", "2"]}.items():
            self.says(6, needle, *words)
            # The reason comes last, and no later line hides it.
            said = run(PERF, *words).stderr.splitlines()
            self.assertEqual(len(said), 2, said)
            self.assertTrue(said[0].startswith("usage: ulyx_perf"), said)
            self.assertTrue(said[1].startswith("ulyx_perf: "), said)
            self.assertIn(needle, said[1])

    def test_refused_flags_of_nccl_tests_have_a_reason(self):
        self.says(5, "GPU memory", "-y", "1")
        self.says(5, "see -w", "-K", "2")
        self.says(5, "no rank is a root", "--root", "3")


if __name__ == "__main__":
    unittest.main()
