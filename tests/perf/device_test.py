#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""device_test.py BIN: ulyx_perf --memory cuda on an emulated device, ranks as
threads: all operations, comparators and formats. Times are virtual, so only
that they are there is looked at."""
import json
import os
import tempfile
import unittest

from tool import BIN, ROOT, ToolCase, run, table
from formats_test import check

PERF = os.path.join(BIN, "emulate_perf")
# A few blocks per launch, because the emulator runs every thread of them.
FEW = {"ULYX_GPU_SMS": "1"}
TINY = ["--memory", "cuda", "--heads", "8", "--dim", "16", "-b", "2K", "-e",
        "2K", "-n", "2", "-w", "0", "-T", "60"]


class Device(ToolCase):
    def table(self, *words):
        out = self.ends(0, *TINY, *words, program=PERF, timeout=200, **FEW)
        self.assertIn("device cuda", out)
        self.assertIn("between events of each rank's stream", out)
        rows = table(out)
        for row in rows:
            self.assertGreater(float(row[5]), 0)
            self.assertEqual(row[8], "0", out)
        return rows, out

    def rows(self, *words, **variables):
        return self.csv(*TINY, *words, program=PERF, timeout=200, **FEW,
                        **variables)

    def report(self, *words, **variables):
        """Returns the JSON report and its rows."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report")
            rows = self.rows(*words, "-J", path, **variables)
            with open(path, encoding="utf-8") as file:
                return json.load(file), rows

    def test_two_ranks_all_operations(self):
        rows, out = self.table("-t", "2", "-o", "all", "--kv-heads", "4",
                               "--vs", "copy,permute")
        self.assertEqual([row[14] for row in rows],
                         ["s2h", "h2s", "s2h_adj", "h2s_adj"])
        for row in rows:
            self.assertGreater(float(row[18]), 1, out) # pack, copy, unpack
        self.assertIn("median vs_permute", out)

    def test_four_ranks_in_graphs(self):
        report, rows = self.report("-t", "4", "-o", "s2h", "-G", "3")
        with open(os.path.join(ROOT, "perf", "schema.json"),
                  encoding="utf-8") as file:
            check(report, json.load(file))
        self.assertEqual(report["config"]["memory"], "cuda")
        self.assertEqual(report["config"]["replays"], 3)
        result, = report["results"]
        self.assertEqual(result["nwrong"], 0)
        self.assertIn("on device memory", result["plan"])
        self.assertAlmostEqual(result["time_us"]["median"],
                               float(rows[0]["time_us"]), delta=0.01)

    def test_ranks_of_one_thread(self):
        row, = self.rows("-g", "2", "-o", "h2s", "-z", "1", "--vs", "copy")
        self.assertRegex(row["vs_copy"], r"^\d") # copies take no virtual time

    def test_by_copy_engines(self):
        report, _ = self.report("-t", "2", "-o", "s2h_adj", "--kv-heads", "1",
                                "-b", "64K", "-e", "64K", "--copy-engine")
        result, = report["results"]
        self.assertEqual(result["nwrong"], 0)
        self.assertIn("engine on device memory (copy engines, by the plan's "
                      "flag", result["plan"])

    def test_through_memory_of_the_host(self):
        report, _ = self.report("-t", "2", "-o", "s2h", "--vs", "copy",
                                ULYX_ALGO="staged")
        result, = report["results"]
        self.assertEqual(result["nwrong"], 0)
        self.assertIn("send/receive (staged: 8 queues", result["plan"])

    def test_schedules_in_turn_on_unaligned_tensors(self):
        rows = self.rows("-t", "2", "-o", "s2h", "--algo", "auto,staged", "-u",
                         "8", "-d", "bf16,f32")
        self.assertEqual([(row["dtype"], row["schedule"]) for row in rows],
                         [(d, s) for d in ("bf16", "f32")
                          for s in ("direct", "staged")])
        self.assertEqual({row["verb"] for row in rows}, {"slot", "message"})

    def test_wrong_data_are_reported(self):
        done = run(PERF, *TINY, "-t", "2", "-o", "s2h", "--csv", timeout=200,
                   PERF_TEST_FAULT="element", **FEW)
        self.assertEqual(done.returncode, 7, done.stderr)
        wrong = int(done.stdout.splitlines()[1].split(",")[14])
        self.assertGreater(wrong, 0)


if __name__ == "__main__":
    unittest.main()
