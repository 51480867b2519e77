#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what every kernel needs to run under the emulator (docs/EMULATOR.md):
inline assembly is only in src/device/cuda/ptx.h and its generated part, shared
memory only by ULI_SHARED, launches only by uli_kernel_launch, and clusters are
not used. tests/emulate/self/ptx_compile.cu must call every function of ptx.h,
so that the emulator has a function of the same type.

check_cuda_rules.py [ROOT]
"""
import os
import re
import sys

PTX = "src/device/cuda/ptx.h"
GENERATED = "src/device/cuda/ptx_wgmma.h"
DEVICE = re.compile(r"/cuda/|collectives/device/")
KERNEL = "src/device/cuda/kernel.h"
COMPILE = "tests/emulate/self/ptx_compile.cu"
STAND_IN = "tests/emulate/include/"
FOLDERS = ("src", "tests", "perf", "examples")

# (pattern that must not appear, files in which it may, error)
RULES = [
    (r"\basm\b|\b__asm", {PTX, GENERATED}, "inline assembly: use ptx.h"),
    (r"\b__shared__\b", {KERNEL}, "__shared__: use ULI_SHARED"),
    (r"<<<", set(), "<<< >>>: use uli_kernel_launch"),
    (r"\bcu(da)?LaunchKernel|\bcudaLaunchCooperative", {KERNEL},
     "a launch: use uli_kernel_launch"),
    (r"\b__cluster_dims__|\bcooperative_groups\b", set(),
     "clusters and cooperative groups are not emulated"),
]


def without_comments_and_strings(text):
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, text,
                  flags=re.S)


def is_cuda(path):
    return path.endswith((".cu", ".cuh")) or \
        (DEVICE.search(path) and path.endswith(".h"))


def cuda_files(root):
    for top in FOLDERS:
        for folder, folders, names in os.walk(os.path.join(root, top)):
            folders.sort()
            for name in sorted(names):
                path = os.path.relpath(os.path.join(folder, name), root)
                if is_cuda(path) and not path.startswith(STAND_IN):
                    yield path


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return without_comments_and_strings(file.read())


def check_file(root, path):
    for number, line in enumerate(read(root, path).split("\n"), 1):
        for pattern, allowed, error in RULES:
            if path not in allowed and re.search(pattern, line):
                yield f"{path}:{number}: {error}"


def ptx_names(text):
    """The ptx_ names in the text, without beginnings that a macro completes."""
    return set(re.findall(r"\bptx_[a-z0-9_]*[a-z0-9]\b(?!##)", text))


def check_twins(root):
    if not os.path.exists(os.path.join(root, PTX)):
        return
    called = ptx_names(read(root, COMPILE))
    for name in sorted(ptx_names(read(root, PTX)) - called):
        yield f"{PTX}: {name} is not called by {COMPILE}"


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else \
        os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    files = list(cuda_files(root))
    errors = [e for path in files for e in check_file(root, path)]
    errors += list(check_twins(root))
    print("\n".join(errors + [f"{len(files)} files, {len(errors)} errors"]))
    return 1 if errors or not files else 0


sys.exit(main())
