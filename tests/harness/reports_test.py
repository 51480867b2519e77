#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""reports_test.py PROGRAM: exit codes, selection and XML of tests/support's
main, read as a tool made for GoogleTest would."""
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

PROGRAM = sys.argv.pop(1)


def run(*options):
    # A thread sanitizer must not report the thread that hangs on purpose as a
    # leak.
    given = os.environ.get("TSAN_OPTIONS", "")
    environment = dict(os.environ,
                       TSAN_OPTIONS=f"{given}:report_thread_leaks=0")
    return subprocess.run([PROGRAM, *options], capture_output=True, text=True,
                          check=False, timeout=30, env=environment)


def listed(*options):
    return run("--list", *options).stdout.split()


class Reports(unittest.TestCase):
    def report(self, *options):
        """Returns the testsuite element of the XML, and the program's exit
        code."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report.xml")
            done = run(f"--gtest_output=xml:{path}", *options)
            root = ElementTree.parse(path).getroot()
        self.assertEqual(root.tag, "testsuites")
        return root.find("testsuite"), done.returncode

    def test_exit_codes(self):
        self.assertEqual(run("--filter", "*.passes*").returncode, 0)
        self.assertEqual(run("--filter", "Sample.fails").returncode, 1)
        self.assertEqual(run("--filter", "Sample.skips").returncode, 77)
        self.assertEqual(run("--filter", "*.passes:*.skips").returncode, 0)
        self.assertEqual(run("--filter", "*.fails:*.skips").returncode, 1)
        self.assertEqual(run("--wrong").returncode, 2)

    def test_a_filter_without_match_is_an_error(self):
        for words in (["--filter", "passes"], ["--gtest_filter=Other.*"],
                      ["--filter", "*-*"]):
            done = run(*words)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn("no case of Sample matches", done.stderr)

    def test_skip_says_why(self):
        self.assertIn("SKIPPED: no GPU here", run("--filter", "*.skips").stdout)

    def test_failed_status_is_named(self):
        text = run("--filter", "*.fails").stderr
        for word in ("ULYX_ERR_BUSY", "ULYX_SUCCESS", "<angle>", "sample.c"):
            self.assertIn(word, text)

    def test_list_has_each_case(self):
        self.assertEqual(listed(), [
            "Sample.passes", "Sample.passes_too", "Sample.fails",
            "Sample.skips", "Sample.hangs"])

    def test_gtest_list(self):
        lines = run("--gtest_list_tests").stdout.splitlines()
        self.assertEqual(lines[:3], ["Sample.", "  passes", "  passes_too"])

    def test_filter_patterns(self):
        self.assertEqual(listed("--filter=Sample.f*:*.skip?"),
                         ["Sample.fails", "Sample.skips"])
        self.assertEqual(listed("--gtest_filter=*s-*.fails:*hangs"),
                         ["Sample.passes", "Sample.skips"])
        self.assertEqual(listed("--filter", "-*.hangs:*s"),
                         ["Sample.passes_too"])
        self.assertEqual(listed("--filter", "Other.*"), [])

    def test_xml_of_every_outcome(self):
        suite, code = self.report("--gtest_filter=-*.hangs",
                                  "--gtest_color=no")
        self.assertEqual(code, 1)
        self.assertEqual(suite.get("name"), "Sample")
        self.assertEqual(
            [suite.get(k) for k in ("tests", "failures", "skipped")],
            ["4", "1", "1"])
        cases = {c.get("name"): c for c in suite.findall("testcase")}
        self.assertEqual(set(cases), {"passes", "passes_too", "fails", "skips"})
        self.assertTrue(all(c.get("classname") == "Sample"
                            for c in cases.values()))
        self.assertIn('<angle> & "quotes"', cases["fails"].find("failure").text)
        self.assertIsNotNone(cases["skips"].find("skipped"))
        self.assertIsNone(cases["passes"].find("failure"))

    def test_unwritable_xml_is_an_error(self):
        done = run("--filter", "*.passes", "--junit", "/no/such/folder/x")
        self.assertEqual(done.returncode, 1)

    def test_hung_thread_is_named_with_its_stack(self):
        done = run("--filter", "*.hangs")
        self.assertEqual(done.returncode, 1)
        self.assertIn("rank 1 of 3 (a thread) hung", done.stderr)
        self.assertIn("stack of rank 1", done.stderr)
        self.assertNotIn("rank 0 of 3", done.stderr)


unittest.main()
