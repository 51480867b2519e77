#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""exits_test.py BIN: exit codes of ulyx_perf, and how runs end that go wrong:
wrong data, a rank killed or stopped, Ctrl-C, a killed parent."""
import os
import re
import signal
import subprocess
import time
import unittest

from tool import (INFO, KEEPS, PERF, PERF_FAULTY, PLOT, QUICK, ToolCase,
                  clean_environment, run)

PROCESSES = ["--procs", "2", *QUICK]
DEADLINE_S = 40  # a timeout for ends that take a second on a quiet machine


def is_there(pid):
    """Returns whether the process exists. A zombie that no process has waited
    for yet does not count."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Codes(ToolCase):
    def test_success(self):
        self.ends(0, *QUICK)

    def test_wrong_element_and_guard(self):
        for kind in ("element", "guard"):
            out = self.ends(7, *PROCESSES, program=PERF_FAULTY,
                            PERF_TEST_FAULT=kind)
            self.assertIn("FAILED", out)
        self.ends(0, *PROCESSES, program=PERF_FAULTY)

    def test_one_wrong_result_among_the_timed(self):
        # 16 sets and one warm-up, then three timed operations.
        for call, code in (("18", 7), ("20", 7), ("100000", 0)):
            self.ends(code, *PROCESSES, "--op", "s2h", program=PERF_FAULTY,
                      PERF_TEST_FAULT="element", PERF_TEST_CALL=call)

    def test_a_wrong_result_is_reported_with_its_schedule(self):
        # Each schedule has 16 sets and one warm-up; then the schedules take
        # turns.
        for call, wrong in (("35", (True, False)), ("36", (False, True)),
                            ("39", (True, False)), ("40", (False, True))):
            done = run(PERF_FAULTY, *PROCESSES, "--op", "s2h", "--csv",
                       "--algo", "direct,hier", PERF_TEST_FAULT="element",
                       PERF_TEST_CALL=call)
            self.assertEqual(done.returncode, 7, done.stderr)
            rows = [line.split(",") for line in done.stdout.splitlines()[1:]]
            self.assertEqual(tuple(row[14] != "0" for row in rows), wrong,
                             done.stdout)

    def test_wrong_data_passes_unchecked(self):
        out = self.ends(0, *PROCESSES, "-c", "0", program=PERF_FAULTY,
                        PERF_TEST_FAULT="element")
        self.assertIn("N/A", out)

    def test_floor(self):
        self.ends(7, *PROCESSES, ULYX_PERF_MIN_BW="1e9")
        self.ends(0, *PROCESSES, ULYX_PERF_MIN_BW="1e-9")

    def test_library(self):
        mapping = re.findall(r"(?m)^  (\S+) .*, map windows(?:[,:]|$)",
                             run(INFO, "transports").stdout)
        self.assertIn("shm", mapping)
        mapping.remove("self")
        done = run(PERF, *PROCESSES, ULYX_TRANSPORTS="^" + ",".join(mapping))
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("shm", done.stderr)

    def test_output_that_does_not_arrive(self):
        for words in ([PERF, *QUICK, "-g", "2"], [PERF, *QUICK, "--csv"],
                      [PERF, *PROCESSES], [PERF, "--help"],
                      [PERF, "--dry-run", "-g", "2"], [INFO],
                      [INFO, "--help"], [INFO, "plan"], [INFO, "topology"],
                      [INFO, "plan", "--nodes", "2"]):
            with open("/dev/full", "w", encoding="ascii") as full:
                done = subprocess.run(
                    words, stdout=full, stderr=subprocess.PIPE, text=True,
                    check=False, timeout=60, env=clean_environment())
            self.assertEqual(done.returncode, 1, words)
            self.assertIn("standard output", done.stderr, words)
        self.says(1, "No space left", *QUICK, "-J", "/dev/full")

    def test_a_reader_that_leaves(self):
        """As with `| head -n 2`: a quiet end by SIGPIPE, soon, on all ranks."""
        for words in ([PERF, "-b", "64K", "-e", "64K", "-n", "3", "-N", "0",
                       *procs] for procs in
                      (["--procs", "2"], ["-g", "2"], ["-t", "2", "--csv"],
                       ["--procs", "2", "-g", "2"])):
            with subprocess.Popen(
                    words, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                    text=True, env=clean_environment()) as started:
                started.stdout.readline()
                started.stdout.readline()
                started.stdout.close()
                said = started.stderr.read()
                code = started.wait(timeout=60)
            self.assertEqual((code, said), (-signal.SIGPIPE, ""), words)
        # Nobody has ever read; one process without rows.
        for words in ([PERF, *PROCESSES], [PERF, "--help"], [INFO],
                      [INFO, "--help"], [INFO, "plan", "--nodes", "2"],
                      [PERF, "--dry-run", "-g", "2"], [PLOT, "--help"],
                      [PLOT, "plan", "-o", "-"]):
            reader, writer = os.pipe()
            os.close(reader)
            done = subprocess.run(
                words, stdout=writer, stderr=subprocess.PIPE, text=True,
                check=False, timeout=60, env=clean_environment())
            os.close(writer)
            self.assertEqual((done.returncode, done.stderr),
                             (-signal.SIGPIPE, ""), words)

    def test_a_caller_that_ignores_broken_pipes(self):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(
            [PERF, *PROCESSES], stdout=writer, stderr=subprocess.PIPE,
            text=True, check=False, timeout=60, env=clean_environment(),
            restore_signals=False)
        os.close(writer)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("standard output", done.stderr)

    def test_timeout_of_a_rank_that_never_comes(self):
        done = run(PERF, *QUICK, "-T", "1", RANK="0", WORLD_SIZE="2",
                   LOCAL_RANK="0", LOCAL_WORLD_SIZE="2",
                   MASTER_ADDR="127.0.0.1", MASTER_PORT="29555")
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("1", done.stderr)


class Container(ToolCase):
    """Rows for which a memory limit leaves no room are left out, as on a small
    machine."""
    LIMIT = 300 << 20

    def setUp(self):
        self.group = None
        for folder, limit in (
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                ("/sys/fs/cgroup", "memory.max")):
            group = os.path.join(folder, f"ulyx-perf-{os.getpid()}")
            try:
                os.mkdir(group)
            except OSError:
                continue
            try:
                self.write(group, limit, self.LIMIT)
            except OSError:
                os.rmdir(group)
                continue
            self.group = group
            return
        self.skipTest("no memory cgroup can be made here")

    def tearDown(self):
        if self.group:
            os.rmdir(self.group)

    @staticmethod
    def write(group, name, value):
        with open(os.path.join(group, name), "w", encoding="ascii") as file:
            file.write(str(value))

    def inside(self, *words):
        group = self.group
        return subprocess.run(
            [PERF, *words], text=True, capture_output=True, check=False,
            timeout=120, env=clean_environment(),
            preexec_fn=lambda: self.write(group, "cgroup.procs", os.getpid()))

    def test_sweep_ends_where_memory_does(self):
        done = self.inside("-t", "2", "-b", "1M", "-e", "1G", "-f", "8", "-n",
                           "1", "--op", "s2h")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("left out", done.stdout)
        done = self.inside("--procs", "2", "-R", "0", "-b", "1G", "-e", "1G",
                           "-n", "1")
        self.assertEqual(done.returncode, 6, done.stderr)
        self.assertIn("left out", done.stdout)


class Ends(ToolCase):
    def test_killed_rank(self):
        begin = time.monotonic()
        done = run(PERF_FAULTY, "--procs", "3", *QUICK, "-T", "300",
                   PERF_TEST_FAULT="kill", PERF_TEST_CALL="5",
                   timeout=DEADLINE_S, **KEEPS)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("rank 1", done.stderr)
        self.assertIn("signal 9", done.stderr)
        self.assertLess(time.monotonic() - begin, DEADLINE_S)

    def test_stopped_rank(self):
        done = run(PERF_FAULTY, "--procs", "3", *QUICK, "-T", "1",
                   PERF_TEST_FAULT="stop", PERF_TEST_CALL="5",
                   timeout=DEADLINE_S, **KEEPS)
        self.assertEqual(done.returncode, 4, done.stderr)

    def endless(self):
        """Starts an endless run in a session of its own, and returns it with
        its ranks' process ids."""
        run_ = subprocess.Popen(
            [PERF, "--procs", "3", "-b", "64K", "-e", "64K", "-N", "0"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            start_new_session=True, env=clean_environment())
        pids = []
        for line in run_.stdout:
            found = re.match(r"#  Rank .* Pid +(\d+) on", line)
            if found:
                pids.append(int(found[1]))
            if not line.startswith("#"):
                break
        self.assertEqual(len(pids), 3)
        self.assertTrue(all(is_there(pid) for pid in pids))
        return run_, pids

    def gone(self, run_, pids):
        end = time.monotonic() + DEADLINE_S
        run_.wait(timeout=DEADLINE_S)
        run_.stdout.close()
        while any(is_there(pid) for pid in pids) and time.monotonic() < end:
            time.sleep(0.02)
        self.assertFalse([pid for pid in pids if is_there(pid)])

    def test_interrupt_leaves_nothing(self):
        run_, pids = self.endless()
        os.killpg(run_.pid, signal.SIGINT)
        self.gone(run_, pids)

    def test_killed_parent_leaves_nothing(self):
        run_, pids = self.endless()
        run_.kill()
        self.gone(run_, pids)


if __name__ == "__main__":
    unittest.main()
