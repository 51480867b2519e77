#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The machine code of the portable kernels: each is compiled through
scripts/ptxas_gate.sh (no spills), a table of registers is printed, and where
scripts/cuda-tools.sh finds cuobjdump the loop over keys is counted: as many mma, ldmatrix and
16-byte cp.async as the tile asks for, none less wide, no local memory.

mma_code_test.py NVCC SOURCE-DIR [FAMILY...]     forward_mma64 ...; all
"""
import os
import re
import subprocess
import sys
import tempfile
import time

ARCHITECTURES = ("80", "90a")
ALL = ("forward_mma64", "forward_mma96", "forward_mma128", "forward_mma192",
       "forward_mma256", "forward_plain", "backward_plain", "backward_mma")
KEYS = 64
# Instructions of the loop, masks and slow ways included; without and with
# softcap and ALiBi: some above what nvcc 13.0 gives.
LIMIT = {"0": 2000, "1": 5500}


def compile_family(nvcc, root, family, arch, cubin):
    command = ["sh", f"{root}/scripts/ptxas_gate.sh", "sh", "-c",
               '"$@" 2>&1 | tee "$0.log" >&2', cubin, nvcc, "-std=c++17",
               "-O3", f"-I{root}/src", f"-I{root}/include", "-Xptxas=-v",
               "-gencode", f"arch=compute_{arch},code=sm_{arch}", "-cubin",
               f"{root}/src/attention/cuda/portable/{family}.cu", "-o", cubin]
    begun = time.time()
    done = subprocess.run(command, check=False)
    if done.returncode or not os.path.getsize(cubin):
        sys.exit(f"{family}, sm_{arch}: does not pass the gate")
    with open(cubin + ".log", encoding="utf-8") as file:
        log = file.read()
    kernels = re.findall(
        r"Compiling entry function '(\S+)'.*?Used (\d+) registers", log, re.S)
    if not kernels:
        sys.exit(f"{family}, sm_{arch}: ptxas tells of no kernel")
    registers = ", ".join(count for _, count in kernels)
    print(f"{family:14} sm_{arch:4} registers {registers:24}"
          f" {time.time() - begun:6.1f} s", flush=True)


def functions(dump, cubin):
    """Of each kernel: [(address, instruction)]."""
    text = subprocess.run([dump, "-sass", cubin], check=True,
                          capture_output=True, text=True).stdout
    for part in text.split("Function : ")[1:]:
        name = part.split()[0]
        yield name, [(int(at, 16), what) for at, what in re.findall(
            r"/\*([0-9a-f]{4,6})\*/\s+(.*?);", part)]


def loops(code):
    """(first, last) of each backward branch."""
    for at, what in code:
        target = re.search(r"\bBRA (?:.*, )?`?\(?(?:0x)([0-9a-f]+)", what)
        if target and int(target.group(1), 16) < at:
            yield int(target.group(1), 16), at


def count(code, pattern, first=0, last=1 << 30):
    return sum(first <= at <= last and re.search(pattern, what) is not None
               for at, what in code)


def check_loop(family, name, code):
    dim, vdim, tiles, warps = map(int, re.search(
        r"shapeILi(\d+)ELi(\d+)ELi(\d+)ELi(\d+)E", name).groups())
    transformed = re.search(r"ELb[01]ELb([01])E", name).group(1)
    every = count(code, "HMMA")
    around = [(first, last) for first, last in loops(code)
              if count(code, "HMMA", first, last) == every]
    if not around:
        sys.exit(f"{family}: no loop around the products")
    first, last = min(around, key=lambda loop: loop[1] - loop[0])
    inner = [(a, b) for a, b in loops(code) if first < a and b < last
             and 0 < count(code, "HMMA", a, b) < every]
    held, steps = dim <= 64, 4 if dim > 96 else dim // 16
    again = dim // 16 // steps - 1 if inner else 0

    def ran(pattern):
        return count(code, pattern, first, last) + again * sum(
            count(code, pattern, a, b) for a, b in inner)

    load = 2 * KEYS * -(-dim // 64) * 8 // (32 * warps)
    once = tiles * dim // 16 if held else 0  # q, loaded in the first turn
    wanted = {
        "HMMA.16816.F32": tiles * KEYS // 8 * (dim // 16 + vdim // 16),
        r"LDSM.16.M88.4": dim // 16 * (KEYS // 16 + (0 if held else tiles))
        + once,
        r"LDSM.16.MT88.4": KEYS // 16 * vdim // 16,
        r"LDGSTS.E.*128": load,
        r"LDGSTS": load, "LDSM": 0, "(STL|LDL)": 0}
    wanted["LDSM"] = wanted["LDSM.16.M88.4"] + wanted["LDSM.16.MT88.4"]
    for pattern, expected in wanted.items():
        if ran(pattern) != expected:
            sys.exit(f"{family} {name}: {ran(pattern)} {pattern} in the loop,"
                     f" not {expected}")
    slots = ran(".") / wanted["HMMA.16816.F32"]
    print(f"  dims {dim}/{vdim}{' transformed' * int(transformed):12}"
          f" instructions {ran('.'):5}, an mma {slots:5.2f},"
          f" of ldmatrix {wanted['LDSM'] / wanted['HMMA.16816.F32']:4.2f}")
    if ran(".") > LIMIT[transformed]:
        sys.exit(f"{family}: more than {LIMIT[transformed]} instructions")


def main():
    nvcc, root, families = sys.argv[1], sys.argv[2], sys.argv[3:] or ALL
    dump = subprocess.run(
        ["sh", f"{root}/scripts/cuda-tools.sh", "cuobjdump", nvcc], check=True,
        capture_output=True, text=True).stdout.strip()
    if not dump:
        print("no cuobjdump (scripts/cuda-tools.sh): machine code is not read")
    with tempfile.TemporaryDirectory() as folder:
        for family in families:
            for arch in ARCHITECTURES:
                cubin = os.path.join(folder, family + arch)
                compile_family(nvcc, root, family, arch, cubin)
                if not dump:
                    continue
                for name, code in functions(dump, cubin):
                    if count(code, "(STL|LDL)"):
                        sys.exit(f"{name}: local memory")
                    if "attention_mma" in name:
                        check_loop(family, name, code)


main()
