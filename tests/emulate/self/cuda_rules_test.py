#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_cuda_rules.py finds each broken rule, and nothing else."""
import os
import subprocess
import sys
import tempfile

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                      "..", "..", "..", "scripts", "check_cuda_rules.py")

# file, text, what the check must print (None: it passes)
CASES = [
    ("src/collectives/device/a.cu", "void f();\n", None),
    ("src/collectives/device/a.cu", 'asm volatile("bar.sync 0;");\n', "assembly"),
    ("src/collectives/device/a.cu", "/* asm, __shared__ */ // <<<\n", None),
    ("src/collectives/device/a.h", '__asm__("");\n', "assembly"),
    ("src/attention/cuda/a.cuh", "__shared__ int x[4];\n", "ULI_SHARED"),
    ("src/attention/cuda/a.cu", "f<<<1, 2>>>(x);\n", "uli_kernel_launch"),
    ("src/attention/cuda/a.cu", "cudaLaunchKernel(f);\n", "uli_kernel_launch"),
    ("tests/a.cu", "__global__ void __cluster_dims__(2) f();\n", "clusters"),
    ("src/device/cuda/kernel.h", "extern __shared__ int x[];\n", None),
]

TWINS = [
    ("PTX_FN void ptx_a(void)\n", "ptx_a();\n", None),
    ("PTX_FN void ptx_a(void)\n", "ptx_b();\n", "ptx_a is not called"),
    ("#define X(n) ptx_ld_##n\n", "\n", None),
]


def run(files):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files:
            os.makedirs(os.path.dirname(os.path.join(root, path)),
                        exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        return subprocess.run([sys.executable, SCRIPT, root],
                              capture_output=True, text=True, check=False)


def judge(files, expected):
    result = run(files)
    good = result.returncode == (0 if expected is None else 1) and \
        (expected is None or expected in result.stdout)
    if not good:
        print(f"{files}: expected {expected}, got {result.stdout}"
              f"{result.stderr}")
    return good


def main():
    results = [judge([(path, text)], expected)
               for path, text, expected in CASES]
    results += [judge([("src/device/cuda/ptx.h", ptx),
                       ("tests/emulate/self/ptx_compile.cu", compiled)], expected)
                for ptx, compiled, expected in TWINS]
    results.append(judge([], "0 files"))
    print(f"{sum(results)} of {len(results)} as expected")
    return 0 if all(results) else 1


sys.exit(main())
