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
        # 8 bytes cannot be had: one token a rank. Each real size once.
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
        for split in ("heads", "balanced"):
            self.csv(*QUICK, "-g", "4", "--heads", "14", "--kv-heads", "2",
                     "--dim", "64", "--op", "all", "--split", split)

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

    def test_help(self):
        out = self.ends(0, "--help")
        for flag in ("-b", "-e", "-i", "-f", "-n", "-w", "-m", "-N", "-c",
                     "-t", "-g", "-p", "-z", "-T", "-J", "-a", "-R", "-d",
                     "-o"):
            self.assertIn(f"  {flag}, --", out)


class Refused(ToolCase):
    def test_usage(self):
        for needle, words in {
                "unknown option --nope": ["--nope"],
                "unknown option 12": ["12"],
                "wants a value": ["-b"],
                "--minbytes 3x": ["-b", "3x"],
                "--iters 0": ["-n", "0"],
                "--iters 1.5": ["-n", "1.5"],
                "--minbytes -4": ["-b", "-4"],
                "--average 4": ["-a", "4"],
                "--blocking 3": ["-z", "3"],
                "-e 1024 is below": ["-b", "1M", "-e", "1K"],
                "--dtype int9": ["-d", "int9"],
                "--op sum": ["-o", "sum"],
                "--dtype 7": ["-d", "7", "--op", "all"],
                "--order spiral": ["--order", "spiral"],
                "--split fair": ["--split", "fair"],
                "--vs nccl": ["--vs", "nccl"],
                "--model gpt-5": ["--model", "gpt-5"],
                "--model ''": ["--model", ""],
                "there twice": ["--model", "gpt-oss,gpt-oss"],
                "--model and --heads": ["--model", "gpt-oss", "--heads", "4"],
                "--seq and --minbytes": ["--seq", "4", "-b", "1M"],
                "not a multiple": ["--heads", "6", "--kv-heads", "4"],
                "more than 4096": ["--procs", "4096", "-t", "2"],
                "takes no value": ["--csv=1"],
                "wants --memory cuda and": ["-G", "10"],
                "-N 0": ["-N", "0", "-J", "/tmp/never.json"],
                "one rank a process": ["--vs", "mpi", "-t", "2"]}.items():
            self.says(6, needle, *words)
            self.says(6, "usage: ulyx_perf", *words) \
                if not needle.startswith(("--model g", "--model ''", "there")) \
                else None

    def test_flags_of_nccl_tests_say_why(self):
        self.says(5, "GPU memory", "-y", "1")
        self.says(5, "--wide", "-I", "1")
        self.says(5, "no rank is a root", "--root", "3")


if __name__ == "__main__":
    unittest.main()
