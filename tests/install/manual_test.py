#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""manual_test.py SOURCE BUILD VERSION: manual pages and completion have all
that the programs, settings and headers have, and are read without a complaint;
every program tells the one version."""
import glob
import os
import re
import shutil
import subprocess
import sys
import unittest

SOURCE, BUILD, VERSION = sys.argv[1:4]
del sys.argv[1:4]
SHARE = os.path.join(BUILD, "share")
MAN = os.path.join(SHARE, "man")
PROGRAMS = sorted(
    os.path.join(BUILD, "bin", os.path.basename(path)[:-2])
    for path in glob.glob(os.path.join(MAN, "man1", "*.1")))


def run(*words, **options):
    return subprocess.run(words, capture_output=True, text=True, check=False,
                          **options)


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def page(name, section):
    return read(MAN, f"man{section}", f"{name}.{section}").replace("\\-", "-")


def own_pages():
    """Returns the pages that are not another name of a page."""
    return [path for path in sorted(glob.glob(os.path.join(MAN, "*", "*")))
            if not read(path).startswith(".so")]


class Version(unittest.TestCase):
    def test_every_program_prints_the_version(self):
        self.assertGreaterEqual(len(PROGRAMS), 3)
        for path in PROGRAMS:
            done = run(path, "--version")
            self.assertEqual(done.returncode, 0, path)
            self.assertRegex(done.stdout, rf"\A\w+ {re.escape(VERSION)}\n\Z")

    def test_changelog_has_it(self):
        heading = re.search(r"^## .*", read(SOURCE, "CHANGELOG.md"), re.M)
        self.assertTrue(heading[0].startswith("## " + VERSION), heading[0])


class Manual(unittest.TestCase):
    def test_every_option_is_there(self):
        for path in PROGRAMS:
            name = os.path.basename(path)
            text = page(name, 1)
            if text.startswith(".so"):
                continue
            rows = [line.split("\t") for line in
                    run(path, "--help=table").stdout.splitlines()]
            names = [word for kind, *words in rows if kind == "option"
                     for word in words[:2] if word]
            self.assertGreater(len(names), 9, name)
            for word in names:
                self.assertIn(f"\\fB{word}\\fR", text)
            shown = run(path, "--help").stdout
            for word in re.findall(r"^  (?:-\w, )?  *(--[\w-]+)", shown, re.M):
                self.assertIn(word, names)

    def test_every_setting_is_there(self):
        names = re.findall(r"X\((ULYX_\w+),",
                           read(SOURCE, "src", "base", "settings.h"))
        self.assertGreater(len(names), 20)
        text = page("ulyx-settings", 7)
        for name in names:
            self.assertIn(f"\\fB{name}\\fR", text)

    def test_every_word_has_its_text(self):
        for path in own_pages():
            self.assertNotIn("(null)", read(path), path)

    def test_every_function_has_a_page(self):
        names = read(SOURCE, "src", "ulyx.exports").split()
        self.assertGreater(len(names), 40)
        for name in names:
            text = page(name, 3)
            target = re.match(r"\.so man3/(\w+)\.3\n", text)
            text = page(target[1], 3) if target else text
            heading = rf"^\.SS \".*\b{name}\b"
            self.assertTrue(re.search(heading, text, re.M), name)
            self.assertRegex(text, rf"\b{name}\(")

    def test_no_type_is_without_a_name(self):
        """If a declaration stands below another declaration's text, its own
        text was not found."""
        for path in glob.glob(os.path.join(SOURCE, "include", "ulyx", "*.h")):
            text = re.sub(r"/\*.*?\*/", "", read(path), flags=re.S)
            base = os.path.basename(path)[:-2]
            for name in re.findall(r"^\} (ulyx_\w+);", text, re.M):
                self.assertRegex(page("ulyx_" + base, 3),
                                 rf"(?m)^\.SS \".*\b{name}\b")

    def test_lint(self):
        if not shutil.which("mandoc"):
            self.skipTest("no mandoc")
        done = run("mandoc", "-Tlint", "-W", "warning", *own_pages())
        self.assertEqual(done.stdout + done.stderr, "")

    def test_groff_reads_them(self):
        if not (shutil.which("man") and shutil.which("groff")):
            self.skipTest("no man and groff")
        for path in own_pages():
            done = run("man", "--warnings", "-l", path,
                       env=dict(os.environ, LC_ALL="C.UTF-8", MANWIDTH="80"))
            self.assertEqual(done.stderr, "", path)
            self.assertIn("SEE ALSO", done.stdout)

    def test_the_example_of_a_tuning_file_holds(self):
        done = run(os.path.join(BUILD, "bin", "ulyx_info"), "tuning",
                   os.path.join(SOURCE, "examples", "ulyx.tuning"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("rule nodes=2-32", page("ulyx-tuning", 5))


class Completion(unittest.TestCase):
    def complete(self, *words):
        """Returns what bash offers for the last word."""
        path = os.path.join(SHARE, "bash-completion", "completions", words[0])
        script = ('. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
                  f'_{words[0]}; printf "%s\\n" "${{COMPREPLY[@]}}"')
        done = run("bash", "-c", script, path, *words)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_bash(self):
        self.assertEqual(self.complete("ulyx_perf", "--minb"), ["--minbytes"])
        self.assertEqual(self.complete("ulyx_perf", "--minbytes", ""), [])
        self.assertEqual(self.complete("ulyx_info", "to"), ["topology"])
        self.assertIn("--kv-heads", self.complete("ulyx_info", "plan", "--"))
        self.assertIn("--ranks-per-node",
                      self.complete("ulyx_info", "plan", "--ra"))
        self.assertNotIn("--kv-heads",
                         self.complete("ulyx_info", "topology", "--"))
        self.assertEqual(self.complete("ulyx_info", "plan", "--order", "z"),
                         ["zigzag"])
        self.assertIn("README.md", self.complete("ulyx_info", "tuning", "REA"))
        self.assertEqual(self.complete("kernelcheck", "--vs", "fa"),
                         ["fa2", "fa3", "fa4"])

    def test_zsh(self):
        if not shutil.which("zsh"):
            self.skipTest("no zsh")
        for path in glob.glob(os.path.join(SHARE, "zsh", "*", "_*")):
            done = run("zsh", "-n", path)
            self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    os.chdir(SOURCE)
    unittest.main()
