# SPDX-License-Identifier: Apache-2.0
"""sanitize_summary_test.py SOURCE: what scripts/sanitize.sh ends in, from the
files of a run that are written here."""
import os
import subprocess
import sys
import tempfile
import unittest

SOURCE = sys.argv.pop(1)
REPORT = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="(empty)" tests="4" time="83">
  <testcase name="Clock.goes" status="run"><system-out>fine</system-out></testcase>
  <testcase name="Segment.limits" status="notrun"><system-out>[ RUN ] limits
SKIPPED: it does not fit
[  SKIPPED ] 1</system-out></testcase>
  <testcase name="Launchers.slurm" status="notrun"><system-out/></testcase>
  <testcase name="Ring.turns" status="fail"><system-out>ERROR</system-out></testcase>
</testsuite>
"""
TOLD = """not built: Checks.exports: symbols
skipped: Segment.limits: it does not fit
skipped: Launchers.slurm: no reason given
failed: Ring.turns
sanitize: thread, 0.2 of the draws: 1 passed, 1 failed, 2 skipped, 1 not built; 83 s
"""


class Summary(unittest.TestCase):
    def test_skipped_and_failed_tests_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("report.xml", REPORT),
                               ("left_out.txt", "Checks.exports: symbols\n")):
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(text)
            done = subprocess.run(
                [sys.executable, os.path.join(SOURCE, "scripts", "sanitize_summary.py"),
                 "thread", folder], capture_output=True, text=True, check=True,
                env={**os.environ, "ULYX_TEST_DRAWS": "0.2"})
            self.assertEqual(done.stdout, TOLD)


unittest.main()
