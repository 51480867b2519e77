#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""formats_test.py BIN: the table's fields are where scripts made for nccl-tests
look, CSV and JSON say the same, and no secret leaves."""
import json
import os
import re
import tempfile
import unittest

from tool import QUICK, ROOT, ToolCase, run, PERF, table


def check(value, schema, path="$"):
    """Checks the part of JSON Schema that perf/schema.json uses, for machines
    without python3-jsonschema."""
    kinds = {"object": dict, "array": list, "string": str, "integer": int,
             "number": (int, float), "boolean": bool, "null": type(None)}
    if "const" in schema:
        assert value == schema["const"], path
    if "enum" in schema:
        assert value in schema["enum"], (path, value)
    if "type" in schema:
        names = schema["type"]
        names = names if isinstance(names, list) else [names]
        assert any(isinstance(value, kinds[name]) and
                   (name == "boolean" or not isinstance(value, bool))
                   for name in names), (path, value, names)
    if "pattern" in schema:
        assert re.search(schema["pattern"], value), (path, value)
    if "minimum" in schema:
        assert value >= schema["minimum"], (path, value)
    for name in schema.get("required", []):
        assert name in value, f"{path}.{name} is missing"
    if isinstance(value, dict):
        known = schema.get("properties", {})
        for name, field in value.items():
            rest = schema.get("additionalProperties", True)
            assert name in known or rest, f"{path}.{name} is unknown"
            rest = rest if isinstance(rest, dict) else {}
            check(field, known.get(name, rest), f"{path}.{name}")
    if isinstance(value, list):
        for i, item in enumerate(value):
            check(item, schema.get("items", {}), f"{path}[{i}]")


class Text(ToolCase):
    def test_fields(self):
        out = self.ends(0, *QUICK, "-g", "2")
        rows = table(out)
        self.assertEqual(len(rows), 2)
        for row in rows:
            size, time, algbw, busbw = (float(row[i]) for i in (0, 5, 6, 7))
            self.assertEqual(int(row[1]) * 2, size)
            self.assertEqual(row[2:5], ["bf16", "none", "-1"])
            self.assertAlmostEqual(algbw, size / time * 1e-3,
                                   delta=0.01 + algbw * 0.05)
            # With MHA on two ranks the factor is nccl-tests' (P - 1) / P.
            self.assertAlmostEqual(busbw, algbw / 2, delta=0.011)
            self.assertEqual(row[8], "0")
            self.assertEqual(row[9:13], ["N/A"] * 4)

    def test_comments(self):
        lines = self.ends(0, *QUICK, "-t", "2", "--vs", "memcpy").splitlines()
        self.assertIn("# Using devices", lines)
        self.assertEqual(sum(re.match(
            r"#  Rank +[01] Group +0 Pid +\d+ on +\S+ device", line) is not None
            for line in lines), 2)
        for pattern in (r"# Out of bounds values : 0 OK$",
                        r"# Avg bus bandwidth    : [0-9.]+",
                        r"# Collective test concluded: "):
            self.assertTrue(any(re.match(pattern, line) for line in lines))
        self.assertRegex(lines[-1], r"# Summary: 2 rows on 2 ranks, 0 wrong "
                         r"elements, median vs_memcpy \d+\.\d\d$")
        self.assertLessEqual(max(map(len, lines)), 160)

    def test_average_is_that_of_the_rows(self):
        out = self.ends(0, *QUICK, "-g", "2")
        mean = sum(float(row[7]) for row in table(out)) / 2
        shown = float(re.search(r"# Avg bus bandwidth    : (\S+)", out)[1])
        self.assertAlmostEqual(shown, mean, delta=0.01)

    def test_wide_adds_at_the_end(self):
        out = self.ends(0, *QUICK, "-g", "2", "--wide")
        names = next(line for line in out.splitlines() if "busbw" in line
                     and "#wrong" in line)
        self.assertTrue(names.endswith("cv"), names)
        self.assertEqual({len(row) for row in table(out)}, {21})
        self.assertEqual(names.split()[-4:], ["min(us)", "max(us)", "p99(us)", "cv"])


class Csv(ToolCase):
    def test_one_header_and_numbers(self):
        row = self.csv(*QUICK, "-g", "2", "--vs", "memcpy")[0]
        self.assertGreater(float(row["vs_memcpy"]), 0)
        self.assertEqual(row["vs_mpi"], "")
        low, middle, high = (float(row[n]) for n in
                             ("min_us", "time_us", "p99_us"))
        self.assertTrue(low <= middle <= high)

    def test_best_copy_and_bandwidth(self):
        rows = self.csv(*QUICK, "-t", "2", "--vs", "memcpy,best")
        for row in rows:
            for name in ("vs_memcpy", "vs_best", "of_bw"):
                self.assertGreater(float(row[name]), 0)
        self.assertEqual(list(rows[0])[-3:], ["vs_best", "of_bw", "vs_flag"])
        header = self.ends(0, *QUICK, "-g", "2", "--vs", "best")
        self.assertRegex(header, r" schedule vs_best of_bw\n")
        self.assertRegex(header.splitlines()[-1],
                         r"median vs_best \d+\.\d\d, median of_bw \d+\.\d\d$")

    def test_flags_close_the_same_copies(self):
        for words in (["--procs", "2"], ["-t", "3"], ["-g", "2"]):
            row = self.csv(*QUICK, *words, "--vs", "flag")[0]
            self.assertGreater(float(row["vs_flag"]), 0)
            self.assertEqual(list(row)[-1], "vs_flag")
            self.assertEqual(row["wrong"], "0")

    def test_rows_stand_alone(self):
        rows = self.csv(*QUICK, "--procs", "2", "-g", "2", "--heads", "14",
                        "--kv-heads", "2", "--dim", "64", "--dim-v", "32",
                        "--batch", "2", "--work", "balanced", "--algo", "hier",
                        "-u", "1", "-a", "1")
        for row in rows:
            for name, value in {
                    "schedule": "hier", "transport": "self+shm", "ranks": "4",
                    "nodes": "1", "heads": "14", "kv_heads": "2", "dim": "64",
                    "dim_v": "32", "batch": "2", "replicated": "0",
                    "order": "contiguous", "work": "balanced",
                    "memory": "host", "windows": "1", "unalign": "1",
                    "threads": "1", "ranks_per_thread": "2",
                    "average": "1"}.items():
                self.assertEqual(row[name], value, name)
            self.assertRegex(row["version"], r"^\d+\.\d+\.\d+$")
            self.assertRegex(row["verb"], r"^[a-z]+(\+[a-z]+)*$")
            self.assertTrue(row["host"] and row["cpu"])
            self.assertGreaterEqual(int(row["cores"]), 1)
        for words, verb in ((["-R", "0", "-b", "1M", "-e", "1M"], "ring"),
                            (["-b", "1M", "-e", "1M"], "store"),
                            (["--seq", "2", "--heads", "2", "--dim", "8"],
                             "slot")):
            row, = self.csv("-n", "2", "-o", "h2s", "--procs", "2", *words,
                            ULYX_CMA="off")
            self.assertEqual(row["verb"], verb)

    def test_nothing_else_on_stdout(self):
        done = run(PERF, *QUICK, "--csv")
        self.assertEqual(done.stdout.count("\n"), 3)


class Json(ToolCase):
    def report(self, *words, **variables):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report")
            self.ends(0, *QUICK, *words, "-J", path, **variables)
            with open(path, encoding="utf-8") as file:
                return json.load(file)

    def test_schema(self):
        with open(os.path.join(ROOT, "perf", "schema.json"),
                  encoding="utf-8") as file:
            schema = json.load(file)
        for words in (["--procs", "2", "--vs", "memcpy,best", "--algo",
                       "direct,hier", "--percentiles", "50,99.9"],
                      ["-g", "2", "-c", "0", "-R", "0"]):
            report = self.report(*words)
            check(report, schema)
            try:
                import jsonschema
            except ImportError:
                continue
            jsonschema.validate(report, schema)
        self.assertEqual(
            [row["schedule"] for row in report["results"]], ["direct"] * 2)
        self.assertEqual(report["devices"][1]["node"], 0)
        report["results"][0]["nwrong"] = "0"
        self.assertRaises(AssertionError, check, report, schema)

    def test_environment(self):
        report = self.report("-g", "2", ULYX_SECRET="sesame", ULYX_SPIN_US="7",
                             HOME_TOKEN="sesame", NCCL_NOTE="\udcff")
        self.assertNotIn("sesame", json.dumps(report))
        self.assertEqual(report["env"]["ULYX_SPIN_US"], "7")
        self.assertIn("NCCL_NOTE", report["env"])

    def test_unwritable(self):
        for words in ([], ["--procs", "2"]):
            self.says(6, "No such file", *QUICK, *words, "-J",
                      "/nonexistent/report.json")


if __name__ == "__main__":
    unittest.main()
