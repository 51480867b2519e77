#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plot_test.py BIN: ulyx_plot draws what its tables say, every picture is in
order (picture.py), what cannot be drawn is refused by name, and the pictures
of the documents can be made again."""
import contextlib
import glob
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

from picture import Picture
from tool import BIN, INFO, PERF, ROOT, ToolCase, clean_environment, run

PLOT = os.path.join(BIN, "ulyx_plot")
PICTURES = os.path.join(ROOT, "docs", "pictures")
MACHINES = os.path.join(ROOT, "tests", "data", "topology")
UNIT = "1\u00a0GB = 10⁹\u00a0bytes"
NAMES = ("layouts", "scaling", "sweep", "topology")

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "tools"))
from ulyx_plot import chart, cli, page, scaling, sources, svg, sweep  # noqa: E402

# A table that ulyx_perf wrote before rows had their ranks and machine.
OLD_CSV = """\
model,op,seq,size_bytes,time_us,busbw_gbs,wrong,vs_memcpy,vs_mpi,vs_mpiw
llama3-8b,s2h,10,65536,100,0.4,0,0.5,2,4
llama3-8b,s2h,20,131072,150,0.5,0,0.6,,
llama3-8b,s2h,40,262144,200,0.8,0,0.7,3,
"""


class PlotCase(ToolCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def file(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def draw(self, *words):
        """Draws within this process, because starting a program for each
        picture would be slow."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.main([*words, "-o", "-"])
        self.assertEqual(code, 0, f"{words}: {err.getvalue()}")
        picture = Picture(out.getvalue())
        self.assertEqual(picture.faults(), [], words)
        return picture

    def refused(self, needle, *words, code=1):
        done = run(PLOT, *words)
        self.assertEqual(done.returncode, code, f"{words} {done.stderr}")
        self.assertIn(needle, done.stderr)
        self.assertTrue(done.stderr.startswith("ulyx_plot"), done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertEqual(done.stdout, "")

    def has(self, picture, *words):
        whole = " ".join(picture.words)  # where a line of a caption is broken
        for text in words:
            self.assertTrue(text in whole or
                            any(text in one for one in picture.words),
                            f"{text!r} not in {picture.words}")


class Documents(PlotCase):
    def test_pictures_can_be_made_again(self):
        done = run(os.path.join(ROOT, "scripts", "pictures.sh"), BIN,
                   self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        for folder in (self.folder, PICTURES):
            self.assertEqual(sorted(f for f in os.listdir(folder)
                                    if f.endswith(".svg")),
                             [name + ".svg" for name in NAMES])
            shown = {}
            for name in NAMES:
                with open(os.path.join(folder, name + ".svg"),
                          encoding="utf-8") as file:
                    shown[name] = Picture(file.read())
                self.assertEqual(shown[name].faults(), [], name)
            self.has(shown["layouts"], "rank 3", "query heads", "KV heads",
                     "6 MiB", "4–7", "0–1", "receives", "s2h")
            self.has(shown["sweep"], "the limit", "MPI_Alltoallw", "2 cores",
                     "1 MiB", "busbw, GB/s")
            self.has(shown["scaling"], "hier", "pairwise", "what a plan chooses",
                     "nodes (ranks)", "not measured")
            self.has(shown["topology"], "mlx5_3", "rank 15", "NUMA 1",
                     "NVLink, 371 GB/s", "node 1", "network")

    def test_pictures_are_shown(self):
        for document, names in (("README.md", ("layouts", "sweep")),
                                ("docs/USING.md", ("layouts",)),
                                ("docs/TOPOLOGY.md", ("topology", "scaling"))):
            with open(os.path.join(ROOT, document), encoding="utf-8") as file:
                text = file.read()
            for name in names:
                self.assertIn(f"pictures/{name}.svg)", text, document)

    def test_script_names_what_is_missing(self):
        done = run(os.path.join(ROOT, "scripts", "pictures.sh"), self.folder)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"no ulyx_plot and ulyx_info in {self.folder}",
                      done.stderr)


class Checker(unittest.TestCase):
    """Tests picture.py: only if it finds faults do the other tests prove
    something."""

    def faults(self, body):
        return Picture(
            '<svg xmlns="http://www.w3.org/2000/svg" width="200" height="100" '
            'viewBox="0 0 200 100"><title>t</title><rect x="0" y="0" '
            f'width="200" height="100"/>{body}</svg>').faults()

    def test_faults_of_a_picture_are_found(self):
        text = '<text x="{}" y="{}" font-size="10"{}>{}</text>'
        good = text.format(20, 50, "", "good")
        self.assertEqual(self.faults(good), [])
        for body, fault in (
                (good + text.format(30, 52, "", "other"), "overlap"),
                (text.format(180, 50, "", "too long"), "outside"),
                (text.format(2, 50, ' text-anchor="end"', "left"), "outside"),
                (text.format(20, 30, ' transform="rotate(-90 20 30)"',
                             "upwards, too long"), "outside"),
                ('<rect x="10" y="40" width="20" height="20"/>' +
                 text.format(12, 50, "", "wider than it"), "does not fit"),
                ('<path d="M0 0 L201 5"/>', "outside"),
                ('<circle cx="3" cy="50" r="4"/>', "outside"),
                ('<polygon points="1,1 5,101 9,9"/>', "outside")):
            found = self.faults(body)
            self.assertTrue(any(one.startswith(fault) for one in found),
                            f"{body}: {found}")
        self.assertRaises(ElementTree.ParseError, Picture, "<svg><g></svg>")


class Sweeps(PlotCase):
    def test_old_tables(self):
        path = self.file("old.csv", OLD_CSV)
        picture = self.draw("sweep", path)
        self.has(picture, "machine not recorded", "the limit",
                 "pack + MPI_Alltoall(v)", "256 KiB", "none wrong")
        picture = self.draw("sweep", path, "--machine", "Zeta 9, 12 cores")
        self.has(picture, "Measured on: Zeta 9, 12 cores.")
        here = sources.this_machine()
        self.has(self.draw("sweep", path, "--machine", "here"),
                 f"{here['cores']} cores" if here["cores"] != "1" else "1 core")

    def test_ratios_become_curves(self):
        rows = sources.read_table(self.file("old.csv", OLD_CSV), sweep.NEEDED,
                                  "")
        curves = sweep._curves(rows, "s2h", ["ulyx"], [])
        time = {one.label.split(":")[0]: one.points for one in curves.time}
        busbw = {one.label.split(":")[0]: one.points for one in curves.busbw}
        self.assertEqual(time["ulyx"], [(65536, 100), (131072, 150),
                                        (262144, 200)])
        copy = "plain copy of the same bytes"
        self.assertEqual(time[copy], [(65536, 50), (131072, 90), (262144, 140)])
        self.assertEqual([y for _, y in busbw[copy]],
                         [0.4 / 0.5, 0.5 / 0.6, 0.8 / 0.7])
        packed = "pack + MPI_Alltoall(v) + unpack"
        self.assertEqual(time[packed], [(65536, 200), (262144, 600)])
        self.assertEqual(time["MPI_Alltoallw"], [(65536, 400)])

    def test_tables_of_today(self):
        done = run(PERF, "--procs", "2", "-b", "64K", "-e", "256K", "-f", "2",
                   "-n", "3", "--vs", "memcpy", "--csv", "-J",
                   os.path.join(self.folder, "run.json"))
        self.assertEqual(done.returncode, 0, done.stderr)
        json_file = os.path.join(self.folder, "run.json")
        for path in (self.file("run.csv", done.stdout), json_file):
            picture = self.draw("sweep", path)
            self.has(picture, "2 ranks", "the limit", "none wrong", "s2h", "h2s",
                     "32 query heads")
            self.assertFalse([w for w in picture.words if "not recorded" in w])

    def test_several_models(self):
        rows = "".join(f"{model},{op},{size},{size / 100},{i + 1},,\n"
                       for i, model in enumerate(("a", "b", "c"))
                       for op in ("s2h", "h2s", "s2h_adj", "h2s_adj")
                       for size in (1 << 10, 1 << 20, 1 << 30))
        path = self.file("m.csv", "model,op,size_bytes,time_us,busbw_gbs,"
                         "vs_memcpy,vs_mpi\n" + rows)
        picture = self.draw("sweep", path)
        self.has(picture, "several models", "h2s_adj", "choose with --model")
        self.has(self.draw("sweep", path, "--model", "b", "--op", "s2h"),
                 "Exchange of b over size")
        self.refused("no rows with model z: the file has a, b, c", "sweep",
                     path, "--model", "z")

    def test_repeated_rows_are_one_point(self):
        self.assertEqual(sweep._by_size(
            [{"size_bytes": "8", "time_us": t} for t in ("3", "1", "9", "x")],
            "time_us"), {8.0: 3.0})

    def test_refusals(self):
        path = os.path.join(self.folder, "none")
        self.refused(f"{path}: No such file", "sweep", path)
        self.refused("no rows; ulyx_perf --csv or -J FILE writes such a file",
                     "sweep", self.file("empty.csv", ""))
        self.refused("no column time_us, busbw", "sweep",
                     self.file("other.csv", "size,b\n1,2\n"))
        self.refused("not whole JSON (", "sweep",
                     self.file("half.json", '{"results": ['))
        self.refused("this JSON has no results", "sweep",
                     self.file("no.json", '{"kind": "plan"}'))
        self.refused("one size only", "sweep",
                     self.file("one.csv", "\n".join(OLD_CSV.split("\n")[:2])))
        self.refused("no row has a size", "sweep", self.file(
            "nan.csv", "size_bytes,time_us,busbw_gbs\n1,nan,2\n2,0,inf\n"))
        many = "".join(f"m{i},{s},1,1\n" for i in range(9) for s in (1, 2))
        self.refused("9 curves are too many", "sweep", self.file(
            "many.csv", "model,size_bytes,time_us,busbw_gbs\n" + many))
        with open(os.path.join(self.folder, "b"), "wb") as file:
            file.write(b"\xff\xfe\0")
        self.refused("not text in UTF-8", "sweep", file.name)


class Scaling(PlotCase):
    def test_tables(self):
        for form in ("--csv", "--json"):
            done = run(INFO, "plan", "--nodes", "1-512", "--operation",
                       "s2h,h2s", form)
            picture = self.draw("scaling", self.file("t" + form, done.stdout))
            self.has(picture, "direct", "hier", "what a plan chooses",
                     "8 ranks per node", "assumed", "(4096)")
        self.draw("scaling", os.path.join(self.folder, "t--csv"), "--op", "h2s")
        self.refused("no rows of direction x: the file has s2h, h2s", "scaling",
                     os.path.join(self.folder, "t--csv"), "--op", "x")

    def test_several_sequences(self):
        done = run(INFO, "plan", "--nodes", "1-8", "--seq", "8192,65536",
                   "--operation", "s2h", "--csv")
        self.has(self.draw("scaling", self.file("t.csv", done.stdout)),
                 "hier, 8192 tokens", "hier, 65536 tokens")
        done = run(INFO, "plan", "--nodes", "1-8", "--seq", "1024-8192",
                   "--operation", "s2h", "--csv")
        self.refused("4 numbers of tokens are too many", "scaling",
                     self.file("t.csv", done.stdout))

    def test_the_band_follows_what_is_chosen(self):
        rows = [{"nodes": n, "schedule": s, "time_us": t, "chosen": c}
                for n, s, t, c in ((1, "direct", 5, "1"), (2, "direct", 7, "0"),
                                   (2, "hier", 6, "1"), (1, "hier", 9, "0"))]
        found = {one.label: one.points for one in
                 scaling._series(rows, ["direct", "hier"], [], "time_us")}
        self.assertEqual(found[scaling.CHOSEN], [(1, 5), (2, 6)])
        self.assertEqual(found["hier"], [(1, 9), (2, 6)])

    def test_refusals(self):
        self.refused("fewer than two numbers of nodes", "scaling", self.file(
            "one.csv", "nodes,schedule,time_us,busbw_GBps\n1,direct,2,3\n"))
        self.refused("no column nodes", "scaling",
                     self.file("old.csv", OLD_CSV))


class Topologies(PlotCase):
    def test_every_recorded_machine(self):
        for path in sorted(glob.glob(os.path.join(MACHINES, "*.xml"))):
            for ranks, nodes in (("1", "1"), ("3", "2"), ("8", "2"),
                                 ("16", "5")):
                picture = self.draw("topology", "--xml", path, "--ranks", ranks,
                                    "--nodes", nodes, "--info", INFO)
                self.has(picture, "rank 0", f"rank {int(ranks) - 1}",
                         os.path.basename(path))
                self.assertFalse([w for w in picture.words if "/" in w
                                  and ROOT in w], "a path of this machine")

    def test_machines_are_what_they_are(self):
        picture = self.draw(
            "topology", "--xml", os.path.join(MACHINES, "dual-socket.xml"),
            "--ranks", "4", "--nodes", "4", "--algo", "pairwise", "--info", INFO)
        self.has(picture, "NUMA 3", "mlx5_0", "shared memory", "node 3",
                 "2 more such nodes", "to a few at a time", "a plan chooses "
                 "pairwise")
        self.assertEqual(picture.words.count("mlx5_0"), 2)
        picture = self.draw(
            "topology", "--xml", os.path.join(MACHINES, "vm-unknown-numa.xml"),
            "--ranks", "2", "--nodes", "1", "--info", INFO)
        self.has(picture, "one node of 2 ranks")

    def test_names_of_files_may_be_anything(self):
        path = os.path.join(self.folder.encode(), b"m\xff.xml")
        shutil.copy(os.path.join(MACHINES, "two-nic.xml"), path)
        done = run(INFO, "topology", "--json", "--ranks", "2",
                   ULYX_TOPO_FILE=os.fsdecode(path))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.has(self.draw("topology", self.file("t.json", done.stdout),
                           "--nodes", "1"), "Machine: a file.")

    def test_from_a_file(self):
        done = run(INFO, "topology", "--json", "--ranks", "2")
        path = self.file("t.json", done.stdout)
        self.has(self.draw("topology", path, "--nodes", "1"), "rank 1")
        broken = json.loads(done.stdout)
        del broken["ranks"][1]["numa"]
        self.refused("of this version writes (KeyError: 'numa')", "topology",
                     self.file("b.json", json.dumps(broken)), "--nodes", "1")
        self.refused("no ranks: write it with --ranks G", "topology", self.file(
            "b.json", run(INFO, "topology", "--json").stdout))
        self.refused("not a machine", "topology", self.file("b.json", "[]"))

    def test_refusals(self):
        self.refused("--ranks 0: expected a number", "topology", "--ranks", "0")
        self.refused("--nodes 0: expected 1 or more", "topology", "--nodes", "0")
        self.refused("65 ranks are more than", "topology", "--ranks", "65")
        self.refused("--algo x: expected direct", "topology", "--algo", "x")
        self.refused("--info /none: not a program", "topology", "--info",
                     "/none")


class Plans(PlotCase):
    def plan(self, *words):
        return self.draw("plan", "--info", INFO, *words)

    def test_the_plan_of_the_design(self):
        picture = self.plan("--ranks", "4", "--heads", "14", "--kv-heads", "2",
                            "--dim", "64")
        self.assertEqual(picture.words.count("1.25"), 8)
        # the numbers of the axes come in addition
        self.assertEqual(picture.words.count("2"), 4 + 3)
        # q of 4 ranks twice; heads 0 and 1 are on 2 and on 3 ranks.
        self.assertEqual(sum(w.startswith("rank ") and w != "rank "
                             for w in picture.words), 4 + 4 + 5 + 4)

    def test_many_shapes(self):
        for ranks in (1, 2, 3, 7, 12, 13, 40, 128):
            for heads, kv_heads in ((1, 1), (14, 2), (64, 8), (128, 128)):
                self.plan("--ranks", str(ranks), "--heads", str(heads),
                          "--kv-heads", str(kv_heads), "--seq", "1003")
        for words in (["--work", "balanced"], ["--order", "zigzag"],
                      ["--seq", "0"], ["--seq", "3"], ["--dim-v", "64"],
                      ["--seq", "1048576", "--batch", "64"],
                      ["--work", "balanced", "--heads", "7", "--kv-heads", "1",
                       "--order", "zigzag"]):
            for direction in ("s2h", "h2s", "s2h_adj", "h2s_adj"):
                self.has(self.plan("--ranks", "6", *words, "--op",
                                   direction), direction, "Before", "After")

    def test_refusals(self):
        self.refused("129 ranks are more than", "plan", "--ranks", "129")
        self.refused("are not a multiple of its 2", "plan", "--heads", "7",
                     "--kv-heads", "2")
        path = self.file("p.json", run(INFO, "plan", "--json").stdout)
        self.draw("plan", path)
        self.refused("has a shape already: give the file or", "plan", path,
                     "--heads", "4")
        self.refused("not a plan", "plan", self.file("x.json", "{}"))
        self.refused("of this version writes", "plan",
                     self.file("x.json", '{"kind": "plan", "ranks": "4"}'))


class CommandLine(PlotCase):
    def test_help_and_version(self):
        self.assertEqual(run(PLOT, "--version").stdout.split(),
                         ["ulyx_plot", run(INFO, "--version").stdout.split()[1]])
        for words in ([], ["sweep"], ["scaling"], ["topology"], ["plan"]):
            done = run(PLOT, *words, "--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("usage: ulyx_plot", done.stdout)

    def test_what_must_be_given_has_no_brackets(self):
        rows = [line.split("\t") for line in
                run(PLOT, "--help=table").stdout.splitlines()]
        self.assertIn(["operand", "KIND"], rows)
        operands = {row[1]: row[2] for row in rows if row[0] == "command"}
        self.assertEqual(operands, {"sweep": "FILE", "scaling": "FILE",
                                    "topology": "[FILE]", "plan": "[FILE]"})
        for kind, operand in operands.items():
            usage = run(PLOT, kind, "--help").stdout.split("\n\n")[0]
            self.assertEqual(usage.split()[-1], operand)
            if operand == "FILE":
                self.refused("required: FILE", kind, code=6)

    def test_captions_have_machine_and_unit(self):
        path = self.file("old.csv", OLD_CSV)
        self.has(self.draw("sweep", path), "machine not recorded", "GB/s",
                 UNIT)
        self.has(self.draw("sweep", path, "--machine", "a desk"),
                 "Measured on: a desk")
        csv = run(INFO, "plan", "--nodes", "1-2", "--csv").stdout
        self.has(self.draw("scaling", self.file("s.csv", csv)), "GB/s",
                 "Machine: rates of the links that bound the time: assumed",
                 UNIT)
        self.has(self.draw("plan", "--info", INFO), "the same on every machine", "MiB")
        self.has(self.draw("topology", "--info", INFO), "Machine: ", UNIT)

    def test_usage(self):
        self.refused("--help says more", code=6)
        self.refused("invalid choice: 'poster'", "poster", code=6)
        self.refused("unrecognized arguments: --headz", "plan", "--headz", "3",
                     code=6)
        self.refused("expected one argument", "plan", "--heads", code=6)

    def test_output(self):
        path = self.file("old.csv", OLD_CSV)
        self.refused("expected a name that ends in .svg or .png", "sweep", path,
                     "-o", os.path.join(self.folder, "x.pdf"))
        self.refused("No such file", "sweep", path, "-o",
                     os.path.join(self.folder, "no", "x.svg"))
        out = os.path.join(self.folder, "x.png")
        if shutil.which("rsvg-convert"):
            done = run(PLOT, "sweep", path, "-o", out)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(out, "rb") as file:
                self.assertEqual(file.read(4), b"\x89PNG")
        environment = clean_environment()
        environment["PATH"] = self.folder
        done = subprocess.run([sys.executable, PLOT, "sweep", path, "-o", out],
                              env=environment, capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("PNG needs rsvg-convert", done.stderr)

    def test_text_of_others_is_escaped(self):
        path = self.file("old.csv", OLD_CSV.replace("llama3-8b", "<a&\"b>"))
        self.has(self.draw("sweep", path, "--note", "1 < 2 & 3"),
                 "Exchange of <a&\"b> over size", "1 < 2 & 3")


class Pieces(unittest.TestCase):
    def test_numbers(self):
        self.assertEqual([page.size_text(n) for n in (
            0, 1023, 1024, 1572864, 1 << 40)],
            ["0 B", "1023 B", "1 KiB", "1.5 MiB", "1 TiB"])
        self.assertEqual([page.time_text(n) for n in (0.5, 20, 1000, 2e6)],
                         ["0.5 µs", "20 µs", "1 ms", "2 s"])
        self.assertEqual([page.ranges(4, n) for n in (0, 1, 4)],
                         ["none", "4", "4–7"])

    def test_words_fit(self):
        lines = svg.wrap("aa bb " + "c" * 90 + " dd", 60, 12)
        self.assertEqual(lines[0], "aa bb")
        self.assertTrue(lines[1].endswith("…"))
        self.assertTrue(all(svg.text_width(line, 12) <= 60 for line in lines))

    def test_axes_hold_their_values(self):
        for values in ([3], [1, 2], [0.001, 7e6], [5, 5], [1e-3, 1.1e-3]):
            for axis in (chart.log10_axis(values), chart.linear_axis(values),
                         chart.log2_axis(values, str)):
                shares = [axis.share(v) for v in values]
                self.assertTrue(all(0 <= s <= 1 for s in shares), values)
        self.assertEqual([label for _, label in chart.linear_axis([7]).ticks],
                         ["0", "2", "4", "6", "8"])

    def test_ink_can_be_read(self):
        for fill in (*svg.COLOURS, svg.PAPER, svg.INK):
            light, dark = sorted((self.light(fill),
                                  self.light(svg.contrast(fill))), reverse=True)
            self.assertGreater((light + 0.05) / (dark + 0.05), 3.8, fill)

    @staticmethod
    def light(colour):
        parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        return sum(share * (p / 12.92 if p <= 0.04045 else
                            ((p + 0.055) / 1.055) ** 2.4)
                   for share, p in zip((0.2126, 0.7152, 0.0722), parts))


if __name__ == "__main__":
    unittest.main()
