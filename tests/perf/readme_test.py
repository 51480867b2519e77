#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""readme_test.py BIN CC CXX: README.md and docs/USING.md say what is true: the
program is the example and prints what it is said to print, commands run, C in
both and in examples/ compiles as C11 and as C++17, links of the users' pages lead
somewhere, and the table of ulyx_perf has the columns that it prints."""
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import unittest

COMPILER = sys.argv.pop(2)
CXX = sys.argv.pop(2)

from tool import (BIN, KEEPS, QUICK, ROOT, ToolCase, PERF, clean_environment, run)

AROUND = """#include <stdio.h>
#include <stdlib.h>
#include <ulyx/attention.h>
#include <ulyx/ulyx.h>
ulyx_status_t snippet(ulyx_comm_t *comm, ulyx_plan_t *plan, int rank,
    int nranks, const void *const *src, void *const *dst);
ulyx_status_t
snippet(ulyx_comm_t *comm, ulyx_plan_t *plan, int rank, int nranks,
    const void *const *src, void *const *dst)
{
    ulyx_status_t status = ULYX_SUCCESS;
    (void)comm, (void)plan, (void)rank, (void)nranks, (void)src, (void)dst;
%s
    return status;
}
"""


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def commands(text):
    """Returns the indented lines that start one of our programs."""
    return re.findall(
        r"^    ((?:mpirun .*)?build/bin/ulyx_\w+(?: .*)?)$", text, re.M)


class Documents(ToolCase):
    def test_program_is_the_example(self):
        self.assertEqual(blocks(read("README.md"), "c")[0],
                         read("examples", "first_exchange.c"))

    def test_program_prints_the_output_of_the_tutorial(self):
        example = os.path.join(BIN, "first_exchange")
        if not os.path.exists(example):
            self.skipTest("built without examples")
        done = run(example)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(blocks(read("README.md"), "text")[0], done.stdout)

    def test_columns_are_those_printed(self):
        out = run(PERF, *QUICK, "-g", "2", "--vs", "memcpy").stdout
        printed = next(line for line in out.splitlines() if "busbw" in line
                       and "#wrong" in line)
        shown = blocks(read("README.md"), "text")[1].splitlines()[0]
        self.assertTrue(shown.startswith(printed), f"{shown}\n{printed}")

    def test_commands_run(self):
        have_mpi = shutil.which("mpirun") is not None and \
            os.path.exists(PERF + "_mpi")
        found = commands(read("README.md")) + commands(read("docs", "USING.md"))
        self.assertGreater(len(found), 5)
        for command in found:
            if ("mpi" in command) and not have_mpi:
                continue
            words = shlex.split(command.replace("build/bin/", BIN + "/"))
            if words[0] == "mpirun":
                words[1:1] = ["--oversubscribe"]
                words[1:1] = ["--allow-run-as-root"] if os.geteuid() == 0 \
                    else []
            if "ulyx_perf" in command and "--dry-run" not in words:
                words += ["-n", "2"]
            done = run(*words, **KEEPS)
            self.assertEqual(done.returncode, 0,
                             f"{command}\n{done.stdout}{done.stderr}")

    def test_scripts_start(self):
        found = 0
        for folder, _, names in os.walk(os.path.join(ROOT, "perf")):
            for name in names:
                path = os.path.join(folder, name)
                if not name.endswith(".py") or \
                        "argparse" not in read(os.path.relpath(path, ROOT)):
                    continue
                found += 1
                done = run(sys.executable, "-B", path, "--help")
                self.assertEqual(done.returncode, 0, path + done.stderr)
        self.assertGreater(found, 3)

    def test_c_compiles_as_c_and_as_cxx(self):
        # Whole programs are compiled as they are; other code becomes the body
        # of a function.
        examples = sorted(glob.glob(os.path.join(ROOT, "examples", "*.c")))
        self.assertGreater(len(examples), 2)
        found = blocks(read("docs", "USING.md"), "c") + \
            blocks(read("README.md"), "c") + [read(path) for path in examples]
        self.assertGreater(len(found), 8)
        for block in found:
            program = block if block.startswith("/* SPDX") else AROUND % block
            for compiler, flags in ((COMPILER, ("-std=c11", "-x", "c")),
                                    (CXX, ("-std=c++17", "-x", "c++"))):
                done = subprocess.run(
                    [*shlex.split(compiler), *flags, "-Wall", "-Wextra",
                     "-Werror", "-Wno-unused", "-I",
                     os.path.join(ROOT, "include"), "-fsyntax-only", "-"],
                    input=program, text=True, capture_output=True,
                    check=False, env=clean_environment())
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_links_lead_somewhere(self):
        for path in ("README.md", "docs/USING.md", "docs/GPU.md",
                     "docs/PYTHON.md", "docs/TOPOLOGY.md"):
            folder = os.path.dirname(os.path.join(ROOT, path))
            for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", read(path)):
                self.assertTrue(os.path.exists(os.path.join(folder, link)),
                                f"{path}: {link}")


if __name__ == "__main__":
    unittest.main()
