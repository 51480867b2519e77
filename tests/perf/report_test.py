#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""report_test.py BIN: ulyx_info report merges dumps of many hosts, names who
holds all up, and takes nothing from files that are not what they should be."""
import copy
import json
import os
import random
import tempfile
import unittest

from tool import INFO, ToolCase, run

NOW = 1764367507000000
RESHUFFLE, BARRIER = 10, 1


def call(kind=RESHUFFLE, number=7, awaited=-1, plan=2, status=1, age_us=3000000):
    return {"serial": 9, "call": "x", "kind": kind, "plan": plan,
            "fingerprint": "00000000000000%02x" % plan, "number": number,
            "direction": 0, "begun_us": NOW - age_us,
            "ended_us": None if status == 1 else NOW - age_us + 1000,
            "status": status, "awaited": awaited}


def peer(rank, stage="away"):
    return {"rank": rank, "host": "node%d" % (rank // 8), "pid": 500 + rank,
            "stage": stage, "sent_chunks": 3, "received_chunks": 0}


def progress(*ranks):
    return {"serial": 9, "stage": "moves", "missing": len(ranks),
            "peers": [peer(rank) for rank in ranks]}


def comm(rank, nranks, *calls, waits=None, collectives=4, failure=None):
    return {"name": "train", "id": "00112233445566ff", "rank": rank,
            "nranks": nranks, "nodes": 8, "node": rank // 8,
            "host": "node%d" % (rank // 8), "pid": 500 + rank,
            "failure": failure, "collectives": collectives,
            "calls": list(calls), "progress": waits}


def dump(*comms):
    return {"ulyx_dump": 1, "version": "0.2.0", "cause": "error",
            "host": comms[0]["host"] if comms else "node0", "pid": 500,
            "time_us": NOW, "communicators": list(comms)}


class Report(ToolCase):
    def setUp(self):
        super().setUp()
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.files = []

    def write(self, what):
        """Writes a file; what: an object, text or bytes."""
        path = os.path.join(self.folder.name, "%04d" % len(self.files))
        if not isinstance(what, (str, bytes)):
            what = json.dumps(what)
        with open(path, "wb") as file:
            file.write(what if isinstance(what, bytes) else what.encode())
        self.files.append(path)
        return path

    def report(self, *options, code=0):
        done = run(INFO, "report", *options, *self.files)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def write_hang(self):
        """64 ranks on 8 hosts: rank 37 has left no dump, rank 12 is in a
        barrier, and the others are in an exchange. Some wait for rank 12, the
        rest for rank 37."""
        for rank in range(64):
            if rank == 37:
                continue
            if rank == 12:
                self.write(dump(comm(rank, 64, call(BARRIER, 3, plan=0),
                                     waits=progress(37))))
                continue
            awaited = 12 if rank < 32 else 37
            self.write(dump(comm(rank, 64, call(awaited=awaited),
                                 waits=progress(awaited))))

    def test_a_hang_of_64_ranks_on_8_hosts(self):
        self.write_hang()
        out, err = self.report()
        self.assertEqual(err, "")
        lines = out.splitlines()
        self.assertEqual(lines[0], 'communicator "train" 00112233: dumps of 63 '
                         "of 64 ranks")
        self.assertEqual(lines[1], "  held up by rank 37 (node4, pid 537): has "
                         "left no dump; awaited by ranks 12, 32-36, 38-63")
        self.assertIn("  63 of these ranks wait for others", lines)
        at = lines.index("  the ranks are in different calls:")
        self.assertEqual(lines[at + 1], "    rank 12: in barrier, collective "
                         "call 3 (fingerprint 0000000000000000)"
                         .replace(" (fingerprint 0000000000000000)", ""))
        self.assertTrue(lines[at + 2].startswith(
            "    ranks 0-11, 13-36, 38-63: in reshuffle, call 7 of plan 2"))
        self.assertIn("(fingerprint 0000000000000002)", lines[at + 2])
        self.assertNotIn("no dump, and no rank waits", out)
        self.assertRegex(out, r"(?m)^ +3 +503  in reshuffle, call 7 of plan 2, "
                         r"seq_to_head, for 3.0 s; waits for rank 12; moves, "
                         r"misses rank 12 \(away, 3 chunks sent, 0 received\)$")

    def test_json(self):
        self.write_hang()
        self.write("nonsense")
        out, _ = self.report("--json", code=1)
        found = json.loads(out)
        train, = found["communicators"]
        self.assertEqual(train["dumps"], 63)
        culprit, = train["culprits"]
        self.assertEqual((culprit["rank"], culprit["host"], culprit["pid"],
                          culprit["dump"]), (37, "node4", 537, False))
        self.assertEqual([(c["call"], c["count"]) for c in train["calls"]],
                         [("barrier", 1), ("reshuffle", 62)])
        self.assertEqual(len(train["ranks"]), 64)
        self.assertEqual(train["ranks"][12]["waits_for"], "rank 37")
        self.assertEqual(train["ranks"][3]["progress"]["peers"][0]["rank"], 12)
        refused, = found["refused"]
        self.assertEqual(refused["file"], self.files[-1])

    def test_a_circle(self):
        self.write(dump(comm(0, 2, call(plan=1, awaited=1)),
                        comm(1, 2, call(plan=2, awaited=0))))
        out, _ = self.report()
        self.assertIn("a circle of ranks that wait for each other", out)
        self.assertNotIn("held up by", out)

    def test_calls_that_failed_count_as_those_that_wait(self):
        """A rank whose deadline was over first had already left its call."""
        late = {"status": "ULYX_ERR_TIMEOUT", "text": "late: \u001b[31m\u00e9"}
        self.write(dump(comm(0, 3, call(awaited=2, status=-6), failure=late)))
        self.write(dump(comm(1, 3, call(awaited=2))))
        self.write(dump(comm(2, 3, call(number=6, status=0))))
        out, _ = self.report()
        self.assertIn("held up by rank 2 (node0, pid 502): in no call; its "
                      "last", out)
        self.assertIn("failed at rank 0: ULYX_ERR_TIMEOUT: late: ?[31m", out)

    def test_ranks_in_different_calls_that_were_found_out(self):
        """They have left their calls; other ranks had disagreed and
        continued."""
        failed = {"status": "ULYX_ERR_MISMATCH", "text": "different calls"}
        for failure in (failed, None):
            self.files = []
            for rank in (0, 1):
                self.write(dump(comm(rank, 2, call(plan=rank, awaited=1 - rank,
                                                   status=-5),
                                     failure=failure)))
            out, _ = self.report()
            self.assertEqual("a circle of ranks" in out, failure is not None)

    def test_of_two_dumps_of_a_rank_the_newer_counts(self):
        old = dump(comm(0, 1, call(number=1)))
        old["time_us"] -= 1000000
        new = dump(comm(0, 1, call(number=2)))
        for first, second in ((old, new), (new, old)):
            self.files = []
            self.write(first)
            self.write(second)
            out, _ = self.report()
            self.assertIn("call 2 of plan 2", out)
            self.assertNotIn("call 1 of plan 2", out)

    # ---- files that are not what they should be ----

    def refused(self, what):
        """The bad file is refused by one line, and the good one is reported all
        the same."""
        self.files = []
        self.write(dump(comm(0, 2, call())))
        bad = self.write(what)
        out, err = self.report(code=1)
        self.assertIn("dumps of 1 of 2 ranks", out)
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertTrue(err.startswith("ulyx_info: report: " + bad + ": "), err)
        return err

    def test_files_that_are_cut_off_are_refused(self):
        whole = json.dumps(dump(comm(0, 2, call(awaited=1),
                                     waits=progress(1))))
        step = max(1, len(whole) // 40)
        for length in range(0, len(whole), step):
            self.refused(whole[:length])

    def test_garbage_is_refused(self):
        chance = random.Random(7)
        for what in (b"", b"\0", b"\xff" * 1000, b"[" * 100000, b"null", b"[]",
                     b"{}", b'{"ulyx_dump": 2}', b'{"ulyx_dump": "1"}',
                     b'{"ulyx_dump": 1}', b'{"ulyx_dump": 1e400}',
                     b'{"ulyx_dump": 1, "ulyx_dump": 1}',
                     chance.randbytes(5000) if hasattr(chance, "randbytes")
                     else os.urandom(5000)):
            self.refused(what)
        self.files = []
        self.write(dump(comm(0, 1, call())))
        self.files += [self.folder.name, "/dev/zero", "/no/such/file"]
        _, err = self.report(code=1)
        self.assertEqual(len(err.splitlines()), 3, err)

    def places(self, value, path=()):
        """Returns every place of an object."""
        yield path
        items = value.items() if isinstance(value, dict) else \
            enumerate(value) if isinstance(value, list) else ()
        for key, inner in items:
            yield from self.places(inner, path + (key,))

    def test_members_of_a_wrong_kind_never_harm(self):
        good = dump(comm(0, 2, call(awaited=1), waits=progress(1),
                         failure={"status": "a", "text": "b"}))
        count = 0
        for path in self.places(good):
            for wrong in (None, [], {}, -1, 1 << 62, -(1 << 62), 1.5, True,
                          "\u001b[2J" * 1000):
                bad = copy.deepcopy(good)
                at = bad
                for key in path[:-1]:
                    at = at[key]
                if path:
                    at[path[-1]] = wrong
                self.write(bad if path else wrong)
                count += 1
        self.assertGreater(count, 300)
        done = run(INFO, "report", *self.files)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        for text in (done.stdout, done.stderr):
            self.assertTrue(all(c == "\n" or " " <= c <= "~" for c in text))
        for number in (2, 65):
            self.refused(dump(comm(0, 2, *[call(awaited=number)])))
        self.refused(dump(comm(0, 2, *[call()] * 65)))
        self.refused(dump(comm(0, 2, call(), waits=progress(*[1] * 65))))
        self.refused(dump(*[comm(0, 2)] * 4097))


if __name__ == "__main__":
    unittest.main()
