#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""info_test.py BIN: ulyx_info shows every setting, hides secrets, names what is
wrong, and its plans are those of the design."""
import csv
import io
import json
import os
import re
import tempfile
import unittest

from tool import INFO, ROOT, ToolCase, run


class Info(ToolCase):
    def info(self, *words, code=0, **variables):
        done = run(INFO, *words, **variables)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def test_every_setting(self):
        with open(os.path.join(ROOT, "src", "base", "settings.h"),
                  encoding="utf-8") as file:
            names = set(re.findall(r"X\((ULYX_\w+),", file.read()))
        self.assertGreater(len(names), 20)
        shown = set(re.findall(r"^ +(ULYX_\w+)=", self.info("settings"), re.M))
        self.assertEqual(shown, names)

    def test_values_and_sources(self):
        out = self.info("settings", ULYX_SPIN_US="33")
        self.assertIn("ULYX_SPIN_US=33  [environment]", out)
        self.assertIn("ULYX_TIMEOUT=600  [default]", out)

    def test_secrets_are_hidden(self):
        for words in (["settings"], []):
            out = self.info(*words, ULYX_SECRET="sesame", ULYX_COMM_ID="opener")
            self.assertNotIn("sesame", out)
            self.assertNotIn("opener", out)
            self.assertIn("(hidden)", out)

    def test_bad_setting(self):
        self.assertIn("ULYX_SPIN_US",
                      self.info("settings", code=1, ULYX_SPIN_US="soon"))
        self.assertIn("expected nothing or one of direct|",
                      self.info("settings", code=1, ULYX_ALGO="hierarchical"))

    def test_build_and_transports(self):
        self.assertRegex(self.info("build"), r"ulyx \d+\.\d+\.\d+")
        out = self.info("transports")
        self.assertRegex(out, r"self +usable")
        self.assertRegex(out, r"shm +usable")
        self.assertRegex(self.info("transports", ULYX_TRANSPORTS="^shm"),
                         r"shm +not usable.*: .*ULYX_TRANSPORTS")
        self.assertRegex(self.info("transports", ULYX_TRANSPORTS="^staged"),
                         r"staged +not usable.*: .*ULYX_TRANSPORTS")

    def test_every_command_has_its_own_help(self):
        for words in (["--help"], ["-h"]):
            self.assertIn("ulyx_info [command]", self.info(*words))
        self.assertIn("usage: ulyx_info build\n", self.info("build", "-h"))
        self.assertIn("/etc/ulyx.conf", self.info("settings", "--help"))
        for words, option in ((["plan"], "--kv-heads"),
                              (["plan", "--nodes", "2"], "--ranks-per-node"),
                              (["topology"], "--ranks"),
                              (["ranks"], "--pid"),
                              (["report"], "--json"),
                              (["tuning"], "--nodes")):
            for flag in ("-h", "--help"):
                out = self.info(*words, flag)
                self.assertIn("usage: ulyx_info " + words[0], out)
                self.assertIn("  " + option, out)
        self.assertIn("--ranks-per-node", self.info("plan", "--nodes",
                                                    "--help"))

    def test_errors_end_with_the_reason(self):
        for words, needle in (
                (["plan", "--heed", "3"], "--heed is not understood"),
                (["plan", "--heads", "x"], "--heads x: expected a number"),
                (["plan", "--ranks", "9999"], "from 1 to 4096"),
                (["plan", "--work", "fair"], "heads or balanced"),
                (["plan", "--seq"], "--seq needs a value"),
                (["plan", "--nodes", "4", "--cvs"], "--cvs is not understood"),
                (["plan", "--nodes", "8-2"], "1,2,4 or 1-64"),
                (["plan", "--nodes", "2", "--csv", "--json"], "exclude"),
                (["topology", "--ranks", "0"], "from 1 to 1024"),
                (["topology", "8"], "8 is not understood"),
                (["ranks", "--pid", "0"], "from 1 to 2147483647"),
                (["tuning"], "FILE is missing"),
                (["report"], "FILE is missing"),
                (["report", "--pid", "3"], "--pid is not understood"),
                (["tuning", "a", "b"], "b is not understood"),
                (["build", "now"], "now is not understood"),
                (["nonsense"], "nonsense is not understood")):
            said = self.info(*words, code=6).splitlines()
            self.assertEqual(len(said), 2, said)
            self.assertTrue(said[0].startswith("usage: ulyx_info"), said)
            self.assertTrue(said[1].startswith("ulyx_info: "), said)
            self.assertIn(needle, said[1])
        # What the library finds is printed once, too.
        said = self.info("plan", "--heads", "7", "--kv-heads", "2", code=1)
        self.assertEqual(len(said.splitlines()), 1, said)
        said = self.info("ranks", "--name", "nobody's", code=1)
        self.assertEqual(said, "ulyx_info: ranks: no such rank runs here\n")

    def test_plan_takes_the_old_word_for_work(self):
        for option in ("--work", "--split"):
            self.assertIn("work balanced", self.info(
                "plan", "--heads", "14", "--kv-heads", "2", option, "balanced"))

    def test_transports_of_devices_need_a_driver(self):
        if os.path.exists("/dev/nvidiactl"):
            self.skipTest("a device is here")
        self.assertRegex(self.info("transports"), r"(?m)^  nccl +not usable")

    def test_batch_transports_leave_the_choice_between_nodes_to_the_model(self):
        for transport in ("nccl", "staged"):
            out = self.info("plan", "--nodes", "2", ULYX_ALGO=transport)
            self.assertIn("chosen:", out)

    def test_received_bytes_are_counted(self):
        """Rows of the other rank x half the heads x dim x three tensors x 2
        bytes."""
        out = self.info("plan", "--nodes", "2", "--ranks-per-node", "1",
                        "--seq", "1000", "--batch", "1", "--heads", "4",
                        "--kv-heads", "4", "--dim", "64")
        self.assertIn("a rank receives at most 0.384 MB", out)

    def test_plan(self):
        out = self.info("plan", "--ranks", "4", "--seq", "10", "--heads", "14",
                        "--kv-heads", "2", "--dim", "64")
        found = re.findall(r"^ +(\d) +(\d+) +(\d+) \+(\d+) +(\d+) \+(\d+)",
                           out, re.M)
        self.assertEqual(
            [tuple(map(int, row)) for row in found],
            [(0, 3, 0, 4, 0, 1), (1, 3, 4, 4, 0, 2), (2, 2, 8, 3, 1, 1),
             (3, 2, 11, 3, 1, 1)])

    def test_plan_as_json(self):
        """The pairs add up to what, by the text, a rank receives and holds;
        spans and heads cover the sequence and all heads."""
        for words in (["--ranks", "4", "--heads", "14", "--kv-heads", "2"],
                      ["--ranks", "5", "--heads", "14", "--kv-heads", "2",
                       "--split", "balanced", "--order", "zigzag"],
                      ["--ranks", "3", "--heads", "2", "--kv-heads", "1",
                       "--batch", "2", "--seq", "7"]):
            words = ["plan", "--dim", "64", *words]
            text = re.findall(r"^ +\d+ +(\d+) +\d+ \+\d+ +\d+ \+\d+ +(\d+) +"
                              r"(\d+) ", self.info(*words), re.M)
            plan = json.loads(self.info(*words, "--json"))
            self.assertEqual((plan["schema"], plan["kind"]), (1, "plan"))
            self.assertEqual([int(row[0]) for row in text],
                             [one["rows"] for one in plan["holdings"]])
            by_name = {one["direction"]: one for one in plan["directions"]}
            self.assertEqual(sorted(by_name),
                             ["h2s", "h2s_adj", "s2h", "s2h_adj"])
            for column, name in ((1, "s2h"), (2, "h2s")):
                received = [sum(row) - row[to] for to, row in
                            enumerate(by_name[name]["pairs"])]
                self.assertEqual(received, [int(row[column]) for row in text])
                self.assertEqual(received, by_name[name]["received_bytes"])
            self.check_holdings(plan)
        self.assertIn("--seq needs a value",
                      self.info("plan", "--json", "--seq", code=6))
        self.assertIn("--json: expected at most 1024 --ranks",
                      self.info("plan", "--json", "--ranks", "1025", code=6))

    def check_holdings(self, plan):
        rows, q = [], plan["tensors"][0]
        cells = 0
        for one in plan["holdings"]:
            for first, count in one["spans"]:
                rows += range(first, first + count)
            if plan["packed"]:
                cells += sum(part[2] for part in
                             one["tensors"][0]["segments"])
            else:
                cells += one["tensors"][0]["count"] * plan["seq"]
        self.assertEqual(sorted(rows), list(range(plan["seq"])))
        self.assertEqual(cells, q["heads"] * plan["seq"])

    def test_topology_as_json(self):
        machines = os.path.join(ROOT, "tests", "data", "topology")
        machine = json.loads(self.info(
            "topology", "--json", "--ranks", "8",
            ULYX_TOPO_FILE=os.path.join(machines, "hgx-h100-pcie-nics.xml")))
        self.assertEqual([(one["gpu"], one["numa"], one["memory"], one["nic"])
                          for one in machine["ranks"]],
                         [(r, r // 4, r // 4, r // 2) for r in range(8)])
        self.assertEqual({one["nic_link"] for one in machine["ranks"]},
                         {"switch"})
        self.assertEqual(machine["links"][2][2:4], ["self", "nvlink"])
        self.assertEqual([len(machine[kind]) for kind in
                          ("numa_nodes", "gpus", "nics")], [2, 8, 4])
        machine = json.loads(self.info(
            "topology", "--ranks", "1", "--json",
            ULYX_TOPO_FILE=os.path.join(machines, "vm-unknown-numa.xml")))
        self.assertIn(None, [one["numa"] for one in machine["nics"]])

    def test_topology(self):
        self.assertRegex(self.info("topology"), r"from hwloc, this machine")
        machines = os.path.join(ROOT, "tests", "data", "topology")
        out = self.info("topology", "--ranks", "8", ULYX_TOPO_FILE=os.path
                        .join(machines, "hgx-h100-pcie-nics.xml"))
        self.assertEqual(len(re.findall(r"^    helpers: near GPU 0000:.*: "
                                        r"threads on 112 cores", out, re.M)), 8)
        nics = re.findall(r"^  rank \d, GPU (\d), NUMA node \d, memory at "
                          r"NUMA node (\d), NIC (\d)$", out, re.M)
        self.assertEqual(nics, [(str(r), str(r // 4), str(r // 2))
                                for r in range(8)])
        out = self.info("topology", ULYX_TOPO_FILE=os.path.join(
            machines, "vm-unknown-numa.xml"))
        self.assertIn("NUMA node unknown: the system does not report it", out)
        out = self.info("topology", ULYX_TOPO_FILE="/nonexistent.xml")
        self.assertIn("flat, because detection failed: /nonexistent.xml", out)
        self.info("topology", "--ranks", "0", code=6)

    def test_prediction(self):
        out = self.info("plan", "--nodes", "512", "--heads", "4096",
                        "--kv-heads", "512", "--seq", "1048576")
        self.assertRegex(out, r"4096 ranks, 512 nodes of 8")
        self.assertRegex(out, r"hier: [\d.]+ us, operations one after another")
        self.assertRegex(out, r"s2h +[\d.]+ us, busbw [\d.]+ GB/s")
        self.assertRegex(out, r"s2h_adj +[\d.]+ us, busbw [\d.]+ GB/s")
        self.assertRegex(out, r"bottleneck: spine in phase wire")
        self.assertRegex(out, r"not direct: [\d.]+ us")
        self.assertRegex(out, r"not pairwise: [\d.]+ us")
        self.assertIn("[assumed, not measured]", out)
        self.assertIn("chosen: asked for",
                      self.info("plan", "--nodes", "2", ULYX_ALGO="pairwise"))
        out = self.info("plan", "--nodes", "2", "--operation", "all")
        schedules = re.findall(r"^  (?:not )?\w+: [\d.]+ us", out, re.M)
        self.assertGreaterEqual(len(schedules), 3)
        self.assertEqual(len(re.findall(r"^    h2s_adj ", out, re.M)),
                         len(schedules))
        out = self.info("plan", "--nodes", "2", "--operation", "h2s",
                        ULYX_NET_PEERS="3")
        self.assertRegex(out, r"  h2s +[\d.]+ us, busbw")
        self.assertNotIn("s2h ", out)
        self.assertIn("pairwise sends to 3 ranks at a time", out)
        for words in ("", "s2h,", "s2h,x", "S2H", "all,"):
            self.info("plan", "--nodes", "2", "--operation", words, code=6)
        out = self.info("plan", "--nodes", "1", "--local", "near")
        self.assertIn("chosen: one node", out)
        self.info("plan", "--nodes", "2", "--export", "dot", code=6)
        self.info("plan", "--nodes", "2", "--output", "f", code=6)
        self.assertIn("multiple", self.info("plan", "--nodes", "2",
                                            "--kv-heads", "7", code=1))

    def test_predictions_as_rows(self):
        words = ["plan", "--nodes", "1-16,24", "--seq", "8192,65536",
                 "--operation", "s2h,h2s"]
        rows = list(csv.DictReader(io.StringIO(self.info(*words, "--csv"))))
        self.assertEqual(list(rows[0])[:6], [
            "nodes", "ranks", "schedule", "size_bytes", "time_us",
            "busbw_GBps"])
        self.assertEqual(sorted({int(row["nodes"]) for row in rows}),
                         [1, 2, 4, 8, 16, 24])
        self.assertEqual(json.loads(self.info(*words, "--json"))["plans"], [
            {name: value if name in ("schedule", "operation", "bottleneck",
                                     "phase", "source")
             else json.loads(value) for name, value in row.items()}
            for row in rows])
        for row in rows:
            self.assertEqual(int(row["ranks"]), 8 * int(row["nodes"]))
            self.assertEqual(int(row["size_bytes"]), -(-int(row["seq"]) // int(
                row["ranks"])) * (64 + 2 * 8) * 128 * 2)
            self.assertAlmostEqual(
                float(row["busbw_GBps"]), int(row["received_bytes"]) / float(
                    row["time_us"]) * 1e-3, delta=0.01)
        # One schedule is chosen for each machine, as in the text.
        for nodes in ("1", "8"):
            chosen = {row["schedule"] for row in rows if row["chosen"] == "1"
                      and row["nodes"] == nodes and row["seq"] == "65536"}
            text = self.info("plan", "--nodes", nodes, "--seq", "65536",
                             "--operation", "s2h,h2s")
            self.assertEqual(chosen, set(re.findall(r"(?m)^  (\w+): [\d.]+ us",
                                                    text)))
        rows = list(csv.DictReader(io.StringIO(
            self.info(*words, "--csv", "--algo", "pairwise"))))
        self.assertEqual({row["schedule"] for row in rows}, {"pairwise"})
        self.assertEqual(len(rows), 6 * 2 * 2)
        table = self.info("plan", "--nodes", "1-64").splitlines()
        self.assertEqual([line.split()[0] for line in table[:8]],
                         ["nodes", "1", "2", "4", "8", "16", "32", "64"])
        self.info("plan", "--nodes", "1-64", "--export", "goal", code=6)

    def test_rates_above_the_wire_are_explained(self):
        out = self.info("plan", "--nodes", "8", "--algo", "hier")
        busbw, nic = (float(re.search(p, out)[1]) for p in (
            r"busbw ([\d.]+) GB/s", r"([\d.]+) GB/s per NIC"))
        self.assertGreater(busbw, 46)
        self.assertLess(nic, 46)
        self.assertIn("may exceed the rate of the NICs", " ".join(out.split()))

    def test_large_nodes(self):
        shape = ["plan", "--nodes", "2", "--ranks-per-node", "65"]
        self.assertIn("not hier: at most 64 ranks per node", self.info(*shape))
        self.assertIn("at most 64 ranks per node, not 65",
                      self.info(*shape, "--algo", "hier", code=1))

    def test_machine_here(self):
        machine = os.path.join(ROOT, "tests", "data", "topology",
                               "dgx-h100.xml")
        out = self.info("plan", "--nodes", "2", "--machine", "here",
                        ULYX_TOPO_FILE=machine)
        self.assertRegex(out, r"link nvlink .* 370\.80 GB/s \[topology\]")
        # What connects the ranks of each recorded machine, and what limits it.
        for name, local, nics in (
                ("dgx-h100.xml", "nvlink", "8"),
                ("hgx-h100-pcie-nics.xml", "nvlink", "4"),
                ("gb200-nvl.nccl.xml", "nvlink", "4"),
                ("dual-socket.xml", "far", "1"),
                ("two-nic.xml", "pcie", "2"), ("flat-vm.xml", "near", "1")):
            machine = os.path.join(ROOT, "tests", "data", "topology", name)
            out = self.info("plan", "--nodes", "4", "--machine", "here",
                            "--algo", "direct", ULYX_TOPO_FILE=machine)
            self.assertRegex(out, rf"(?m)^  link {local} ", name)
            self.assertIn(nics + " NICs per node", out)
            self.assertIn("bottleneck: spine in phase direct", out)
            out = self.info("plan", "--nodes", "1", "--machine", "here",
                            ULYX_TOPO_FILE=machine)
            self.assertIn(f"bottleneck: {local} in phase direct", out)
        out = self.info("plan", "--nodes", "1", "--machine", "here", "--local",
                        "pcie", ULYX_TOPO_FILE=machine)
        self.assertIn("bottleneck: pcie", out)

    def test_tuning_files(self):
        with tempfile.TemporaryDirectory() as folder:
            tuning = os.path.join(folder, "tuning.conf")
            goal = os.path.join(folder, "schedule.goal")
            with open(tuning, "w", encoding="utf-8") as file:
                file.write("ulyx tuning 1\nlink nic latency=9us "
                           "source=measured\nrule bytes=0- -> direct\n")
            shape = ["plan", "--nodes", "2"]
            done = run(INFO, *shape, ULYX_TUNING=tuning)
            self.assertEqual(done.stderr, "")
            self.assertRegex(done.stdout,
                             r"link nic +latency 9.00 us.*\[measured\]")
            self.assertIn("chosen: rule on line 3", done.stdout)
            text = self.info(*shape, "--export", "goal")
            self.assertEqual(text.splitlines()[0], "num_ranks 16")
            self.info(*shape, "--export", "goal", "--output", goal)
            with open(goal, encoding="utf-8") as file:
                self.assertEqual(file.read(), text)
            self.info(*shape, "--export", "goal", "--output", folder, code=1)
            self.assertRegex(self.info("tuning", tuning),
                             r"link nic +latency 9.00 us.*\[measured\]")
            with open(tuning, "a", encoding="utf-8") as file:
                file.write("link nic latency=9\nrule bytse=0-64K -> hier\n")
            said = self.info("tuning", tuning, code=1).splitlines()
            self.assertEqual(len(said), 2, said)
            self.assertIn(tuning + ":4: latency=9: expected a time", said[0])
            self.assertIn(tuning + ":5: bytse: expected nodes", said[1])
            self.assertIn(":4: ", self.info(*shape, code=1, ULYX_TUNING=tuning))

    def test_a_tuning_file_is_shown_whole(self):
        with tempfile.TemporaryDirectory() as folder:
            tuning = os.path.join(folder, "tuning.conf")
            with open(tuning, "w", encoding="utf-8") as file:
                file.write("ulyx tuning 1\nfabric nics=2 source=measured\n"
                           "link nic latency=10us 1M=100ps/B source=measured\n"
                           "rule nodes=2 ranks_per_node=4- bytes=0-64K -> hier "
                           "chunks=2\nrule -> pairwise\n")
            out = self.info("tuning", tuning, "--ranks-per-node", "4")
            self.assertIn("2 NICs per node [measured]", out)
            self.assertIn("line 4: nodes=2 ranks_per_node=4- bytes=0-65536 -> "
                          "hier chunks=2", out)
            self.assertIn("line 5: -> pairwise", out)
            rows = re.findall(r"(?m)^ +(\d+) (\w+) +\d+ .*line (\d)", out)
            self.assertEqual([(name, line) for _, name, line in rows],
                             [("hier", "4")] * 5 + [("pairwise", "5")] * 4)
            out = self.info("tuning", tuning, "--ranks-per-node", "2")
            self.assertNotRegex(out, r"(?m)^ +\d+ hier ")


if __name__ == "__main__":
    unittest.main()
