#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nccl_test.py BIN: programs made for nccl-tests run ulyx_perf and read its
output."""
import unittest

import nccl_parsers
from tool import ToolCase, table

# The options that a wrapper of alltoall_perf passes.
WRAPPED = ["-b8", "-e64K", "-f2", "-g2", "-n2", "-w1", "-c1", "-z0", "-o", "sum",
           "-d", "float", "--nccl-format"]
SIZES = [8 << i for i in range(14)]


class Nccl(ToolCase):
    def test_every_kind_of_parser_reads_every_row(self):
        out = self.ends(0, *WRAPPED)
        expected = {int(row[0]): tuple(map(float, row[5:8]))
                    for row in table(out)}
        self.assertEqual(list(expected), SIZES)
        for kind in nccl_parsers.KINDS:
            self.assertEqual(kind(out), expected, kind.__name__)
        self.assertEqual(nccl_parsers.by_size(out, SIZES), expected)
        wrong, word, average = nccl_parsers.summary(out)
        self.assertEqual((wrong, word), (0, "OK"))
        self.assertAlmostEqual(
            average, sum(row[2] for row in expected.values()) / len(expected),
            delta=0.006)

    def test_types_have_nccls_names(self):
        for word, name in (("float", "float"), ("bf16", "bfloat16"),
                           ("f16", "half"), ("uint8", "uint8"),
                           ("int", "int32"), ("f64", "double")):
            out = self.ends(0, "-g2", "-b64K", "-n1", "-e64K", "-d", word,
                            "--nccl-format")
            self.assertEqual([row[2] for row in table(out)], [name])
        out = self.ends(0, "-g2", "-b64K", "-e64K", "-n1", "-d", "all",
                        "--nccl-format")
        self.assertEqual([row[2] for row in table(out)], [
            "bfloat16", "half", "float", "double", "f8e4m3", "f8e5m2"])

    def test_missing_columns_are_noted(self):
        out = self.ends(0, *WRAPPED)
        self.assertIn("# -o sum: nothing is reduced here", out)
        self.assertIn("# in-place is not offered", out)
        self.assertNotIn("sizes are not the requested", out)
        self.assertNotIn("each size has", out)
        out = self.ends(0, *WRAPPED, "--heads", "3", "--op", "both", "-b", "1K")
        self.assertIn("# each size has 2 rows", out)
        self.assertRegex(out, r"# \d+ of 7 sizes are not the requested ones")

    def test_usual_rows_are_not_for_all(self):
        # Without --nccl-format two of the kinds still read what they need.
        out = self.ends(0, *WRAPPED[:-1])
        self.assertRaises(ValueError, nccl_parsers.by_line_pattern, out)
        self.assertRaises(ValueError, nccl_parsers.by_in_place, out)
        self.assertTrue(nccl_parsers.by_types(out))

    def test_options_without_effect_are_refused(self):
        for words in (["--csv"], ["--wide"], ["--vs", "memcpy"],
                      ["--percentiles", "50"]):
            self.says(6, "exclude each other", "--nccl-format", *words)


if __name__ == "__main__":
    unittest.main()
