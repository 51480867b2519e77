#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The machine code of the portable kernels: each is compiled through
scripts/ptxas_gate.sh (no spills), a table of registers is printed, and where
scripts/cuda-tools.sh finds cuobjdump the loop over streaming rows is counted:
as many mma, ldmatrix and (forward) 16-byte cp.async as the tile asks for, no
narrower ones, no local memory, no more instructions than a limit.

mma_code_test.py NVCC SOURCE-DIR [FAMILY[:ARCHITECTURE]...]
                                      forward_mma64, backward_mma256:80 ...; all
"""
import os
import re
import subprocess
import sys
import tempfile
import time

ARCHITECTURES = ("80", "90a")
ALL = ("forward_mma64", "forward_mma96", "forward_mma128", "forward_mma192",
       "forward_mma256", "forward_plain", "backward_plain", "backward_mma64",
       "backward_mma128", "backward_mma192", "backward_mma256")
KEYS = 64
# The most instructions of the loop, masks and slow paths included, without and
# with softcap and ALiBi: somewhat more than nvcc 13.0 generates.
LIMIT = {"0": 2000, "1": 5500}
BACKWARD_STREAM = 32
# The same by the number of q's columns: queries stationary, and keys
# stationary.
BACKWARD_LIMIT = {64: ((550, 1300), (720, 1500)),
                  128: ((580, 1320), (720, 1500)),
                  192: ((640, 1380), (790, 1580)),
                  256: ((500, 880), (1320, 2830))}


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
    """Returns, for each kernel, [(address, instruction)]."""
    text = subprocess.run([dump, "-sass", cubin], check=True,
                          capture_output=True, text=True).stdout
    for part in text.split("Function : ")[1:]:
        name = part.split()[0]
        yield name, [(int(at, 16), what) for at, what in re.findall(
            r"/\*([0-9a-f]{4,6})\*/\s+(.*?);", part)]


def loops(code):
    """Returns (first, last) of each backward branch."""
    for at, what in code:
        target = re.search(r"\bBRA (?:.*, )?`?\(?(?:0x)([0-9a-f]+)", what)
        if target and int(target.group(1), 16) < at:
            yield int(target.group(1), 16), at


def count(code, pattern, first=0, last=1 << 30):
    return sum(first <= at <= last and re.search(pattern, what) is not None
               for at, what in code)


def product_loop(family, code):
    """Returns the smallest loop that has all products."""
    every = count(code, "HMMA")
    around = [(first, last) for first, last in loops(code)
              if count(code, "HMMA", first, last) == every]
    if not around:
        sys.exit(f"{family}: no loop around the products")
    return min(around, key=lambda loop: loop[1] - loop[0])


def hold_counts(family, name, wanted, ran):
    for pattern, expected in wanted.items():
        if ran(pattern) != expected:
            sys.exit(f"{family} {name}: {ran(pattern)} {pattern} in the loop,"
                     f" not {expected}")


def tell_loop(family, title, products, loads, instructions, limit):
    print(f"  {title:36} instructions {instructions:5}, an mma"
          f" {instructions / products:5.2f}, of ldmatrix"
          f" {loads / products:4.2f}", flush=True)
    if instructions > limit:
        sys.exit(f"{family}: more than {limit} instructions")


def check_forward(family, name, code):
    dim, vdim, tiles, warps = map(int, re.search(
        r"shapeILi(\d+)ELi(\d+)ELi(\d+)ELi(\d+)E", name).groups())
    transformed = re.search(r"ELb[01]ELb([01])E", name).group(1)
    first, last = product_loop(family, code)
    inner = [(a, b) for a, b in loops(code) if first < a and b < last
             and 0 < count(code, "HMMA", a, b) < count(code, "HMMA")]
    held, steps = dim <= 64, 4 if dim > 96 else dim // 16
    again = dim // 16 // steps - 1 if inner else 0

    def ran(pattern):
        return count(code, pattern, first, last) + again * sum(
            count(code, pattern, a, b) for a, b in inner)

    load = 2 * KEYS * -(-dim // 64) * 8 // (32 * warps)
    once = tiles * dim // 16 if held else 0  # q, loaded in the first iteration
    wanted = {
        "HMMA.16816.F32": tiles * KEYS // 8 * (dim // 16 + vdim // 16),
        r"LDSM.16.M88.4": dim // 16 * (KEYS // 16 + (0 if held else tiles))
        + once,
        r"LDSM.16.MT88.4": KEYS // 16 * vdim // 16,
        r"LDGSTS.E.*128": load,
        r"LDGSTS": load, "LDSM": 0, "(STL|LDL)": 0}
    wanted["LDSM"] = wanted["LDSM.16.M88.4"] + wanted["LDSM.16.MT88.4"]
    hold_counts(family, name, wanted, ran)
    tell_loop(family, f"dims {dim}/{vdim}"
              f"{' transformed' * int(transformed)}", wanted["HMMA.16816.F32"],
              wanted["LDSM"], ran("."), LIMIT[transformed])


def backward_counts(dim, vdim, columns, sums, products):
    """Returns mma, ldmatrix and transposed ldmatrix of a body of 16 rows and
    `columns` streaming rows: sums and products, by the columns of their
    tiles."""
    held = dim <= 64
    steps = sum(products) // 16
    once = (dim + vdim) // 16 if held else 0
    return (columns // 8 * steps + columns // 16 * sum(sums) // 8,
            steps * (columns // 16 + (0 if held else 1)) + once,
            columns // 16 * sum(sums) // 16)


def check_backward(family, name, code):
    dim, vdim, groups, keys, transformed = map(int, re.search(
        r"shapeILi(\d+)ELi(\d+)ELi(\d+)EELb[01]ELb([01])ELb([01])E",
        name).groups())
    columns = BACKWARD_STREAM // (1 if keys else groups)
    both = [dim, vdim]
    bodies = [backward_counts(dim, vdim, columns, [dim], both)]
    if keys and groups == 1:
        bodies = [backward_counts(dim, vdim, columns, both, both)]
    elif keys:  # the first group computes dk, the second dv
        bodies.append(backward_counts(dim, vdim, columns, [vdim], [dim]))
    first, last = product_loop(family, code)

    def ran(pattern):
        return count(code, pattern, first, last)

    mma, straight, across = map(sum, zip(*bodies))
    hold_counts(family, name, {
        "HMMA.16816.F32": mma, "LDSM.16.M88.4": straight,
        "LDSM.16.MT88.4": across, "LDSM": straight + across, "LDGSTS": 0,
        "(STL|LDL)": 0}, ran)
    tell_loop(family, f"dims {dim}/{vdim} {'keys' if keys else 'queries'}"
              f"{' transformed' * transformed}", mma, straight + across,
              ran("."), BACKWARD_LIMIT[dim][keys][transformed])


def main():
    nvcc, root, families = sys.argv[1], sys.argv[2], sys.argv[3:] or ALL
    dump = subprocess.run(
        ["sh", f"{root}/scripts/cuda-tools.sh", "cuobjdump", nvcc], check=True,
        capture_output=True, text=True).stdout.strip()
    if not dump:
        print("no cuobjdump (scripts/cuda-tools.sh): machine code is not read")
    with tempfile.TemporaryDirectory() as folder:
        for family in families:
            family, _, only = family.partition(":")
            for arch in (only,) if only else ARCHITECTURES:
                cubin = os.path.join(folder, family + arch)
                compile_family(nvcc, root, family, arch, cubin)
                if not dump:
                    continue
                for name, code in functions(dump, cubin):
                    if count(code, "(STL|LDL)"):
                        sys.exit(f"{name}: local memory")
                    if "attention_mma" in name:
                        check_forward(family, name, code)
                    if "backward_mma" in name:
                        check_backward(family, name, code)


main()
